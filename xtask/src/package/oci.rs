//! Container images as the Open Container Initiative specifies them: one layer, in an archive.
//!
//! Source: OCI Image Format 1.0.2, image-layout.md, manifest.md and config.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::empty;
use crate::run;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image to be written.
pub(super) struct Image<'a> {
    /// Folder whose contents become the root of the container.
    pub(super) root: &'a Path,
    /// As Debian calls it, which is the image format's name, too.
    pub(super) architecture: &'a str,
    /// Name with a tag, such as `wirepath:0.1.0`.
    pub(super) name: &'a str,
    pub(super) entrypoint: &'a [&'a str],
    pub(super) labels: Value,
    /// Time of the image and all its files, in seconds since 1970.
    pub(super) date: u64,
}

/// Writes the image as an archive; equal folders make equal bytes.
///
/// - `work`: a folder for parts; it is emptied.
pub(super) fn write(image: &Image<'_>, work: &Path, archive: &Path) -> Result<()> {
    empty(work)?;
    let layout = Layout { folder: work.join("layout") };
    fs::create_dir_all(layout.blobs()).context("creating the folder of blobs")?;
    let layer = work.join("layer.tar");
    tar(image.root, &layer, image.date)?;
    let unpacked = sha256(&layer)?;
    run(Command::new("gzip").args(["--best", "--no-name"]).arg(&layer))?;
    let layer = layout.add(LAYER, &work.join("layer.tar.gz"))?;
    let config = layout.add_json(CONFIG, work, &config(image, &unpacked)?)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
    });
    let mut manifest = layout.add_json(MANIFEST, work, &manifest)?;
    manifest["platform"] = json!({ "architecture": image.architecture, "os": "linux" });
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": image.name,
        // For `docker load`.
        "io.containerd.image.name": format!("docker.io/library/{}", image.name),
    });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    layout.write("index.json", &index)?;
    layout.write("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }))?;
    tar(&layout.folder, archive, image.date)
}

/// Configuration of containers.
///
/// - `unpacked`: digest of the layer before compression.
fn config(image: &Image<'_>, unpacked: &str) -> Result<Value> {
    let created = utc(image.date)?;
    Ok(json!({
        "created": created,
        "architecture": image.architecture,
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"],
            "Labels": image.labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created": created, "created_by": "cargo xtask image" }],
    }))
}

/// A folder of blobs, each named by its digest.
struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs/sha256")
    }

    /// Moves a file into the folder of blobs; returns its descriptor.
    fn add(&self, media_type: &str, file: &Path) -> Result<Value> {
        let digest = sha256(file)?;
        let size = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?.len();
        fs::rename(file, self.blobs().join(&digest))
            .with_context(|| format!("moving {}", file.display()))?;
        let digest = format!("sha256:{digest}");
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": size }))
    }

    fn add_json(&self, media_type: &str, work: &Path, value: &Value) -> Result<Value> {
        let file = work.join("part.json");
        fs::write(&file, value.to_string()).context("writing a part of the image")?;
        self.add(media_type, &file)
    }

    fn write(&self, name: &str, value: &Value) -> Result<()> {
        fs::write(self.folder.join(name), value.to_string())
            .with_context(|| format!("writing {name} of the image"))
    }
}

/// Packs a folder's contents: in order of names, owned by root, with one time, and with modes that do not depend
/// on the umask of the build.
fn tar(folder: &Path, archive: &Path, date: u64) -> Result<()> {
    run(Command::new("tar")
        .args(["--create", "--sort=name", "--format=gnu", "--numeric-owner", "--mode=go=u-w"])
        .args(["--owner=0", "--group=0", &format!("--mtime=@{date}")])
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(folder)
        .arg("."))
}

fn sha256(file: &Path) -> Result<String> {
    let text = output(Command::new("sha256sum").arg("--").arg(file))?;
    let digest = text.split_whitespace().next().unwrap_or_default();
    if digest.len() != 64 {
        bail!("sha256sum printed no digest of {}", file.display());
    }
    Ok(digest.to_owned())
}

/// A time as RFC 3339 writes it.
fn utc(date: u64) -> Result<String> {
    output(Command::new("date").args(["--utc", &format!("--date=@{date}"), "+%FT%TZ"]))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an image of a small folder below `folder`, and returns the archive.
    fn written(folder: &Path) -> PathBuf {
        let root = folder.join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        for name in ["usr/bin/b", "usr/bin/a", "c"] {
            fs::write(root.join(name), name).unwrap();
        }
        let image = Image {
            root: &root,
            architecture: "arm64",
            name: "wirepath:1.2.3",
            entrypoint: &["/usr/bin/a", "serve"],
            labels: json!({ "org.opencontainers.image.version": "1.2.3" }),
            date: 1_000_000_000,
        };
        write(&image, &folder.join("work"), &folder.join("image.tar")).unwrap();
        folder.join("image.tar")
    }

    /// Reads a blob after a check of its size and digest.
    fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let file = layout.join("blobs/sha256").join(digest);
        assert_eq!(sha256(&file).unwrap(), digest);
        let bytes = fs::read(file).unwrap();
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    #[test]
    fn every_part_is_found_by_its_digest_and_the_layer_has_the_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let archive = written(folder.path());
        let layout = folder.path().join("read");
        fs::create_dir(&layout).unwrap();
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&layout)).unwrap();

        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let index = json(&fs::read(layout.join("index.json")).unwrap());
        assert_eq!(index["manifests"][0]["platform"]["architecture"], "arm64");
        let manifest = json(&blob(&layout, &index["manifests"][0]));
        let config = json(&blob(&layout, &manifest["config"]));
        assert_eq!(config["created"], "2001-09-09T01:46:40Z");
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/a", "serve"]));
        let layer = folder.path().join("layer.tar.gz");
        fs::write(&layer, blob(&layout, &manifest["layers"][0])).unwrap();
        run(Command::new("gunzip").arg(&layer)).unwrap();
        let layer = folder.path().join("layer.tar");
        let digest = sha256(&layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{digest}")]));
        let list = output(Command::new("tar").arg("-tf").arg(&layer)).unwrap();
        let names = ["./", "./c", "./usr/", "./usr/bin/", "./usr/bin/a", "./usr/bin/b"];
        assert_eq!(list.lines().collect::<Vec<_>>(), names);
    }

    #[test]
    fn equal_folders_make_equal_images() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let bytes = folders.each_ref().map(|folder| fs::read(written(folder.path())).unwrap());
        assert!(bytes[0] == bytes[1]);
    }
}
