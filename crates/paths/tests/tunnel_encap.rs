//! Into and out of tunnels: what is written, what is accepted, and why the rest is not.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;
use wire::frame::{UdpChecksum, verify_checksums};
use wire::{ethernet, flow, gre, ipv4, ipv6};
use wirepath_paths::tunnel::decap::{Decap, DecapSpec, DropCounts, DropReason, Inner};
use wirepath_paths::tunnel::encap::{Encap, EncapDrop, HEADERS_BYTES_MAX, Mark, Place};
use wirepath_paths::tunnel::fuzzing::{
    self, ENDS_V4, ENDS_V6, INNER_BYTES_MAX, MEND, NO_CHECKSUM_V6, TUNNEL_SHIFT,
};
use wirepath_paths::tunnel::spec::{Carrier, Field, Outer, Tunnel, TunnelError};

const MARK: Mark = Mark { flow_hash: 0x8000_0000, sequence: 0x0102_0304 };

/// Where things are in a frame over IPv4.
const IP: usize = 14;
const UDP: usize = 34;
const VXLAN: usize = 42;

fn tunnel(v6: bool, carrier: Carrier) -> Tunnel {
    // Towards the end that the fuzz target listens at.
    match v6 {
        false => Tunnel { local: ENDS_V4.1.into(), remote: ENDS_V4.0.into(), carrier },
        true => Tunnel { local: ENDS_V6.1.into(), remote: ENDS_V6.0.into(), carrier },
    }
}

fn outer(tunnel: &Tunnel) -> Outer {
    Outer { mtu_bytes: 9000, ..Outer::suggested(tunnel, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]) }
}

/// What the tunnel makes of a frame.
fn encapsulated(tunnel: Tunnel, outer: Outer, frame: &[u8]) -> Vec<u8> {
    let encap = Encap::new(tunnel, outer).expect("the tunnel is a good one");
    let mut buffer = vec![0xcc; HEADERS_BYTES_MAX];
    buffer.extend(frame);
    let place = Place { at: HEADERS_BYTES_MAX, len: frame.len() };
    let whole = encap.prepend(&mut buffer, place, MARK).expect("it fits");
    buffer[whole.at..].to_vec()
}

fn vxlan(frame: &[u8]) -> Vec<u8> {
    let tunnel = tunnel(false, Carrier::Vxlan { vni: 42 });
    encapsulated(tunnel, outer(&tunnel), frame)
}

fn vxlan_v6(frame: &[u8]) -> Vec<u8> {
    let tunnel = tunnel(true, Carrier::Vxlan { vni: 42 });
    encapsulated(tunnel, outer(&tunnel), frame)
}

fn gretap(frame: &[u8]) -> Vec<u8> {
    let tunnel = tunnel(false, Carrier::Gretap { key: Some(7) });
    let rules = Outer { has_checksum: true, has_sequence: true, ..outer(&tunnel) };
    encapsulated(tunnel, rules, frame)
}

fn receiver() -> Decap {
    Decap::new(DecapSpec {
        tunnels: fuzzing::tunnels(),
        inner_bytes_max: INNER_BYTES_MAX,
        ..DecapSpec::default()
    })
}

fn open(frame: &mut [u8]) -> Result<Inner, DropReason> {
    let len = frame.len();
    receiver().open(frame, Place { at: 0, len })
}

/// An inner frame: UDP from 192.168.0.1 to 192.168.0.2 with this class of service.
fn plain(service: u8, payload_bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x08, 0x00];
    let mut header = [0; 20];
    ipv4::Repr {
        src: [192, 168, 0, 1].into(),
        dst: [192, 168, 0, 2].into(),
        protocol: 17,
        ttl: 9,
        payload_bytes: 8 + payload_bytes,
    }
    .write(&mut header)
    .expect("it fits");
    header[1] = service;
    header[10..12].fill(0);
    let sum = wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([0x10, 0, 0x20, 0]);
    frame.extend((8 + payload_bytes as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload_bytes).map(|i| i as u8));
    frame
}

