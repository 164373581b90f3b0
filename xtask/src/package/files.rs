//! The list of installed files, and their copy into a folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::copy;
use crate::release::Release;
use crate::{entries, metadata, run};

/// One line of `assets` in the manifest: a file, or all of a folder with one ending.
#[derive(Debug, PartialEq)]
struct Asset {
    source: String,
    /// Folder in the root of the system.
    folder: String,
    mode: u32,
}

/// Copies the files of a release into `into`, which becomes the root of a system.
///
/// - `is_wanted`: by folder of the system.
pub(super) fn install(
    root: &Path,
    release: &Release,
    into: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    let assets = parse(&metadata(root, &["--no-deps"])?)?;
    for asset in assets.iter().filter(|asset| is_wanted(&asset.folder)) {
        // Where `cargo deb` looks for them, too.
        let source = match asset.source.strip_prefix("target/release/") {
            Some(built) => release.folder().join(built),
            None => root.join("crates/cli").join(&asset.source),
        };
        for file in matches(&source)? {
            let name = file.file_name().context("an asset without a name")?;
            let to = into.join(&asset.folder).join(name);
            copy(&file, &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(asset.mode))
                .with_context(|| format!("setting the mode of {}", to.display()))?;
        }
    }
    run(release.target.tool("strip").arg(into.join("usr/bin/wirepath")))
}

/// Version of the program.
pub(super) fn version(root: &Path) -> Result<String> {
    field(root, "version")
}

/// Text of a field of the program's manifest.
pub(super) fn field(root: &Path, name: &str) -> Result<String> {
    let text = package(&metadata(root, &["--no-deps"])?)?[name].as_str().map(str::to_owned);
    text.with_context(|| format!("no {name}"))
}

fn package(metadata: &Value) -> Result<&Value> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    packages.iter().find(|package| package["name"] == "wirepath").context("no package wirepath")
}

fn parse(metadata: &Value) -> Result<Vec<Asset>> {
    let assets = &package(metadata)?["metadata"]["deb"]["assets"];
    let assets = assets.as_array().context("crates/cli/Cargo.toml lists no assets")?;
    let parsed =
        assets.iter().map(|line| asset(line).with_context(|| format!("not an asset: {line}")));
    parsed.collect()
}

fn asset(line: &Value) -> Option<Asset> {
    let mode = u32::from_str_radix(line[2].as_str()?, 8).ok()?;
    Some(Asset { source: line[0].as_str()?.to_owned(), folder: line[1].as_str()?.to_owned(), mode })
}

/// Files of `FOLDER/*ENDING`, sorted, or the one of a name without `*`.
fn matches(pattern: &Path) -> Result<Vec<PathBuf>> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some(ending) = name.strip_prefix('*') else {
        return Ok(vec![pattern.to_path_buf()]);
    };
    let mut files = entries(pattern.parent().context("a pattern without a folder")?)?;
    files.retain(|file| file.is_file() && file.to_string_lossy().ends_with(ending));
    files.sort();
    if files.is_empty() {
        bail!("no file matches {}", pattern.display());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn assets_of_the_manifest_are_understood_and_those_of_the_sources_exist() {
        let assets = parse(&metadata(root(), &["--no-deps"]).unwrap()).unwrap();
        let program = assets.iter().find(|asset| asset.folder == "usr/bin/").unwrap();
        assert_eq!((program.source.as_str(), program.mode), ("target/release/wirepath", 0o755));
        for asset in assets.iter().filter(|asset| !asset.source.starts_with("target/")) {
            for file in matches(&root().join("crates/cli").join(&asset.source)).unwrap() {
                assert!(file.is_file(), "{}", file.display());
            }
        }
    }

    #[test]
    fn asset_without_a_mode_is_refused() {
        let [wrong, none] =
            [serde_json::json!([["a", "usr/bin/", "7x5"]]), Value::Null].map(|assets| {
                serde_json::json!({"packages": [
                    {"name": "wirepath", "metadata": {"deb": {"assets": assets}}}
                ]})
            });
        assert!(parse(&wrong).unwrap_err().to_string().contains("not an asset"));
        assert!(parse(&none).is_err());
    }

    #[test]
    fn pattern_matches_files_of_its_ending_only() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.elf", "a.elf", "c.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let elf = [folder.path().join("a.elf"), folder.path().join("b.elf")];
        assert_eq!(matches(&folder.path().join("*.elf")).unwrap(), elf);
        assert!(matches(&folder.path().join("*.gz")).is_err());
    }
}
