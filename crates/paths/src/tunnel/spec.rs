//! A tunnel: its two ends, what carries the frames, and the rules for the outer header.

use std::net::IpAddr;

use wire::vxlan;

/// What carries the inner frames.
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

/// The two ends and the carrier: what tells a tunnel from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tunnel {
    /// Our address.
    pub local: IpAddr,
    /// Address of the other end, of the same family.
    pub remote: IpAddr,
    /// What carries the frames.
    pub carrier: Carrier,
}

/// Where a field of the outer IP header comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field<T> {
    /// Always this.
    Fixed(T),
    /// The inner packet's; what is not IP gets this.
    Inherit(T),
}

/// What the outer header says beside the tunnel's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Our MAC address on the way to the other end.
    pub src_mac: [u8; 6],
    /// MAC address of the next hop.
    pub dst_mac: [u8; 6],
    /// Time to live or hop limit, at least 1.
    pub ttl: Field<u8>,
    /// DSCP, 0 to 63. The two bits of ECN always follow RFC 6040.
    pub dscp: Field<u8>,
    /// Whether routers must not fragment; of IPv4 only. What an IPv6 packet inside says counts
    /// as yes: nobody on its way would fragment it.
    pub dont_fragment: Field<bool>,
    /// Largest outer IP packet, in bytes.
    pub mtu_bytes: u16,
    /// UDP port of VXLAN at the other end.
    pub vxlan_port: u16,
    /// Whether outer UDP (VXLAN) or GRE has a checksum. VXLAN over IPv4 goes without by
    /// default (RFC 7348); over IPv6 that needs both ends' consent (RFC 6935, RFC 6936).
    pub has_checksum: bool,
    /// Whether GRE carries sequence numbers.
    pub has_sequence: bool,
}

impl Outer {
    /// The rules that RFC 7348, RFC 6040 and RFC 6936 suggest for a tunnel over this next hop.
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

/// Why a tunnel cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TunnelError {
    /// One end is IPv4, the other IPv6.
    #[error("the ends {local} and {remote} are of different IP versions; give two of one version")]
    Families {
        /// Our end.
        local: IpAddr,
        /// The other.
        remote: IpAddr,
    },
    /// An end that cannot be one.
    #[error("{address} cannot be an end of a tunnel; give an address of one host")]
    Address {
        /// The address.
        address: IpAddr,
    },
    /// Both ends are the same.
    #[error("{address} is both ends; a tunnel to oneself is a loop")]
    SameEnds {
        /// The address.
        address: IpAddr,
    },
    /// The network identifier has more than 24 bits.
    #[error("network identifier {vni}; give 0 to {}", vxlan::VNI_MAX)]
    Vni {
        /// The identifier.
        vni: u32,
    },
    /// The class has more than six bits.
    #[error("DSCP {dscp}; give 0 to 63")]
    Dscp {
        /// The class.
        dscp: u8,
    },
    /// Packets would die at once.
    #[error("a time to live of 0; give 1 to 255, or inherit it")]
    Ttl,
    /// Not even an empty frame fits.
    #[error("an MTU of {mtu_bytes} bytes; give at least {min_bytes}")]
    Mtu {
        /// The MTU.
        mtu_bytes: u16,
        /// What IP wants every link to carry.
        min_bytes: u16,
    },
}

/// Smallest MTU of a link for IPv4 with room for a tunnel, in bytes.
///
/// Source: RFC 791, section 3.2 (576 bytes that every host accepts).
const MTU_V4_BYTES_MIN: u16 = 576;
/// Smallest MTU of a link for IPv6, in bytes.
///
/// Source: RFC 8200, section 5.
const MTU_V6_BYTES_MIN: u16 = 1280;

/// Checks that a tunnel and its rules make sense.
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
    let min_bytes = if remote.is_ipv4() { MTU_V4_BYTES_MIN } else { MTU_V6_BYTES_MIN };
    if outer.mtu_bytes < min_bytes {
        return Err(TunnelError::Mtu { mtu_bytes: outer.mtu_bytes, min_bytes });
    }
    Ok(())
}