fn arp() -> Vec<u8> {
    [&[0xff; 6][..], &[2; 6], &[0x08, 0x06], &[0x55; 46]].concat()
}

/// Makes the IPv4 checksum of an outer header right again.
fn mend_ip(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = wire::checksum::checksum(&frame[IP..UDP]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Frames from the network, each with what becomes of it. They are the fuzzer's corpus.
fn cases() -> Vec<(&'static str, Vec<u8>, Result<(), DropReason>)> {
    use DropReason::*;
    let good = vxlan(&plain(0, 40));
    let congested = |frame: Vec<u8>| {
        let service = frame[IP + 1] | 3;
        mend_ip(with(frame, IP + 1, &[service]))
    };
    let cut = |frame: &[u8], len: usize| frame[..len].to_vec();
    // The frame ends in the middle, but the headers know.
    let short_ip = |bytes: u16| mend_ip(with(good.clone(), IP + 2, &bytes.to_be_bytes()));
    let from = |address: [u8; 4]| mend_ip(with(good.clone(), IP + 12, &address));
    let elsewhere = |last: u8, inner: &[u8]| {
        let tunnel = Tunnel {
            local: IpAddr::from([172, 16, 0, last]),
            remote: IpAddr::from([172, 16, 1, last]),
            carrier: Carrier::Vxlan { vni: 1 },
        };
        encapsulated(tunnel, outer(&tunnel), inner)
    };
    let no_checksum_v6 = {
        let tunnel = tunnel(true, Carrier::Vxlan { vni: 42 });
        encapsulated(tunnel, Outer { has_checksum: false, ..outer(&tunnel) }, &plain(0, 9))
    };
    let plain_gre = {
        let tunnel = tunnel(false, Carrier::Gretap { key: None });
        encapsulated(tunnel, outer(&tunnel), &plain(0, 10))
    };
    let tag = |frame: &[u8]| [&frame[..12], &[0x81, 0x00, 0, 5], &frame[12..]].concat();
    let long = vxlan(&plain(0, INNER_BYTES_MAX - 41));
    // To an inner frame of 13 bytes: 20 + 8 + 8 + 13.
    let runt = with(short_ip(49), UDP + 4, &[0, 29]);
    vec![
        ("vxlan", good.clone(), Ok(())),
        ("vxlan_v6", vxlan_v6(&plain(0, 33)), Ok(())),
        ("vxlan_tagged", tag(&good), Ok(())),
        ("vxlan_padded", [&vxlan(&[2; 14])[..], &[0; 9]].concat(), Ok(())),
        ("vxlan_largest", vxlan(&plain(0, INNER_BYTES_MAX - 42)), Ok(())),
        ("gretap", gretap(&plain(0, 51)), Ok(())),
        ("gretap_plain", plain_gre.clone(), Ok(())),
        ("inner_arp", gretap(&arp()), Ok(())),
        ("inner_tagged", vxlan(&tag(&plain(2, 20))), Ok(())),
        ("marked", congested(vxlan(&plain(2, 20))), Ok(())),
        ("nested_once", vxlan(&elsewhere(1, &plain(0, 1))), Ok(())),
        ("not_ip", arp(), Err(NotIp)),
        ("not_our_address", elsewhere(1, &plain(0, 1)), Err(NotOurAddress)),
        ("not_tunnel", mend_ip(with(good.clone(), IP + 9, &[6])), Err(NotTunnel)),
        ("not_tunnel_port", with(good.clone(), UDP + 2, &[0, 53]), Err(NotTunnel)),
        ("truncated_ethernet", cut(&good, 13), Err(Truncated)),
        ("truncated_ip", cut(&good, 33), Err(Truncated)),
        ("truncated_udp", short_ip(27), Err(Truncated)),
        ("truncated_vxlan", with(short_ip(35), UDP + 4, &[0, 15]), Err(Truncated)),
        ("truncated_gre", mend_ip(with(plain_gre.clone(), IP + 2, &[0, 23])), Err(Truncated)),
        ("ip_header", cut(&good, good.len() - 1), Err(IpHeader)),
        ("ip_version", with(good.clone(), IP, &[0x65]), Err(IpHeader)),
        ("ip_checksum", with(good.clone(), IP + 8, &[3]), Err(IpChecksum)),
        ("fragment", mend_ip(with(good.clone(), IP + 6, &[0x20, 0])), Err(Fragment)),
        ("udp_length", with(good.clone(), UDP + 4, &[0xff, 0]), Err(UdpLength)),
        ("udp_length_small", with(good.clone(), UDP + 4, &[0, 7]), Err(UdpLength)),
        ("udp_checksum", with(good.clone(), UDP + 6, &[1, 1]), Err(UdpChecksum)),
        ("no_udp_checksum", no_checksum_v6, Err(NoUdpChecksum)),
        ("vxlan_flags", with(good.clone(), VXLAN, &[0]), Err(VxlanFlags)),
        ("gre_header", with(plain_gre.clone(), UDP, &[0x40]), Err(GreHeader)),
        ("gre_version", with(plain_gre.clone(), UDP + 1, &[1]), Err(GreHeader)),
        ("gre_checksum", with(gretap(&arp()), 70, &[0xaa]), Err(GreChecksum)),
        ("gre_type", with(plain_gre.clone(), UDP + 2, &[0x08, 0x00]), Err(GreType)),
        ("unknown_network", with(good.clone(), VXLAN + 4, &[0, 0, 43]), Err(UnknownTunnel)),
        ("unknown_end", from([10, 0, 0, 9]), Err(UnknownTunnel)),
        ("own_packet", from([10, 0, 0, 2]), Err(OwnPacket)),
        ("inner_runt", runt, Err(InnerRunt)),
        ("inner_too_big", long, Err(InnerTooBig)),
        ("nested_too_deep", vxlan(&elsewhere(1, &elsewhere(2, &plain(0, 1)))), Err(NestedTooDeep)),
        // As a loop on the way makes it: the tunnel's own packet goes into the tunnel.
        ("looped", nested_by_hand(&good), Err(Looped)),
        ("looped_deeper", vxlan(&elsewhere(1, &good)), Err(Looped)),
        ("congestion", congested(vxlan(&plain(0, 20))), Err(Congestion)),
    ]
}

/// Puts a packet of the tunnel into the tunnel, which the tunnel itself refuses.
fn nested_by_hand(inner: &[u8]) -> Vec<u8> {
    let mut frame = vxlan(&vec![0; inner.len()]);
    let at = frame.len() - inner.len();
    frame[at..].copy_from_slice(inner);
    frame
}

#[test]
fn frame_that_is_wrong_in_one_way_is_dropped_for_that_reason() {
    let mut counts = DropCounts::default();
    for (name, mut frame, expected) in cases() {
        let before = frame.clone();
        let found = open(&mut frame);
        assert_eq!(found.map(|_| ()), expected, "{name}");
        if let Err(reason) = found {
            counts.count(reason);
            assert_eq!(frame, before, "{name} is left as it was");
        }
    }
    for (reason, count) in counts.iter() {
        assert!(count > 0 && counts.of(reason) == count, "no case for {}", reason.name());
    }
}

#[test]
fn reasons_have_indexes_and_names_of_their_own() {
    let all = DropReason::ALL;
    assert!(all.iter().enumerate().all(|(at, reason)| reason.index() == at));
    let names: BTreeSet<_> = all.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), all.len());
    assert_eq!(all.iter().filter(|reason| reason.is_foreign()).count(), 3);
    let all = EncapDrop::ALL;
    assert!(all.iter().enumerate().all(|(at, reason)| reason.index() == at));
    assert_eq!(all.iter().map(|r| r.name()).collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn cut_frames_are_dropped_wherever_they_are_cut() {
    for frame in [vxlan(&plain(0, 40)), vxlan_v6(&plain(0, 40)), gretap(&plain(0, 40))] {
        for len in 0..frame.len() {
            assert!(open(&mut frame[..len].to_vec()).is_err(), "{len} bytes");
        }
        assert!(open(&mut frame.clone()).is_ok());
        let beyond = Place { at: 1, len: frame.len() };
        assert_eq!(receiver().open(&mut frame.clone(), beyond), Err(DropReason::Truncated));
        let beyond = Place { at: usize::MAX, len: 2 };
        assert_eq!(receiver().open(&mut frame.clone(), beyond), Err(DropReason::Truncated));
    }
}

#[test]
fn known_frame_is_written_byte_for_byte() {
    let inner = arp();
    let frame = vxlan(&inner);
    #[rustfmt::skip]
    let headers = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
        // 20 + 8 + 8 + 60 bytes; sum worked out by hand.
        0x45, 0, 0, 96, 0, 0, 0x40, 0, 64, 17, 0x26, 0x8b, 10, 0, 0, 1, 10, 0, 0, 2,
        // From 49152 + 0x2000.
        0xe0, 0x00, 0x12, 0xb5, 0, 76, 0, 0,
        8, 0, 0, 0, 0, 0, 42, 0,
    ];
    assert_eq!(frame[..50], headers);
    assert_eq!(frame[50..], inner);
    assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Absent));
}

