//! All that is printed: results to standard output, the rest to standard error.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use report::text::Style;

use crate::end::Failure;
use crate::live;

/// Writes a result. A closed pipe is no failure: whoever read it has had enough.
pub(crate) fn bytes(out: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(out).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => {
            other.map_err(|e| Failure::failed(format!("cannot write to standard output: {e}")))
        }
    }
}

/// Writes a result that ends with a line break. A document of JSON is for programs, and stays as
/// it is.
pub(crate) fn text(out: &str) -> Result<(), Failure> {
    let line_break = if out.ends_with('\n') { "" } else { "\n" };
    let is_for_people = !out.starts_with(['{', '[']) && std::io::stdout().is_terminal();
    bytes(format!("{}{line_break}", shown(out, is_for_people)).as_bytes())
}

/// Text for a terminal, or something else, as that can show it.
fn shown(text: &str, is_terminal: bool) -> Cow<'_, str> {
    match is_terminal && !is_utf8() && !text.is_ascii() {
        true => text.chars().map(report::text::ascii).collect(),
        false => text.into(),
    }
}

/// Whether the locale's characters are those of UTF-8.
fn is_utf8() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
        .is_some_and(|v| v.to_lowercase().contains("utf-8") || v.to_lowercase().contains("utf8"))
}

/// Writes a result in place of the one before it, on a terminal; below it elsewhere.
pub(crate) fn screen(out: &str) -> Result<(), Failure> {
    const CLEAR_AND_HOME: &str = "\x1b[2J\x1b[H";
    let clear = if std::io::stdout().is_terminal() { CLEAR_AND_HOME } else { "" };
    text(&format!("{clear}{out}"))
}

/// Says something that is no result; while there is a live view, there. That nobody hears it any
/// more, the terminal being gone, is no failure.
pub(crate) fn say(line: &str) {
    if !live::keep(line) {
        let _ = writeln!(std::io::stderr(), "{}", shown(line, is_watched()));
    }
}

/// Says why the command failed.
pub(crate) fn error(failure: &Failure) {
    say(&format!("error: {}", failure.text()));
}

/// Whether somebody watches standard error.
pub(crate) fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// How to write results: as wide as the terminal, plain in a pipe.
pub(crate) fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size()
        .filter(|_| terminal)
        .map_or(80, |(terminal_size::Width(columns), _)| usize::from(columns).clamp(60, 120));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    Style { width, color: terminal && !plain && !dumb, ascii: terminal && !is_utf8() }
}
