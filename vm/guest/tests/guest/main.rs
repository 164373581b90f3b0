//! The firmware in QEMU. Skipped if a part is missing, with the reason on stderr.

mod arms;
mod firmware;
mod kernel;
#[path = "../../../tests/kernel-c/mod.rs"]
mod kernel_c;
mod kill;
mod peers;
mod resets;
mod stacks;
mod start;
mod tap;
mod watched;

use std::path::PathBuf;

use testkit::skip;
use wirepath_guest::files;
use wirepath_guest::link::{Endpoint, GUEST_IP, GuestLink};
use wirepath_guest::qemu::{self, Boot, GuestMachine};

/// The source's switches but `icmp-in-irq`, and quieter notifications.
const ALL: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx";

/// The same with packed rings, tables and batches.
const ALL_AND_BEYOND: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx,\
                              packed,indirect,batching";

/// The firmware; `None`, with a skip, if it cannot run.
fn image() -> Option<PathBuf> {
    if qemu::version().is_none() {
        skip("qemu-system-aarch64", "not installed");
        return None;
    }
    files::image().inspect_err(|error| skip("aarch64", error)).ok()
}

/// A booted machine and the guest's addresses.
fn booted(boot: &Boot) -> (GuestMachine, GuestLink, Endpoint) {
    let (machine, link) = GuestMachine::boot(boot).expect("it gets ready");
    let peer = link.resolve(GUEST_IP).expect("it has the address");
    (machine, link, peer)
}