#[test]
fn frame_goes_through_every_kind_of_tunnel_and_comes_out_as_it_was() {
    let carriers = [
        Carrier::Vxlan { vni: 42 },
        Carrier::Gretap { key: None },
        Carrier::Gretap { key: Some(7) },
    ];
    for carrier in carriers {
        for (v6, has_checksum, has_sequence) in (0..8).map(|i| (i & 1 != 0, i & 2 != 0, i & 4 != 0))
        {
            for frame in [arp(), plain(0xb9, 1), plain(1, 1400), vec![4; 14], vec![0; 60]] {
                let tunnel = tunnel(v6, carrier);
                let rules = Outer { has_checksum, has_sequence, ..outer(&tunnel) };
                let mut whole = encapsulated(tunnel, rules, &frame);
                let is_gretap = matches!(carrier, Carrier::Gretap { .. });
                let accepts =
                    DecapSpec { accepts_no_checksum_v6: true, ..receiver().spec().clone() };
                let place = Place { at: 0, len: whole.len() };
                let opened = Decap::new(accepts).open(&mut whole, place).expect("it is right");
                let Place { at, len } = opened.place;
                assert_eq!(whole[at..at + len], frame);
                let sequence = (is_gretap && has_sequence).then_some(MARK.sequence);
                assert_eq!((opened.sequence, opened.has_odd_ecn), (sequence, false));
                let by = fuzzing::tunnels()[opened.tunnel];
                assert_eq!(
                    (by.local, by.remote, by.carrier),
                    (tunnel.remote, tunnel.local, carrier)
                );
                if !v6 && !is_gretap {
                    let expected =
                        if has_checksum { UdpChecksum::Valid } else { UdpChecksum::Absent };
                    assert_eq!(verify_checksums(&whole), Ok(expected));
                }
            }
        }
    }
}

