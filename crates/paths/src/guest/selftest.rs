//! The kernel's own tests on the machine: what they print, read and judged.

use std::path::Path;
use std::time::Duration;

use super::error::GuestError;
use super::qemu::{Boot, Machine};

/// One line `selftest NAME ok|FAILED key=value…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Which test.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What it measured.
    pub figures: Vec<(String, u64)>,
}

impl Line {
    /// A figure by name.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.figures.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// Reads all lines of a run; fails when the run did not reach its end.
pub fn parse(text: &str) -> Result<Vec<Line>, GuestError> {
    let mut lines = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("selftest ")) {
        let bent = || none(format!("line of a test that can be read, but {line:?}"));
        let mut words = line.split_ascii_whitespace();
        let name = words.next().ok_or_else(bent)?.to_owned();
        let verdict = words.next().ok_or_else(bent)?;
        if name == "end" {
            let count: usize = verdict.parse().map_err(|_| bent())?;
            if count != lines.len() {
                return Err(none(format!("line for each of {count} tests, but {}", lines.len())));
            }
            return Ok(lines);
        }
        let figures = words
            .map(|word| {
                let (key, value) = word.split_once('=')?;
                Some((key.to_owned(), value.parse().ok()?))
            })
            .collect::<Option<_>>()
            .ok_or_else(bent)?;
        lines.push(Line { name, passed: verdict == "ok", figures });
    }
    Err(none(format!("end of its selftest:\n{text}")))
}

fn none(wanted: String) -> GuestError {
    GuestError::Print { program: "the firmware", wanted }
}

/// Boots the image for its selftest.
pub fn run(image: &Path) -> Result<Vec<Line>, GuestError> {
    let boot = Boot::firmware(image, "").with_words("wirepath.selftest");
    parse(&Machine::run_to_end(&boot, Duration::from_secs(60))?)
}

/// Boots the image to overflow a stack on purpose; returns what it printed.
pub fn overflow(image: &Path) -> Result<String, GuestError> {
    let boot = Boot::firmware(image, "").with_words("wirepath.selftest=overflow");
    Machine::run_to_end(&boot, Duration::from_secs(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_an_unfinished_run_is_an_error() {
        let text = "noise\nselftest a ok x=1 y=22\nselftest b FAILED\nselftest end 2\n";
        let lines = parse(text).expect("it is whole");
        assert_eq!((lines.len(), lines[0].figure("y"), lines[1].passed), (2, Some(22), false));
        assert!(parse("selftest a ok\n").is_err());
        assert!(parse("selftest a ok\nselftest end 2\n").is_err());
        assert!(parse("selftest a ok x\nselftest end 1\n").is_err());
    }
}
