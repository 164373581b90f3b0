//! One self-contained page.

use model::Outcome;

/// The whole experiment as one HTML file: no network, no script.
pub fn page(outcome: &Outcome) -> String {
    crate::words::headlines(outcome).join("\n").replace('&', "&amp;").replace('<', "&lt;")
}