#[test]
fn tunnel_that_came_first_in_the_list_is_the_one() {
    let tunnels = fuzzing::tunnels();
    let twice = [&tunnels[..], &tunnels[..]].concat();
    let decap = Decap::new(DecapSpec { tunnels: twice, ..DecapSpec::default() });
    let mut frame = gretap(&arp());
    let place = Place { at: 0, len: frame.len() };
    assert_eq!(decap.open(&mut frame, place).map(|inner| inner.tunnel), Ok(2));
    let only = Decap::new(DecapSpec { tunnels: vec![tunnels[2]], ..DecapSpec::default() });
    assert_eq!(only.open(&mut frame, place).map(|inner| inner.tunnel), Ok(0));
    let none = Decap::new(DecapSpec::default());
    assert_eq!(none.open(&mut frame, place), Err(DropReason::NotOurAddress));
}

/// The outer IPv4 header's class of service, TTL, and flags with identification.
fn outer_fields(rules: impl Fn(Outer) -> Outer, frame: &[u8]) -> (u8, u8, [u8; 4]) {
    let tunnel = tunnel(false, Carrier::Vxlan { vni: 42 });
    let whole = encapsulated(tunnel, rules(outer(&tunnel)), frame);
    verify_checksums(&whole).expect("the header's checksum is right");
    (whole[IP + 1], whole[IP + 8], [whole[IP + 4], whole[IP + 5], whole[IP + 6], whole[IP + 7]])
}

