//! Properties that hold for every input; fuzz targets, the committed corpus and property tests
//! check them.

use crate::frame::{self, Received, UdpChecksum, swap_for_echo, verify_checksums};
use crate::probe::{HEADER_BYTES, Header, Kind};
use crate::{arp, checksum, ethernet, icmp, ipv4, ipv6, udp};

/// Largest input of the checks that need a copy: there is no allocation here.
const COPY_BYTES_MAX: usize = 4096;

/// A UDP payload: a parsed header is written back unchanged.
pub fn probe_header(payload: &[u8]) {
    if let Ok(header) = Header::parse(payload) {
        let mut again = [0xcc; HEADER_BYTES + 1];
        assert_eq!(header.write(&mut again), Ok(()));
        assert_eq!(again[..HEADER_BYTES], payload[..HEADER_BYTES]);
        assert_eq!(again[HEADER_BYTES], 0xcc);
    }
}

/// A frame from an untrusted network.
pub fn frame(bytes: &[u8]) {
    let found = frame::udp_payload(bytes);
    slow_path_agrees(bytes, found.is_ok());
    let mut copy = [0; COPY_BYTES_MAX];
    let Some(copy) = copy.get_mut(..bytes.len()) else { return };
    copy.copy_from_slice(bytes);
    for cut in [0, 14, 34, 42, 62, 66, bytes.len() / 2] {
        let head_bytes = cut.min(bytes.len());
        if let Ok(mut head) = Received::parse(&mut copy[..head_bytes], bytes.len()) {
            let whole = found.as_ref().map(|(_, payload)| payload.clone()).unwrap_or_default();
            assert_eq!(head.payload_bytes(), whole.len());
            assert_eq!(head.payload_mut(), &bytes[whole.start..whole.end.min(head_bytes)]);
            assert!(found.is_ok());
        }
    }
    let before = verify_checksums(copy);
    let swapped = swap_for_echo(copy);
    let Ok((meta, payload)) = found else {
        assert_eq!(copy, bytes);
        assert!(swapped.is_err() && before.is_err());
        assert!(Received::parse(copy, bytes.len()).is_err());
        assert_eq!(copy, bytes);
        return;
    };
    assert!(payload.end <= bytes.len());
    assert_eq!(swapped, Ok(payload.clone()));
    assert_eq!(frame::udp_payload(copy), Ok((meta.reversed(), payload.clone())));
    assert_eq!(verify_checksums(copy), before);
    assert_eq!(swap_for_echo(copy), Ok(payload.clone()));
    assert_eq!(copy, bytes);

    let header = Header::parse(&bytes[payload.clone()]);
    let answered = Received::parse(copy, bytes.len())
        .and_then(|received| received.answer_probe(Kind::Pong, 0xffff_0001));
    assert_eq!(answered.is_ok(), header.is_ok());
    let Ok(header) = header else {
        assert_eq!(copy, bytes);
        return;
    };
    assert_eq!(frame::udp_payload(copy), Ok((meta.reversed(), payload.clone())));
    let expected = Header { kind: Kind::Pong, reply: 0xffff_0001, ..header };
    assert_eq!(Header::parse(&copy[payload.clone()]), Ok(expected));
    assert_eq!(copy[payload.start + HEADER_BYTES..], bytes[payload.start + HEADER_BYTES..]);
    match before {
        Ok(UdpChecksum::Valid | UdpChecksum::Unfinished) => {
            assert_eq!(verify_checksums(copy), Ok(UdpChecksum::Valid));
        }
        Ok(UdpChecksum::Absent) => assert_eq!(verify_checksums(copy), Ok(UdpChecksum::Absent)),
        // One in 65,536 wrong checksums becomes correct; an unfinished one under a wrong IPv4
        // checksum is completed.
        Err(_) => {}
    }
}

