//! The kernel's own forwarder: a bridge between the source's interface and a VXLAN or gretap device, with the
//! obstacles that slow it down on a real host.

use std::net::Ipv4Addr;
use std::{fs, io};

use host::net::{self, GretapSpec, Hook, NetError, VxlanSpec};
use host::netns::Netns;
use host::tune::{ScopedSettings, cpus_to_mask};
use lab::{End, Triple};
use model::{Arm, PathError};
use sys::packet::PacketRx;

use crate::switches::Switch;
use crate::topology::{Encapsulation, FORWARDER_IP, SINK_IP, UNDERLAY_MTU, VNI};

pub(super) const BRIDGE: &str = "wp-br";
pub(super) const VXLAN: &str = "wp-vx";
pub(super) const GRETAP: &str = "wp-gt";
/// MTU of either device.
const DEVICE_MTU: u32 = UNDERLAY_MTU - 50;
const TABLE: &str = "wirepath";
/// Empty chains at each of two hooks while `no-netfilter` is off.
const EMPTY_CHAINS: u32 = 3;

/// Names of the peers without obstacles.
pub(super) const PEER: &str = "kernel";
pub(super) const PEER_GRETAP: &str = "kernel-gretap";

/// The kernel's forwarder: its tunnel device, and the obstacles of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KernelSpec {
    pub(super) encapsulation: Encapsulation,
    pub(super) has_netfilter: bool,
    pub(super) has_capture: bool,
}

impl KernelSpec {
    /// By an arm's switches.
    pub(super) fn new(arm: &Arm) -> KernelSpec {
        KernelSpec {
            encapsulation: Encapsulation::new(arm),
            has_netfilter: !arm.has(Switch::NoNetfilter),
            has_capture: !arm.has(Switch::NoCapture),
        }
    }

    /// No obstacles.
    pub(super) const BEST: KernelSpec = KernelSpec {
        encapsulation: Encapsulation::Vxlan,
        has_netfilter: false,
        has_capture: false,
    };

    /// That of a peer; `None` for a peer that is another program.
    pub(super) fn for_peer(name: &str) -> Option<KernelSpec> {
        let gretap = Encapsulation::Gretap { has_sequence: false };
        match name {
            PEER => Some(KernelSpec::BEST),
            PEER_GRETAP => Some(KernelSpec { encapsulation: gretap, ..KernelSpec::BEST }),
            _ => None,
        }
    }
}

/// The kernel's forwarder in the middle of a lab; gone when dropped.
pub(super) struct KernelForwarder {
    netns: Netns,
    links: Vec<u32>,
    has_table: bool,
    _captures: Vec<PacketRx>,
    _steering: Option<ScopedSettings>,
}

impl KernelForwarder {
    /// - `steer_to`: CPUs of receive packet steering, if it is wanted.
    pub(super) fn new(
        lab: &Triple,
        spec: &KernelSpec,
        steer_to: Option<&[usize]>,
    ) -> Result<Self, PathError> {
        let middle = &lab.middle;
        let mut forwarder = KernelForwarder {
            netns: middle.netns.try_clone().map_err(PathError::part)?,
            links: Vec::new(),
            has_table: false,
            _captures: Vec::new(),
            _steering: None,
        };
        // A partial set-up is removed with `forwarder`.
        let made = middle.netns.run(|| forwarder.build(lab, spec)).map_err(PathError::part)?;
        made.map_err(PathError::part)?;
        let filtered = middle.netns.run(|| filter_bridged(spec.has_netfilter));
        filtered.map_err(PathError::part)?.map_err(PathError::part)?;
        if spec.has_capture {
            let captures = middle.netns.run(|| {
                [&middle.near_if, &middle.far_if].map(|end| PacketRx::open_deaf(end.ifindex))
            });
            for capture in captures.map_err(PathError::part)? {
                let capture = capture
                    .map_err(|e| PathError::at("forwarder", format!("a packet socket: {e}")))?;
                forwarder._captures.push(capture);
            }
        }
        if let Some(cpus) = steer_to {
            let mut held = ScopedSettings::new(&middle.netns).map_err(PathError::part)?;
            for end in [&middle.near_if, &middle.far_if] {
                held.set_all("rps-cpus", &end.ifname, &cpus_to_mask(cpus))
                    .map_err(PathError::part)?;
            }
            forwarder._steering = Some(held);
        }
        Ok(forwarder)
    }

