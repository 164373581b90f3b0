//! The kernel's own tests on the machine: what they print, read and judged.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::qemu::{Boot, Qemu};

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
pub fn parse(text: &str) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("selftest ")) {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().context("a line without a name")?.to_owned();
        let verdict = words.next().with_context(|| format!("{name} has no verdict"))?;
        if name == "end" {
            let count: usize = verdict.parse().context("the end names no count")?;
            if count != lines.len() {
                bail!("{count} tests ran, {} lines came", lines.len());
            }
            return Ok(lines);
        }
        let figures = words
            .map(|word| {
                let (key, value) = word.split_once('=').context("a figure without a value")?;
                Ok((key.to_owned(), value.parse().with_context(|| format!("figure {word}"))?))
            })
            .collect::<Result<_>>()?;
        lines.push(Line { name, passed: verdict == "ok", figures });
    }
    bail!("the selftest did not reach its end:\n{text}")
}

/// Boots the image for its selftest.
pub fn run(image: &Path) -> Result<Vec<Line>> {
    let boot = Boot { image, switches: "", more: "wirepath.selftest", qemu: &[] };
    parse(&Qemu::run_to_end(&boot, Duration::from_secs(60))?)
}

/// Boots the image to overflow a stack on purpose; returns what it printed.
pub fn overflow(image: &Path) -> Result<String> {
    let boot = Boot { image, switches: "", more: "wirepath.selftest=overflow", qemu: &[] };
    Qemu::run_to_end(&boot, Duration::from_secs(20))
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
