//! Builds the Linux guests out of Debian's packages: that which path `guest` is compared with, an
//! arm64 kernel and an initramfs that answers; the same kernel at the other end of path `tunnel`'s
//! gretap; an amd64 kernel with the drivers of real network cards, in which tests run the
//! program itself; and a kernel that is a process, whose driver tests the monitor's virtio-net card.
//!
//! Packages come by apt with a state of its own: neither the machine's list of packages nor its
//! architectures change, and nothing is installed.

mod cpio;
mod modules;
mod rig;
mod tunnel;
mod um;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use cpio::Archive;
use modules::Modules;

use crate::apt::Apt;
use crate::{entries, remove};

const SHELL: &str = "busybox-static";
/// Where kernels and initramfs files are.
const OUT: &str = "target/firmware/linux";

/// A kernel, and what is booted with it.
struct Kernel {
    /// As Debian calls it.
    architecture: &'static str,
    /// Folder of its cache.
    folder: &'static str,
    /// Suites of Debian that it comes from; the last is preferred.
    suites: &'static [&'static str],
    choice: Choice,
    /// Name of the kernel's file.
    file: &'static str,
    guests: &'static [Guest],
}

/// A kernel among those of the suites.
#[derive(Clone, Copy)]
enum Choice {
    /// The one that a metapackage depends on.
    Newest(&'static str),
    /// The oldest from a version on.
    From(u32, u32),
}

/// An initramfs.
struct Guest {
    /// Its file's name.
    file: &'static str,
    /// Modules to be loaded; those that they need come by themselves.
    modules: &'static [&'static str],
    /// Init script; MODULES is replaced by the names of the modules, in order.
    init: &'static str,
    packages: &'static [&'static str],
    /// Files out of the packages, by folder in the guest.
    files: &'static [(&'static str, &'static [&'static str])],
}

const KERNELS: [Kernel; 4] = [
    Kernel {
        architecture: "arm64",
        folder: "arm64",
        suites: &["trixie"],
        choice: Choice::Newest("linux-image-cloud-arm64"),
        file: "Image",
        guests: &[PEER, tunnel::GUEST],
    },
    Kernel {
        architecture: "amd64",
        folder: "amd64",
        suites: &["trixie"],
        // The cloud's kernel has no drivers of cards.
        choice: AMD64,
        file: "bzImage",
        guests: &[rig::GUEST],
    },
    // That of appliances: its GRE devices and its bridge copy more than later ones.
    Kernel {
        architecture: "amd64",
        folder: "amd64-bookworm",
        suites: &["bookworm"],
        choice: AMD64,
        file: "bzImage-bookworm",
        guests: &[rig::BOOKWORM],
    },
    // virtio-net has AF_XDP zero-copy since 6.16.
    Kernel {
        architecture: "amd64",
        folder: "amd64-newest",
        suites: &["trixie", "trixie-backports"],
        choice: AMD64,
        file: "bzImage-newest",
        guests: &[rig::NEWEST],
    },
];

/// Kernels beside those of [`KERNELS`] for the table of kernels by feature.
const OTHERS: [Kernel; 3] = [
    Kernel {
        architecture: "amd64",
        folder: "amd64-bullseye",
        suites: &["bullseye"],
        choice: AMD64,
        file: "bzImage-bullseye",
        guests: &[rig::BULLSEYE],
    },
    Kernel {
        architecture: "amd64",
        folder: "amd64-6.16",
        suites: &["trixie", "trixie-backports"],
        choice: Choice::From(6, 16),
        file: "bzImage-6.16",
        guests: &[rig::FROM_6_16],
    },
    // The long-term kernel after 6.12.
    Kernel {
        architecture: "amd64",
        folder: "amd64-6.18",
        suites: &["trixie", "trixie-backports"],
        choice: Choice::From(6, 18),
        file: "bzImage-6.18",
        guests: &[rig::FROM_6_18],
    },
];

const AMD64: Choice = Choice::Newest("linux-image-amd64");

const PEER: Guest = Guest {
    file: "initramfs.cpio",
    modules: &["virtio_net", "virtio_mmio"],
    init: PEER_INIT,
    packages: &[],
    files: &[],
};

/// The kernel hands over standard input and output on the console.
const PEER_INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
for module in MODULES; do
    $b insmod /modules/$module.ko || echo "wirepath-linux: no $module"
