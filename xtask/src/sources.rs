//! Tracked sources: the package of each, and where its tests begin.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders whose code only tests, measures or demonstrates other code.
const TEST_FOLDERS: [&str; 6] = ["tests", "benches", "examples", "testkit", "fuzz", "models"];

/// A tracked source file.
pub(crate) struct Source {
    /// Relative to the root of the workspace.
    pub(crate) file: PathBuf,
    /// Folder of the package, or the top folder of a file without one.
    pub(crate) package: String,
    pub(crate) text: String,
}

impl Source {
    /// Number of lines before the tests of this file; 0 if the file is a test.
    pub(crate) fn product_line_count(&self) -> usize {
        let mut folders = self.file.components().filter_map(|part| part.as_os_str().to_str());
        if folders.any(|part| TEST_FOLDERS.contains(&part)) || self.file.ends_with("tests.rs") {
            return 0;
        }
        let lines: Vec<&str> = self.text.lines().collect();
        lines
            .windows(2)
            .position(|pair| {
                pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{')
            })
            .unwrap_or(lines.len())
    }
}

/// Reads the files with one of `extensions`, in the order of their names; scripts of CI apart.
///
/// - `files`: the tracked ones.
pub(crate) fn read(
    root: &Path,
    files: &BTreeSet<PathBuf>,
    extensions: &[&str],
) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
            && !file.starts_with(".ci")
    }) {
        let text = fs::read_to_string(root.join(file))
            .with_context(|| format!("reading {}", file.display()))?;
        sources.push(Source { file: file.clone(), package: package(file, files), text });
    }
    Ok(sources)
}

/// Returns the nearest folder above `file` that has a `Cargo.toml`, or its top folder.
fn package(file: &Path, files: &BTreeSet<PathBuf>) -> String {
    let mut folders = file.ancestors().skip(1).filter(|folder| *folder != Path::new(""));
    let nearest = folders.find(|folder| files.contains(&folder.join("Cargo.toml")));
    let folder = nearest.unwrap_or(file.iter().next().map_or(file, Path::new));
    folder.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product_line_count(file: &str, text: &str) -> usize {
        let source = Source { file: file.into(), package: String::new(), text: text.into() };
        source.product_line_count()
    }

    #[test]
    fn tests_of_a_file_are_no_product() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(product_line_count("crates/a/src/lib.rs", text), 2);
        assert_eq!(product_line_count("crates/a/tests/a.rs", text), 0);
        assert_eq!(product_line_count("crates/a/src/b/tests.rs", text), 0);
        assert_eq!(product_line_count("models/loom.rs", text), 0);
    }

    #[test]
    fn a_module_of_tests_in_a_file_of_its_own_hides_no_product() {
        let text = "#[cfg(test)]\nmod tests;\nmod a;\n    #[cfg(test)]\n    mod b {\n    }\n";
        assert_eq!(product_line_count("crates/a/src/lib.rs", text), 6);
    }

    #[test]
    fn a_file_belongs_to_the_nearest_package() {
        let files = ["crates/a/Cargo.toml", "crates/a/b/Cargo.toml"].map(PathBuf::from).into();
        for (file, expected) in [
            ("crates/a/src/lib.rs", "crates/a"),
            ("crates/a/b/src/x/y.rs", "crates/a/b"),
            ("bpf/x.bpf.c", "bpf"),
        ] {
            assert_eq!(package(Path::new(file), &files), expected, "{file}");
        }
    }
}