#[test]
fn outer_fields_follow_the_rules_and_the_inner_packet() {
    let whole = [0, 0, 0x40, 0];
    let inner = plain(46 << 2 | 1, 10);
    assert_eq!(outer_fields(|o| o, &inner), (46 << 2 | 1, 64, whole));
    let fixed = |o| Outer { dscp: Field::Fixed(10), ttl: Field::Fixed(7), ..o };
    assert_eq!(
        outer_fields(fixed, &inner),
        (10 << 2 | 1, 7, whole),
        "the mark follows all the same"
    );
    let inherit = |o| Outer { dscp: Field::Inherit(10), ttl: Field::Inherit(7), ..o };
    assert_eq!(outer_fields(inherit, &inner), (46 << 2 | 1, 9, whole));
    assert_eq!(outer_fields(inherit, &arp()), (10 << 2, 7, whole), "what is not IP has no say");
    let mut dying = plain(0, 1);
    dying[IP + 8] = 0;
    assert_eq!(outer_fields(inherit, &dying).1, 1, "no outer packet is born dead");
    // May be fragmented on the way: then it needs an identification of its own.
    let clear = |o| Outer { dont_fragment: Field::Fixed(false), ..o };
    assert_eq!(outer_fields(clear, &inner).2, [3, 4, 0, 0]);
    let inherit = |o| Outer { dont_fragment: Field::Inherit(true), ..o };
    assert_eq!(outer_fields(inherit, &inner).2, whole);
    let mut may = plain(0, 1);
    may[IP + 6] = 0;
    assert_eq!(outer_fields(inherit, &may).2, [3, 4, 0, 0]);
    let mut tagged = arp();
    tagged.splice(12..12, [0x81, 0x00, 0, 5]);
    assert_eq!(outer_fields(inherit, &tagged).2, whole);
}

#[test]
fn outer_fields_of_version_6_follow_them_too() {
    let tunnel = tunnel(true, Carrier::Gretap { key: None });
    let rules = Outer { ttl: Field::Inherit(5), ..outer(&tunnel) };
    let whole = encapsulated(tunnel, rules, &plain(46 << 2 | 2, 10));
    let header = ipv6::Header::parse(&whole[IP..], whole.len() - IP).expect("it is whole");
    assert_eq!((header.service(), header.hops(), header.next()), (46 << 2 | 2, 9, gre::PROTOCOL));
    assert_eq!(header.flow_label(), flow::flow_label(MARK.flow_hash));
    assert_eq!(header.payload_bytes(), whole.len() - IP - 40);
    // An IPv6 packet inside has a class and a hop limit as well.
    let mut inner = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x86, 0xdd];
    let mut header = [0; 40];
    let (src, dst) = (ENDS_V6.0, ENDS_V6.0);
    ipv6::Repr { src, dst, next: 59, hops: 3, service: 0xb9, flow_label: 1, payload_bytes: 0 }
        .write(&mut header)
        .expect("it fits");
    inner.extend(header);
    let whole = encapsulated(tunnel, rules, &inner);
    let header = ipv6::Header::parse(&whole[IP..], whole.len() - IP).expect("it is whole");
    assert_eq!((header.service(), header.hops()), (0xb9, 3));
}

