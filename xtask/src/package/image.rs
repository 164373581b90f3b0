//! The container image: the program, its images of guests, and the libraries it is loaded with, packed by buildah.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{check_program, copy, empty, files, libraries, out, stage};
use crate::release::Kind;
use crate::target::Target;
use crate::{release, run};

/// Folders that a container has beside those of its files.
const FOLDERS: [&str; 5] = ["tmp", "run/lock", "root", "var/lib/wirepath", "etc"];

pub(super) fn check_tools() -> Result<()> {
    check_program("buildah", "packages buildah and uidmap")
}

/// Builds the image into `out/`, as an archive for `podman load`, `docker load` and skopeo.
pub(crate) fn build(root: &Path, target: &'static Target) -> Result<()> {
    check_tools()?;
    let release = release::build(root, target, Kind::Shared)?;
    stage::prepare(root, &release)?;
    let work = release.folder().join("image");
    let files = work.join("root");
    empty(&files)?;
    // No pages: there is no reader of them in the container.
    files::install(root, &release, &files, |folder| {
        matches!(folder, "usr/bin/" | "usr/share/wirepath/" | "usr/share/doc/wirepath/")
    })?;
    copy(&root.join("LICENSE"), &files.join("usr/share/doc/wirepath/LICENSE"))?;
    libraries::install(&release, &files)?;
    for folder in FOLDERS.map(|folder| files.join(folder)) {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(files.join("etc/passwd"), "root:x:0:0:root:/root:/sbin/nologin\n")
        .context("writing etc/passwd of the image")?;
    // Modes do not depend on the umask of the build.
    run(Command::new("chmod").args(["--recursive", "go=u-w"]).arg(&files))?;

    let version = files::version(root)?;
    let (name, date) = (format!("wirepath:{version}"), release.date.to_string());
    let (parts, layout) = (work.join("parts"), work.join("parts/layout"));
    remove_parts(&parts)?;
    run(buildah(&parts)
        .args(["build", "--quiet", "--isolation", "chroot", "--format", "oci"])
        .args(["--identity-label=false", "--platform", &format!("linux/{}", target.debian)])
        .args(["--timestamp", &date, "--tag", &name])
        .args(["--label", &format!("org.opencontainers.image.version={version}"), "--file"])
        .arg(root.join("contrib/image/Containerfile"))
        .arg(&files))?;
    let to = format!("oci:{}:{name}", layout.display());
    run(buildah(&parts).args(["push", "--quiet", &format!("localhost/{name}"), &to]))?;
    name_for_docker(&layout.join("index.json"), &name)?;
    let archive = out(root)?.join(format!("wirepath_{version}_{}.oci.tar", target.debian));
    // Equal files make equal archives.
    run(Command::new("tar")
        .args(["--create", "--sort=name", "--format=gnu", "--numeric-owner", "--mode=go=u-w"])
        .args(["--owner=0", "--group=0", &format!("--mtime=@{date}"), "--file"])
        .arg(&archive)
        .arg("--directory")
        .args([&layout, Path::new(".")]))?;
    remove_parts(&parts)?;
    run(Command::new("sha256sum").arg(&archive))
}

/// A command with a storage of its own in `parts`.
fn buildah(parts: &Path) -> Command {
    let mut command = Command::new("buildah");
    command.arg("--root").arg(parts.join("storage")).arg("--runroot").arg(parts.join("run"));
    command.args(["--storage-driver", "vfs"]).stdout(Stdio::null());
    command
}

/// Removes buildah's storage first, as buildah: without root some of its files belong to other numbers of users.
fn remove_parts(parts: &Path) -> Result<()> {
    if parts.join("storage").exists() {
        run(buildah(parts).args(["rmi", "--all", "--force"]))?;
    }
    crate::remove(parts)
}

/// Adds the name under which `docker load` enters the image.
fn name_for_docker(index: &Path, name: &str) -> Result<()> {
    let text = fs::read_to_string(index).context("reading the index of the image")?;
    let mut json: Value = serde_json::from_str(&text).context("the index of the image")?;
    json["manifests"][0]["annotations"]["io.containerd.image.name"] =
        format!("docker.io/library/{name}").into();
    fs::write(index, json.to_string()).context("writing the index of the image")
}
