//! The Debian package, made by `cargo deb`.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, bail};

use super::{out, stage};
use crate::target::Target;
use crate::{cargo, release, run};

/// Builds the package into `out/`, for this machine: `cargo deb` looks up its libraries here.
pub(crate) fn build(root: &Path) -> Result<()> {
    check_tool(root)?;
    let release = release::build(root, Target::parse(&[])?)?;
    stage::prepare(root, &release)?;
    run(cargo(root)
        .args(["deb", "--package", "wirepath", "--no-build", "--strip", "--locked", "--output"])
        .arg(out(root)?)
        .env("CARGO_TARGET_DIR", &release.build)
        .env("SOURCE_DATE_EPOCH", release.date.to_string()))
}

fn check_tool(root: &Path) -> Result<()> {
    let tool = cargo(root).args(["deb", "--version"]).stderr(Stdio::null()).output();
    if !tool.is_ok_and(|output| output.status.success()) {
        bail!("cargo-deb is missing; install it: cargo install --locked cargo-deb@3.8.0");
    }
    Ok(())
}
