//! How-to pages, whose files and commands tests run.

/// Experiment file at the beginning of a how-to page.
///
/// # Panics
/// If the page has none, or one of more than 15 lines.
#[track_caller]
pub fn page_file(page: &str) -> &str {
    let file = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = file.expect("the page begins with a file");
    assert!(file.lines().count() <= 15, "a file of at most 15 lines: {file}");
    file
}
