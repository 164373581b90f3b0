//! Two namespaces joined by a wire.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::End;
use super::end::{EndSpec, join, quiet_netns};
use super::error::LabError;
use host::net;

/// Configuration of a lab's wire. The default is the kernel's, with one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairSpec {
    /// Transmit and receive queues of each end.
    pub queues: u32,
    /// MTU without the Ethernet header.
    pub mtu_bytes: u32,
    /// Generic receive offload; on a veth it also enables NAPI (see [`crate`]).
    pub gro: bool,
    /// Segmentation offload for TCP and UDP: large packets cross the wire unsegmented.
    pub tso: bool,
    /// Each end has an IPv6 address too, which loads use.
    pub ipv6: bool,
    /// The addresses are on VLAN devices over the wire's interfaces; needs the kernel's module 8021q.
    pub vlan: Option<u16>,
}

impl Default for PairSpec {
    fn default() -> Self {
        PairSpec { queues: 1, mtu_bytes: 1500, gro: false, tso: true, ipv6: false, vlan: None }
    }
}

impl PairSpec {
    pub(super) fn end(&self, ifname: &'static str, number: u8, ip: Option<Ipv4Addr>) -> EndSpec {
        EndSpec {
            ifname,
            // Locally administered; the same in every run, so that captures can be compared.
            mac: [0x02, b'w', b'p', 0, 0, number],
            ip,
            ipv6: ip
                .filter(|_| self.ipv6)
                .map(|_| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into())),
            queues: self.queues.max(1),
            mtu_bytes: self.mtu_bytes,
            gro: self.gro,
            tso: self.tso,
            vlan: self.vlan,
        }
    }
}

/// Address of the near end of every lab.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Address of the far end of every lab.
pub fn pair_far_ip() -> Ipv4Addr {
    FAR
}

pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Two namespaces joined by a wire: `near` is 10.77.0.1/24 on `wp-near`, `far` is
/// 10.77.0.2/24 on `wp-far`, with IPv6 also fd77::1/64 and fd77::2/64.
///
/// Both have a permanent neighbour entry for the other, IPv6 is off unless asked for and loopback is up, so
/// only the load's traffic crosses the wire; with IPv6 also the multicast reports of its first second. Dropping either end removes the wire.
#[derive(Debug)]
pub struct Pair {
    /// The end that measures.
    pub near: End,
    /// The end that answers.
    pub far: End,
}

impl Pair {
    /// Builds the lab; it is ready to carry traffic on return.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new(spec: &PairSpec) -> Result<Self, LabError> {
        let (near, far) = (quiet_netns()?, quiet_netns()?);
        let [near, far] = join(
            (&near, &spec.end("wp-near", 1, Some(NEAR))),
            (&far, &spec.end("wp-far", 2, Some(FAR))),
        )?;
        introduce(&near, &far)?;
        Ok(Pair { near, far })
    }
}

/// Adds each end to the other's neighbour table.
pub(super) fn introduce(near: &End, far: &End) -> Result<(), LabError> {
    for (end, other) in [(near, far), (far, near)] {
        end.run(|| net::set_neighbour(end.ip_ifindex, other.ip, other.mac))??;
        if let Some(ipv6) = other.ipv6 {
            end.run(|| net::set_neighbour(end.ip_ifindex, ipv6, other.mac))??;
        }
    }
    Ok(())
}
