//! The container image: the program, its images of guests, and the libraries it is loaded with.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::oci::Image;
use super::{copy, empty, files, libraries, oci, out, stage};
use crate::target::Target;
use crate::{release, run};

/// Folders that a container has beside those of its files.
const FOLDERS: [&str; 5] = ["tmp", "run/lock", "root", "var/lib/wirepath", "etc"];

/// Builds the image into `out/`, as an archive for `podman load`, `docker load` and skopeo.
pub(crate) fn build(root: &Path, target: &'static Target) -> Result<()> {
    let release = release::build(root, target)?;
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
    let version = files::version(root)?;
    let image = Image {
        root: &files,
        architecture: target.debian,
        name: &format!("wirepath:{version}"),
        entrypoint: &["/usr/bin/wirepath"],
        labels: json!({
            "org.opencontainers.image.title": "wirepath",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.source": "https://github.com/wirepath/wirepath",
        }),
        date: release.date,
    };
    let archive = out(root)?.join(format!("wirepath_{version}_{}.oci.tar", target.debian));
    oci::write(&image, &work.join("parts"), &archive)?;
    run(Command::new("sha256sum").arg(&archive))
}
