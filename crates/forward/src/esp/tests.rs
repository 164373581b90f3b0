use std::net::IpAddr;

use proptest::prelude::*;
use wire::{ethernet, ipv4, ipv6};

use super::fuzzing::{ends, esp};
use super::*;
use crate::encap::{Encap, EncapDrop, Mark, Place};
use crate::spec::{Carrier, Outer, Tunnel};

const FRONT: usize = 256;
const FRAMINGS: [Framing; 2] = [Framing::Udp { port: UDP_PORT }, Framing::Ip];

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// A tunnel's packet in a buffer with room on both sides.
fn packet(inner_bytes: usize, is_v6: bool) -> (Vec<u8>, Place) {
    let [local, remote]: [IpAddr; 2] = match is_v6 {
        false => [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
        true => ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
    };
    let tunnel = Tunnel { local, remote, carrier: Carrier::Vxlan { vni: 42 } };
    let outer = Outer { mtu_bytes: 9000, ..Outer::suggested(&tunnel, [2; 6], [4; 6]) };
    let encap = Encap::new(tunnel, outer).unwrap();
    let mut buffer = vec![0xcc; FRONT];
    buffer.extend((0..inner_bytes).map(|n| n as u8));
    buffer.extend([0xcc; 64]);
    let mark = Mark { flow_hash: 7, sequence: 9 };
    let place = encap.prepend(&mut buffer, Place { at: FRONT, len: inner_bytes }, mark).unwrap();
    (buffer, place)
}

/// Source: draft-mcgrew-gcm-test-01, sections 4.1 and 4.3: ESP packets with extended and with short
/// sequence numbers.
#[test]
fn published_esp_packets_are_made_and_opened() {
    let cases = [
        (
            (0x4321, "4c80cdefbb5d10da906ac73c3613a634", "2e443b68", "4956ed7e3b244cfe"),
            (true, 0x8765_4321_0000_0000),
            "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f75\
             6470037369700963796265726369747902646b000021000101020201",
            "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1\
             f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732",
            "459018148f6cbe722fd04796562dfdb4",
        ),
        (
            (
                0x4a2c_bfe3,
                "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
                "11223344",
                "0102030405060708",
            ),
            (false, 2),
            "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b4\
             0101040201020201",
            "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f054565\
             9f14e99def842d8e",
            "b335f4eecfdbf831824b4c4915956c96",
        ),
    ];
    for ((spi, secret, salt, iv), (is_extended, sequence), plain, sealed, tag) in cases {
        let salt = hex(salt).try_into().unwrap();
        let iv = hex(iv).try_into().unwrap();
        let key = Key::new(spi, &hex(secret), salt, is_extended).unwrap();
        let mut text = hex(plain);
        assert_eq!(key.seal(sequence, iv, &mut text).unwrap().to_vec(), hex(tag));
        assert_eq!(text, hex(sealed));
        text.extend(hex(tag));
        assert_eq!(key.open(sequence, iv, &mut text), Some(hex(plain).len()));
        assert_eq!(text[..hex(plain).len()], hex(plain));
    }
}

#[test]
fn keys_of_other_lengths_and_reserved_numbers_are_refused() {
    assert_eq!(Key::new(256, &[0; 24], [0; 4], true).unwrap_err(), KeyError::Length { found: 24 });
    assert_eq!(Key::new(255, &[0; 16], [0; 4], true).unwrap_err(), KeyError::Spi { spi: 255 });
}

#[test]
fn packet_is_the_same_after_both_ends_and_its_headers_are_those_of_esp() {
    for framing in FRAMINGS {
        for inner_bytes in [14, 15, 16, 17, 64, 1500] {
            let (near, far) = ends(framing, true);
            let (mut buffer, place) = packet(inner_bytes, false);
            let before = buffer[place.at..place.at + place.len].to_vec();
            let sealed = near.of(0).unwrap().sender.seal(&mut buffer, place, 0).unwrap();
            let whole = &buffer[sealed.at..sealed.at + sealed.len];
            let ip = ipv4::Packet::parse(&whole[ethernet::HEADER_BYTES..]).unwrap();
            ip.verify_checksum().unwrap();
            assert_eq!(
                ip.header().payload_bytes() + 34,
                whole.len(),
                "no byte is behind the packet"
            );
            let esp_at = match framing {
                Framing::Ip => {
                    assert_eq!(ip.header().protocol(), PROTOCOL);
                    34
                }
                Framing::Udp { .. } => {
                    assert_eq!(ip.header().protocol(), ipv4::PROTOCOL_UDP);
                    assert_eq!(whole[34..38], [0x11, 0x94, 0x11, 0x94]);
                    assert_eq!(whole[40..42], [0, 0], "RFC 3948: no checksum");
                    42
                }
            };
            assert_eq!(whole[esp_at..esp_at + 8], [0, 0, 0x10, 1, 0, 0, 0, 1]);
            assert_eq!((whole.len() - esp_at - 32) % 4, 0, "RFC 4303, section 2.4");
            let (opened, tunnel) = far.open(&mut buffer, sealed).unwrap().unwrap();
            assert_eq!((opened, tunnel), (place, 0));
            assert_eq!(buffer[opened.at..opened.at + opened.len], before);
        }
    }
}

#[test]
fn packet_over_ipv6_is_the_same_after_both_ends() {
    let key = |spi| Key::new(spi, &[7; 32], [1; 4], true).unwrap();
    let [local, remote]: [IpAddr; 2] = ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()];
    let association = Association {
        sender: Sender::new(key(300), Framing::Ip, 1, 10),
        receiver: Receiver::new(key(300), Framing::Ip, (local, remote), ReplayWindow::new(64, 0)),
    };
    let both = Protection::new(vec![Some(Arc::new(association))]);
    let (mut buffer, place) = packet(100, true);
    let before = buffer.clone();
    let sealed = both.of(0).unwrap().sender.seal(&mut buffer, place, 0).unwrap();
    assert_eq!(buffer[sealed.at + 14 + ipv6::NEXT_OFFSET], PROTOCOL);
    let (opened, _) = both.open(&mut buffer, sealed).unwrap().unwrap();
    assert_eq!(opened, place);
    assert_eq!(buffer[place.at..place.at + place.len], before[place.at..place.at + place.len]);
}