#[test]
fn mark_of_congestion_on_the_way_reaches_the_inner_packet() {
    let marked = |service: u8| {
        let mut frame = vxlan(&plain(service, 20));
        frame[IP + 1] |= 3;
        let mut frame = mend_ip(frame);
        let inner = open(&mut frame).expect("the transport knows marks").place;
        let inner = &frame[inner.at..inner.at + inner.len];
        verify_checksums(inner).expect("the inner checksum was brought up to date");
        inner[IP + 1]
    };
    for service in [0xb9, 0xba, 0xbb] {
        assert_eq!(marked(service), 0xbb);
    }
    let mut odd = mend_ip(with(vxlan(&plain(3, 20)), IP + 1, &[1]));
    assert!(open(&mut odd).expect("it is let through").has_odd_ecn);
}

#[test]
fn frame_too_large_for_the_mtu_is_refused_and_one_byte_less_is_not() {
    for (v6, carrier) in [
        (false, Carrier::Vxlan { vni: 42 }),
        (true, Carrier::Vxlan { vni: 42 }),
        (false, Carrier::Gretap { key: Some(7) }),
    ] {
        let tunnel = tunnel(v6, carrier);
        let encap = Encap::new(tunnel, Outer { mtu_bytes: 1500, ..outer(&tunnel) }).expect("good");
        let max = encap.inner_bytes_max();
        assert_eq!(max, 1500 + 14 - encap.headers_bytes());
        let mut buffer = vec![0; 2000];
        let mut prepend = |at, len| encap.prepend(&mut buffer, Place { at, len }, MARK);
        assert_eq!(prepend(100, max).map(|place| place.len), Ok(1514));
        assert_eq!(prepend(100, max + 1), Err(EncapDrop::TooBig));
        assert_eq!(prepend(100, 13), Err(EncapDrop::Runt));
        assert_eq!(prepend(encap.headers_bytes(), 60).map(|place| place.at), Ok(0));
        assert_eq!(prepend(encap.headers_bytes() - 1, 60), Err(EncapDrop::NoHeadroom));
        assert_eq!(prepend(1990, 60), Err(EncapDrop::NoHeadroom));
        assert_eq!(prepend(usize::MAX, 60), Err(EncapDrop::NoHeadroom));
    }
}

#[test]
fn own_packet_is_not_encapsulated_again() {
    for frame in [vxlan(&arp()), gretap(&arp())] {
        for carrier in [Carrier::Vxlan { vni: 42 }, Carrier::Gretap { key: None }] {
            let tunnel = tunnel(false, carrier);
            let encap = Encap::new(tunnel, outer(&tunnel)).expect("good");
            let mut buffer = [&[0; HEADERS_BYTES_MAX][..], &frame].concat();
            let place = Place { at: HEADERS_BYTES_MAX, len: frame.len() };
            assert_eq!(encap.prepend(&mut buffer, place, MARK), Err(EncapDrop::Looped));
        }
    }
    // Other traffic between the same hosts is not meant.
    let mut ping = vxlan(&arp());
    ping[IP + 9] = 1;
    assert!(vxlan(&mend_ip(ping)).len() > 100);
}

#[test]
fn sequence_set_afterwards_is_as_good_as_at_once() {
    let tunnel = tunnel(true, Carrier::Gretap { key: Some(7) });
    for has_checksum in [false, true] {
        let rules = Outer { has_checksum, has_sequence: true, ..outer(&tunnel) };
        let mut frame = encapsulated(tunnel, rules, &plain(0, 101));
        let at_once = frame.clone();
        let encap = Encap::new(tunnel, rules).expect("good");
        encap.set_sequence(&mut frame, 0xffff_0000);
        assert_ne!(frame, at_once);
        let mut opened = frame.clone();
        assert_eq!(open(&mut opened).map(|inner| inner.sequence), Ok(Some(0xffff_0000)));
        encap.set_sequence(&mut frame, MARK.sequence);
        assert_eq!(frame, at_once);
        encap.set_sequence(&mut frame[..20], 1);
    }
}

