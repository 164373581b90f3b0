//! Trials of the tunnel: a source, a forwarder that puts its flow into a VXLAN tunnel, and a
//! sink at the tunnel's other end, in three namespaces.

mod bench;
mod books;
mod kernel;
mod session;
mod sink;
mod source;
mod testpmd;
mod user;

use std::net::Ipv4Addr;
use std::sync::OnceLock;

use host::lab::{PairSpec, Triple};
use model::{Arm, ArmKind, Support};

use super::switches;
use crate::path::{LoadKind, PathError};

pub(super) use bench::Bench;
pub(super) use session::TunnelSession;

/// The tunnel's ends, and its network.
const FORWARDER_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const SINK_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const VNI: u32 = 42;
/// Inner packets of 1500 bytes fit with their outer headers.
const UNDERLAY_MTU: u32 = 1600;
/// Largest UDP payload whose packet is within 1500 bytes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1472;

/// What a load asks of the forwarder beside forwarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extra {
    work_ns: u64,
    police_percent: u8,
}

impl Extra {
    fn of(load: &str) -> Extra {
        let (work_ns, police_percent) = match load {
            "work-35" => (35, 0),
            "work-100" => (100, 0),
            "police-50" => (0, 50),
            _ => (0, 0),
        };
        Extra { work_ns, police_percent }
    }

    fn is_none(self) -> bool {
        self == Extra { work_ns: 0, police_percent: 0 }
    }
}

fn build() -> Result<Triple, PathError> {
    // GRO: the generator's frames reach a veth only when it polls, and every forwarder is to
    // meet the same interfaces.
    let spec = PairSpec { mtu_bytes: UNDERLAY_MTU, gro: true, tso: false, ..PairSpec::default() };
    let lab = Triple::new(&spec).map_err(PathError::part)?;
    kernel::prepare(&lab)?;
    Ok(lab)
}

/// What was tried, each with the reason when it failed.
struct Capabilities {
    lab: Result<(), String>,
    kernel: Result<(), String>,
    netfilter: Result<(), String>,
    user: Result<(), String>,
    cpus: usize,
}

static TRIED: OnceLock<Capabilities> = OnceLock::new();

fn tried() -> &'static Capabilities {
    TRIED.get_or_init(|| {
        let cpus = io::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        match build() {
            Err(error) => {
                let why = crate::text::chain(&error);
                let no = || Err(why.clone());
                Capabilities { lab: no(), kernel: no(), netfilter: no(), user: no(), cpus }
            }
            Ok(lab) => {
                let best = kernel::KernelSpec::best(cpus);
                let filtered = kernel::KernelSpec { has_netfilter: true, ..best };
                Capabilities {
                    lab: Ok(()),
                    kernel: kernel::try_kernel(&lab, &best),
                    netfilter: kernel::try_kernel(&lab, &filtered),
                    user: user::try_user(&lab),
                    cpus,
                }
            }
        }
    })
}

/// Whether an arm can be had here under a load.
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
    let arm = &effective(arm, load);
    if let Some(why) = switches::contradiction(arm) {
        return Support::Refused { why };
    }
    let on_bare_metal = [
        (
            "flow-hash",
            "a flow hash by the driver on veth",
            "a NIC whose driver hashes; a veth has none, and the stack hashes for itself",
        ),
        (
            "aligned-buffers",
            "buffers that an erratum makes the driver copy",
            "a NIC with that erratum; a veth has no DMA",
        ),
    ];
    if let Some((_, what, needs)) = on_bare_metal.into_iter().find(|(id, ..)| arm.has(id)) {
        return Support::unsupported(what, needs);
    }
    let needs_two = |id: &str| {
        (arm.has(id) && tried.cpus < 2)
            .then(|| Support::unsupported(format!("{id} with one CPU"), "give it two CPUs"))
    };
    let missing = match arm.has("bypass") {
        true => no("AF_XDP in native mode on veth", &tried.user),
        false => no("the kernel's VXLAN device and bridge", &tried.kernel).or_else(|| {
            let is_filtered = !arm.has("no-netfilter");
            is_filtered.then(|| no("nftables in the kernel", &tried.netfilter)).flatten()
        }),
    };
    missing.or_else(|| needs_two("rps")).or_else(|| needs_two("parallel")).unwrap_or(Support::Yes)
}

/// The arm with what its load brings along.
fn effective(arm: &Arm, load: &str) -> Arm {
    let mut arm = arm.clone();
    if !Extra::of(load).is_none() && !arm.has("bypass") {
        arm.switches.push("bypass".into());
    }
    arm
}
