//! The RPM package, made by `rpmbuild`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{check_program, copy, empty, files, out, stage};
use crate::release::{self, Kind, Release};
use crate::run;
use crate::target::Target;

/// Completions of zsh: Debian's folder is its own.
const ZSH: [&str; 2] =
    ["usr/share/zsh/vendor-completions/_wirepath", "usr/share/zsh/site-functions/_wirepath"];

pub(super) fn check_tools() -> Result<()> {
    check_program("rpmbuild", "package rpm")
}

/// Builds the package into `out/`.
pub(crate) fn build(root: &Path, target: &'static Target) -> Result<()> {
    check_tools()?;
    let release = release::build(root, target, Kind::Shared)?;
    stage::prepare(root, &release)?;
    let work = release.folder().join("rpm");
    let files = work.join("files");
    empty(&files)?;
    files::install(root, &release, &files, |_| true)?;
    copy(&files.join(ZSH[0]), &files.join(ZSH[1]))?;
    crate::remove(&files.join("usr/share/zsh/vendor-completions"))?;
    copy(&root.join("LICENSE"), &files.join("usr/share/licenses/wirepath/LICENSE"))?;
    pack(root, &release, &work)
}

fn pack(root: &Path, release: &Release, work: &Path) -> Result<()> {
    let (machine, version) = (release.target.machine, files::version(root)?);
    let [stage, build, packages] =
        ["files", "build", "packages"].map(|name| work.join(name).display().to_string());
    let definitions = [
        ("version", &version[..]),
        ("stage", &stage),
        ("_topdir", &build),
        ("_rpmdir", &packages),
        ("_rpmfilename", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"),
        // The same sources make the same package: with its own times and without the host's name.
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("_buildhost", "wirepath"),
        // gzip and SHA-256, which every rpm in use reads.
        ("_binary_payload", "w9.gzdio"),
        ("_binary_filedigest_algorithm", "8"),
    ]
    .map(|(name, value)| ["--define".to_owned(), format!("{name} {value}")]);
    empty(&work.join("packages"))?;
    run(Command::new("rpmbuild")
        .args(["-bb", "--quiet", "--target", &format!("{machine}-linux")])
        .args(definitions.as_flattened())
        .arg(root.join("crates/cli/rpm/wirepath.spec"))
        .env("SOURCE_DATE_EPOCH", release.date.to_string()))?;
    let name = format!("wirepath-{version}-1.{machine}.rpm");
    let to = out(root)?.join(&name);
    fs::copy(work.join("packages").join(&name), &to).context("rpmbuild left no package")?;
    run(Command::new("sha256sum").arg(&to))
}
