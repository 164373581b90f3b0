//! The Debian package, made by `cargo deb`.

use std::path::Path;

use anyhow::Result;

use super::{check_program, out, stage};
use crate::release::Kind;
use crate::target::Target;
use crate::{cargo, release, run};

/// Builds the package into `out/`, for this machine: `cargo deb` looks up its libraries here.
pub(crate) fn build(root: &Path) -> Result<()> {
    check_tools(root)?;
    let release = release::build(root, Target::parse(&[])?, Kind::Shared)?;
    stage::prepare(root, &release)?;
    run(cargo(root)
        .args(["deb", "--package", "wirepath", "--no-build", "--strip", "--locked", "--output"])
        .arg(out(root)?)
        .env("CARGO_TARGET_DIR", &release.build)
        .env("SOURCE_DATE_EPOCH", release.date.to_string()))
}

pub(super) fn check_tools(root: &Path) -> Result<()> {
    release::check_tool(root, "deb", "3.8.0")?;
    // Without it cargo-deb warns, and the package depends on no library.
    check_program("dpkg-shlibdeps", "package dpkg-dev")
}