#[test]
fn changed_replayed_and_foreign_packets_are_refused_by_reason() {
    let (near, far) = ends(FRAMINGS[0], true);
    let (mut buffer, place) = packet(100, false);
    let sealed = near.of(0).unwrap().sender.seal(&mut buffer, place, 5).unwrap();
    let open = |change: &dyn Fn(&mut [u8])| {
        let mut copy = buffer.clone();
        change(&mut copy[sealed.at..sealed.at + sealed.len]);
        far.open(&mut copy, sealed)
    };
    assert_eq!(open(&|whole| whole[80] ^= 1), Err(OpenError::BadTag));
    assert_eq!(open(&|whole| whole[49] ^= 1), Err(OpenError::BadTag), "the sequence number");
    assert_eq!(open(&|whole| whole[45] ^= 4), Err(OpenError::UnknownSpi));
    assert_eq!(open(&|whole| whole[34 + 3] = 0), Ok(None), "another port");
    assert!(matches!(open(&|_| {}), Ok(Some(_))), "failures leave the window as it was");
    assert_eq!(open(&|_| {}), Err(OpenError::Replayed));
    let mut own = buffer.clone();
    assert_eq!(near.open(&mut own, sealed), Err(OpenError::UnknownSpi), "its own packet");
}

#[test]
fn numbers_end_before_they_are_used_twice() {
    let key = |is_extended| Key::new(300, &[7; 16], [1; 4], is_extended).unwrap();
    let seal = |sender: &Sender, position| {
        let (mut buffer, place) = packet(100, false);
        sender.seal(&mut buffer, place, position).map(|_| ())
    };
    let sender = Sender::new(key(true), Framing::Ip, 10, 12);
    assert_eq!([0, 1, 2].map(|at| seal(&sender, at)), [Ok(()), Ok(()), Err(SealError::Unreserved)]);
    sender.reserve(13);
    assert_eq!((seal(&sender, 2), sender.next()), (Ok(()), 13));
    let short = Sender::new(key(false), Framing::Ip, u64::from(u32::MAX) - 1, u64::MAX);
    assert_eq!([0, 1].map(|at| seal(&short, at)), [Ok(()), Err(SealError::Exhausted)]);
    let long = Sender::new(key(true), Framing::Ip, u64::MAX - 1, u64::MAX);
    assert_eq!([0, 9].map(|at| seal(&long, at)), [Ok(()), Err(SealError::Exhausted)]);
}

