//! Packages of a release: their files, and the programs that pack them.
//!
//! The list of installed files is that of `cargo deb`, in `crates/cli/Cargo.toml`; the others read it there.

mod binary;
mod crates;
mod deb;
mod dist;
mod files;
mod image;
mod libraries;
mod notices;
mod rpm;
mod sbom;
mod stage;
mod system;

pub(crate) use binary::build as binary;
pub(crate) use deb::build as deb;
pub(crate) use dist::build as dist;
pub(crate) use image::build as image;
pub(crate) use rpm::build as rpm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Makes an empty folder; one that is there already loses its contents.
fn empty(folder: &Path) -> Result<()> {
    crate::remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
}

/// Copies a file with its mode; the folder is created.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    fs::copy(from, to)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
        .map(drop)
}

/// Folder of finished packages.
fn out(root: &Path) -> Result<PathBuf> {
    let out = root.join("out");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    Ok(out)
}

/// Errors: a program is not installed.
///
/// - `packages`: `package rpm`, of Debian.
fn check_program(program: &str, packages: &str) -> Result<()> {
    if Command::new(program).arg("--version").output().is_err() {
        bail!("{program} is missing; install Debian's {packages}");
    }
    Ok(())
}

/// Text that a command prints, without the last line's end.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
