//! Licences of the third-party code in the program and in the images of guests, for releases.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::crates::Crate;

/// Crates with third-party C code in a folder. (SQLite's is in the public domain.)
const VENDORED: &[(&str, &str)] = &[("libbpf-sys", "libbpf")];

/// Returns one section for each third-party crate: name, version, licence and licence texts.
pub(super) fn text(crates: &[Crate]) -> Result<String> {
    let mut text = String::from("Wirepath contains code of these crates, each under its terms.\n");
    for one in crates {
        let rule = "=".repeat(72);
        let _ = write!(text, "\n{rule}\n{}\n", one.key());
        let _ = writeln!(text, "Licence: {}\nSource: {}", one.licence, one.source);
        let vendored = VENDORED.iter().filter(|(owner, _)| *owner == one.name);
        for part in std::iter::once("").chain(vendored.map(|(_, part)| *part)) {
            for file in licences(&one.folder.join(part))? {
                let words = fs::read_to_string(one.folder.join(part).join(&file))
                    .with_context(|| format!("reading {file} of {}", one.name))?;
                let _ = write!(text, "\n--- {file}\n\n{}\n", words.trim_end());
            }
        }
    }
    Ok(text)
}

/// Names of licence files in a folder, sorted.
fn licences(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        let words = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];
        if entry.path().is_file() && words.iter().any(|word| upper.starts_with(word)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::crates;
    use crate::target::Target;

    #[test]
    fn licences_cover_linked_crates_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let triple = Target::parse(&[]).unwrap().triple;
        let text = text(&crates::third_party(root, triple).unwrap()).unwrap();
        assert!(text.contains("\nclap 4") && text.contains("\nrusqlite 0."));
        assert!(text.contains("\nsmoltcp 0."), "of the images of guests");
        assert!(text.contains("--- LICENSE.BSD-2-Clause"), "libbpf's own");
        for test_only in ["\nproptest ", "\ncriterion ", "\nloom ", "\nserde_derive "] {
            assert!(!text.contains(test_only), "{test_only:?}");
        }
    }

    #[test]
    fn licence_files_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "license.md", "COPYING", "lib.rs", "README.md"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(licences(folder.path()).unwrap(), ["COPYING", "LICENSE-MIT", "license.md"]);
    }
}
