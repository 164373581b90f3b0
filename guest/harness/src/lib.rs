//! Boots the firmware in QEMU, with its network card on a pair of UNIX datagram sockets, and
//! talks to it: no TAP, no privileges.
#![forbid(unsafe_code)]

pub mod flood;
pub mod link;
pub mod ping;
pub mod qemu;
pub mod selftest;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Where `cargo xtask firmware` puts the image, from the project's root.
pub const IMAGE: &str = "target/firmware/wirepath-guest-virt.elf";

/// The image: that of the environment variable `WIREPATH_GUEST_IMAGE`, or the one built last.
pub fn image() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WIREPATH_GUEST_IMAGE") {
        return Ok(path.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join(IMAGE);
    if !path.exists() {
        bail!("{} is missing; build it by `cargo xtask firmware`", path.display());
    }
    Ok(path)
}
