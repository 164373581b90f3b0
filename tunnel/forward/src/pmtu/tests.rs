use proptest::prelude::*;

use super::*;

const ROOM: usize = 64;

fn tcp(options: &[u8], flags: u8) -> Vec<u8> {
    let len = TCP_BYTES_MIN + options.len();
    let mut tcp = vec![0x1f; TCP_BYTES_MIN];
    tcp[TCP_LEN_AT] = (len as u8 / 4) << 4;
    tcp[TCP_FLAGS_AT] = flags;
    tcp.extend(options);
    tcp
}

fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 9]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(payload);
    frame
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next, 64]);
    for last in [1, 2] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(payload);
    frame
}

/// Sum over a TCP segment and the addresses in front of it; the same before and after a correct update.
fn counter_sum(frame: &[u8], tcp_at: usize) -> u16 {
    checksum::sum(&frame[tcp_at..])
}

#[test]
fn segment_size_is_limited_at_even_and_odd_places_and_the_sum_stays_right() {
    // MSS of 1460 first, behind one byte of padding, and behind two other options.
    let options: [&[u8]; 3] = [
        &[2, 4, 0x05, 0xb4],
        &[1, 2, 4, 0x05, 0xb4, 1, 1, 1],
        &[4, 2, 3, 3, 7, 2, 4, 0x05, 0xb4, 0, 0, 0],
    ];
    for options in options {
        for (mut frame, ip_bytes) in
            [(v4(6, 0, &tcp(options, 0x12)), 20), (v6(6, &tcp(options, 0x02)), 40)]
        {
            let tcp_at = 14 + ip_bytes;
            let before = counter_sum(&frame, tcp_at);
            assert!(clamp_mss(&mut frame, 1464));
            let mss = (1450 - ip_bytes - 20) as u16;
            let [high, low] = mss.to_be_bytes();
            assert!(frame[tcp_at..].windows(4).any(|w| w == [2, 4, high, low]), "{frame:02x?}");
            let after = counter_sum(&frame, tcp_at);
            assert!(before == after || before ^ after == 0xffff, "{before:04x} {after:04x}");
            assert!(!clamp_mss(&mut frame, 1464), "it fits now");
        }
    }
}

#[test]
fn other_packets_keep_their_bytes() {
    let mss = [2, 4, 0x05, 0xb4];
    let mut malformed = v4(6, 0, &tcp(&mss, 2));
    malformed[14] = 0x44;
    let frames = [
        v4(6, 0, &tcp(&mss, 0x10)),
        v4(17, 0, &tcp(&mss, 2)),
        v4(6, 0x2000, &tcp(&mss, 2)),
        v4(6, 0, &tcp(&[2, 4, 0x02, 0x18], 2)),
        v4(6, 0, &tcp(&[], 2)),
        v4(6, 0, &tcp(&[8, 0, 0, 0], 2)),
        malformed,
        v6(44, &tcp(&mss, 2)),
    ];
    for frame in frames {
        let mut after = frame.clone();
        assert!(!clamp_mss(&mut after, 1464));
        assert_eq!(after, frame);
    }
}

fn answered(frame: &[u8]) -> (MtuAnswer, Vec<u8>) {
    let mut bytes = vec![0xcc; ROOM];
    bytes.extend(frame);
    let answer = answer(&mut bytes, PacketPlace { at: ROOM, len: frame.len() }, 1464);
    let (MtuAnswer::V4(place) | MtuAnswer::V6(place)) = answer else { return (answer, bytes) };
    (answer, bytes[place.at..place.at + place.len].to_vec())
}

#[test]
fn sender_of_a_packet_that_may_not_be_fragmented_is_told_the_mtu() {
    let frame = v4(17, ipv4::DONT_FRAGMENT, &[7; 1480]);
    let (answer, reply) = answered(&frame);
    assert!(matches!(answer, MtuAnswer::V4(_)));
    assert_eq!((&reply[..6], &reply[6..12]), (&frame[6..12], &frame[..6]));
    let packet = ipv4::Packet::parse(&reply[14..]).expect("a packet");
    packet.verify_checksum().expect("a correct sum");
    let header = packet.header();
    assert_eq!((header.src().octets(), header.dst().octets()), ([10, 0, 0, 2], [10, 0, 0, 1]));
    let message = packet.payload();
    assert_eq!((message[0], message[1], word(message, 6)), (3, 4, Some(1450)));
    assert_eq!(checksum::checksum(message), 0);
    assert_eq!(message[8..], frame[14..14 + 548]);
}