    fn build(&mut self, lab: &Triple, spec: &KernelSpec) -> Result<(), NetError> {
        let bridge = net::create_bridge(BRIDGE)?;
        self.links.push(bridge);
        let underlay = &lab.middle.far_if;
        let device = match spec.encapsulation {
            Encapsulation::Vxlan => net::create_vxlan(&vxlan(FORWARDER_IP, SINK_IP, underlay))?,
            Encapsulation::Gretap { has_sequence } => net::create_gretap(&GretapSpec {
                name: GRETAP,
                local: FORWARDER_IP,
                remote: SINK_IP,
                has_sequence,
                bound_to: Some(underlay.ifindex),
                mtu_bytes: DEVICE_MTU,
            })?,
        };
        self.links.push(device);
        net::set_master(device, Some(bridge))?;
        net::set_master(lab.middle.near_if.ifindex, Some(bridge))?;
        net::set_up(device, true)?;
        net::set_up(bridge, true)?;
        if spec.has_netfilter {
            net::create_empty_hooks(TABLE, &[Hook::Output, Hook::PostRouting], EMPTY_CHAINS)?;
            self.has_table = true;
        }
        Ok(())
    }
}

/// The VXLAN device at one end of the tunnel.
pub(super) fn vxlan(local: Ipv4Addr, remote: Ipv4Addr, bound_to: &End) -> VxlanSpec<'static> {
    VxlanSpec {
        name: VXLAN,
        mac: None,
        vni: VNI,
        local,
        remote,
        port: wire::vxlan::PORT,
        bound_to: Some(bound_to.ifindex),
        tx_queues: 1,
        mtu_bytes: DEVICE_MTU,
    }
}

/// Has bridged packets pass netfilter's hooks of IP, as a new namespace does, or not. Nothing to do without
/// the kernel's bridge netfilter.
fn filter_bridged(on: bool) -> io::Result<()> {
    for family in ["iptables", "ip6tables", "arptables"] {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}");
        match fs::write(path, if on { "1" } else { "0" }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written?,
        }
    }
    Ok(())
}

impl Drop for KernelForwarder {
    fn drop(&mut self) {
        let (links, has_table) = (std::mem::take(&mut self.links), self.has_table);
        // They may be gone with the lab.
        let _ = self.netns.run(|| {
            for link in links.into_iter().rev() {
                let _ = net::delete(link);
            }
            if has_table {
                let _ = net::delete_table(TABLE);
            }
        });
    }
}

/// Tries the kernel's forwarder. Errors: the reason why it is not possible.
pub(super) fn try_kernel(lab: &Triple, spec: &KernelSpec) -> Result<(), String> {
    KernelForwarder::new(lab, spec, None).map(drop).map_err(|e| host::text::chain(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridged_packets_pass_the_hooks_of_ip_only_with_netfilter() {
        let _alone = testkit::alone();
        let lab = crate::topology::build(crate::topology::Offloads::Off).expect("a lab");
        let obstacles = KernelSpec { has_netfilter: true, ..KernelSpec::BEST };
        for (spec, expected) in [(KernelSpec::BEST, "0"), (obstacles, "1"), (KernelSpec::BEST, "0")]
        {
            let _forwarder =
                KernelForwarder::new(&lab, &spec, None).expect("the kernel's forwarder");
            let path = "/proc/sys/net/bridge/bridge-nf-call-iptables";
            let found =
                lab.middle.netns.run(|| fs::read_to_string(path)).expect("the namespace is there");
            // Without the kernel's bridge netfilter the file is missing.
            if let Ok(found) = found {
                assert_eq!(found.trim(), expected);
            }
        }
    }
}
