//! Tables of a page, and the counts and times in them.

use report::page::SummaryTable;
use report::units;

/// Table of a page.
///
/// - `names`: columns at the left that hold no number.
pub(crate) fn table(
    section: &str,
    caption: &str,
    columns: &[&str],
    names: usize,
    rows: Vec<Vec<String>>,
) -> SummaryTable {
    let columns = columns.iter().enumerate();
    SummaryTable {
        section: section.into(),
        caption: caption.into(),
        columns: columns.map(|(at, name)| ((*name).to_owned(), at >= names)).collect(),
        rows,
    }
}

pub(crate) fn count(count: u64) -> String {
    units::value(count as f64, "count")
}

/// A time with three digits.
pub(crate) fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} µs", ns / 1e3),
    }
}
