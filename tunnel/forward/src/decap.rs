//! Decapsulation: checks a frame from the network down to its inner frame. No bytes are moved or
//! copied.

use std::net::IpAddr;

use wire::ecn::{self, Ecn};
use wire::{FrameError, ethernet, gre, ipv4, ipv6, udp, vxlan};

use super::encap::PacketPlace;
use super::inner::{self, Nesting};
use super::spec::{Carrier, Tunnel};

/// Reason for a frame that is not decapsulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DropReason {
    /// Neither IPv4 nor IPv6. Foreign.
    #[error("not an IP packet")]
    NotIp,
    /// Addressed to another host. Foreign.
    #[error("not addressed to a local tunnel endpoint")]
    NotOurAddress,
    /// Neither GRE nor UDP to the VXLAN port. Foreign.
    #[error("not a tunnel packet")]
    NotTunnel,
    /// Shorter than its headers.
    #[error("truncated headers")]
    Truncated,
    /// Wrong version or length in the outer IP header.
    #[error("malformed IP header")]
    IpHeader,
    /// Wrong outer IPv4 checksum.
    #[error("wrong IPv4 checksum")]
    IpChecksum,
    /// Fragment of an outer packet; tunnels here do not reassemble.
    #[error("fragment of an outer packet")]
    Fragment,
    /// UDP length inconsistent with the packet.
    #[error("wrong UDP length")]
    UdpLength,
    /// Wrong UDP checksum.
    #[error("wrong UDP checksum")]
    UdpChecksum,
    /// No UDP checksum over IPv6, although both ends have not agreed on that.
    #[error("missing UDP checksum over IPv6")]
    NoUdpChecksum,
    /// VXLAN header without a network identifier.
    #[error("VXLAN header without a network identifier")]
    VxlanFlags,
    /// Unsupported GRE version or option.
    #[error("unsupported GRE version or option")]
    GreHeader,
    /// Wrong GRE checksum.
    #[error("wrong GRE checksum")]
    GreChecksum,
    /// GRE payload other than Ethernet.
    #[error("GRE without an Ethernet frame")]
    GreType,
    /// Sender, network or key matches no configured tunnel.
    #[error("unknown tunnel")]
    UnknownTunnel,
    /// Sent from a local tunnel address.
    #[error("own packet returned")]
    OwnPacket,
    /// The inner frame is shorter than an Ethernet header.
    #[error("inner frame shorter than an Ethernet header")]
    InnerRunt,
    /// The inner frame is longer than allowed.
    #[error("inner frame longer than allowed")]
    InnerTooBig,
    /// More nested tunnels than allowed.
    #[error("tunnels nested too deep")]
    NestedTooDeep,
    /// The inner frame is a packet between the ends of the same tunnel.
    #[error("packet of the tunnel inside itself (loop)")]
    Looped,
    /// Congestion was marked on the path, and the inner packet cannot carry the mark: only its loss
    /// can signal it.
    #[error("congestion marked, and the inner packet cannot carry the mark")]
    Congestion,
}

impl DropReason {
    /// All reasons, in the order of [`Self::index`].
    pub const ALL: [DropReason; 21] = [
        DropReason::NotIp,
        DropReason::NotOurAddress,
        DropReason::NotTunnel,
        DropReason::Truncated,
        DropReason::IpHeader,
        DropReason::IpChecksum,
        DropReason::Fragment,
        DropReason::UdpLength,
        DropReason::UdpChecksum,
        DropReason::NoUdpChecksum,
        DropReason::VxlanFlags,
        DropReason::GreHeader,
        DropReason::GreChecksum,
        DropReason::GreType,
        DropReason::UnknownTunnel,
        DropReason::OwnPacket,
        DropReason::InnerRunt,
        DropReason::InnerTooBig,
        DropReason::NestedTooDeep,
        DropReason::Looped,
        DropReason::Congestion,
    ];

