//! Outer headers, written and parsed.

use super::*;

#[test]
fn known_frame_is_written_byte_for_byte() {
    let inner = arp();
    let frame = vxlan(&inner);
    #[rustfmt::skip]
    let headers = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
        // 20 + 8 + 8 + 60 bytes; checksum computed by hand.
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
fn frame_is_unchanged_after_every_kind_of_tunnel() {
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
                let place = PacketPlace { at: 0, len: whole.len() };
                let opened = Decap::new(accepts).open(&mut whole, place).expect("accepted");
                let PacketPlace { at, len } = opened.place;
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
fn duplicate_tunnel_uses_its_first_index() {
    let tunnels = fuzzing::tunnels();
    let twice = [&tunnels[..], &tunnels[..]].concat();
    let decap = Decap::new(DecapSpec { tunnels: twice, ..DecapSpec::default() });
    let mut frame = gretap(&arp());
    let place = PacketPlace { at: 0, len: frame.len() };
    assert_eq!(decap.open(&mut frame, place).map(|inner| inner.tunnel), Ok(2));
    let only = Decap::new(DecapSpec { tunnels: vec![tunnels[2]], ..DecapSpec::default() });
    assert_eq!(only.open(&mut frame, place).map(|inner| inner.tunnel), Ok(0));
    let none = Decap::new(DecapSpec::default());
    assert_eq!(none.open(&mut frame, place), Err(DropReason::NotOurAddress));
}

/// Class of service, TTL, and identification with flags of the outer IPv4 header.
fn outer_fields(rules: impl Fn(Outer) -> Outer, frame: &[u8]) -> (u8, u8, [u8; 4]) {
    let tunnel = tunnel(false, Carrier::Vxlan { vni: 42 });
    let whole = encapsulated(tunnel, rules(outer(&tunnel)), frame);
    verify_checksums(&whole).expect("correct header checksum");
    (whole[IP + 1], whole[IP + 8], [whole[IP + 4], whole[IP + 5], whole[IP + 6], whole[IP + 7]])
}

#[test]
fn outer_fields_follow_the_rules_and_the_inner_packet() {
    let whole = [0, 0, 0x40, 0];
    let inner = plain(46 << 2 | 1, 10);
    assert_eq!(outer_fields(|o| o, &inner), (46 << 2 | 1, 64, whole));
    assert_eq!(
        outer_fields(|o| Outer { dscp: Field::Fixed(10), ttl: Field::Fixed(7), ..o }, &inner),
        (10 << 2 | 1, 7, whole),
        "the congestion mark is copied anyway"
    );
    let inherit = |o| Outer { dscp: Field::Inherit(10), ttl: Field::Inherit(7), ..o };
    assert_eq!(outer_fields(inherit, &inner), (46 << 2 | 1, 9, whole));
    assert_eq!(
        outer_fields(inherit, &arp()),
        (10 << 2, 7, whole),
        "a frame that is not IP uses the default"
    );
    let mut dying = plain(0, 1);
    dying[IP + 8] = 0;
    assert_eq!(outer_fields(inherit, &dying).1, 1, "an outer TTL is never 0");
    // It may be fragmented on the path, so it needs its own identification.
    let cleared = outer_fields(|o| Outer { dont_fragment: Field::Fixed(false), ..o }, &inner);
    assert_eq!(cleared.2, [3, 4, 0, 0]);
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
fn outer_ipv6_fields_follow_the_rules_and_the_inner_packet() {
    let tunnel = tunnel(true, Carrier::Gretap { key: None });
    let rules = Outer { ttl: Field::Inherit(5), ..outer(&tunnel) };
    let whole = encapsulated(tunnel, rules, &plain(46 << 2 | 2, 10));
    let header = ipv6::Header::parse(&whole[IP..], whole.len() - IP).expect("complete header");
    assert_eq!((header.service(), header.hops(), header.next()), (46 << 2 | 2, 9, gre::PROTOCOL));
    assert_eq!(header.flow_label(), flow::flow_label(MARK.flow_hash));
    assert_eq!(header.payload_bytes(), whole.len() - IP - 40);
    // An inner IPv6 packet also has a class and a hop limit.
    let mut inner = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x86, 0xdd];
    let mut header = [0; 40];
    let (src, dst) = (ENDS_V6.0, ENDS_V6.0);
    ipv6::Repr { src, dst, next: 59, hops: 3, service: 0xb9, flow_label: 1, payload_bytes: 0 }
        .write(&mut header)
        .expect("it fits");
    inner.extend(header);
    let whole = encapsulated(tunnel, rules, &inner);
    let header = ipv6::Header::parse(&whole[IP..], whole.len() - IP).expect("complete header");
    assert_eq!((header.service(), header.hops()), (0xb9, 3));
}

#[test]
fn outer_congestion_mark_reaches_the_inner_packet() {
    for service in [0xb9, 0xba, 0xbb] {
        let mut frame = vxlan(&plain(service, 20));
        frame[IP + 1] |= 3;
        let mut frame = mend_ip(frame);
        let inner = open(&mut frame).expect("the inner packet supports ECN").place;
        let inner = &frame[inner.at..inner.at + inner.len];
        verify_checksums(inner).expect("the inner checksum was updated");
        assert_eq!(inner[IP + 1], 0xbb);
    }
    let mut odd = mend_ip(patched(vxlan(&plain(3, 20)), IP + 1, &[1]));
    assert!(open(&mut odd).expect("accepted").has_odd_ecn);
}

#[test]
fn frame_of_one_byte_above_the_mtu_is_refused() {
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
        let mut prepend = |at, len| encap.prepend(&mut buffer, PacketPlace { at, len }, MARK);
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
            let place = PacketPlace { at: HEADERS_BYTES_MAX, len: frame.len() };
            assert_eq!(encap.prepend(&mut buffer, place, MARK), Err(EncapDrop::Looped));
        }
    }
    // Other traffic between the same hosts is allowed.
    let mut ping = vxlan(&arp());
    ping[IP + 9] = 1;
    assert!(vxlan(&mend_ip(ping)).len() > 100);
}

#[test]
fn sequence_set_later_gives_the_same_frame() {
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

fn error(tunnel: Tunnel, rules: Outer) -> TunnelError {
    Encap::new(tunnel, rules).map(drop).expect_err("invalid tunnel")
}

#[test]
fn invalid_tunnel_is_refused_with_the_reason() {
    let good = tunnel(false, Carrier::Vxlan { vni: 42 });
    let rules = outer(&good);
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