/// ARP and ICMP messages, without the headers around them.
pub fn arp_icmp(bytes: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(bytes) {
        let repr = arp::Repr::of(&packet);
        let mut again = [0; arp::PACKET_BYTES];
        assert_eq!(repr.write(&mut again), Ok(()));
        assert_eq!(again, bytes[..arp::PACKET_BYTES]);
        let reply = repr.reply_from([2; 6]);
        assert_eq!((reply.sender_ip, reply.target_ip), (repr.target_ip, repr.sender_ip));
    }
    if let Ok(message) = icmp::Packet::parse(bytes) {
        let mut again = [0; COPY_BYTES_MAX];
        let Some(again) = again.get_mut(..bytes.len()) else { return };
        again.copy_from_slice(bytes);
        let answer = icmp::Repr { kind: icmp::Kind::EchoReply, ..icmp::Repr::of(&message) };
        assert_eq!(answer.write(again), Ok(()));
        let answered = icmp::Packet::parse(again).map(|packet| icmp::Repr::of(&packet));
        assert_eq!(answered, Ok(answer));
        assert_eq!(again[icmp::HEADER_BYTES..], *message.payload());
    }
}

/// The views of the formats agree with the fast path.
fn slow_path_agrees(bytes: &[u8], fast: bool) {
    let slow = || {
        let ethernet = ethernet::Packet::parse(bytes).ok()?;
        match ethernet.ethertype() {
            ethernet::TYPE_IPV4 => {}
            ethernet::TYPE_IPV6 => return slow_path_of_v6(ethernet.payload()),
            _ => return None,
        }
        let ip = ipv4::Packet::parse(ethernet.payload()).ok()?;
        ip.header().expect_whole(ipv4::PROTOCOL_UDP).ok()?;
        let datagram = udp::Packet::parse(ip.payload()).ok()?;
        let right = ip.verify_checksum().is_ok()
            && datagram.verify_checksum(ip.header().src(), ip.header().dst()).is_ok();
        Some((datagram.payload(), datagram.header().checksum(), right))
    };
    let slow = slow();
    assert_eq!(slow.is_some(), fast);
    let Some((payload, checksum, right)) = slow else { return };
    assert_eq!(frame::udp_payload(bytes).map(|(_, range)| &bytes[range]), Ok(payload));
    match verify_checksums(bytes) {
        Ok(UdpChecksum::Valid) => assert!(right && checksum != 0),
        Ok(UdpChecksum::Absent) => assert!(right && checksum == 0),
        Ok(UdpChecksum::Unfinished) | Err(_) => assert!(!right),
    }
}

/// Payload, checksum and whether that is right of a UDP packet over IPv6.
fn slow_path_of_v6(packet: &[u8]) -> Option<(&[u8], u16, bool)> {
    let ip = ipv6::Header::parse(packet, packet.len()).ok()?;
    let upper = ipv6::upper(packet, &ip);
    if (upper.protocol, upper.at) != (ipv4::PROTOCOL_UDP, ipv6::HEADER_BYTES) {
        return None;
    }
    let datagram = packet.get(ipv6::HEADER_BYTES..ipv6::HEADER_BYTES + ip.payload_bytes())?;
    let udp = udp::Packet::parse(datagram).ok()?;
    let bytes = &datagram[..udp::HEADER_BYTES + udp.payload().len()];
    let pseudo = ipv6::pseudo_header_sum(ip.src(), ip.dst(), upper.protocol, bytes.len() as u32);
    let right = checksum::add(pseudo, checksum::sum(bytes)) == 0xffff;
    let found = udp.header().checksum();
    (found != 0).then_some((udp.payload(), found, right))
}

#[cfg(test)]
mod tests {
    use testkit::corpus::replay;

    #[test]
    fn corpus_of_frames_holds() {
        replay("frame", super::frame);
    }

    #[test]
    fn corpus_of_probe_headers_holds() {
        replay("probe_header", super::probe_header);
    }

    #[test]
    fn corpus_of_arp_and_icmp_holds() {
        replay("arp_icmp", super::arp_icmp);
    }
}