#[test]
fn tunnel_that_makes_no_sense_is_refused_with_the_reason() {
    let good = tunnel(false, Carrier::Vxlan { vni: 42 });
    let rules = outer(&good);
    let error = |tunnel, rules| Encap::new(tunnel, rules).map(|_| ()).expect_err("it is wrong");
    let v6 = IpAddr::from(ENDS_V6.0);
    let found = error(Tunnel { remote: v6, ..good }, rules);
    assert_eq!(found, TunnelError::Families { local: good.local, remote: v6 });
    let found = error(Tunnel { remote: good.local, ..good }, rules);
    assert_eq!(found, TunnelError::SameEnds { address: good.local });
    for address in [[0, 0, 0, 0], [224, 0, 0, 1], [255; 4]].map(IpAddr::from) {
        let found = error(Tunnel { remote: address, ..good }, rules);
        assert_eq!(found, TunnelError::Address { address });
    }
    let carrier = Carrier::Vxlan { vni: 1 << 24 };
    assert_eq!(error(Tunnel { carrier, ..good }, rules), TunnelError::Vni { vni: 1 << 24 });
    let dscp = Field::Inherit(64);
    assert_eq!(error(good, Outer { dscp, ..rules }), TunnelError::Dscp { dscp: 64 });
    let ttl = Field::Fixed(0);
    assert_eq!(error(good, Outer { ttl, ..rules }), TunnelError::Ttl);
    let found = error(good, Outer { mtu_bytes: 575, ..rules });
    assert_eq!(found, TunnelError::Mtu { mtu_bytes: 575, min_bytes: 576 });
    assert!(found.to_string().ends_with("give at least 576"), "{found}");
}

/// The corpus: the cases by name, each with the modes of the fuzz target.
fn corpus() -> impl Iterator<Item = (String, Vec<u8>)> {
    cases().into_iter().enumerate().flat_map(|(n, (name, frame, _))| {
        let tunnel = (n % 6) as u8;
        let mended = MEND | NO_CHECKSUM_V6 | (5 - tunnel) << TUNNEL_SHIFT;
        let modes = [("", tunnel << TUNNEL_SHIFT), ("_mended", mended)];
        modes.map(|(suffix, modes)| (format!("{name}{suffix}"), [&[modes][..], &frame].concat()))
    })
}

#[test]
fn committed_corpus_holds_every_case_and_every_input_of_it_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/decap");
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&folder).expect("the folder can be made");
        for (name, input) in corpus() {
            fs::write(folder.join(name), input).expect("it can be written");
        }
    }
    for (name, input) in corpus() {
        let committed = fs::read(folder.join(&name)).unwrap_or_default();
        assert!(committed == input, "{name} has changed; UPDATE=1 writes it anew");
    }
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed").flatten() {
        fuzzing::decap(&fs::read(entry.path()).expect("a corpus holds files"));
        count += 1;
    }
    assert!(count >= 2 * cases().len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::decap(&bytes);
    }

    /// As above, near enough to a tunnel's frame to get past the first checks.
    #[test]
    fn bent_frames_never_panic(
        case in any::<prop::sample::Index>(),
        modes: u8,
        cut in 0usize..12,
        bends in prop::collection::vec((0usize..140, any::<u8>()), 0..4),
    ) {
        let cases = cases();
        let (_, frame, _) = &cases[case.index(cases.len())];
        let mut input = [&[modes][..], frame].concat();
        input.truncate(input.len() - cut / 4);
        for (at, byte) in bends {
            if let Some(bent) = input.get_mut(at + 1) {
                *bent = byte;
            }
        }
        fuzzing::decap(&input);
    }

    #[test]
    fn anything_of_a_frame_s_length_goes_there_and_back(
        frame in prop::collection::vec(any::<u8>(), 14..300), ethertype in 0usize..4,
    ) {
        let mut frame = frame;
        let types = [ethernet::TYPE_IPV4, ethernet::TYPE_IPV6, ethernet::TYPE_VLAN, 0x1234];
        frame[12..14].copy_from_slice(&types[ethertype].to_be_bytes());
        let mut whole = vxlan(&frame);
        let at = whole.len() - frame.len();
        if let Ok(inner) = open(&mut whole) {
            prop_assert_eq!(inner.place, Place { at, len: frame.len() });
            prop_assert_eq!(&whole[at..], &frame[..]);
        }
    }
}