    /// Index in [`Self::ALL`], for an array of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::NotIp => "not_ip",
            DropReason::NotOurAddress => "not_our_address",
            DropReason::NotTunnel => "not_tunnel",
            DropReason::Truncated => "truncated",
            DropReason::IpHeader => "ip_header",
            DropReason::IpChecksum => "ip_checksum",
            DropReason::Fragment => "fragment",
            DropReason::UdpLength => "udp_length",
            DropReason::UdpChecksum => "udp_checksum",
            DropReason::NoUdpChecksum => "no_udp_checksum",
            DropReason::VxlanFlags => "vxlan_flags",
            DropReason::GreHeader => "gre_header",
            DropReason::GreChecksum => "gre_checksum",
            DropReason::GreType => "gre_type",
            DropReason::UnknownTunnel => "unknown_tunnel",
            DropReason::OwnPacket => "own_packet",
            DropReason::InnerRunt => "inner_runt",
            DropReason::InnerTooBig => "inner_too_big",
            DropReason::NestedTooDeep => "nested_too_deep",
            DropReason::Looped => "looped",
            DropReason::Congestion => "congestion",
        }
    }

    /// True if the frame belongs to no tunnel and goes to the host's own stack.
    pub fn is_foreign(self) -> bool {
        matches!(self, DropReason::NotIp | DropReason::NotOurAddress | DropReason::NotTunnel)
    }
}

/// Configuration of decapsulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecapSpec {
    /// Local tunnels; [`Inner::tunnel`] is an index into them.
    pub tunnels: Vec<Tunnel>,
    /// Local UDP port of VXLAN.
    pub vxlan_port: u16,
    /// True to accept VXLAN over IPv6 without UDP checksum (RFC 6935, RFC 6936).
    pub accepts_no_checksum_v6: bool,
    /// Longest inner frame, in bytes from its Ethernet header on.
    pub inner_bytes_max: usize,
    /// Maximum depth of tunnels in an inner frame.
    pub nested_max: usize,
}

impl Default for DecapSpec {
    fn default() -> Self {
        DecapSpec {
            tunnels: Vec::new(),
            vxlan_port: vxlan::PORT,
            accepts_no_checksum_v6: false,
            inner_bytes_max: 1518,
            nested_max: 1,
        }
    }
}

/// A decapsulated frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inner {
    /// Position in the buffer.
    pub place: PacketPlace,
    /// Index in [`DecapSpec::tunnels`].
    pub tunnel: usize,
    /// GRE sequence number, if present.
    pub sequence: Option<u32>,
    /// True for a combination of congestion marks that correct senders and tunnels never produce.
    pub has_odd_ecn: bool,
}

/// Checks frames from the network.
#[derive(Debug, Clone)]
pub struct Decap {
    spec: DecapSpec,
    /// Tunnels with their indexes, sorted.
    sorted: Vec<(Tunnel, usize)>,
    /// Local addresses, sorted.
    locals: Vec<IpAddr>,
}

/// The outer IP header, checked.
struct OuterIp {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    service: u8,
    /// Range of its payload in the frame.
    payload: std::ops::Range<usize>,
}

impl Decap {
    /// - `spec`: if a tunnel is listed twice, its first index is used.
    pub fn new(spec: DecapSpec) -> Decap {
        let mut sorted: Vec<_> =
            spec.tunnels.iter().enumerate().map(|(index, tunnel)| (*tunnel, index)).collect();
        sorted.sort();
        sorted.dedup_by_key(|(tunnel, _)| *tunnel);
        let mut locals: Vec<_> = spec.tunnels.iter().map(|tunnel| tunnel.local).collect();
        locals.sort();
        locals.dedup();
        Decap { spec, sorted, locals }
    }

    /// The specification.
    pub fn spec(&self) -> &DecapSpec {
        &self.spec
    }

