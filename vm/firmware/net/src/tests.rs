use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const US: Identity = Identity { mac: [2, 0, 0, 0, 0, 2], ip: Ipv4Addr::new(10, 0, 0, 2) };
const THEM: Identity = Identity { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 0, 0, 1) };

fn packet(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![0; IP_AT];
    let ethertype = ethernet::TYPE_IPV4;
    ethernet::Repr { dst: US.mac, src: THEM.mac, ethertype }.write(&mut frame).expect("it fits");
    let mut header = [0; 20];
    let repr = ipv4::Repr {
        src: THEM.ip,
        dst: US.ip,
        protocol,
        ttl: 9,
        payload_bytes: options.len() + payload.len(),
    };
    repr.write(&mut header).expect("it fits");
    header[0] = 0x45 + (options.len() / 4) as u8;
    header[10..12].fill(0);
    let both = [&header[..], options].concat();
    let sum = checksum::checksum(&both).to_be_bytes();
    frame.extend_from_slice(&both);
    frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum);
    frame.extend_from_slice(payload);
    frame
}

fn ping(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut message = [&[0; 8], payload].concat();
    let repr = icmp::Repr { kind: icmp::Kind::EchoRequest, id: 7, sequence: 9 };
    repr.write(&mut message).expect("it fits");
    packet(ipv4::PROTOCOL_ICMP, options, &message)
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![0; UDP_PAYLOAD_OFFSET];
    frame.extend_from_slice(payload);
    let to = Peer { mac: US.mac, ip: US.ip, port };
    write_datagram(&mut frame, &THEM, 4000, &to, payload.len()).expect("it fits");
    frame
}

/// Checks an echo reply from the sender's side.
fn expect_pong(frame: &[u8], payload: &[u8]) {
    let ethernet = ethernet::Packet::parse(frame).expect("it is whole");
    assert_eq!((ethernet.dst(), ethernet.src()), (THEM.mac, US.mac));
    let packet = ipv4::Packet::parse(ethernet.payload()).expect("it is whole");
    packet.verify_checksum().expect("it is right");
    let header = packet.header();
    assert_eq!((header.src(), header.dst(), header.ttl()), (US.ip, THEM.ip, 64));
    let message = icmp::Packet::parse(packet.payload()).expect("its checksum is right");
    let expected = icmp::Repr { kind: icmp::Kind::EchoReply, id: 7, sequence: 9 };
    assert_eq!((icmp::Repr::of(&message), message.payload()), (expected, payload));
}

#[test]
fn ping_of_every_length_is_answered_by_both_functions() {
    for len in [0, 1, 2, 55, 56, 57, 1471, 1472] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let mut frame = ping(&[], &payload);
        let end = frame.len();
        let mut fast = frame.clone();
        assert_eq!(answer(&mut frame, &US), Outcome::Answer { kind: Kind::Icmp, len_bytes: end });
        expect_pong(&frame, &payload);
        assert_eq!(echo_in_place(&mut fast, &US), Some(end));
        expect_pong(&fast, &payload);
    }
}

#[test]
fn padding_is_not_sent_back() {
    let mut frame = ping(&[], b"x");
    let end = frame.len();
    frame.resize(60, 0);
    let mut fast = frame.clone();
    assert_eq!(answer(&mut frame, &US), Outcome::Answer { kind: Kind::Icmp, len_bytes: end });
    expect_pong(&frame[..end], b"x");
    assert_eq!(echo_in_place(&mut fast, &US), Some(end));
}

#[test]
fn ping_with_options_is_answered_by_the_default_path_only() {
    let mut frame = ping(&[1, 1, 1, 1], b"options");
    let before = frame.clone();
    assert_eq!(echo_in_place(&mut frame, &US), None);
    assert_eq!(frame, before);
    assert!(matches!(answer(&mut frame, &US), Outcome::Answer { kind: Kind::Icmp, .. }));
    expect_pong(&frame, b"options");
}

#[test]
fn wrong_checksums_are_not_answered_and_never_corrected() {
    let mut frame = ping(&[], b"some bytes");
    frame[50] ^= 1;
    let before = frame.clone();
    assert!(matches!(answer(&mut frame, &US), Outcome::Bad(FrameError::Checksum { .. })));
    assert_eq!(frame, before);
    let end = echo_in_place(&mut frame, &US).expect("the headers are right");
    let message = icmp::Packet::parse(&frame[34..end]).err();
    assert!(matches!(message, Some(FrameError::Checksum { .. })), "{message:?}");
    let mut frame = ping(&[], b"some bytes");
    frame[IP_AT + 8] ^= 1;
    assert_eq!(echo_in_place(&mut frame.clone(), &US), None);
    assert!(matches!(answer(&mut frame, &US), Outcome::Bad(FrameError::Checksum { .. })));
}

