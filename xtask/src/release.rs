//! Reproducible release build: the program does not depend on the folders of sources and toolchain.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, run};

/// Folders whose paths would end up in the program, with their replacements. An inner folder comes
/// after the outer one, because the last match applies.
struct Folders(Vec<(PathBuf, &'static str)>);

impl Folders {
    fn new(root: &Path, target: &Path) -> Result<Folders> {
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
        let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
        let cargo = cargo.context("neither CARGO_HOME nor HOME is set")?;
        Ok(Folders(vec![
            (cargo, "/cargo"),
            (root.to_path_buf(), "/wirepath"),
            (target.to_path_buf(), "/target"),
        ]))
    }

    /// Each as `FLAG=FOLDER=NAME`.
    fn flags(&self, flag: &str) -> Vec<String> {
        let map = |(folder, name): &(PathBuf, &str)| format!("{flag}={}={name}", folder.display());
        self.0.iter().map(map).collect()
    }
}

/// Builds the program, prints its SHA-256 and returns its path.
///
/// - `target`: a separate build folder, because the flags differ from those of other builds.
pub(crate) fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let folders = Folders::new(root, target)?;
    run(cargo(root)
        .args(["build", "--release", "--locked", "--package", "wirepath"])
        .env("CARGO_TARGET_DIR", target)
        // For the C code of libbpf, SQLite and others: `__FILE__` and debug information.
        .env("CFLAGS", folders.flags("-ffile-prefix-map").join(" "))
        .env("CARGO_ENCODED_RUSTFLAGS", folders.flags("--remap-path-prefix").join("\x1f"))
        .env("SOURCE_DATE_EPOCH", date(root)?.to_string())
        .env("CARGO_INCREMENTAL", "0"))?;
    let program = target.join("release/wirepath");
    run(Command::new("sha256sum").arg(&program))?;
    Ok(program)
}

/// Build folder of releases, inside cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(target.unwrap_or_else(|| "target".into())).join("package")
}

/// Commit time in seconds since 1970; the date of a package's files.
pub(crate) fn date(root: &Path) -> Result<u64> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return date.parse().context("invalid SOURCE_DATE_EPOCH: not a whole number");
    }
    let output = Command::new("git")
        .current_dir(root)
        .args(["log", "-1", "--format=%ct"])
        .output()
        .context("cannot start git; set SOURCE_DATE_EPOCH to seconds since 1970")?;
    let date = String::from_utf8_lossy(&output.stdout);
    date.trim().parse().context("git reports no date; set SOURCE_DATE_EPOCH to seconds since 1970")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_folders_are_mapped_after_outer_ones() {
        let folders = Folders(vec![("/a".into(), "/x"), ("/a/b".into(), "/y")]);
        assert_eq!(folders.flags("--map"), ["--map=/a=/x", "--map=/a/b=/y"]);
        let folders = Folders::new(Path::new("/src"), Path::new("/src/target/package")).unwrap();
        assert!(folders.0[1].1 == "/wirepath" && folders.0[2].0.starts_with(&folders.0[1].0));
    }
}
