//! Third-party crates in the program and in the images of guests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, firmware, metadata};

/// A crate of others that is linked in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// SPDX expression.
    pub(super) licence: String,
    /// Address of its repository.
    pub(super) source: String,
    /// Its sources on this machine.
    pub(super) folder: PathBuf,
    /// SHA-256 of its package on crates.io.
    pub(super) checksum: Option<String>,
    /// Keys of the third-party crates that it uses.
    pub(super) uses: Vec<String>,
}

impl Crate {
    /// `name version`, as cargo tree prints them.
    pub(super) fn key(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// Crates of the program and of the guests' images, without build scripts and tests, sorted.
///
/// - `triple`: of the program's machine.
pub(super) fn third_party(root: &Path, triple: &str) -> Result<Vec<Crate>> {
    let mut all = linked(root, &["wirepath"], triple)?;
    for (workspace, target, packages) in firmware::workspaces() {
        all.extend(linked(&root.join(workspace), &packages, target)?);
    }
    let all: BTreeMap<String, Crate> = all.into_iter().map(|one| (one.key(), one)).collect();
    Ok(all.into_values().collect())
}

fn linked(workspace: &Path, packages: &[&str], triple: &str) -> Result<Vec<Crate>> {
    let mut command = cargo(workspace);
    command.args(["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    command.args(["--no-dedupe", "--format", "{p}", "--target", triple]);
    for package in packages {
        command.args(["--package", package]);
    }
    let output = command.output().context("cannot start cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let keys = keys_of_tree(&String::from_utf8_lossy(&output.stdout));
    let metadata = metadata(workspace, &["--locked", "--filter-platform", triple])?;
    let lock = fs::read_to_string(workspace.join("Cargo.lock")).context("reading Cargo.lock")?;
    listed(&metadata, &keys, &checksums(&lock))
}

/// Crates of cargo's metadata that are among `keys` and come from a registry.
fn listed(
    metadata: &Value,
    keys: &BTreeSet<String>,
    checksums: &BTreeMap<String, String>,
) -> Result<Vec<Crate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut crates = BTreeMap::new();
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let [name, version, licence, source, manifest, id] =
            ["name", "version", "license", "repository", "manifest_path", "id"]
                .map(|field| package[field].as_str().unwrap_or("unknown").to_owned());
        let key = format!("{name} {version}");
        if !keys.contains(&key) {
            continue;
        }
        let folder = Path::new(&manifest).parent().context("a manifest has no folder")?.to_owned();
        let checksum = checksums.get(&key).cloned();
        crates.insert(
            id,
            Crate { name, version, licence, source, folder, checksum, uses: Vec::new() },
        );
    }
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata resolves none")?;
    for node in nodes {
        let uses = node["dependencies"].as_array().into_iter().flatten();
        let uses = uses.filter_map(|id| Some(crates.get(id.as_str()?)?.key())).collect();
        if let Some(user) = node["id"].as_str().and_then(|id| crates.get_mut(id)) {
            user.uses = uses;
        }
    }
    Ok(crates.into_values().collect())
}

fn keys_of_tree(tree: &str) -> BTreeSet<String> {
    let keys = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name} {}", rest.split_whitespace().next()?))
    });
    keys.collect()
}

/// Checksums of Cargo.lock by the crate's key.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let packages = lock.split("[[package]]").skip(1);
    let found = packages.filter_map(|part| {
        let key = format!("{} {}", field(part, "name")?, field(part, "version")?);
        Some((key, field(part, "checksum")?.to_owned()))
    });
    found.collect()
}

/// Value of a line `name = "value"`.
fn field<'a>(package: &'a str, name: &str) -> Option<&'a str> {
    let value = package.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.strip_prefix(" = ")?.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, source: Value) -> Value {
        json!({ "name": name, "version": "1.0.0", "id": format!("id-{name}"), "source": source,
                "license": "MIT", "repository": "https://x", "manifest_path": format!("/{name}/Cargo.toml") })
    }

    #[test]
    fn crates_are_parsed_from_cargo_tree() {
        let tree = "wirepath v0.1.0 (/src/crates/cli)\nanyhow v1.0.9\nnix v0.3.0 (proc-macro)\n\n";
        let keys = ["anyhow 1.0.9", "nix 0.3.0", "wirepath 0.1.0"].map(str::to_owned);
        assert_eq!(keys_of_tree(tree), BTreeSet::from(keys));
    }

    #[test]
    fn checksums_are_parsed_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\
                    \n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        assert_eq!(checksums(lock), BTreeMap::from([("a 1.0.0".to_owned(), "00ff".to_owned())]));
    }

    #[test]
    fn only_linked_crates_of_others_are_listed_with_those_that_they_use() {
        let metadata = json!({
            "packages": [package("own", Value::Null), package("a", json!("registry")), package("b", json!("registry")),
                         package("build-only", json!("registry"))],
            "resolve": { "nodes": [
                { "id": "id-own", "dependencies": ["id-a"] },
                { "id": "id-a", "dependencies": ["id-b", "id-build-only"] },
                { "id": "id-b", "dependencies": [] },
            ]},
        });
        let keys = ["own 1.0.0", "a 1.0.0", "b 1.0.0"].map(str::to_owned).into();
        let sums = BTreeMap::from([("a 1.0.0".to_owned(), "00ff".to_owned())]);
        let found = listed(&metadata, &keys, &sums).unwrap();
        let [a, b] = &found[..] else { panic!("{found:?}") };
        assert_eq!((a.key().as_str(), &a.uses[..]), ("a 1.0.0", &["b 1.0.0".to_owned()][..]));
        assert_eq!((a.checksum.as_deref(), a.folder.as_path()), (Some("00ff"), Path::new("/a")));
        assert_eq!((b.key().as_str(), b.uses.len()), ("b 1.0.0", 0));
    }
}
