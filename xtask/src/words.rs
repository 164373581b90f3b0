//! Wording rules for comments and documents.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tracked_files;

/// Pronouns that hide the subject of a sentence. Split, so that this file passes.
const PRONOUNS: [&str; 5] = [
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("who", "ever"),
    concat!("whom", "ever"),
];

/// Noun clauses that may not open a doc comment.
const OPENINGS: [&str; 3] = ["What", "Who", "Whether"];

/// Checks all sources, scripts and documents; prints every violation before it fails.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut count = 0;
    for file in tracked_files(root)?.iter().filter(|file| is_checked(file)) {
        let text = fs::read_to_string(root.join(file))
            .with_context(|| format!("reading {}", file.display()))?;
        for (line, rule) in violations(&text) {
            println!("{}:{line}: {rule}", file.display());
            count += 1;
        }
    }
    if count > 0 {
        bail!("{count} violation(s); name the subject of each sentence");
    }
    println!("words: no violations");
    Ok(())
}

/// The change log records history and is not rewritten.
fn is_checked(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "c" | "h" | "sh"))
        || extension == Some("md") && file != Path::new("CHANGELOG.md")
        || file == Path::new("run")
        || file == Path::new("test")
}

/// Returns the violations in a text, each with its line, counted from 1, and the rule.
fn violations(text: &str) -> Vec<(usize, String)> {
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric());
        for word in words.map(str::to_lowercase).filter(|word| PRONOUNS.contains(&word.as_str())) {
            violations.push((index + 1, format!("{word:?}: name the subject instead")));
        }
        let comment = line.trim_start();
        let comment = comment.strip_prefix("/// ").or_else(|| comment.strip_prefix("//! "));
        let opening = comment.and_then(|comment| comment.split(' ').next());
        if let Some(opening) = opening.filter(|word| OPENINGS.contains(word)) {
            let rule = format!("a doc comment opens with {opening:?}: begin with a noun or verb");
            violations.push((index + 1, rule));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        violations(text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn pronouns_are_found_in_any_case_and_in_names() {
        let word = PRONOUNS[0];
        let text = format!("{}.\nfn {word}_waits() {{}}\nanother\n", word.to_uppercase());
        assert_eq!(lines(&text), [1, 2]);
    }

    #[test]
    fn openings_are_found_in_doc_comments_only() {
        let text = ["/// ", "    //! ", "// ", "///  a "].map(|start| format!("{start}What it is"));
        assert_eq!(lines(&text.join("\n")), [1, 2]);
        assert!(lines("/// Whatever\n/// A Whether\n").is_empty());
    }

    #[test]
    fn sources_scripts_and_documents_are_checked() {
        for file in ["a/b.rs", "x.c", "x.h", "docs/a.md", "run", "test", "x.sh"] {
            assert!(is_checked(Path::new(file)), "{file}");
        }
        for file in ["CHANGELOG.md", "a.json", "fuzz/corpus/run", "Cargo.toml"] {
            assert!(!is_checked(Path::new(file)), "{file}");
        }
    }
}
