//! The XDP fast path: its frames are those of the AF_XDP forwarder, and it works with the kernel's
//! tunnels.

use std::time::Instant;

use sys::packet::{PacketRx, PacketTx};
use wire::{checksum, ipv4};
use wirepath_forward::spec::Field;

use super::*;

/// Sender of the test's raw frames.
pub(super) const SENDER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 1];
pub(super) const RECEIVER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 2];
const GRE_KEY: u32 = 77;

/// A lab whose hosts take frames that XDP redirects.
pub(super) fn fast_lab() -> Triple {
    let lab = lab();
    for end in [&lab.near, &lab.far] {
        end.set_feature(ethtool::Feature::GRO, true).expect("veth has the feature");
    }
    lab
}

/// An inner IPv4 packet in a frame of `len` bytes.
pub(super) fn v4(protocol: u8, service: u8, ttl: u8, fragment: u16, len: usize) -> Vec<u8> {
    let mut frame = [&RECEIVER[..], &SENDER, &[0x08, 0x00]].concat();
    frame.resize(len, 0x5a);
    let total = (len - 14) as u16;
    frame[14..34].copy_from_slice(&[
        0x45, service, 0, 0, 0, 9, 0, 0, ttl, protocol, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6,
    ]);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[20..22].copy_from_slice(&fragment.to_be_bytes());
    let sum = checksum::finish(checksum::sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    if protocol == 6 {
        // Within a connection: the slow path takes a SYN.
        frame[47] = 0x10;
    }
    frame
}

/// An inner IPv6 packet in a frame of `len` bytes.
fn v6(next: u8, class: u8, hops: u8, len: usize) -> Vec<u8> {
    let mut frame = [&RECEIVER[..], &SENDER, &[0x86, 0xdd]].concat();
    frame.resize(len, 0xa5);
    let payload = (len - 54) as u16;
    frame[14..18].copy_from_slice(&(6 << 28 | u32::from(class) << 20).to_be_bytes());
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
    (frame[20], frame[21]) = (next, hops);
    frame
}

/// Frames of every shape that the programs take, and of some that they leave to the slow path.
fn inner_frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for len in [60, 61, 64, 65, 512, 1023, 1514] {
        frames.push(v4(17, 0, 64, ipv4::DONT_FRAGMENT, len));
        frames.push(v4(6, 0, 64, 0, len));
    }
    for service in [0, 1, 2, 3, 46 << 2, 46 << 2 | 3] {
        frames.push(v4(17, service, 9, ipv4::DONT_FRAGMENT, 90));
        frames.push(v6(17, service, 9, 90));
    }
    for protocol in [1, 33, 132, 136, 50] {
        frames.push(v4(protocol, 0, 1, ipv4::DONT_FRAGMENT, 100));
    }
    // First and later fragment of one packet, and a time to live of 0.
    frames.push(v4(17, 0, 64, 0x2000, 100));
    frames.push(v4(17, 0, 64, 5, 100));
    frames.push(v4(17, 0, 0, ipv4::DONT_FRAGMENT, 100));
    for next in [6, 58, 0, 44] {
        frames.push(v6(next, 0, 64, 120));
    }
    // Not IP, tagged, with options, cut.
    frames.push([&RECEIVER[..], &SENDER, &[0x88, 0xb5], &[7; 50]].concat());
    let tagged = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    frames.push([&tagged[..12], &[0x81, 0, 0, 7], &tagged[12..]].concat());
    let mut options = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    options[14] = 0x46;
    frames.push(options);
    let mut cut = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    cut[16..18].copy_from_slice(&500_u16.to_be_bytes());
    frames.push(cut);
    frames
}

/// Sends a frame until the programs forward such frames.
fn warm(forwarder: &Forwarder<'_>, counter: &str, from: &End, to: &End, frame: &[u8]) {
    for _ in 0..200 {
        pass(from, to, &[frame.to_vec()]);
        if count(&forwarder.counts(), counter) > 0 {
            return;
        }
    }
    panic!("no frame took the fast path: {:?}", forwarder.counts());
}

/// The tunnel as VXLAN, or as GRE with or without a key.
fn carried_by(lab: &Triple, carrier: Carrier) -> impl Fn(&mut ForwarderSpec) {
    let tunnel = Tunnel { local: address(OURS), remote: address(THEIRS), carrier };
    let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    // As much as can be is taken from the inner packet.
    let outer = Outer { mtu_bytes: UNDERLAY_MTU, ttl: Field::Inherit(64), ..suggested };
    let encap = Encap::new(tunnel, outer).expect("valid tunnel");
    move |spec: &mut ForwarderSpec| {
        spec.rules.encaps = vec![encap.clone()];
        spec.rules.decap.tunnels = vec![tunnel];
    }
}

