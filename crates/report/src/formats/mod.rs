//! Results in the forms that CI systems and other tools read, one exporter a file.
//!
//! Most print a [`crate::page::Page`]: they show judged metrics, with the verdicts of every other form. `hlog` holds whole
//! histograms, and `benchfmt` every trial.

mod action_benchmark;
mod base_unit;
mod bencher;
mod benchfmt;
mod github;
mod hlog;
mod junit;
mod markdown;
mod openmetrics;

pub use action_benchmark::{action_benchmark_left_out, to_action_benchmark};
pub use bencher::to_bencher;
pub use benchfmt::to_benchfmt;
pub use github::to_github;
pub use hlog::{HlogError, to_hlog};
pub use junit::to_junit;
pub use markdown::to_markdown;
pub use openmetrics::{result_metrics, to_openmetrics};

use crate::page::Row;

/// `0.146× [0.141, 0.151], p 0.002 of the baseline`: what stands beside a verdict.
fn evidence(row: &Row) -> String {
    let ratio = row.ratio.as_ref().map(|ratio| match &row.interval {
        Some(interval) => format!("{ratio} {interval}"),
        None => ratio.clone(),
    });
    let p = row.p.as_ref().map(|p| format!("p {p}"));
    let parts = [ratio, p].into_iter().flatten().collect::<Vec<_>>().join(", ");
    match row.figures.ratio {
        _ if parts.is_empty() => parts,
        Some(_) => format!("{parts} of the baseline"),
        None => format!("{parts} against the baseline"),
    }
}

/// Text in one line, without characters that drive a terminal.
pub(crate) fn one_line(text: &str) -> String {
    crate::text::visible(text).replace(['\n', '\t'], " ")
}