done
for word in $($b cat /proc/cmdline); do
    case $word in wirepath.ip=*) ip=${word#wirepath.ip=} ;; esac
done
$b ifconfig eth0 "$ip" netmask 255.255.255.0 up || {
    echo "wirepath-linux: no eth0"
    $b poweroff -f
}
echo "wirepath-linux ready ip=$ip kernel=$($b uname -r)"
while :; do $b sleep 86400; done
"#;

/// Fetches the packages and writes kernels and initramfs files to `target/firmware/linux`.
pub(crate) fn build(root: &Path) -> Result<()> {
    KERNELS.iter().try_for_each(|kernel| build_kernel(kernel, root))?;
    um::build(root)
}

/// As [`build`], for those kernels of the table of kernels by feature that are not built yet.
pub(crate) fn build_table(root: &Path) -> Result<()> {
    let out = root.join(OUT);
    let amd64 = KERNELS.iter().filter(|kernel| kernel.architecture == "amd64");
    amd64
        .chain(&OTHERS)
        .filter(|kernel| {
            !out.join(kernel.file).exists()
                || !kernel.guests.iter().all(|g| out.join(g.file).exists())
        })
        .try_for_each(|kernel| build_kernel(kernel, root))
}

fn build_kernel(kernel: &Kernel, root: &Path) -> Result<()> {
    let out = &root.join(OUT);
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let cache = root.join("target/linux-guest").join(kernel.folder);
    let apt = Apt::new(cache.join("apt"), kernel.architecture, kernel.suites)?;
    apt.update()?;
    let (package, parts) = match kernel.choice {
        Choice::Newest(metapackage) => apt.kernel(metapackage)?,
        Choice::From(major, minor) => apt.kernel_from((major, minor))?,
    };
    let unpacked = cache.join("unpacked");
    remove(&unpacked)?;
    for package in parts.iter().map(String::as_str).chain([SHELL]) {
        apt.unpack(package, &unpacked)?;
    }
    let version = package.strip_prefix("linux-image-").context("a kernel's name")?;
    let image = out.join(kernel.file);
    let at = format!("lib/modules/{version}");
    let files = [format!("boot/vmlinuz-{version}"), format!("usr/{at}/vmlinuz")];
    let file = first(&unpacked, &files.each_ref().map(String::as_str))?;
    fs::copy(file, &image).with_context(|| format!("copying the kernel {version}"))?;
    println!("{}: Linux {version}", image.display());
    let modules = Modules::of(first(&unpacked, &[&format!("usr/{at}"), &at])?)?;
    for guest in kernel.guests {
        for package in guest.packages {
            apt.unpack(package, &unpacked)?;
        }
        let (file, bytes) = (out.join(guest.file), initramfs(&unpacked, &modules, guest)?);
        fs::write(&file, &bytes).with_context(|| format!("writing {}", file.display()))?;
        println!("{}: {} bytes", file.display(), bytes.len());
    }
    // Half a gigabyte of modules that are not needed again.
    remove(&unpacked)
}

fn initramfs(unpacked: &Path, modules: &Modules, guest: &Guest) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules", "proc", "sys"] {
        archive.folder(folder);
    }
    archive.console("dev/console");
    let shell = first(unpacked, &["usr/bin/busybox", "bin/busybox"])?;
    archive.file("bin/busybox", 0o755, &read(&shell)?);
    let loaded = modules.with_needs(guest.modules)?;
    for (name, bytes) in &loaded {
        archive.file(&format!("modules/{name}.ko"), 0o644, bytes);
    }
    for (folder, names) in guest.files {
        if *folder != "bin" {
            archive.folder(folder);
        }
        for name in *names {
            let file =
                find(unpacked, name)?.with_context(|| format!("the packages hold no {name}"))?;
            let name = name.rsplit('/').next().unwrap_or(name);
            archive.file(&format!("{folder}/{name}"), 0o755, &read(&file)?);
        }
    }
    let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
    archive.file("init", 0o755, guest.init.replace("MODULES", &names.join(" ")).as_bytes());
    Ok(archive.finish())
}

fn first(folder: &Path, names: &[&str]) -> Result<PathBuf> {
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.exists());
    found.with_context(|| format!("the packages hold none of {}", names.join(", ")))
}

/// A file by name, or by the end of its path, anywhere below a folder.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for path in entries(folder)? {
        if path.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.ends_with(name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_init_loads_its_modules_before_it_says_that_it_is_ready() {
        for guest in KERNELS.iter().chain(&OTHERS).flat_map(|kernel| kernel.guests) {
            let loaded = guest.init.find("for module in MODULES; do").expect(guest.file);
            let ready = guest.init.find("wirepath-linux ready").expect(guest.file);
            assert!(loaded < ready, "{}", guest.file);
        }
    }
}
