//! What the terminal shows.

mod common;

use wirepath_report::text::{Style, ladder, list};

#[test]
fn show() {
    println!("{}", ladder(&common::ping(), Style::default()));
    println!("{}", ladder(&common::flood(), Style { width: 100, color: false, ascii: true }));
}
