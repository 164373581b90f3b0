//! Body of the fuzz target `decap`. The committed corpus and the property tests call the same
//! function.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::offload::{self, Cut};
use wire::{checksum, ethernet, gre, ipv4, ipv6, udp, vxlan};

use super::decap::{Decap, DecapSpec, DropReason, Inner};
use super::encap::{Encap, HEADERS_BYTES_MAX, Mark, PacketPlace};
use super::inner::{self, Ip};
use super::pmtu::{self, MtuAnswer};
use super::spec::{Carrier, Field, Outer, Tunnel};

/// IPv4 endpoints of the tunnels below, local first.
pub const ENDS_V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
/// IPv6 endpoints.
pub const ENDS_V6: (Ipv6Addr, Ipv6Addr) =
    (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
/// Longest accepted inner frame.
pub const INNER_BYTES_MAX: usize = 1518;
/// Bit of the mode byte: correct the checksums first, so that the code behind them is reached.
pub const MEND: u8 = 1;
/// Bit of the mode byte: accept VXLAN over IPv6 without checksum.
pub const NO_CHECKSUM_V6: u8 = 2;
/// Shift of the mode byte: index of the tunnel that the frame is sent through as well.
pub const TUNNEL_SHIFT: u32 = 2;

/// Tunnels of the receiver.
pub fn tunnels() -> Vec<Tunnel> {
    let v4 = (IpAddr::from(ENDS_V4.0), IpAddr::from(ENDS_V4.1));
    let v6 = (IpAddr::from(ENDS_V6.0), IpAddr::from(ENDS_V6.1));
    let carriers = [
        Carrier::Vxlan { vni: 42 },
        Carrier::Gretap { key: None },
        Carrier::Gretap { key: Some(7) },
    ];
    [v4, v6]
        .into_iter()
        .flat_map(|(local, remote)| carriers.map(|carrier| Tunnel { local, remote, carrier }))
        .collect()
}

/// Runs one input: a mode byte ([`MEND`], [`NO_CHECKSUM_V6`], [`TUNNEL_SHIFT`]), then a frame from
/// the network.
///
/// - Opening any frame returns a reason and leaves the buffer untouched, or returns an inner frame
///   that is in bounds and contains no packet of the tunnel.
/// - The inner frame is unchanged after another tunnel there and back.
/// - Any input, taken as an inner frame, is returned unchanged or refused with a reason.
/// - Work that its sender left to a device is done in bounds.
pub fn decap(input: &[u8]) {
    let Some((modes, bytes)) = input.split_first() else { return };
    let mut frame = bytes.to_vec();
    if modes & MEND != 0 {
        mend(&mut frame);
    }
    let spec = DecapSpec {
        tunnels: tunnels(),
        accepts_no_checksum_v6: modes & NO_CHECKSUM_V6 != 0,
        inner_bytes_max: INNER_BYTES_MAX,
        ..DecapSpec::default()
    };
    let decap = Decap::new(spec);
    let before = frame.clone();
    let whole = PacketPlace { at: 0, len: frame.len() };
    match decap.open(&mut frame, whole) {
        Err(_) => assert_eq!(frame, before, "a dropped frame was changed"),
        Ok(inner) => {
            check_opened(&frame, &before, inner);
            let PacketPlace { at, len } = inner.place;
            there_and_back(&decap, *modes, &frame[at..at + len]);
        }
    }
    there_and_back(&decap, *modes, bytes);
    too_big(bytes);
    quoted(bytes);
    left_to_a_device(bytes);
}

/// A packet that a router quotes is of no tunnel, or has a length that an IP packet can have.
fn quoted(packet: &[u8]) {
    for tunnel in tunnels() {
        let outer = Outer::suggested(&tunnel, [2; 6], [4; 6]);
        let quoted = Encap::new(tunnel, outer).ok().and_then(|encap| encap.quoted_bytes(packet));
        assert!(quoted.is_none_or(|bytes| bytes <= ipv6::HEADER_BYTES as u32 + 0xffff));
    }
}

/// Checksums are finished in bounds, and a super-frame is cut into frames that end.
fn left_to_a_device(bytes: &[u8]) {
    let mut frame = bytes.to_vec();
    offload::finish_left(&mut frame, vxlan::PORT);
    assert_eq!(frame.len(), bytes.len());
    // The headers of TCP or UDP behind Ethernet and each IP, and behind VXLAN.
    for start in [34, 54, 84, 104] {
        let Some(mut cut) = Cut::of(bytes, start, 64, vxlan::PORT) else { continue };
        let mut into = vec![0; bytes.len()];
        let mut count = 0;
        while cut.next(bytes, &mut into).is_some() {
            count += 1;
        }
        assert!(count <= bytes.len(), "a frame without payload");
    }
}

/// A packet that does not fit is answered in bounds, or left as it is; a SYN keeps its length.
fn too_big(frame: &[u8]) {
    let mut clamped = frame.to_vec();
    pmtu::clamp_mss(&mut clamped, INNER_BYTES_MAX);
    assert!(!pmtu::clamp_mss(&mut clamped, INNER_BYTES_MAX), "clamped twice");
    let mut buffer = vec![0xcc; HEADERS_BYTES_MAX];
    buffer.extend_from_slice(frame);
    let before = buffer.clone();
    let place = PacketPlace { at: HEADERS_BYTES_MAX, len: frame.len() };
    match pmtu::answer(&mut buffer, place, INNER_BYTES_MAX) {
        MtuAnswer::None => assert_eq!(buffer, before),
        MtuAnswer::V4(reply) | MtuAnswer::V6(reply) => {
            assert!(reply.at < place.at && reply.at + reply.len <= buffer.len());
            assert!(reply.len <= 1280 + 22, "{} bytes", reply.len);
            let end = reply.at + reply.len;
            assert_eq!(buffer[end..], before[end..]);
        }
    }
}

fn check_opened(frame: &[u8], before: &[u8], inner: Inner) {
    let PacketPlace { at, len } = inner.place;
    assert!((ethernet::HEADER_BYTES..=INNER_BYTES_MAX).contains(&len));
    assert!(at + len <= frame.len());
    assert_eq!(frame[..at], before[..at], "outer headers were changed");
    assert_eq!(frame[at + len..], before[at + len..]);
    // At most a congestion mark and its checksum may change.
    let changed = frame.iter().zip(before).filter(|(now, then)| now != then).count();
    assert!(changed <= 3, "{changed} bytes changed");
}

/// Sends a frame through a tunnel from the remote end to the local one.
fn there_and_back(decap: &Decap, modes: u8, frame: &[u8]) {
    let tunnels = &decap.spec().tunnels;
    let tunnel = &tunnels[usize::from(modes >> TUNNEL_SHIFT) % tunnels.len()];
    let back = Tunnel { local: tunnel.remote, remote: tunnel.local, ..*tunnel };
    let mut outer = Outer::suggested(&back, [2; 6], [4; 6]);
    outer.has_sequence = frame.len().is_multiple_of(2);
    outer.has_checksum |= frame.len().is_multiple_of(3);
    outer.ttl = Field::Inherit(64);
    outer.mtu_bytes = 9000;
    let Ok(encap) = Encap::new(back, outer) else {
        panic!("valid tunnel refused: {back:?}");
    };
    let mut buffer = vec![0xcc; HEADERS_BYTES_MAX + frame.len() + 5];
    buffer[HEADERS_BYTES_MAX..HEADERS_BYTES_MAX + frame.len()].copy_from_slice(frame);
    let before = buffer.clone();
    let place = PacketPlace { at: HEADERS_BYTES_MAX, len: frame.len() };
    let mark = Mark { flow_hash: wire::flow::tuple(frame).crc32c(), sequence: 9 };
    let Ok(whole) = encap.prepend(&mut buffer, place, mark) else {
        assert_eq!(buffer, before);
        return;
    };
    assert_eq!(whole.at, HEADERS_BYTES_MAX - encap.headers_bytes());
    assert_eq!(buffer[HEADERS_BYTES_MAX..], before[HEADERS_BYTES_MAX..]);
    assert_eq!(buffer[..whole.at], before[..whole.at]);
    match decap.open(&mut buffer, whole) {
        Ok(inner) => {
            assert_eq!(inner.place, place);
            assert_eq!(decap.spec().tunnels[inner.tunnel], *tunnel);
            assert_eq!(inner.sequence.is_some(), outer.has_sequence && is_gretap(tunnel));
            assert!(!inner.has_odd_ecn);
            assert_eq!(buffer[HEADERS_BYTES_MAX..], before[HEADERS_BYTES_MAX..]);
        }
        Err(reason) => assert!(
            matches!(
                reason,
                DropReason::NestedTooDeep | DropReason::Looped | DropReason::InnerTooBig
            ),
            "an encapsulated frame was dropped at the other end: {reason}"
        ),
    }
}

fn is_gretap(tunnel: &Tunnel) -> bool {
    matches!(tunnel.carrier, Carrier::Gretap { .. })
}

/// Corrects the outer checksums, if there are any.
fn mend(frame: &mut [u8]) -> Option<()> {
    let ip = inner::ip(frame)?;
    let (start, end, protocol, pseudo) = match ip {
        Ip::V4 { at } => {
            let rest = frame.get_mut(at..)?;
            let header_bytes = usize::from(rest[0] & 15) * 4;
            let header = rest.get_mut(..header_bytes.max(20))?;
            header[ipv4::CHECKSUM_OFFSET..ipv4::CHECKSUM_OFFSET + 2].fill(0);
            let sum = checksum::checksum(header).to_be_bytes();
            header[ipv4::CHECKSUM_OFFSET..ipv4::CHECKSUM_OFFSET + 2].copy_from_slice(&sum);
            let packet = ipv4::Packet::parse(&frame[at..]).ok()?;
            let header = packet.header();
            let start = at + header.header_bytes();
            let pseudo =
                checksum::pseudo_header_sum(header.src(), header.dst(), header.protocol(), 0);
            (start, start + header.payload_bytes(), header.protocol(), pseudo)
        }
        Ip::V6 { at } => {
            let rest = &frame[at..];
            let header = ipv6::Header::parse(rest, rest.len()).ok()?;
            let start = at + ipv6::HEADER_BYTES;
            let pseudo = ipv6::pseudo_header_sum(header.src(), header.dst(), header.next(), 0);
            (start, start + header.payload_bytes(), header.next(), pseudo)
        }
    };
    let packet = frame.get_mut(start..end)?;
    match protocol {
        ipv4::PROTOCOL_UDP => {
            let len = udp::Header::parse(packet, packet.len()).ok()?.payload_bytes();
            let datagram = packet.get_mut(..udp::HEADER_BYTES + len)?;
            if datagram[6..8] != [0, 0] {
                datagram[6..8].fill(0);
                let sum = checksum::add(pseudo, checksum::sum(datagram));
                let sum = checksum::add(sum, datagram.len() as u16);
                datagram[6..8].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
            }
        }
        gre::PROTOCOL if packet.first()? & 0x80 != 0 => {
            gre::fill_checksum(packet).ok()?;
        }
        _ => {}
    }
    Some(())
}
