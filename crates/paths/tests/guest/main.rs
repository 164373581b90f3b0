//! The firmware in QEMU. Skipped, with the reason on stderr, where something is missing.

mod arms;
mod firmware;
mod kill;
mod peers;
mod tap;

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use wirepath_paths::guest::files;
use wirepath_paths::guest::link::{GUEST_IP, Link, Station};
use wirepath_paths::guest::qemu::{self, Boot, Machine};

/// All that the source kept on.
const ALL: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx";

/// And what lies beyond the source.
const ALL_AND_BEYOND: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx,\
                              packed,indirect,batching";

/// Says why a test does nothing.
fn skipped(why: impl std::fmt::Display) {
    let _ = writeln!(stderr(), "skipped: {why}");
}

/// The firmware; `None`, and the reason said, where it cannot run.
fn image() -> Option<PathBuf> {
    if qemu::version().is_none() {
        skipped("qemu-system-aarch64 is not installed");
        return None;
    }
    files::image().inspect_err(|error| skipped(error)).ok()
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let found = Command::new("which").arg(program).stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        skipped(format!("{program} is not installed"));
    }
    found
}

/// A booted machine and the station in it.
fn booted(boot: &Boot) -> (Machine, Link, Station) {
    let (machine, link) = Machine::boot(boot).expect("it gets ready");
    let station = link.resolve(GUEST_IP).expect("it has the address");
    (machine, link, station)
}
