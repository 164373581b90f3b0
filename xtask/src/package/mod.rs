//! Packages of a release: their files, and the programs that pack them.
//!
//! The list of installed files is that of `cargo deb`, in `crates/cli/Cargo.toml`; the others read it there.

mod deb;
mod files;
mod image;
mod libraries;
mod notices;
mod rpm;
mod stage;

pub(crate) use deb::build as deb;
pub(crate) use image::build as image;
pub(crate) use rpm::build as rpm;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

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
