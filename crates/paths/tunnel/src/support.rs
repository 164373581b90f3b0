//! Support for arms on this host, found by trying in a throw-away lab.

use std::sync::OnceLock;

use model::{Arm, ArmKind, LoadKind, Support};

use crate::switches::{self, Switch, effective};
use crate::topology::{Extra, Offloads, build};
use crate::user::Front;
use crate::{kernel, testpmd, user};

/// Results of the attempts, with the reasons of failures.
struct Capabilities {
    lab: Result<(), String>,
    kernel: Result<(), String>,
    netfilter: Result<(), String>,
    user: Result<(), String>,
    in_kernel: Result<(), String>,
    tcx: Result<(), String>,
    cpus: usize,
}

static TRIED: OnceLock<Capabilities> = OnceLock::new();

fn tried() -> &'static Capabilities {
    TRIED.get_or_init(|| {
        let cpus = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        match build(Offloads::Off) {
            Err(error) => {
                let why = host::text::chain(&error);
                let no = || Err(why.clone());
                Capabilities {
                    lab: no(),
                    kernel: no(),
                    netfilter: no(),
                    user: no(),
                    in_kernel: no(),
                    tcx: no(),
                    cpus,
                }
            }
            Ok(lab) => {
                let best = kernel::KernelSpec::BEST;
                let filtered = kernel::KernelSpec { has_netfilter: true, ..best };
                Capabilities {
                    lab: Ok(()),
                    kernel: kernel::try_kernel(&lab, &best),
                    netfilter: kernel::try_kernel(&lab, &filtered),
                    user: user::try_user(&lab, Front::Workers),
                    in_kernel: user::try_user(&lab, Front::Xdp),
                    tcx: user::try_user(&lab, Front::Tcx),
                    cpus,
                }
            }
        }
    })
}

/// Support for an arm under a load on this host.
pub(super) fn support(arm: &Arm, load: &str, loads: &[LoadKind]) -> Support {
    let tried = tried();
    let no = |what: &str, why: &Result<(), String>| match why {
        Ok(()) => None,
        Err(why) => Some(Support::unsupported(what, why.clone())),
    };
    let kernel = || {
        no("the kernel's VXLAN device and bridge", &tried.kernel).or_else(|| {
            (!Extra::of(load).is_none()).then(|| Support::Refused {
                why: format!(
                    "load {load} is work inside our own forwarder, which the kernel's does not \
                     do; compare arms with bypass, or take load flood"
                ),
            })
        })
    };
    if let Some(missing) = no("a lab of network namespaces", &tried.lab) {
        return missing;
    }
    if arm.kind == ArmKind::Peer {
        return match arm.name.as_str() {
            "kernel" => kernel().unwrap_or(Support::Yes),
            name => testpmd::support(name, load, loads),
        };
    }
    if !Extra::of(load).is_none()
        && let Some(why) = switches::misplaced(arm, load)
    {
        return Support::Refused { why };
    }
    let has_offloads = Offloads::of(load) == Offloads::Default;
    if has_offloads && arm.has(Switch::Bypass) && !arm.has(Switch::InKernel) {
        return Support::unsupported(
            format!("load {load} under bypass alone"),
            "sockets leave checksums and segmentation to the interface, and AF_XDP sees neither: add \
             in-kernel, or take arms without bypass",
        );
    }
    let arm = &effective(arm, load);
    if let Some(why) = switches::contradiction(arm) {
        return Support::Refused { why };
    }
    if let Some(why) = switches::only_slow(arm, load) {
        return Support::Refused { why };
    }
    let needs_two = |switch: Switch| {
        (arm.has(switch) && tried.cpus < 2)
            .then(|| Support::unsupported(format!("{switch} with one CPU"), "give it two CPUs"))
    };
    let missing = match arm.has(Switch::Bypass) {
        true if has_offloads => no("forwarding by tcx programs", &tried.tcx),
        true => no("AF_XDP in native mode on veth", &tried.user).or_else(|| {
            let is_in_kernel = arm.has(Switch::InKernel);
            is_in_kernel.then(|| no("forwarding by XDP programs", &tried.in_kernel)).flatten()
        }),
        false => no("the kernel's VXLAN device and bridge", &tried.kernel).or_else(|| {
            let is_filtered = !arm.has(Switch::NoNetfilter);
            is_filtered.then(|| no("nftables in the kernel", &tried.netfilter)).flatten()
        }),
    };
    missing
        .or_else(|| needs_two(Switch::Rps))
        .or_else(|| needs_two(Switch::Parallel))
        .unwrap_or(Support::Yes)
}
