//! Errors of a machine under proof.

use host::text::{chain, printable};
use lab::program::Program;
use model::PathError;

/// Longest text of a console in an error, characters.
const CONSOLE_LEN_MAX: usize = 1000;

/// A mistake in the file.
pub(crate) fn invalid(what: impl Into<String>, remedy: impl Into<String>) -> PathError {
    PathError::Invalid { what: what.into(), remedy: remedy.into() }
}

/// Failure of an arm's machine, with the last lines of its console.
pub(crate) fn failed(arm: &str, why: &str, program: &Program) -> PathError {
    PathError::at(arm, one_line(&format!("{why}; {}", program.last_lines())))
}

/// Failure of an arm's machine whose text has the last lines of its console already.
pub(crate) fn failed_by(arm: &str, error: &(dyn std::error::Error + 'static)) -> PathError {
    PathError::at(arm, one_line(&chain(error)))
}

/// Text of a guest in one line that is safe for a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.replace(":\n", ": ");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    printable(&lines.join(" | "), CONSOLE_LEN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_guest_is_one_short_line_without_escape_sequences() {
        let line = one_line(&format!(
            "its console:\nboot\r\n\u{1b}[31mpanic\u{7}\n\n{}",
            "x".repeat(5000)
        ));
        assert!(line.starts_with("its console: boot | [31mpanic | xxx"), "{line}");
        assert_eq!(line.chars().count(), CONSOLE_LEN_MAX);
    }
}