#[test]
fn fragments_replies_and_foreign_frames_are_left_unchanged() {
    let bent = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = ping(&[], b"some bytes");
        change(&mut frame);
        frame[IP_AT + 10..IP_AT + 12].fill(0);
        let sum = checksum::checksum(&frame[IP_AT..34]).to_be_bytes();
        frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum);
        let before = frame.clone();
        assert_eq!(echo_in_place(&mut frame, &US), None);
        let outcome = answer(&mut frame, &US);
        assert!(!matches!(outcome, Outcome::Answer { .. }), "{outcome:?}");
        assert_eq!(frame, before);
    };
    bent(&|frame| frame[IP_AT + 6] = 0x20);
    bent(&|frame| frame[IP_AT + 7] = 1);
    bent(&|frame| frame[5] = 9);
    bent(&|frame| frame[..6].fill(0xff));
    bent(&|frame| frame[IP_AT + 19] = 9);
    bent(&|frame| frame[34] = 0);
    bent(&|frame| frame[IP_AT + 3] = 27);
    bent(&|frame| frame[IP_AT + 2] = 9);
    bent(&|frame| frame[12] = 0x81);
}

#[test]
fn arp_request_for_this_host_is_answered_and_others_are_not() {
    let mut frame = std::vec![0; 60];
    let request = arp::Repr {
        operation: arp::Operation::Request,
        sender_mac: THEM.mac,
        sender_ip: THEM.ip,
        target_mac: [0; 6],
        target_ip: US.ip,
    };
    write_arp(&mut frame, ethernet::BROADCAST, &request).expect("it fits");
    let mut other = frame.clone();
    assert_eq!(answer(&mut frame, &US), Outcome::Answer { kind: Kind::Arp, len_bytes: 42 });
    let reply = arp::Repr::of(&arp::Packet::parse(&frame[14..]).expect("it is whole"));
    assert_eq!(reply, request.reply_from(US.mac));
    assert_eq!(frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    other[41] = 3;
    assert_eq!(answer(&mut other, &US), Outcome::Other);
    write_announcement(&mut frame, &THEM).expect("it fits");
    assert_eq!(answer(&mut frame, &US), Outcome::Other);
}

#[test]
fn udp_echo_has_ports_swapped_and_a_valid_checksum() {
    let mut frame = datagram(ECHO_PORT, b"echo me");
    let end = frame.len();
    assert_eq!(answer(&mut frame, &US), Outcome::Answer { kind: Kind::Udp, len_bytes: end });
    let packet = ipv4::Packet::parse(&frame[IP_AT..]).expect("it is whole");
    packet.verify_checksum().expect("it is right");
    let datagram = udp::Packet::parse(packet.payload()).expect("it is whole");
    datagram.verify_checksum(US.ip, THEM.ip).expect("it is right");
    assert_eq!((datagram.header().src_port(), datagram.header().dst_port()), (7, 4000));
    assert_eq!(datagram.payload(), b"echo me");
}

#[test]
fn datagram_to_another_port_is_reported_with_its_sender() {
    let mut frame = datagram(7001, b"ask");
    let expected = Outcome::Datagram {
        from: Peer { mac: THEM.mac, ip: THEM.ip, port: 4000 },
        port: 7001,
        payload: 42..45,
    };
    assert_eq!(answer(&mut frame, &US), expected);
}

#[test]
fn echo_port_does_not_answer_an_echo_port() {
    let mut frame = std::vec![0; UDP_PAYLOAD_OFFSET];
    let to = Peer { mac: US.mac, ip: US.ip, port: ECHO_PORT };
    write_datagram(&mut frame, &THEM, ECHO_PORT, &to, 0).expect("it fits");
    assert_eq!(answer(&mut frame, &US), Outcome::Other);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_frames_never_panic(
        frame in prop_oneof![Just(ping(&[], &[0; 40])), Just(datagram(7, &[1; 40]))],
        changes in prop::collection::vec((0usize..90, any::<u8>()), 0..4),
        len in 0usize..100,
    ) {
        let mut frame = frame;
        for (at, byte) in changes {
            if let Some(slot) = frame.get_mut(at) {
                *slot = byte;
            }
        }
        frame.truncate(len);
        let _ = echo_in_place(&mut frame.clone(), &US);
        let _ = answer(&mut frame, &US);
    }
}