    /// Finds the inner frame and updates its congestion mark (RFC 6040).
    ///
    /// - `buffer`: buffer of the frame.
    /// - `frame`: the frame from the network, from its outer Ethernet header on.
    ///
    /// On an error the buffer is untouched.
    #[inline]
    pub fn open(&self, buffer: &mut [u8], frame: PacketPlace) -> Result<Inner, DropReason> {
        let end = frame.at.checked_add(frame.len).ok_or(DropReason::Truncated)?;
        let bytes = buffer.get_mut(frame.at..end).ok_or(DropReason::Truncated)?;
        let (found, service) = self.find(bytes)?;
        let inner = bytes.get_mut(found.place.at..).ok_or(DropReason::Truncated)?;
        let inner = inner.get_mut(..found.place.len).ok_or(DropReason::Truncated)?;
        let ends = (self.tunnel_ends(found.tunnel)).ok_or(DropReason::UnknownTunnel)?;
        match inner::nesting(inner, ends, self.spec.vxlan_port, self.spec.nested_max) {
            Nesting::Fine => {}
            Nesting::TooDeep => return Err(DropReason::NestedTooDeep),
            Nesting::Looped => return Err(DropReason::Looped),
        }
        let mut has_odd_ecn = false;
        if let Some(ip) = inner::ip(inner)
            && let Some(inner_service) = ip.service(inner)
        {
            let mark = Ecn::of_service(inner_service.service);
            let combined =
                ecn::decapsulate(mark, Ecn::of_service(service)).ok_or(DropReason::Congestion)?;
            has_odd_ecn = combined.is_odd;
            if combined.ecn != mark {
                ip.set_ecn(inner, combined.ecn);
            }
        }
        let place = PacketPlace { at: frame.at + found.place.at, len: found.place.len };
        Ok(Inner { place, has_odd_ecn, ..found })
    }

    fn tunnel_ends(&self, tunnel: usize) -> Option<(IpAddr, IpAddr)> {
        self.spec.tunnels.get(tunnel).map(|tunnel| (tunnel.remote, tunnel.local))
    }

    /// Parses the outer headers. Returns the inner frame and the outer class of service.
    #[inline]
    fn find(&self, frame: &[u8]) -> Result<(Inner, u8), DropReason> {
        let ethernet = ethernet::Packet::parse(frame).map_err(|_| DropReason::Truncated)?;
        let ip_at = ethernet.header_bytes();
        let ip = match ethernet.ethertype() {
            ethernet::TYPE_IPV4 => self.v4(frame, ip_at)?,
            ethernet::TYPE_IPV6 => self.v6(frame, ip_at)?,
            _ => return Err(DropReason::NotIp),
        };
        let packet = frame.get(ip.payload.clone()).ok_or(DropReason::Truncated)?;
        let (carrier, header_bytes, inner_end, sequence) = match ip.protocol {
            ipv4::PROTOCOL_UDP => self.vxlan(packet, &ip)?,
            gre::PROTOCOL => gretap(packet)?,
            _ => return Err(DropReason::NotTunnel),
        };
        if self.locals.binary_search(&ip.src).is_ok() {
            return Err(DropReason::OwnPacket);
        }
        let tunnel = self.lookup(&Tunnel { local: ip.dst, remote: ip.src, carrier })?;
        let len = inner_end - header_bytes;
        if len < ethernet::HEADER_BYTES {
            return Err(DropReason::InnerRunt);
        }
        if len > self.spec.inner_bytes_max {
            return Err(DropReason::InnerTooBig);
        }
        let place = PacketPlace { at: ip.payload.start + header_bytes, len };
        Ok((Inner { place, tunnel, sequence, has_odd_ecn: false }, ip.service))
    }

    fn lookup(&self, tunnel: &Tunnel) -> Result<usize, DropReason> {
        // A single tunnel, the usual case, needs no search.
        if let [(only, index)] = &self.sorted[..] {
            return if only == tunnel { Ok(*index) } else { Err(DropReason::UnknownTunnel) };
        }
        let found = self.sorted.binary_search_by(|(known, _)| known.cmp(tunnel));
        found.map(|at| self.sorted[at].1).map_err(|_| DropReason::UnknownTunnel)
    }

    fn is_ours(&self, address: IpAddr) -> bool {
        match &self.locals[..] {
            [only] => *only == address,
            locals => locals.binary_search(&address).is_ok(),
        }
    }