#[test]
fn nonces_count_from_another_number_and_frames_of_before_have_none() {
    let key = || Key::new(300, &[7; 16], [1; 4], true).unwrap();
    let sender = Sender::new(key(), Framing::Ip, 10, 100).starting_at(1_000, 1 << 60);
    let seal = |position| {
        let (mut buffer, place) = packet(100, false);
        let whole = sender.seal(&mut buffer, place, position)?;
        let esp: [u8; 16] = *buffer[whole.at + 34..].first_chunk().unwrap();
        Ok((esp[4..8].to_vec(), esp[8..].to_vec()))
    };
    let numbers =
        |number: u32, iv: u64| Ok((number.to_be_bytes().to_vec(), iv.to_be_bytes().to_vec()));
    assert_eq!(seal(1_000), numbers(10, 1 << 60));
    assert_eq!(seal(1_003), numbers(13, (1 << 60) + 3));
    assert_eq!(seal(999), Err(SealError::Unreserved));
    let last = Sender::new(key(), Framing::Ip, 10, 100).starting_at(0, u64::MAX);
    let (mut buffer, place) = packet(100, false);
    assert_eq!(last.seal(&mut buffer, place, 1), Err(SealError::Exhausted));
}

#[test]
fn packet_without_room_is_refused() {
    let (near, _) = ends(FRAMINGS[0], true);
    let (mut buffer, place) = packet(100, false);
    let sender = &near.of(0).unwrap().sender;
    let (end, front) = (place.at + place.len, place.at - 23);
    assert_eq!(sender.seal(&mut buffer[..end + 17], place, 0), Err(SealError::NoRoom));
    let moved = Place { at: place.at - front, len: place.len };
    assert_eq!(sender.seal(&mut buffer[front..], moved, 0), Err(SealError::NoRoom));
}

#[test]
fn committed_corpus_passes() {
    testkit::corpus::replay("esp", esp);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// The longest packet that is allowed fits, and one of four bytes more does not.
    #[test]
    fn longest_packet_fits_the_mtu(mtu_bytes in 576_usize..9000) {
        for framing in FRAMINGS {
            let plain = plain_bytes_max(mtu_bytes, 20, framing);
            let sealed = |plain: usize| {
                let (near, _) = ends(framing, true);
                let (mut buffer, place) = packet(plain - 36, false);
                assert_eq!(place.len, plain + 14);
                near.of(0).unwrap().sender.seal(&mut buffer, place, 0).unwrap().len - 14
            };
            prop_assert!(sealed(plain) <= mtu_bytes && sealed(plain + 1) > mtu_bytes);
        }
    }

    /// A tunnel's longest frame fits once it is encrypted; a longer one is refused before.
    #[test]
    fn longest_frame_of_a_tunnel_fits_the_mtu(mtu_bytes in 1280_u16..9000, is_v6: bool, is_gre: bool) {
        let [local, remote]: [IpAddr; 2] = match is_v6 {
            false => [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
            true => ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
        };
        let carrier = if is_gre { Carrier::Gretap { key: Some(7) } } else { Carrier::Vxlan { vni: 42 } };
        let tunnel = Tunnel { local, remote, carrier };
        let outer = Outer { mtu_bytes, ..Outer::suggested(&tunnel, [2; 6], [4; 6]) };
        for framing in FRAMINGS {
            let encap = Encap::new(tunnel, outer).unwrap().encrypted(framing);
            let (near, _) = ends(framing, true);
            let sealed = |inner_bytes: usize| {
                let mut buffer = vec![0; FRONT + inner_bytes + 64];
                let mark = Mark { flow_hash: 7, sequence: 9 };
                let whole = encap.prepend(&mut buffer, Place { at: FRONT, len: inner_bytes }, mark)?;
                Ok(near.of(0).unwrap().sender.seal(&mut buffer, whole, 0).unwrap().len - 14)
            };
            let longest = encap.inner_bytes_max();
            prop_assert!(sealed(longest).unwrap() <= mtu_bytes.into());
            prop_assert!(sealed(longest).unwrap() + 4 > mtu_bytes.into());
            prop_assert_eq!(sealed(longest + 1), Err(EncapDrop::TooBig));
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        esp(&bytes);
    }

    /// Packets with a few other bytes: those in front of ESP may be any.
    #[test]
    fn mutated_packets_never_panic(
        modes in 0_u8..8, size in 14_usize..200, bends in prop::collection::vec((0_usize..300, any::<u8>()), 0..4),
    ) {
        let (mut buffer, mut place) = packet(size, false);
        if modes & 1 == 0 {
            let framing = FRAMINGS[usize::from(modes & 4 != 0)];
            let (near, _) = ends(framing, modes & 2 == 0);
            place = near.of(0).unwrap().sender.seal(&mut buffer, place, 0).unwrap();
        }
        let mut frame = buffer[place.at..place.at + place.len].to_vec();
        for (at, byte) in bends {
            let len = frame.len();
            frame[at % len] = byte;
        }
        esp(&[&[modes][..], &frame].concat());
    }
}
