//! Frames that the filter of a forwarder takes and passes, in a throw-away lab.

use std::time::Duration;

use lab::{End, Pair, PairSpec};
use sys::bpf::{FilterCounts, XdpMode};
use sys::packet::PacketTx;
use testkit::{beside, until};
use wirepath_tunnel_bpf::{TunnelCarrier, TunnelFilter, TunnelFilterSpec, TunnelFrames, TunnelId};

const UDP: u8 = 17;
const GRE: u8 = 47;

/// An IPv4 packet from near to far, in a frame.
fn frame(pair: &Pair, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [pair.far.mac, pair.near.mac].concat();
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(pair.near.ip.octets());
    frame.extend(pair.far.ip.octets());
    frame.extend(payload);
    frame
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = 40_000_u16.to_be_bytes().to_vec();
    datagram.extend(port.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

fn vxlan(flags: u8, vni: u32) -> Vec<u8> {
    udp(4789, &[&[flags, 0, 0, 0][..], &(vni << 8).to_be_bytes(), &[0; 14]].concat())
}

/// A GRE header; `options` follow the type.
fn gre(flags: u16, kind: u16, options: &[u8]) -> Vec<u8> {
    [&flags.to_be_bytes()[..], &kind.to_be_bytes(), options].concat()
}

fn send(from: &End, frames: &[Vec<u8>]) {
    let mut tx =
        from.run(|| PacketTx::open(from.ifindex, 2048, 64).expect("a socket")).expect("lab");
    for frame in frames {
        assert_eq!(tx.post(1, frame.len(), |slot| slot.copy_from_slice(frame)), 1);
    }
    tx.kick().expect("the link is up");
    assert!(until(Duration::from_secs(5), || {
        tx.reap();
        tx.in_flight() == 0
    }));
}

fn wait_for_counts(filter: &TunnelFilter, expected: FilterCounts) {
    let mut counts = FilterCounts::default();
    until(Duration::from_secs(10), || {
        counts = filter.sockets.counts().expect("counts");
        counts == expected
    });
    assert_eq!(counts, expected);
}

#[test]
fn only_frames_of_configured_tunnels_are_taken_and_the_list_can_change() {
    let _beside = beside();
    let pair = Pair::new(&PairSpec::default()).expect("a lab");
    let id = |carrier| TunnelId { local: pair.far.ip.into(), carrier };
    let vxlan_id = |vni| id(TunnelCarrier::Vxlan { vni });
    let gre_id = |key| id(TunnelCarrier::Gre { key });
    let key = |key: u32| key.to_be_bytes();
    let after_checksum = |of: u32| [[0; 4], key(of)].concat();
    let of_vxlan = |flags, vni| frame(&pair, 0, UDP, &vxlan(flags, vni));
    let of_gre = |flags, kind, options: &[u8]| frame(&pair, 0, GRE, &gre(flags, kind, options));
    let elsewhere = |mut frame: Vec<u8>| {
        frame[33] += 1;
        frame
    };
    let ours = [
        of_vxlan(8, 42),
        of_vxlan(8, 0xff_ffff),
        of_gre(0, 0x6558, &[]),
        of_gre(0x2000, 0x6558, &key(7)),
        of_gre(0xa000, 0x6558, &after_checksum(7)),
        of_gre(0x3000, 0x6558, &[key(7), [0; 4]].concat()),
    ];
    let others = [
        of_vxlan(8, 43),
        of_vxlan(0, 42),
        elsewhere(of_vxlan(8, 42)),
        of_vxlan(8, 42)[..48].to_vec(),
        frame(&pair, 0, UDP, &udp(4790, &[8, 0, 0, 0, 0, 0, 42, 0])),
        frame(&pair, 0x2000, UDP, &udp(4789, &[8, 0, 0, 0, 0, 0, 42, 0])),
        of_gre(0x2000, 0x6558, &key(8)),
        of_gre(0xa000, 0x6558, &after_checksum(8)),
        of_gre(0x2000, 0x6558, &key(7)[..3]),
        of_gre(0, 0x0800, &[]),
        of_gre(1, 0x6558, &[]),
        elsewhere(of_gre(0, 0x6558, &[])),
    ];
    let ids = vec![vxlan_id(42), vxlan_id(0xff_ffff), gre_id(None), gre_id(Some(7))];
    let frames = TunnelFrames::Tunnels { vxlan_port: 4789, ids };
    let spec = TunnelFilterSpec { frames, frags: false, queues: 1 };
    let mut filter = TunnelFilter::load(&spec).expect("load");
    let attached = pair.far.run(|| filter.sockets.attach(pair.far.ifindex, XdpMode::Native));
    attached.expect("the lab").expect("attach");
    // No queue has a socket: frames of tunnels miss the map.
    let mut expected = FilterCounts { map_missed: ours.len() as u64, ..FilterCounts::default() };
    send(&pair.near, &ours);
    wait_for_counts(&filter, expected);
    expected.passed = others.len() as u64;
    send(&pair.near, &others);
    wait_for_counts(&filter, expected);
    filter.set_tunnels(&[vxlan_id(43), vxlan_id(42)]).expect("changed");
    send(&pair.near, &[of_vxlan(8, 43), of_vxlan(8, 42), of_gre(0, 0x6558, &[])]);
    expected.map_missed += 2;
    expected.passed += 1;
    wait_for_counts(&filter, expected);
}
