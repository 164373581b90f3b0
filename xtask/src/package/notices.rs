//! Licences of the third-party code in the program, for binary packages.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::target::Target;
use crate::{cargo, metadata};

/// Crates with third-party C code in a folder. (SQLite's is in the public domain.)
const VENDORED: &[(&str, &str)] = &[("libbpf-sys", "libbpf")];

/// Returns one section for each third-party crate: name, version, licence and licence texts.
pub(super) fn text(root: &Path, target: &Target) -> Result<String> {
    let linked = linked(root, target)?;
    let metadata = metadata(root, &["--locked", "--filter-platform", target.triple])?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut text = String::from("Wirepath contains code of these crates, each under its terms.\n");
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let [name, version, licence, source, manifest] =
            ["name", "version", "license", "repository", "manifest_path"]
                .map(|field| package[field].as_str().unwrap_or("unknown"));
        if !linked.contains(&format!("{name} {version}")) {
            continue;
        }
        let rule = "=".repeat(72);
        let _ = write!(text, "\n{rule}\n{name} {version}\n");
        let _ = writeln!(text, "Licence: {licence}\nSource: {source}");
        let folder = Path::new(manifest).parent().context("a manifest has no folder")?;
        let vendored = VENDORED.iter().filter(|(owner, _)| *owner == name);
        for part in std::iter::once("").chain(vendored.map(|(_, part)| *part)) {
            for file in licences(&folder.join(part))? {
                let words = fs::read_to_string(folder.join(part).join(&file))
                    .with_context(|| format!("reading {file} of {name}"))?;
                let _ = write!(text, "\n--- {file}\n\n{}\n", words.trim_end());
            }
        }
    }
    Ok(text)
}

/// `name version` of every crate that is linked into the program, without build scripts and tests.
fn linked(root: &Path, target: &Target) -> Result<Vec<String>> {
    let output = cargo(root)
        .args(["tree", "--locked", "--package", "wirepath", "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}", "--target", target.triple])
        .output()
        .context("cannot start cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(crates(&String::from_utf8_lossy(&output.stdout)))
}

fn crates(tree: &str) -> Vec<String> {
    let crates = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name} {}", rest.split_whitespace().next()?))
    });
    crates.collect()
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

    #[test]
    fn crates_are_parsed_from_cargo_tree() {
        let tree = "wirepath v0.1.0 (/src/crates/cli)\nanyhow v1.0.9\nnix v0.3.0 (proc-macro)\n\n";
        assert_eq!(crates(tree), ["wirepath 0.1.0", "anyhow 1.0.9", "nix 0.3.0"]);
    }

    #[test]
    fn licences_cover_linked_crates_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = text(root, Target::parse(&[]).unwrap()).unwrap();
        assert!(text.contains("\nclap 4") && text.contains("\nrusqlite 0."));
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
