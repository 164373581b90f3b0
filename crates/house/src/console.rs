//! Output: results go to standard output, everything else to standard error.
//!
//! Text may contain names and messages of far ends, files and other programs. Their control characters,
//! which could drive the terminal or forge lines of a log, are replaced here, the only exit.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::path::Path;

use host::output_file;
use remote::Failure;
use report::text::{Style, visible, visible_colored, visible_json};
use serde::Serialize;

use crate::notes;

/// Writes a result as it is: a binary or generated document, never text of others. A closed pipe is not an error: the reader has stopped reading.
pub fn bytes(out: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(out).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => {
            other.map_err(|e| Failure::failed(format!("cannot write to standard output: {e}")))
        }
    }
}

/// Writes a result, ended by a line break. JSON is never changed for the terminal's character set.
pub fn text(out: &str) -> Result<(), Failure> {
    bytes(for_stdout(out).as_bytes())
}

/// Text for standard output, ended by a line break.
fn for_stdout(out: &str) -> String {
    let line_break = if out.ends_with('\n') { "" } else { "\n" };
    let safe = if out.starts_with(['{', '[']) {
        visible_json(out)
    } else {
        shown(&visible_colored(out), std::io::stdout().is_terminal()).into_owned().into()
    };
    format!("{safe}{line_break}")
}

pub fn json(document: &impl Serialize) -> Result<(), Failure> {
    text(&serde_json::to_string_pretty(document)?)
}

/// A count with its noun: `1 setting`, `3 settings`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Text with only ASCII characters if the terminal cannot show others.
fn shown(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal && !is_utf8() && !text.is_ascii() {
        text.chars().map(report::text::ascii).collect()
    } else {
        text.into()
    }
}

/// True if the locale uses UTF-8.
fn is_utf8() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
        .is_some_and(|v| v.to_lowercase().contains("utf-8") || v.to_lowercase().contains("utf8"))
}

/// Writes a result in place of the one before it on a terminal; elsewhere below it.
pub fn screen(out: &str) -> Result<(), Failure> {
    const CLEAR_AND_HOME: &str = "\x1b[2J\x1b[H";
    let clear = if std::io::stdout().is_terminal() { CLEAR_AND_HOME } else { "" };
    bytes(format!("{clear}{}", for_stdout(out)).as_bytes())
}

/// Writes a file that appears, or is replaced, when it is complete, and says so.
pub fn write_file(file: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    replace_file(file, contents)?;
    say(&format!("wrote {}", file.display()));
    Ok(())
}

/// The same without a message, for a file that others read at any time.
pub fn replace_file(file: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    Ok(output_file::write(file, contents.as_ref())?)
}

/// Writes a message to standard error, or to the live view while there is one. Errors are ignored:
/// the terminal may be gone.
pub fn say(line: &str) {
    say_over(0, line);
}

/// The same in place of the last `lines` lines of the terminal.
pub fn say_over(lines: usize, line: &str) {
    let line = visible(line);
    if notes::keep(&line) {
        return;
    }
    let up = if lines > 0 { format!("\x1b[{lines}F\x1b[J") } else { String::new() };
    let _ = writeln!(std::io::stderr(), "{up}{}", shown(&line, is_watched()));
}

/// Writes the reason why the command failed. Further lines are indented: one of a foreign text is no message of its own.
pub fn error(failure: &Failure) {
    say(&format!("error: {}", failure.text().replace('\n', "\n  ")));
}

/// True if standard error is a terminal.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Style of results: as wide as the terminal, plain in a pipe.
pub fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size()
        .filter(|_| terminal)
        .map_or(80, |(terminal_size::Width(columns), _)| usize::from(columns).clamp(60, 120));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    Style { width, color: terminal && !plain && !dumb, ascii: terminal && !is_utf8() }
}
