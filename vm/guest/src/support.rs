//! Support of arms on this host.

use std::sync::OnceLock;

use model::{Arm, ArmKind, PathLoad, Support};
use sys::thread::start;

use super::error::{INSTALL_PING, INSTALL_QEMU};
use super::files::{self, QEMU};
use super::loads::{GuestLoad, REFERENCE, SMOLTCP};
use super::switches::{FIFO_PRIORITY, Switch, contradiction};
use super::{error::GuestError, qemu, tap};

/// Checks whether an arm can run here; reports what is missing.
pub(super) fn support(arm: &Arm, load: GuestLoad) -> Support {
    if !files::is_installed(QEMU) {
        return Support::unsupported(format!("the guest without {QEMU}"), INSTALL_QEMU);
    }
    if arm.kind == ArmKind::Peer {
        return peer_support(arm, load);
    }
    if let Some(why) = contradiction(arm) {
        return Support::Refused { why };
    }
    if let Err(error) = files::image() {
        return unsupported(&error);
    }
    if load == GuestLoad::TapPing
        && let Err(support) = tried_tap()
    {
        return support;
    }
    if arm.has(Switch::Packed) && !qemu::offers_packed_rings() {
        let version = qemu::version().unwrap_or("of unknown version");
        let what = format!("a packed ring in QEMU {version}");
        return Support::unsupported(what, "QEMU 4.2 or later");
    }
    let cpus = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
    if arm.has(Switch::VcpuSplit) && cpus < 2 {
        return Support::unsupported("vcpu-split with one CPU", "two CPUs");
    }
    match tried_fifo() {
        Err(why) if arm.has(Switch::VcpuFifo) => Support::unsupported(
            format!("SCHED_FIFO ({why})"),
            "CAP_SYS_NICE, or a higher RLIMIT_RTPRIO",
        ),
        _ => Support::Yes,
    }
}

fn peer_support(arm: &Arm, load: GuestLoad) -> Support {
    if !load.kind().peers.contains(&arm.name.as_str()) {
        let why = format!("{} does not support load {load}", arm.name);
        return Support::Refused { why };
    }
    let there = match arm.name.as_str() {
        REFERENCE => files::reference().map(drop),
        SMOLTCP => files::smoltcp().map(drop),
        _ => files::linux().map(drop),
    };
    there.map_or_else(|error| unsupported(&error), |()| Support::Yes)
}

fn unsupported(error: &GuestError) -> Support {
    match error {
        GuestError::Missing { what, remedy } => {
            Support::unsupported(format!("the guest without {what}"), remedy.clone())
        }
        other => Support::unsupported(other.to_string(), "see the message"),
    }
}

fn tried_fifo() -> &'static Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED.get_or_init(|| {
        std::thread::scope(|scope| {
            let attempt = start(scope, "attempt", || {
                sys::sched::set_fifo(FIFO_PRIORITY).map_err(|error| error.to_string())
            });
            attempt.end()
        })
    })
}

/// Tries a namespace with a TAP interface, and looks for ping(8).
fn tried_tap() -> Result<(), Support> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    let tried = TRIED
        .get_or_init(|| lab::TapEnd::new().map(drop).map_err(|error| host::text::chain(&error)));
    if let Err(why) = tried {
        let needs = "CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root";
        return Err(Support::unsupported(format!("a TAP interface in a namespace ({why})"), needs));
    }
    if !files::is_installed(tap::PING) {
        let what = format!("this load without {}", tap::PING);
        return Err(Support::unsupported(what, INSTALL_PING));
    }
    Ok(())
}
