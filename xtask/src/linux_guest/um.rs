//! Linux as a process of this machine, architecture `um`: a guest whose virtio devices are another program's, by
//! vhost-user, and which needs neither a virtual machine nor an image.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::modules::Modules;
use super::{OUT, SHELL, entries, first, remove};
use crate::apt::Apt;

const PACKAGE: &str = "user-mode-linux";
const DRIVER: &str = "virtio_net";

/// Writes kernel, modules and shell to the folder `um`.
pub(super) fn build(root: &Path) -> Result<()> {
    let out = root.join(OUT).join("um");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let cache = root.join("target/linux-guest/um");
    let apt = Apt::new(cache.join("apt"), "amd64", &["bookworm"])?;
    apt.update()?;
    let unpacked = cache.join("unpacked");
    remove(&unpacked)?;
    for package in [PACKAGE, SHELL] {
        apt.unpack(package, &unpacked)?;
    }
    for (from, to) in [
        (first(&unpacked, &["usr/bin/linux.uml"])?, "linux"),
        (first(&unpacked, &["usr/bin/busybox", "bin/busybox"])?, "busybox"),
    ] {
        let to = out.join(to);
        fs::copy(from, &to).with_context(|| format!("writing {}", to.display()))?;
    }
    let versions = entries(&unpacked.join("usr/lib/uml/modules"))?;
    let folder = versions.into_iter().next().context("the package has no modules")?;
    for (name, bytes) in Modules::of(folder)?.with_needs(&[DRIVER])? {
        let to = out.join(format!("{name}.ko"));
        fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
    }
    println!("{}: {PACKAGE}", out.display());
    remove(&unpacked)
}
