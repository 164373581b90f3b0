//! Fuzz oracle: properties that hold for results from untrusted sources.

use crate::store::measurement;
use crate::text::{Detail, Style, ladder};
use crate::{csv, html, json};

/// Only inputs whose length is a multiple of this get a page, which takes a hundred times as long as
/// the rest.
const PAGE_BYTES: usize = 64;

/// A document is refused, or it survives a round trip and can be shown.
pub fn result(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let all = json::all_from_json(text);
    let Ok(outcome) = json::from_json(text) else { return };
    assert_eq!(all.map_or(0, |all| all.len()), 1, "one document is a list of one");
    let written = json::to_json(&outcome);
    let read = json::from_json(&written).expect("to_json writes what from_json reads");
    assert_eq!(json::to_json(&read), written);
    if bytes.len().is_multiple_of(PAGE_BYTES) {
        let page = html::page(&outcome);
        assert!(page.ends_with("</html>\n"));
        assert!(!page.contains("<script"));
    }
    assert!(!csv::to_csv(&outcome).is_empty());
    for detail in [Detail::Brief, Detail::Full] {
        let shown = ladder(&outcome, Style::default(), detail);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
}

/// A document of another tool is refused, or gives an outcome like any other.
pub fn foreign(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(Some(outcome)) = crate::foreign::from_json(text, "2026-12-01T12:00:00Z") else { return };
    assert!(outcome.arms.iter().all(|arm| arm.metrics.values().all(|of| of.verdict.is_none())));
    let names: std::collections::BTreeSet<&str> =
        outcome.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names.len(), outcome.arms.len(), "names of arms are unique");
    result(json::to_json(&outcome).as_bytes());
}

/// A row of the store and a histogram behind its line are refused, or give figures and are written as they
/// were read.
pub fn stored_row(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (row, packed) = bytes.split_at(end);
    let Ok(row) = std::str::from_utf8(row) else { return };
    let Ok(mut measurement) = measurement::from_json(row) else { return };
    if let Ok(histogram) = measurement::histogram(packed.strip_prefix(b"\n").unwrap_or(packed)) {
        measurement.segments.insert("rtt".into(), histogram);
    }
    let _ = measurement.metrics();
    let lost = measurement.lost_share();
    let curves = measurement.segments.values().map(|of| model::distribution(of, lost));
    curves.for_each(drop);
    let Ok(line) = measurement::to_line(&measurement) else { return };
    let again = measurement::from_line(&line).expect("to_line writes what from_line reads");
    assert_eq!(again.segments, measurement.segments);
    assert_eq!(again.deliveries, measurement.deliveries);
    assert_eq!(measurement::to_line(&again).expect("it was written before"), line);
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_stored_rows_holds() {
        testkit::corpus::replay("stored_row", super::stored_row);
    }

    #[test]
    fn corpus_of_documents_of_other_tools_holds() {
        testkit::corpus::replay("foreign_result", super::foreign);
    }

    #[test]
    fn corpus_of_results_holds() {
        testkit::corpus::replay("result", |bytes| {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(super::PAGE_BYTES), b' ');
            super::result(&bytes);
        });
    }
}
