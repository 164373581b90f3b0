//! A tunnel: its two ends, its carrier, and the rules for the outer header.

use std::net::IpAddr;

use crate::ports::TunnelCarrier;
use wire::vxlan;

/// Encapsulation of the inner frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carrier {
    /// VXLAN over UDP.
    Vxlan {
        /// Network identifier, up to [`vxlan::VNI_MAX`].
        vni: u32,
    },
    /// Ethernet over GRE.
    Gretap {
        /// Key, if the tunnel has one.
        key: Option<u32>,
    },
}

/// Endpoints and carrier, which together identify a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tunnel {
    /// Local address.
    pub local: IpAddr,
    /// Address of the other end, of the same family.
    pub remote: IpAddr,
    /// Encapsulation.
    pub carrier: Carrier,
}

/// Source of a field of the outer IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field<T> {
    /// A fixed value.
    Fixed(T),
    /// Copied from the inner packet; this value for frames that are not IP.
    Inherit(T),
}

/// Fields of the outer headers other than the tunnel's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Source MAC address.
    pub src_mac: [u8; 6],
    /// MAC address of the next hop.
    pub dst_mac: [u8; 6],
    /// Time to live or hop limit, at least 1.
    pub ttl: Field<u8>,
    /// DSCP, 0 to 63. The two ECN bits always follow RFC 6040.
    pub dscp: Field<u8>,
    /// Don't-fragment bit of IPv4. An IPv6 packet inside counts as set: no router would fragment
    /// it.
    pub dont_fragment: Field<bool>,
    /// Largest outer IP packet, in bytes.
    pub mtu_bytes: u16,
    /// UDP port of VXLAN at the other end.
    pub vxlan_port: u16,
    /// Enables the checksum of outer UDP (VXLAN) or GRE. VXLAN over IPv4 has none by default
    /// (RFC 7348); over IPv6 omitting it needs the consent of both ends (RFC 6935, RFC 6936).
    pub has_checksum: bool,
    /// Enables GRE sequence numbers.
    pub has_sequence: bool,
}

impl From<Carrier> for TunnelCarrier {
    fn from(carrier: Carrier) -> Self {
        match carrier {
            Carrier::Vxlan { vni } => TunnelCarrier::Vxlan { vni },
            Carrier::Gretap { key } => TunnelCarrier::Gre { key },
        }
    }
}

impl Outer {
    /// Defaults suggested by RFC 7348, RFC 6040 and RFC 6936 for a tunnel over this next hop.
    pub fn suggested(tunnel: &Tunnel, src_mac: [u8; 6], dst_mac: [u8; 6]) -> Outer {
        let is_vxlan = matches!(tunnel.carrier, Carrier::Vxlan { .. });
        Outer {
            src_mac,
            dst_mac,
            ttl: Field::Fixed(64),
            dscp: Field::Inherit(0),
            dont_fragment: Field::Fixed(true),
            mtu_bytes: 1500,
            vxlan_port: vxlan::PORT,
            has_checksum: is_vxlan && tunnel.remote.is_ipv6(),
            has_sequence: false,
        }
    }
}

/// Error in a tunnel's specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TunnelError {
    /// One end is IPv4, the other IPv6.
    #[error("{local} and {remote} are of different IP versions; give two of one version")]
    Families {
        /// Local address.
        local: IpAddr,
        /// Address of the other end.
        remote: IpAddr,
    },
    /// Unspecified, multicast or broadcast address.
    #[error("{address} cannot be a tunnel endpoint; give a unicast address")]
    Address {
        /// Configured for one end.
        address: IpAddr,
    },
    /// Both ends have the same address.
    #[error("{address} is both endpoints, a loop; give the address of another host")]
    SameEnds {
        /// Configured for both ends.
        address: IpAddr,
    },
    /// The network identifier has more than 24 bits.
    #[error("network identifier {vni} is out of range; give 0 to {}", vxlan::VNI_MAX)]
    Vni {
        /// The identifier.
        vni: u32,
    },
    /// The DSCP has more than six bits.
    #[error("DSCP {dscp} is out of range; give 0 to 63")]
    Dscp {
        /// Configured for the outer header.
        dscp: u8,
    },
    /// A TTL of 0: the first router would drop the packets.
    #[error("time to live 0 is invalid; give 1 to 255, or inherit it")]
    Ttl,
    /// MTU below the minimum of the IP version.
    #[error("an MTU of {mtu_bytes} bytes is too small; give at least {min_bytes}")]
    Mtu {
        /// Configured for the tunnel.
        mtu_bytes: u16,
        /// Minimum MTU of the IP version.
        min_bytes: u16,
    },
}

/// Minimum MTU of a tunnel over IPv4, in bytes.
///
/// Source: RFC 791, section 3.2 (576 bytes that every host accepts).
const MTU_V4_BYTES_MIN: u16 = 576;
/// Minimum MTU of a tunnel over IPv6, in bytes.
///
/// Source: RFC 8200, section 5.
const MTU_V6_BYTES_MIN: u16 = 1280;

/// Minimum MTU of a tunnel to an address, in bytes.
pub(crate) fn mtu_bytes_min(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { MTU_V4_BYTES_MIN } else { MTU_V6_BYTES_MIN }
}

/// Checks a tunnel and its rules.
pub fn check(tunnel: &Tunnel, outer: &Outer) -> Result<(), TunnelError> {
    let Tunnel { local, remote, carrier } = *tunnel;
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(TunnelError::Families { local, remote });
    }
    for address in [local, remote] {
        let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        if address.is_unspecified() || address.is_multicast() || is_broadcast {
            return Err(TunnelError::Address { address });
        }
    }
    if local == remote {
        return Err(TunnelError::SameEnds { address: local });
    }
    if let Carrier::Vxlan { vni } = carrier
        && vni > vxlan::VNI_MAX
    {
        return Err(TunnelError::Vni { vni });
    }
    let (Field::Fixed(dscp) | Field::Inherit(dscp)) = outer.dscp;
    if dscp > 63 {
        return Err(TunnelError::Dscp { dscp });
    }
    let (Field::Fixed(ttl) | Field::Inherit(ttl)) = outer.ttl;
    if ttl == 0 {
        return Err(TunnelError::Ttl);
    }
    let min_bytes = mtu_bytes_min(remote);
    if outer.mtu_bytes < min_bytes {
        return Err(TunnelError::Mtu { mtu_bytes: outer.mtu_bytes, min_bytes });
    }
    Ok(())
}
