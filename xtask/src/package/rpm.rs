//! The RPM package, made by `rpmbuild`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{copy, empty, files, out, stage};
use crate::release::{self, Release};
use crate::run;
use crate::target::Target;

/// Completions of zsh: Debian's folder is its own.
const ZSH: [&str; 2] =
    ["usr/share/zsh/vendor-completions/_wirepath", "usr/share/zsh/site-functions/_wirepath"];

/// Builds the package into `out/`.
pub(crate) fn build(root: &Path, target: &'static Target) -> Result<()> {
    if Command::new("rpmbuild").arg("--version").output().is_err() {
        bail!("rpmbuild is missing; install Debian's package rpm");
    }
    let release = release::build(root, target)?;
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
    let define = |name: &str, value: &str| ["--define".to_owned(), format!("{name} {value}")];
    let path = |name: &str| work.join(name).display().to_string();
    let definitions = [
        define("version", &version),
        define("stage", &path("files")),
        define("_topdir", &path("build")),
        define("_rpmdir", &path("packages")),
        define("_rpmfilename", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"),
        // The same sources make the same package: with its own times and without the host's name.
        define("use_source_date_epoch_as_buildtime", "1"),
        define("clamp_mtime_to_source_date_epoch", "1"),
        define("_buildhost", "wirepath"),
        // gzip and SHA-256, which every rpm in use reads.
        define("_binary_payload", "w9.gzdio"),
        define("_binary_filedigest_algorithm", "8"),
    ];
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
