//! The release build: the same sources and toolchain give the same program, wherever they lie.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, run};

/// Folders that would otherwise end up in the program, with the names that stand for them. Where
/// one lies in another the inner one comes later, because the last that fits is taken.
struct Folders(Vec<(PathBuf, &'static str)>);

impl Folders {
    fn of(root: &Path, target: &Path) -> Result<Folders> {
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

/// Builds the program and returns where it is; prints its SHA-256.
///
/// - `target`: the folder to build in; one of its own, because the flags differ from cargo's.
pub(crate) fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let folders = Folders::of(root, target)?;
    run(cargo(root)
        .args(["build", "--release", "--locked", "--package", "wirepath"])
        .env("CARGO_TARGET_DIR", target)
        // C of libbpf, SQLite and others; `__FILE__` and debugging information.
        .env("CFLAGS", folders.flags("-ffile-prefix-map").join(" "))
        .env("CARGO_ENCODED_RUSTFLAGS", folders.flags("--remap-path-prefix").join("\x1f"))
        .env("SOURCE_DATE_EPOCH", date(root)?.to_string())
        .env("CARGO_INCREMENTAL", "0"))?;
    let program = target.join("release/wirepath");
    run(Command::new("sha256sum").arg(&program))?;
    Ok(program)
}

/// Where releases are built: below cargo's folder for what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(target.unwrap_or_else(|| "target".into())).join("package")
}

/// Seconds since 1970 at which the sources were committed; what a package's files are dated by.
pub(crate) fn date(root: &Path) -> Result<u64> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return date.parse().context("SOURCE_DATE_EPOCH is no whole number");
    }
    let output = Command::new("git")
        .current_dir(root)
        .args(["log", "-1", "--format=%ct"])
        .output()
        .context("git did not start; set SOURCE_DATE_EPOCH to seconds since 1970")?;
    let date = String::from_utf8_lossy(&output.stdout);
    date.trim().parse().context("git tells no date; set SOURCE_DATE_EPOCH to seconds since 1970")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_folders_are_mapped_after_those_around_them() {
        let folders = Folders(vec![("/a".into(), "/x"), ("/a/b".into(), "/y")]);
        assert_eq!(folders.flags("--map"), ["--map=/a=/x", "--map=/a/b=/y"]);
        let of = Folders::of(Path::new("/src"), Path::new("/src/target/package")).unwrap();
        assert!(of.0[1].1 == "/wirepath" && of.0[2].0.starts_with(&of.0[1].0));
    }
}
