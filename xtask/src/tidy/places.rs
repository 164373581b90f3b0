//! Places that the guides for contributors name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Finding, Rule, WHOLE_TREE};

const GUIDES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Folders that builds and runs write, which are not tracked.
const OUTPUTS: [&str; 2] = ["target", "out"];

/// Endings by which a word without a slash is the name of a file.
const ENDINGS: [&str; 9] = [".rs", ".c", ".h", ".md", ".toml", ".lock", ".tsv", ".sh", ".json"];

/// Parts of a path that stand for any name.
const PLACEHOLDERS: [&str; 3] = ["PATH", "NAME", "CRATE"];

/// Returns each place in a guide that is not tracked.
///
/// - `files`: the tracked ones.
pub(super) fn missing(root: &Path, files: &BTreeSet<PathBuf>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for guide in GUIDES {
        let text =
            fs::read_to_string(root.join(guide)).with_context(|| format!("reading {guide}"))?;
        for (line, text) in missing_in(&text, files) {
            let package = WHOLE_TREE.to_owned();
            findings.push(Finding {
                rule: Rule::MissingPlace,
                package,
                file: guide.into(),
                line,
                text,
            });
        }
    }
    Ok(findings)
}

fn missing_in(text: &str, files: &BTreeSet<PathBuf>) -> Vec<(usize, String)> {
    let mut missing = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        // Each second part is between backticks.
        for quoted in line.split('`').skip(1).step_by(2).filter(|_| !is_code) {
            for word in quoted.split_whitespace().filter(|word| is_place(word)) {
                let places = braces_expanded(word.trim_end_matches('…'));
                missing.extend(
                    places
                        .into_iter()
                        .filter(|place| !exists(place, files))
                        .map(|place| (index + 1, place)),
                );
            }
        }
    }
    missing
}

/// The word looks like the path of a file or folder of the tree.
fn is_place(word: &str) -> bool {
    let first = word.split('/').next().unwrap_or(word);
    let is_path = word.contains('/') || ENDINGS.iter().any(|ending| word.ends_with(ending));
    is_path
        && word.chars().all(|c| c.is_alphanumeric() || "/._-{},".contains(c))
        && word.chars().any(|c| c.is_ascii_lowercase())
        && !word.starts_with('/')
        && !OUTPUTS.contains(&first)
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn braces_expanded(word: &str) -> Vec<String> {
    let (Some(open), Some(close)) = (word.find('{'), word.find('}')) else {
        return vec![word.to_owned()];
    };
    let choices = word[open + 1..close].split(',');
    choices.map(|choice| format!("{}{choice}{}", &word[..open], &word[close + 1..])).collect()
}

/// A tracked file or folder ends with the place.
fn exists(place: &str, files: &BTreeSet<PathBuf>) -> bool {
    let place = place.trim_start_matches("./").trim_end_matches('/');
    let parts: Vec<&str> = place.split('/').collect();
    files.iter().any(|file| {
        let names: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
        names
            .windows(parts.len())
            .any(|window| window.iter().zip(&parts).all(|(name, part)| is_same(name, part)))
    })
}

fn is_same(name: &str, part: &str) -> bool {
    let placeholder = PLACEHOLDERS.iter().find_map(|word| part.strip_prefix(word));
    name == part || placeholder.is_some_and(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<(usize, String)> {
        let files = ["crates/sys/src/umem.rs", "crates/io/src/udp.rs", "bpf/x.bpf.c", ".ci/run"];
        missing_in(text, &files.map(PathBuf::from).into())
    }

    #[test]
    fn places_that_are_tracked_are_accepted() {
        let text = "`crates/sys/src/umem.rs` `umem.rs` `crates/{sys,io}/src/` `src/udp.rs` `bpf/NAME.bpf.c`\n\
                    `.ci/run [NAME]…` `/run/x.rs` `out/report.html` `Socket::tx_reap` `a/b` is code:\n```\n`x.rs`\n```";
        assert_eq!(missing(text), [(2, "a/b".to_owned())]);
    }

    #[test]
    fn a_place_that_is_not_tracked_is_found_with_its_line() {
        let text = "| a |\n| `crates/{sys,lab}/src/umem.rs`, `gone.rs` |";
        let expected = [(2, "crates/lab/src/umem.rs".to_owned()), (2, "gone.rs".to_owned())];
        assert_eq!(missing(text), expected);
    }
}
