//! `wirepath tune` and `wirepath doctor` in a Debian guest, with the drivers of real cards and
//! with gretap. Skipped without QEMU and the guest of `cargo xtask linux-guest`.

#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod feed;
mod gretap;
mod hotplug;
mod knobs;
mod machine;
mod stamps;
mod xdp_modes;