    #[inline]
    fn v4(&self, frame: &[u8], at: usize) -> Result<OuterIp, DropReason> {
        let rest = frame.get(at..).unwrap_or(&[]);
        let packet = ipv4::Packet::parse(rest).map_err(|error| ip_drop_reason(&error))?;
        let header = packet.header();
        if !self.is_ours(header.dst().into()) {
            return Err(DropReason::NotOurAddress);
        }
        packet.verify_checksum().map_err(|_| DropReason::IpChecksum)?;
        if header.is_fragment() {
            return Err(DropReason::Fragment);
        }
        let start = at + header.header_bytes();
        Ok(OuterIp {
            src: header.src().into(),
            dst: header.dst().into(),
            protocol: header.protocol(),
            service: header.service(),
            payload: start..start + header.payload_bytes(),
        })
    }

    #[inline]
    fn v6(&self, frame: &[u8], at: usize) -> Result<OuterIp, DropReason> {
        let rest = frame.get(at..).unwrap_or(&[]);
        let header =
            ipv6::Header::parse(rest, rest.len()).map_err(|error| ip_drop_reason(&error))?;
        if !self.is_ours(header.dst().into()) {
            return Err(DropReason::NotOurAddress);
        }
        if header.is_fragment() {
            return Err(DropReason::Fragment);
        }
        let start = at + ipv6::HEADER_BYTES;
        Ok(OuterIp {
            src: header.src().into(),
            dst: header.dst().into(),
            protocol: header.next(),
            service: header.service(),
            payload: start..start + header.payload_bytes(),
        })
    }

    #[inline]
    fn vxlan(&self, packet: &[u8], ip: &OuterIp) -> Result<Opened, DropReason> {
        let header = udp::Header::parse(packet, packet.len()).map_err(|error| match error {
            FrameError::Short { .. } => DropReason::Truncated,
            _ => DropReason::UdpLength,
        })?;
        if header.dst_port() != self.spec.vxlan_port {
            return Err(DropReason::NotTunnel);
        }
        let datagram = &packet[..udp::HEADER_BYTES + header.payload_bytes()];
        match (ip.src, ip.dst) {
            _ if header.checksum() == 0 => {
                if ip.dst.is_ipv6() && !self.spec.accepts_no_checksum_v6 {
                    return Err(DropReason::NoUdpChecksum);
                }
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                ipv6::verify_udp_checksum(datagram, src, dst)
                    .map_err(|_| DropReason::UdpChecksum)?;
            }
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                udp::Packet::parse(datagram)
                    .and_then(|packet| packet.verify_checksum(src, dst))
                    .map_err(|_| DropReason::UdpChecksum)?;
            }
            // Unreachable: both addresses come from one header.
            _ => return Err(DropReason::IpHeader),
        }
        let payload = &datagram[udp::HEADER_BYTES..];
        let vni = vxlan::parse(payload).map_err(|error| match error {
            FrameError::Short { .. } => DropReason::Truncated,
            _ => DropReason::VxlanFlags,
        })?;
        let header_bytes = udp::HEADER_BYTES + vxlan::HEADER_BYTES;
        Ok((Carrier::Vxlan { vni }, header_bytes, datagram.len(), None))
    }
}

/// Carrier, size of its headers, end of the inner frame in the packet, sequence number.
type Opened = (Carrier, usize, usize, Option<u32>);

#[inline]
fn gretap(packet: &[u8]) -> Result<Opened, DropReason> {
    let header = gre::Repr::parse(packet).map_err(|error| match error {
        FrameError::Short { .. } => DropReason::Truncated,
        _ => DropReason::GreHeader,
    })?;
    if header.ethertype != gre::TYPE_BRIDGED {
        return Err(DropReason::GreType);
    }
    if header.has_checksum {
        gre::verify_checksum(packet).map_err(|_| DropReason::GreChecksum)?;
    }
    let carrier = Carrier::Gretap { key: header.key };
    Ok((carrier, header.header_bytes(), packet.len(), header.sequence))
}

fn ip_drop_reason(error: &FrameError) -> DropReason {
    match error {
        FrameError::Short { .. } => DropReason::Truncated,
        _ => DropReason::IpHeader,
    }
}
