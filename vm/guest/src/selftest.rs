//! Runs the kernel's self-tests on the machine and parses their output.

use std::path::Path;
use std::time::Duration;

use super::error::GuestError;
use super::qemu::{Boot, GuestMachine};

/// One line `selftest NAME ok|FAILED key=value…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestLine {
    pub name: String,
    pub passed: bool,
    /// Measured values by name.
    pub figures: Vec<(String, u64)>,
}

impl TestLine {
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.figures.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// Parses all lines of a run. Errors: malformed line, or incomplete run.
pub fn parse(text: &str) -> Result<Vec<TestLine>, GuestError> {
    let mut lines = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("selftest ")) {
        let malformed = || none(format!("valid line of a test, but {line:?}"));
        let mut words = line.split_ascii_whitespace();
        let name = words.next().ok_or_else(malformed)?.to_owned();
        let verdict = words.next().ok_or_else(malformed)?;
        if name == "end" {
            let count: usize = verdict.parse().map_err(|_| malformed())?;
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
            .ok_or_else(malformed)?;
        lines.push(TestLine { name, passed: verdict == "ok", figures });
    }
    Err(none(format!("end of its selftest:\n{text}")))
}

fn none(wanted: String) -> GuestError {
    GuestError::Print { program: "the firmware", wanted }
}

/// Boots the image for its self-tests.
pub fn run(image: &Path) -> Result<Vec<TestLine>, GuestError> {
    let boot = Boot::firmware(image, "").with_words("wirepath.selftest");
    parse(&GuestMachine::run_to_end(&boot, Duration::from_secs(60))?)
}

/// Boots the image to overflow a stack on purpose. Returns its output.
pub fn overflow(image: &Path) -> Result<String, GuestError> {
    let boot = Boot::firmware(image, "").with_words("wirepath.selftest=overflow");
    GuestMachine::run_to_end(&boot, Duration::from_secs(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_and_an_incomplete_run_is_an_error() {
        let text = "noise\nselftest a ok x=1 y=22\nselftest b FAILED\nselftest end 2\n";
        let lines = parse(text).expect("it is complete");
        assert_eq!((lines.len(), lines[0].figure("y"), lines[1].passed), (2, Some(22), false));
        assert!(parse("selftest a ok\n").is_err());
        assert!(parse("selftest a ok\nselftest end 2\n").is_err());
        assert!(parse("selftest a ok x\nselftest end 1\n").is_err());
    }
}
