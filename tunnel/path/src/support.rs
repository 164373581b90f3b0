//! Support for arms on this host, found by trying in a throw-away lab.

use std::sync::OnceLock;

use lab::host_rights::{self, BPF};
use model::{Arm, ArmKind, PathLoad, Support};

use crate::path::TunnelLoad;
use crate::switches::{self, Switch, effective};
use crate::topology::{Encapsulation, Extra, Offloads, build};
use crate::user::Front;
use crate::{kernel, testpmd, user};

/// Results of the attempts, with the reasons of failures.
struct Capabilities {
    lab: Result<(), String>,
    kernel: Result<(), String>,
    netfilter: Result<(), String>,
    gretap: Result<(), String>,
    user: Result<(), String>,
    in_kernel: Result<(), String>,
    tcx: Result<(), String>,
    cpus: usize,
}

/// The need of the kernel's forwarder.
const KERNEL: &str = "the kernel's VXLAN device and bridge";
const KERNEL_GRETAP: &str = "the kernel's gretap device";

static TRIED: OnceLock<Capabilities> = OnceLock::new();

fn tried() -> &'static Capabilities {
    TRIED.get_or_init(|| {
        let cpus = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        match build(Offloads::Off) {
            Err(error) => {
                let why = host::text::chain(&error);
                let [lab, kernel, netfilter, gretap, user, in_kernel, tcx] =
                    [(); 7].map(|()| Err(why.clone()));
                Capabilities { lab, kernel, netfilter, gretap, user, in_kernel, tcx, cpus }
            }
            Ok(lab) => {
                let best = kernel::KernelSpec::BEST;
                let filtered = kernel::KernelSpec { has_netfilter: true, ..best };
                let gretap = Encapsulation::Gretap { has_sequence: false };
                let gretap = kernel::KernelSpec { encapsulation: gretap, ..best };
                Capabilities {
                    lab: Ok(()),
                    kernel: kernel::try_kernel(&lab, &best),
                    netfilter: kernel::try_kernel(&lab, &filtered),
                    gretap: kernel::try_kernel(&lab, &gretap).map_err(gretap_need),
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
pub(super) fn support(arm: &Arm, load: TunnelLoad) -> Support {
    let tried = tried();
    if let Some(missing) = missing("a lab of network namespaces", &tried.lab) {
        return missing;
    }
    // The source, and in most loads the sink, is a BPF program.
    if Offloads::of(load) == Offloads::Off
        && let Some(denied) = host_rights::denied_load(load.kind().name, BPF)
    {
        return denied;
    }
    if arm.kind == ArmKind::Peer {
        return match arm.name.as_str() {
            kernel::PEER => kernel_support(load, tried),
            kernel::PEER_GRETAP if load.kind().peers.contains(&kernel::PEER_GRETAP) => {
                missing(KERNEL_GRETAP, &tried.gretap).unwrap_or(Support::Yes)
            }
            name => testpmd::support(name, load),
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
    if has_offloads && arm.has(Switch::Gretap) {
        return Support::Refused {
            why: format!(
                "load {load} ends in the kernel's VXLAN device; without gretap, or take load flood"
            ),
        };
    }
    if let Some(why) = switches::without_hash(arm, load) {
        return Support::Refused { why };
    }
    let arm = &effective(arm, load);
    if let Some(why) = switches::contradiction(arm) {
        return Support::Refused { why };
    }
    if let Some(why) = switches::only_slow(arm, load) {
        return Support::Refused { why };
    }
    let mut needs = Vec::new();
    if !arm.has(Switch::Bypass) {
        needs.push(match Encapsulation::new(arm) {
            Encapsulation::Vxlan => (KERNEL, &tried.kernel),
            Encapsulation::Gretap { .. } => (KERNEL_GRETAP, &tried.gretap),
        });
        if !arm.has(Switch::NoNetfilter) {
            needs.push(("nftables in the kernel", &tried.netfilter));
        }
    } else if has_offloads {
        needs.push(("forwarding by tcx programs", &tried.tcx));
    } else {
        needs.push(("AF_XDP in native mode on veth", &tried.user));
        if arm.has(Switch::InKernel) {
            needs.push(("forwarding by XDP programs", &tried.in_kernel));
        }
    }
    if let Some(missing) = needs.into_iter().find_map(|(what, why)| missing(what, why)) {
        return missing;
    }
    let of_two_cpus = [Switch::Rps, Switch::Parallel].into_iter().find(|it| arm.has(*it));
    match of_two_cpus {
        Some(switch) if tried.cpus < 2 => {
            Support::unsupported(format!("{switch} with one CPU"), "give it two CPUs")
        }
        _ => Support::Yes,
    }
}

/// Support of the peer `kernel`.
fn kernel_support(load: TunnelLoad, tried: &Capabilities) -> Support {
    if let Some(missing) = missing(KERNEL, &tried.kernel) {
        return missing;
    }
    if Extra::of(load).is_none() {
        return Support::Yes;
    }
    Support::Refused {
        why: format!(
            "load {load} is work inside our own forwarder, which the kernel's does not do; compare \
             arms with bypass, or take load flood"
        ),
    }
}

/// The reason of a gretap device that cannot be made, with the remedy.
fn gretap_need(why: String) -> String {
    format!("the module ip_gre, or bypass for our own forwarder ({why})")
}

/// The need that is not there, with the reason.
fn missing(what: &str, tried: &Result<(), String>) -> Option<Support> {
    let why = tried.as_ref().err()?;
    Some(Support::unsupported(what, why.clone()))
}
