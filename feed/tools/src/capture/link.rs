//! Locates the UDP payload in a captured packet.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use wire::{ethernet, ipv4, udp};

/// LINKTYPE_ETHERNET.
pub(super) const ETHERNET: i64 = 1;
/// LINKTYPE_RAW: bare IP; some systems write 12 and 14 for it.
pub(super) const RAW: [i64; 3] = [101, 12, 14];
/// LINKTYPE_LINUX_SLL.
pub(super) const COOKED: i64 = 113;
/// LINKTYPE_IPV4.
pub(super) const IPV4: i64 = 228;
/// LINKTYPE_LINUX_SLL2.
pub(super) const COOKED_V2: i64 = 276;

/// Largest number of VLAN tags parsed.
const TAGS_MAX: usize = 4;

/// Content of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A UDP datagram, with the range of its payload in the packet.
    Datagram { source: SocketAddrV4, destination: SocketAddrV4, payload: Range<usize> },
    /// A fragment of an IPv4 datagram.
    Fragment,
    /// ARP, IPv6 and others.
    NotIpv4,
    /// TCP and others.
    NotUdp,
    /// Truncated by the capture.
    Cut,
    /// Contradictory headers.
    Malformed,
    /// Unsupported link type.
    UnknownLink,
}

/// Finds UDP in a packet of `original_bytes`, of which `packet` was captured.
pub(super) fn find(link: i64, packet: &[u8], original_bytes: usize) -> Found {
    let original_bytes = original_bytes.max(packet.len());
    let is_cut = original_bytes > packet.len();
    let short = if is_cut { Found::Cut } else { Found::Malformed };
    let (protocol, at) = match link {
        ETHERNET => (ethernet::TYPE_OFFSET, ethernet::HEADER_BYTES),
        COOKED => (14, 16),
        COOKED_V2 => (0, 20),
        IPV4 => return ip(packet, 0, original_bytes),
        raw if RAW.contains(&raw) => {
            return match packet.first() {
                Some(first) if first >> 4 == 4 => ip(packet, 0, original_bytes),
                Some(_) => Found::NotIpv4,
                None => short,
            };
        }
        _ => return Found::UnknownLink,
    };
    let Some(mut protocol) = u16_at(packet, protocol) else { return short };
    let mut at = at;
    for _ in 0..TAGS_MAX {
        if !matches!(protocol, ethernet::TYPE_VLAN | ethernet::TYPE_PROVIDER_VLAN) {
            break;
        }
        let Some(inner) = u16_at(packet, at + 2) else { return short };
        (protocol, at) = (inner, at + ethernet::VLAN_BYTES);
    }
    if protocol != ethernet::TYPE_IPV4 {
        return Found::NotIpv4;
    }
    ip(packet, at, original_bytes)
}

fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn ip(packet: &[u8], at: usize, original_bytes: usize) -> Found {
    let is_cut = original_bytes > packet.len();
    let short = if is_cut { Found::Cut } else { Found::Malformed };
    let Some(bytes) = packet.get(at..) else { return short };
    let Ok(header) = ipv4::Header::parse(bytes, original_bytes - at) else { return short };
    if header.is_fragment() {
        return Found::Fragment;
    }
    if header.protocol() != ipv4::PROTOCOL_UDP {
        return Found::NotUdp;
    }
    let begin = header.header_bytes();
    let Some(inner) = bytes.get(begin..begin + header.payload_bytes()) else { return short };
    let Ok(datagram) = udp::Packet::parse(inner) else { return Found::Malformed };
    let ports = (datagram.header().src_port(), datagram.header().dst_port());
    let from = at + begin + udp::HEADER_BYTES;
    Found::Datagram {
        source: socket(header.src(), ports.0),
        destination: socket(header.dst(), ports.1),
        payload: from..from + datagram.payload().len(),
    }
}

fn socket(ip: Ipv4Addr, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(ip, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with a UDP datagram that holds `payload`.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(224, 0, 100, 100));
        let udp = udp::Repr { src_port: 1, dst_port: 10_000, payload_bytes: payload.len() };
        let payload_bytes = udp::HEADER_BYTES + payload.len();
        let ip = ipv4::Repr { src, dst, protocol: 17, ttl: 1, payload_bytes };
        let mut bytes = vec![0; 28];
        bytes.extend_from_slice(payload);
        ip.write(&mut bytes).expect("it fits");
        udp.write(&mut bytes[20..], src, dst).expect("it fits");
        bytes
    }

    fn behind(header: &[u8], rest: &[u8]) -> Vec<u8> {
        [header, rest].concat()
    }

    fn payload(link: i64, bytes: &[u8]) -> Option<&[u8]> {
        match find(link, bytes, bytes.len()) {
            Found::Datagram { source, destination, payload } => {
                assert_eq!(source, "192.0.2.1:1".parse().expect("an address"));
                assert_eq!(destination, "224.0.100.100:10000".parse().expect("an address"));
                Some(&bytes[payload])
            }
            _ => None,
        }
    }

    #[test]
    fn udp_is_found_after_every_link_header() {
        let ip = packet(b"telegram");
        let ethernet = behind(&[&[2; 12][..], &[8, 0]].concat(), &ip);
        let tagged = behind(&[&[2; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat(), &ip);
        let twice = [&[2; 12][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat();
        let cooked = behind(&[&[0; 14][..], &[8, 0]].concat(), &ip);
        let cooked_v2 = behind(&[&[8, 0][..], &[0; 18]].concat(), &ip);
        for (link, bytes) in [
            (1, ethernet),
            (1, tagged),
            (1, behind(&twice, &ip)),
            (113, cooked),
            (276, cooked_v2),
            (101, ip.clone()),
            (228, ip.clone()),
        ] {
            assert_eq!(payload(link, &bytes), Some(&b"telegram"[..]), "link type {link}");
        }
    }

    #[test]
    fn padding_after_the_datagram_is_not_payload() {
        let mut bytes = packet(b"x");
        bytes.extend([0; 17]);
        assert_eq!(payload(101, &bytes), Some(&b"x"[..]));
    }

    #[test]
    fn packets_without_whole_udp_are_classified() {
        let mut fragment = packet(b"telegram");
        fragment[6] = 0x20;
        let mut tcp = packet(b"telegram");
        tcp[9] = 6;
        let mut bad = packet(b"telegram");
        bad[3] = 200;
        let whole = packet(b"telegram");
        let all = |bytes: &[u8]| find(101, bytes, bytes.len());
        assert_eq!(all(&fragment), Found::Fragment);
        assert_eq!(all(&tcp), Found::NotUdp);
        assert_eq!(all(&bad), Found::Malformed);
        assert_eq!(find(101, &whole[..30], whole.len()), Found::Cut);
        assert_eq!(find(101, &[0x60; 40], 40), Found::NotIpv4);
        assert_eq!(find(147, &whole, whole.len()), Found::UnknownLink);
    }

    #[test]
    fn no_length_of_any_packet_panics() {
        let ip = packet(b"telegram");
        let ethernet = behind(&[&[2; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat(), &ip);
        for link in [1, 101, 113, 228, 276] {
            for len in 0..=ethernet.len() {
                find(link, &ethernet[..len], len);
                find(link, &ethernet[..len], ethernet.len());
            }
        }
    }
}
