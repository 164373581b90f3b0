//! Dropped frames by reason, random bytes, and the fuzzer's corpus.

use super::*;

/// Frames from the network with the expected result. They are also the fuzzer's corpus.
fn cases() -> Vec<(&'static str, Vec<u8>, Result<(), DropReason>)> {
    use DropReason::*;
    let good = vxlan(&plain(0, 40));
    // The header announces a shorter packet than the frame holds.
    let short_ip = |bytes: u16| mend_ip(patched(good.clone(), IP + 2, &bytes.to_be_bytes()));
    let [unknown_end, own_packet] = [[10, 0, 0, 9], [10, 0, 0, 2]]
        .map(|sender| mend_ip(patched(good.clone(), IP + 12, &sender)));
    let no_checksum_v6 = {
        let tunnel = tunnel(true, Carrier::Vxlan { vni: 42 });
        encapsulated(tunnel, Outer { has_checksum: false, ..outer(&tunnel) }, &plain(0, 9))
    };
    let plain_gre = {
        let tunnel = tunnel(false, Carrier::Gretap { key: None });
        encapsulated(tunnel, outer(&tunnel), &plain(0, 10))
    };
    let long = vxlan(&plain(0, INNER_BYTES_MAX - 41));
    // An inner frame of 13 bytes: 20 + 8 + 8 + 13.
    let runt = patched(short_ip(49), UDP + 4, &[0, 29]);
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
        ("not_tunnel", mend_ip(patched(good.clone(), IP + 9, &[6])), Err(NotTunnel)),
        ("not_tunnel_port", patched(good.clone(), UDP + 2, &[0, 53]), Err(NotTunnel)),
        ("truncated_ethernet", good[..13].to_vec(), Err(Truncated)),
        ("truncated_ip", good[..33].to_vec(), Err(Truncated)),
        ("truncated_udp", short_ip(27), Err(Truncated)),
        ("truncated_vxlan", patched(short_ip(35), UDP + 4, &[0, 15]), Err(Truncated)),
        ("truncated_gre", mend_ip(patched(plain_gre.clone(), IP + 2, &[0, 23])), Err(Truncated)),
        ("ip_header", good[..good.len() - 1].to_vec(), Err(IpHeader)),
        ("ip_version", patched(good.clone(), IP, &[0x65]), Err(IpHeader)),
        ("ip_checksum", patched(good.clone(), IP + 8, &[3]), Err(IpChecksum)),
        ("fragment", mend_ip(patched(good.clone(), IP + 6, &[0x20, 0])), Err(Fragment)),
        ("udp_length", patched(good.clone(), UDP + 4, &[0xff, 0]), Err(UdpLength)),
        ("udp_length_small", patched(good.clone(), UDP + 4, &[0, 7]), Err(UdpLength)),
        ("udp_checksum", patched(good.clone(), UDP + 6, &[1, 1]), Err(UdpChecksum)),
        ("no_udp_checksum", no_checksum_v6, Err(NoUdpChecksum)),
        ("vxlan_flags", patched(good.clone(), VXLAN, &[0]), Err(VxlanFlags)),
        ("gre_header", patched(plain_gre.clone(), UDP, &[0x40]), Err(GreHeader)),
        ("gre_version", patched(plain_gre.clone(), UDP + 1, &[1]), Err(GreHeader)),
        ("gre_checksum", patched(gretap(&arp()), 70, &[0xaa]), Err(GreChecksum)),
        ("gre_type", patched(plain_gre.clone(), UDP + 2, &[0x08, 0x00]), Err(GreType)),
        ("unknown_network", patched(good.clone(), VXLAN + 4, &[0, 0, 43]), Err(UnknownTunnel)),
        ("unknown_end", unknown_end, Err(UnknownTunnel)),
        ("own_packet", own_packet, Err(OwnPacket)),
        ("inner_runt", runt, Err(InnerRunt)),
        ("inner_too_big", long, Err(InnerTooBig)),
        ("nested_too_deep", vxlan(&elsewhere(1, &elsewhere(2, &plain(0, 1)))), Err(NestedTooDeep)),
        // As in a network loop: the tunnel's own packet enters the tunnel.
        ("looped", nested_by_hand(&good), Err(Looped)),
        ("looped_deeper", vxlan(&elsewhere(1, &good)), Err(Looped)),
        ("congestion", congested(vxlan(&plain(0, 20))), Err(Congestion)),
    ]
}

