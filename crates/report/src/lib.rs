//! Results for people and programs: text, JSON, CSV, HTML, metrics, and the store; results of other tools.
//!
//! [`page`] computes what is shown of a [`model::Outcome`]; `text` and `html` lay it out. Nothing here
//! writes to a terminal or file, except the store.

pub mod answer;
pub mod atlas;
pub mod csv;
pub mod export;
pub mod forecast;
pub mod foreign;
pub mod formats;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hash;
pub mod html;
pub mod json;
pub mod live;
pub mod metrics;
pub mod page;
pub mod screen;
pub mod store;
pub mod text;
pub mod units;
mod wording;

pub use page::quoted;
pub use units::plural;
pub use wording::verdict as verdict_text;

/// The reference of the JSON form, `docs/reference/results.md`.
pub const RESULTS_REFERENCE: &str = include_str!("../../../docs/reference/results.md");
