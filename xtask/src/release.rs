//! Reproducible release build: the program does not depend on the folders of sources and toolchain.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::target::Target;
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

/// A program that was built.
pub(crate) struct Release {
    pub(crate) target: &'static Target,
    pub(crate) program: PathBuf,
    /// Build folder of releases, of cargo.
    pub(crate) build: PathBuf,
    /// Libraries of another machine.
    pub(crate) sysroot: PathBuf,
    /// Seconds since 1970, for the files of packages.
    pub(crate) date: u64,
}

impl Release {
    /// Folder of this release's own files.
    pub(crate) fn folder(&self) -> &Path {
        self.program.parent().unwrap_or(&self.build)
    }

    /// A command that runs the program.
    pub(crate) fn command(&self) -> Command {
        self.target.command(&self.program, &self.sysroot)
    }
}

/// Flags of rustc with which what it builds does not depend on the folders.
pub(crate) fn path_flags(root: &Path) -> Result<Vec<String>> {
    Ok(Folders::new(root, &target_folder(root))?.flags("--remap-path-prefix"))
}

/// How a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For packages, which name the libraries that it is loaded with.
    Shared,
    /// One file that needs no library, without symbols, with the images of guests inside.
    Static,
    /// As [`Static`](Self::Static) by the profile of `./run`: tests need not wait for the optimiser.
    StaticQuick,
}

impl Kind {
    /// Cargo's profile, which names a folder too.
    fn profile(self) -> &'static str {
        match self {
            Kind::Shared | Kind::Static => "release",
            Kind::StaticQuick => "quick",
        }
    }
}

/// Builds the program and prints its SHA-256. The list of its crates is in it (cargo-auditable), so that a scanner finds what
/// an advisory names without our list of parts.
///
/// Of a static one the images of guests must be in `target/firmware`.
pub(crate) fn build(root: &Path, target: &'static Target, kind: Kind) -> Result<Release> {
    // Separate, because the flags differ from those of other builds.
    let build = target_folder(root).join("package");
    let folders = Folders::new(root, &build)?;
    let sysroot = target.sysroot(&build.join("libraries").join(target.debian))?;
    let date = date(root)?;
    // For the C code of libbpf, SQLite and others: `__FILE__` and debug information.
    let flags = folders.flags("-ffile-prefix-map").join(" ");
    let mut command = cargo(root);
    if kind != Kind::StaticQuick {
        check_tool(root, "auditable", "0.7.7")?;
        command.arg("auditable");
    }
    command
        .args(["rustc", "--profile", kind.profile(), "--locked", "--package", "wirepath"])
        .args(["--bin", "wirepath"])
        .env("CARGO_TARGET_DIR", &build)
        .env("CFLAGS", &flags)
        .env("CARGO_ENCODED_RUSTFLAGS", folders.flags("--remap-path-prefix").join("\x1f"))
        .env("SOURCE_DATE_EPOCH", date.to_string())
        .env("CARGO_INCREMENTAL", "0");
    // A native build names no target: the flags above are then those of build scripts, too.
    let mut folder = build.clone();
    if !target.is_native() {
        add_target(root, target.triple)?;
        folder.push(target.triple);
        command.args(["--target", target.triple]).envs(target.build_settings(&sysroot, &flags));
    }
    if kind != Kind::Shared {
        command.env("WIREPATH_EMBEDDED_IMAGES", root.join("target/firmware"));
        // Of the last step alone: macros cannot be linked statically.
        command.args(["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
    }
    run(&mut command)?;
    let program = folder.join(kind.profile()).join("wirepath");
    run(Command::new("sha256sum").arg(&program))?;
    Ok(Release { target, program, build, sysroot, date })
}

/// Checks that cargo has a command of another package.
pub(crate) fn check_tool(root: &Path, tool: &str, version: &str) -> Result<()> {
    let found = cargo(root).args([tool, "--version"]).stderr(Stdio::null()).output();
    if !found.is_ok_and(|output| output.status.success()) {
        bail!("cargo-{tool} is missing; install it: cargo install --locked cargo-{tool}@{version}");
    }
    Ok(())
}

/// Has rustup fetch a target's core library. Without rustup the build says what is missing.
pub(crate) fn add_target(root: &Path, triple: &str) -> Result<()> {
    let rustup = Command::new("rustup").current_dir(root).args(["target", "add", triple]).output();
    match rustup {
        Ok(output) if !output.status.success() => {
            bail!("rustup target add {triple}:\n{}", String::from_utf8_lossy(&output.stderr))
        }
        _ => Ok(()),
    }
}

/// Cargo's target folder.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(target.unwrap_or_else(|| "target".into()))
}

/// Commit time in seconds since 1970; the date of a package's files.
fn date(root: &Path) -> Result<u64> {
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