/// The frame with a congestion mark outside.
fn congested(frame: Vec<u8>) -> Vec<u8> {
    let service = frame[IP + 1] | 3;
    mend_ip(patched(frame, IP + 1, &[service]))
}

/// A frame in a tunnel between other hosts.
fn elsewhere(last: u8, inner: &[u8]) -> Vec<u8> {
    let tunnel = Tunnel {
        local: IpAddr::from([172, 16, 0, last]),
        remote: IpAddr::from([172, 16, 1, last]),
        carrier: Carrier::Vxlan { vni: 1 },
    };
    encapsulated(tunnel, outer(&tunnel), inner)
}

fn tag(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00, 0, 5], &frame[12..]].concat()
}

/// Encapsulates a packet of the tunnel in the tunnel, which `Encap` refuses to do.
fn nested_by_hand(inner: &[u8]) -> Vec<u8> {
    let mut frame = vxlan(&vec![0; inner.len()]);
    let at = frame.len() - inner.len();
    frame[at..].copy_from_slice(inner);
    frame
}

#[test]
fn frame_with_one_fault_is_dropped_for_that_reason() {
    let mut reasons = BTreeSet::new();
    for (name, mut frame, expected) in cases() {
        let before = frame.clone();
        let found = open(&mut frame);
        assert_eq!(found.map(|_| ()), expected, "{name}");
        if let Err(reason) = found {
            reasons.insert(reason.name());
            assert_eq!(frame, before, "{name} was changed");
        }
    }
    for reason in DropReason::ALL {
        assert!(reasons.contains(reason.name()), "no case for {}", reason.name());
    }
}

#[test]
fn reasons_have_unique_indexes_and_names() {
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
fn truncated_frames_are_dropped_at_any_length() {
    for frame in [vxlan(&plain(0, 40)), vxlan_v6(&plain(0, 40)), gretap(&plain(0, 40))] {
        for len in 0..frame.len() {
            assert!(open(&mut frame[..len].to_vec()).is_err(), "{len} bytes");
        }
        assert!(open(&mut frame.clone()).is_ok());
        let beyond = PacketPlace { at: 1, len: frame.len() };
        assert_eq!(receiver().open(&mut frame.clone(), beyond), Err(DropReason::Truncated));
        let beyond = PacketPlace { at: usize::MAX, len: 2 };
        assert_eq!(receiver().open(&mut frame.clone(), beyond), Err(DropReason::Truncated));
    }
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
fn committed_corpus_holds_every_case_and_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/decap");
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&folder).expect("the folder can be created");
        for (name, input) in corpus() {
            fs::write(folder.join(name), input).expect("it can be written");
        }
    }
    for (name, input) in corpus() {
        let committed = fs::read(folder.join(&name)).unwrap_or_default();
        assert!(committed == input, "{name} has changed; run with UPDATE=1 to rewrite it");
    }
    let inputs = testkit::corpus::inputs("decap");
    inputs.iter().for_each(|bytes| fuzzing::decap(bytes));
    assert!(inputs.len() >= 2 * cases().len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::decap(&bytes);
    }

    /// Mutated tunnel frames, which pass the first checks.
    #[test]
    fn mutated_frames_never_panic(
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
    fn any_bytes_of_frame_length_survive_a_round_trip(
        frame in prop::collection::vec(any::<u8>(), 14..300), ethertype in 0usize..4,
    ) {
        let mut frame = frame;
        let types = [ethernet::TYPE_IPV4, ethernet::TYPE_IPV6, ethernet::TYPE_VLAN, 0x1234];
        frame[12..14].copy_from_slice(&types[ethertype].to_be_bytes());
        let mut whole = vxlan(&frame);
        let at = whole.len() - frame.len();
        if let Ok(inner) = open(&mut whole) {
            prop_assert_eq!(inner.place, PacketPlace { at, len: frame.len() });
            prop_assert_eq!(&whole[at..], &frame[..]);
        }
    }
}