#[test]
fn sender_of_an_ipv6_packet_is_told_the_mtu() {
    let frame = v6(17, &[7; 1460]);
    let (answer, reply) = answered(&frame);
    assert!(matches!(answer, MtuAnswer::V6(_)));
    assert_eq!(reply.len(), 14 + 1280);
    let header = ipv6::Header::parse(&reply[14..], reply.len() - 14).expect("a packet");
    assert_eq!((header.src().octets()[15], header.dst().octets()[15]), (2, 1));
    let message = &reply[54..];
    assert_eq!((message[0], message[1]), (2, 0));
    assert_eq!(message[4..8], 1450_u32.to_be_bytes());
    let pseudo =
        ipv6::pseudo_header_sum(header.src(), header.dst(), PROTOCOL_ICMP6, message.len() as u32);
    assert_eq!(checksum::finish(checksum::add(pseudo, checksum::sum(message))), 0);
    assert_eq!(message[8..], frame[14..14 + 1232]);
}

#[test]
fn tags_stay_in_the_answer_and_lower_the_mtu() {
    let frame = v4(17, ipv4::DONT_FRAGMENT, &[7; 1480]);
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let (_, reply) = answered(&tagged);
    assert_eq!(reply[12..18], [0x81, 0, 0, 7, 8, 0]);
    assert_eq!(word(&reply, 18 + 20 + 6), Some(1446));
}

#[test]
fn packets_that_must_not_be_answered_are_not() {
    let whole = v4(17, ipv4::DONT_FRAGMENT, &[7; 1480]);
    let changed = [
        (0, 0xff),
        (20, 0),    // may be fragmented
        (21, 5),    // a later fragment
        (26, 0),    // from nowhere
        (30, 0xe0), // to a group
        (23, 1),    // an ICMP message other than an echo
        (12, 9),    // not IP
    ];
    let changed = changed.map(|(at, value)| {
        let mut frame = whole.clone();
        frame[at] = value;
        frame
    });
    for frame in changed.into_iter().chain([v6(58, &[1; 1460]), vec![2; 13]]) {
        let (answer, bytes) = answered(&frame);
        assert_eq!(answer, MtuAnswer::None);
        assert_eq!(bytes[ROOM..], frame, "the buffer was touched");
    }
    let (answer, _) = answered(&v4(1, ipv4::DONT_FRAGMENT, &[8; 1480]));
    assert!(matches!(answer, MtuAnswer::V4(_)), "an echo request is answered");
}

#[test]
fn answers_are_limited_to_a_burst_and_a_rate() {
    let limiter = Limiter::default();
    let now_ns = 1_000_000_000;
    // The last one: a lagging clock gains nothing.
    for (now_ns, expected) in
        [(now_ns, 51), (now_ns, 0), (now_ns + 10 * INTERVAL_NS, 10), (now_ns - 1, 0)]
    {
        let admitted = (0..1000).filter(|_| limiter.admits(now_ns)).count();
        assert_eq!(admitted, expected, "{now_ns}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_answered_in_bounds_or_left_alone(
        bytes in prop::collection::vec(any::<u8>(), 0..120), at in 0_usize..80, kind in 0_usize..3,
    ) {
        let base = [v4(6, 0x4000, &[]), v6(6, &[]), Vec::new()][kind].clone();
        let frame = [base, bytes].concat();
        let mut clamped = frame.clone();
        clamp_mss(&mut clamped, 100);
        prop_assert_eq!(clamped.len(), frame.len());
        let place = PacketPlace { at, len: frame.len().saturating_sub(at) };
        let mut buffer = frame.clone();
        match answer(&mut buffer, place, 100) {
            MtuAnswer::None => {}
            MtuAnswer::V4(reply) | MtuAnswer::V6(reply) => {
                prop_assert!(reply.at + reply.len <= buffer.len());
                prop_assert!(reply.at < place.at);
            }
        }
    }
}