const CARRIERS: [Carrier; 3] = [
    Carrier::Vxlan { vni: VNI },
    Carrier::Gretap { key: None },
    Carrier::Gretap { key: Some(GRE_KEY) },
];

/// Asserts that the programs make of each frame the same bytes as the slow path. Returns the counters of each kind
/// of programs.
///
/// - `ways`: sender, receiver, and the programs' counter of frames in this direction.
fn same_by_programs(
    lab: &Triple,
    carrier: Carrier,
    (from, to, counter): (&End, &End, &str),
    frames: &[Vec<u8>],
) -> Vec<(Ports, Vec<(&'static str, u64)>)> {
    let all = [Ports::Xdp(XdpMode::Native), Ports::InKernel, Ports::Tcx].map(|ports| {
        let (got, counts) = forwarding_by(lab, ports, 1, carried_by(lab, carrier), |forwarder| {
            if !matches!(ports, Ports::Xdp(_)) {
                warm(forwarder, counter, from, to, &frames[0]);
            }
            pass(from, to, frames)
        });
        (ports, got, counts)
    });
    let [(_, slow, _), programs @ ..] = all;
    let same = programs.into_iter().map(|(ports, fast, counts)| {
        for ((slow, fast), frame) in slow.iter().zip(&fast).zip(frames) {
            assert_eq!(slow, fast, "{ports:?}, {carrier:?}: {frame:02x?}");
        }
        (ports, counts)
    });
    same.collect()
}

#[test]
fn programs_write_the_headers_of_the_slow_path_to_the_byte() {
    let _alone = alone();
    let lab = fast_lab();
    let frames = inner_frames();
    for carrier in CARRIERS {
        let ways = (&lab.near, &lab.far, "fast_into_tunnels");
        for (ports, counts) in same_by_programs(&lab, carrier, ways, &frames) {
            let by_programs = count(&counts, "fast_into_tunnels");
            assert!(by_programs as usize >= frames.len() - 7, "{ports:?}, {carrier:?}: {counts:?}");
            assert!(count(&counts, "slow_shape") >= 6, "{ports:?}, {carrier:?}: {counts:?}");
            assert_eq!(count(&counts, "seam_dropped"), 0, "{counts:?}");
        }
    }
}

/// Outer packets for the way back, with every mark, and a UDP checksum for some.
fn outer_frames(lab: &Triple, carrier: Carrier) -> Vec<Vec<u8>> {
    let tunnel = Tunnel { local: address(THEIRS), remote: address(OURS), carrier };
    let suggested = Outer::suggested(&tunnel, lab.far.mac, lab.middle.far_if.mac);
    let mut frames = Vec::new();
    for has_checksum in [false, true] {
        let outer = Outer { mtu_bytes: UNDERLAY_MTU, has_checksum, ..suggested };
        let encap = Encap::new(tunnel, outer).expect("valid tunnel");
        let mut wrap = |inner: &[u8], outer_ecn: Option<u8>| {
            let mut buffer = vec![0; 256];
            buffer.extend_from_slice(inner);
            let place = PacketPlace { at: 256, len: inner.len() };
            let mark = Mark { flow_hash: 0x1234_5678, sequence: 1 };
            let whole = encap.prepend(&mut buffer, place, mark).expect("it fits");
            let mut frame = buffer[whole.at..whole.at + whole.len].to_vec();
            if let Some(ecn) = outer_ecn {
                let old = u16::from_be_bytes([frame[14], frame[15]]);
                frame[15] = frame[15] & !3 | ecn;
                let new = u16::from_be_bytes([frame[14], frame[15]]);
                let sum = u16::from_be_bytes([frame[24], frame[25]]);
                frame[24..26].copy_from_slice(&checksum::update(sum, old, new).to_be_bytes());
            }
            frames.push(frame);
        };
        for inner in inner_frames() {
            wrap(&inner, None);
        }
        for inner_ecn in 0..4 {
            for outer_ecn in 0..4 {
                // This one is dropped, as the RFC demands.
                if (inner_ecn, outer_ecn) != (0, 3) {
                    wrap(&v4(17, inner_ecn, 64, 0, 99), Some(outer_ecn));
                    wrap(&v6(17, inner_ecn, 64, 99), Some(outer_ecn));
                }
            }
        }
    }
    frames
}

#[test]
fn programs_open_packets_as_the_slow_path_does_with_marks_and_checksums() {
    let _alone = alone();
    let lab = fast_lab();
    for carrier in CARRIERS {
        let frames = outer_frames(&lab, carrier);
        let ways = (&lab.far, &lab.near, "fast_out_of_tunnels");
        for (ports, counts) in same_by_programs(&lab, carrier, ways, &frames) {
            let by_programs = count(&counts, "fast_out_of_tunnels") as usize;
            // GRE with a checksum takes the slow path, and so do tags, options and extension headers.
            let expected = if carrier == CARRIERS[0] { frames.len() } else { frames.len() / 2 };
            assert!(by_programs >= expected - 14, "{ports:?}, {carrier:?}: {expected} {counts:?}");
            if carrier == CARRIERS[0] {
                assert_eq!(count(&counts, "slow_checksum"), 0, "{counts:?}");
            }
        }
    }
}

#[test]
fn station_that_moves_is_followed_from_its_first_frame_on() {
    let _alone = alone();
    let lab = fast_lab();
    let carrier = CARRIERS[0];
    let ours = [THEIRS, "10.99.0.3"].map(|remote| Tunnel {
        local: address(OURS),
        remote: address(remote),
        carrier,
    });
    let to_station = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    let from_station = [&SENDER[..], &RECEIVER, &to_station[12..]].concat();
    let opened = ours.map(|tunnel| {
        let tunnel = Tunnel { local: tunnel.remote, remote: tunnel.local, carrier };
        let suggested = Outer::suggested(&tunnel, lab.far.mac, lab.middle.far_if.mac);
        let outer = Outer { mtu_bytes: UNDERLAY_MTU, ..suggested };
        let mut buffer = [vec![0; 256], from_station.clone()].concat();
        let place = PacketPlace { at: 256, len: from_station.len() };
        let mark = Mark { flow_hash: 1, sequence: 1 };
        let encap = Encap::new(tunnel, outer).expect("valid tunnel");
        let whole = encap.prepend(&mut buffer, place, mark).expect("it fits");
        buffer[whole.at..whole.at + whole.len].to_vec()
    });
    for ports in [Ports::InKernel, Ports::Tcx] {
        let ((), counts) = forwarding_by(
            &lab,
            ports,
            1,
            |spec: &mut ForwarderSpec| {
                spec.rules.encaps = ours.map(|tunnel| encap(&lab, tunnel)).to_vec();
                spec.rules.decap.tunnels = ours.to_vec();
            },
            |_| {
                let mut back = Wire::open(&lab.far, &lab.near);
                let mut there = Wire::open(&lab.near, &lab.far);
                for turn in 0..400 {
                    let at = turn % 2;
                    // The second one by the programs.
                    back.pass(&opened[at]);
                    back.pass(&opened[at]);
                    for frame in 0..8 {
                        let outer = there.pass(&to_station);
                        let remote = IpAddr::from([outer[30], outer[31], outer[32], outer[33]]);
                        assert_eq!(
                            remote, ours[at].remote,
                            "{ports:?}, turn {turn}, frame {frame}"
                        );
                    }
                }
            },
        );
        for (way, least) in [("fast_into_tunnels", 3000), ("fast_out_of_tunnels", 300)] {
            assert!(count(&counts, way) > least, "{way}: {counts:?}");
        }
    }
}

#[test]
fn wrong_checksums_and_marks_that_cannot_be_carried_are_dropped_by_reason() {
    let _alone = alone();
    let lab = fast_lab();
    let carrier = CARRIERS[0];
    let frames = outer_frames(&lab, carrier);
    let whole = frames[0].clone();
    let summed = frames[frames.len() / 2].clone();
    let ((), counts) =
        forwarding_by(&lab, Ports::InKernel, 1, carried_by(&lab, carrier), |forwarder| {
            warm(forwarder, "fast_out_of_tunnels", &lab.far, &lab.near, &whole);
            let mut wrong = whole.clone();
            wrong[22] ^= 1; // time to live, under the IP checksum
            let mut torn = summed.clone();
            torn[60] ^= 1;
            let mut marked = whole.clone();
            marked[15] |= 3;
            marked[24..26].copy_from_slice(&[0, 0]);
            let sum = checksum::finish(checksum::sum(&marked[14..34]));
            marked[24..26].copy_from_slice(&sum.to_be_bytes());
            // Each is dropped, and the whole one behind it arrives.
            let tx = lab.far.run(|| PacketTx::open(lab.far.ifindex, 2048, 64).expect("a socket"));
            let mut tx = tx.expect("the namespace exists");
            for bad in [&wrong, &torn, &marked] {
                tx.post(1, bad.len(), |slot| slot.copy_from_slice(bad));
                tx.kick().expect("the link is up");
            }
            pass(&lab.far, &lab.near, std::slice::from_ref(&whole));
            for name in ["ip_checksum", "udp_checksum", "congestion"] {
                let begun = Instant::now();
                while counter_sum(&forwarder.counts(), name) == 0 && begun.elapsed().as_secs() < 5 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
    for name in ["ip_checksum", "udp_checksum", "congestion"] {
        assert_eq!(counter_sum(&counts, name), 1, "{name}: {counts:?}");
    }
    assert_eq!(count(&counts, "slow_checksum"), 2, "{counts:?}");
}

#[test]
fn interface_that_takes_no_redirected_frames_is_left_to_the_slow_path() {
    let _alone = alone();
    let lab = fast_lab();
    // Without it the other end of the veth does not poll.
    lab.far.set_feature(ethtool::Feature::GRO, false).expect("veth has the feature");
    let frame = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    let (refusals, counts) =
        forwarding_by(&lab, Ports::InKernel, 1, carried_by(&lab, CARRIERS[0]), |forwarder| {
            let rx = lab.far.run(|| PacketRx::open_all(lab.far.ifindex, 1 << 20).expect("it"));
            let mut rx = rx.expect("the namespace exists");
            let tx = lab.near.run(|| PacketTx::open(lab.near.ifindex, 2048, 64).expect("it"));
            let mut tx = tx.expect("the namespace exists");
            let mut got = 0;
            for _ in 0..500 {
                tx.post(1, frame.len(), |slot| slot.copy_from_slice(&frame));
                tx.kick().expect("the link is up");
                thread::sleep(Duration::from_millis(2));
                tx.reap();
                rx.take(64, |bytes, _, _| {
                    got += u32::from(bytes.windows(6).any(|window| window == SENDER));
                });
                if got > 100 && forwarder.refusals()[0].is_some() {
                    break;
                }
            }
            forwarder.refusals()
        });
    assert!(refusals[0].is_some() && refusals[1].is_none(), "{refusals:?} {counts:?}");
    assert!(count(&counts, "into_tunnels_sent") > 100, "{counts:?}");
    assert!((1..20).contains(&count(&counts, "into_tunnels_refused")), "{counts:?}");
}

pub(super) fn counter_sum(counts: &[(&str, u64)], name: &str) -> u64 {
    counts.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
}

/// Makes an end of a tunnel of the kernel, through the interface that the forwarder uses.
fn add_other(end: &str, local: &str, remote: &str, address: &str) {
    ip(&format!(
        "link add vx9 type vxlan id 99 local {local} remote {remote} dstport 4789 dev {end}"
    ));
    ip("link set vx9 mtu 1400 up");
    ip(&format!("addr add {address}/24 dev vx9"));
    let vx9 = net::link_named("vx9").expect("it was created").index;
    ethtool::set_features(vx9, &[(ethtool::Feature::TX_CHECKSUM, false)]).expect("vxlan has it");
}

#[test]
fn kernel_s_tunnel_and_the_programs_reach_each_other_and_another_vni_passes_beside() {
    let _alone = alone();
    if !has(&["ip", "ping", "iperf3"]) {
        return;
    }
    let lab = fast_lab();
    let middle_name = lab.middle.far_if.ifname.clone();
    let ours = format!("addr add {OURS}/24 dev {middle_name}");
    lab.middle.netns.run(|| ip(&ours)).expect("it exists");
    lab.middle.netns.run(|| add_other(&middle_name, OURS, THEIRS, "10.79.0.1")).expect("it exists");
    lab.far.run(|| add_other("wp-far", THEIRS, OURS, "10.79.0.2")).expect("it exists");
    let (report, counts) = forwarding_by(
        &lab,
        Ports::InKernel,
        1,
        |_| {},
        |_| {
            let there = lab.near.run(|| ping(20, "-i 0.02 10.77.0.2"));
            there.expect("the namespace exists").expect("every ping is answered");
            let back = lab.far.run(|| ping(20, "-i 0.02 -s 1472 -M do 10.77.0.1"));
            back.expect("the namespace exists").expect("every ping is answered");
            let other = lab.middle.netns.run(|| ping(3, "-i 0.05 10.79.0.2"));
            other.expect("the namespace exists").expect("the other tunnel passes beside");
            ["-u -b 50M -l 1400", "-u -b 50M -l 1400 -R", "", "-R"].map(|more| iperf3(&lab, more))
        },
    );
    for report in &report[..2] {
        let end = &report["end"];
        assert!(end["sum"]["packets"].as_u64() > Some(500), "{end}");
        assert_eq!(end["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{end}");
    }
    for report in &report[2..] {
        let bytes = report["end"]["sum_received"]["bytes"].as_u64();
        assert!(bytes > Some(1_000_000), "{report} {counts:?}");
    }
    for way in ["fast_into_tunnels", "fast_out_of_tunnels"] {
        assert!(count(&counts, way) > 1000, "{way}: {counts:?}");
    }
    assert!(count(&counts, "fast_to_stack") >= 3, "{counts:?}");
    for bad in ["ip_checksum", "udp_checksum", "unknown_tunnel", "looped", "seam_forced"] {
        assert_eq!(counter_sum(&counts, bad), 0, "{bad}: {counts:?}");
    }
}

#[test]
fn header_that_changes_under_traffic_loses_no_frame_and_tears_none() {
    let _alone = alone();
    const COUNT: usize = 30_000;
    let lab = fast_lab();
    let frame = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    let tunnel = Tunnel {
        local: address(OURS),
        remote: address(THEIRS),
        carrier: Carrier::Vxlan { vni: VNI },
    };
    let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    // Everything that may differ does.
    let versions = [(9, 10), (200, 46)].map(|(ttl, dscp)| {
        let outer = Outer {
            mtu_bytes: UNDERLAY_MTU,
            ttl: Field::Fixed(ttl),
            dscp: Field::Fixed(dscp),
            ..suggested
        };
        Encap::new(tunnel, outer).expect("valid tunnel")
    });
    let expected = versions.clone().map(|encap| {
        let mut buffer = vec![0; 256];
        buffer.extend_from_slice(&frame);
        let mark = Mark { flow_hash: wire::flow::tuple(&frame).crc32c(), sequence: 0 };
        let place = PacketPlace { at: 256, len: frame.len() };
        let whole = encap.prepend(&mut buffer, place, mark).expect("it fits");
        buffer[whole.at..whole.at + whole.len].to_vec()
    });
    let first = encap_rules(versions[0].clone());
    let (seen, counts) = forwarding_by(
        &lab,
        Ports::InKernel,
        1,
        |spec| spec.rules = first,
        |forwarder| {
            warm(forwarder, "fast_into_tunnels", &lab.near, &lab.far, &frame);
            let rx = lab.far.run(|| PacketRx::open_all(lab.far.ifindex, 32 << 20).expect("it"));
            let mut rx = rx.expect("the namespace exists");
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let tx =
                        lab.near.run(|| PacketTx::open(lab.near.ifindex, 2048, 64).expect("it"));
                    let mut tx = tx.expect("the namespace exists");
                    let mut sent = 0;
                    while sent < COUNT {
                        let want = 32.min(COUNT - sent);
                        sent += tx.post(want, frame.len(), |slot| slot.copy_from_slice(&frame));
                        tx.kick().expect("the link is up");
                        tx.reap();
                        thread::sleep(Duration::from_micros(100));
                    }
                    done.store(true, Ordering::Relaxed);
                });
                let mut seen = [0; 2];
                let mut reload_count = 0;
                let mut last = Instant::now();
                while last.elapsed() < Duration::from_millis(500) {
                    rx.take(1024, |bytes, _, _| {
                        if bytes.windows(6).any(|window| window == SENDER) {
                            let version = expected.iter().position(|whole| whole == bytes);
                            let version = version.unwrap_or_else(|| panic!("torn: {bytes:02x?}"));
                            seen[version] += 1;
                            last = Instant::now();
                        }
                    });
                    if !done.load(Ordering::Relaxed) {
                        reload_count += 1;
                        forwarder
                            .reload(encap_rules(versions[reload_count % 2].clone()), Fdb::clone);
                        last = Instant::now();
                    }
                }
                assert!(reload_count > 5, "{reload_count}");
                seen
            })
        },
    );
    assert_eq!(seen.iter().sum::<usize>(), COUNT, "{seen:?} {counts:?}");
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    assert!(count(&counts, "fast_into_tunnels") as usize >= COUNT, "{counts:?}");
}
