//! Fuzz oracle: properties that hold for results from untrusted sources.

use crate::text::{Style, ladder};
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
    let shown = ladder(&outcome, Style::default());
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_results_holds() {
        let inputs = crate::inputs::of("result");
        assert!(inputs.len() >= 5, "{} inputs", inputs.len());
        for mut bytes in inputs {
            bytes.resize(bytes.len().next_multiple_of(super::PAGE_BYTES), b' ');
            super::result(&bytes);
        }
    }
}
