//! Frames that the filter of a forwarder takes and passes, in a throw-away lab.

use std::time::Duration;

use lab::{End, Pair, PairSpec};
use sys::bpf::{FilterCounts, XdpMode};
use sys::packet::PacketTx;
use testkit::{beside, until};
use wirepath_tunnel_bpf::{TunnelCarrier, TunnelFilter, TunnelFilterSpec, TunnelFrames, TunnelId};

const UDP: u8 = 17;
const GRE: u8 = 47;
const KEY_7: [u8; 4] = [0, 0, 0, 7];
const KEY_8: [u8; 4] = [0, 0, 0, 8];

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

fn vxlan_frame(pair: &Pair, flags: u8, vni: u32) -> Vec<u8> {
    let payload = [&[flags, 0, 0, 0][..], &(vni << 8).to_be_bytes(), &[0; 14]].concat();
    frame(pair, 0, UDP, &udp(4789, &payload))
}

/// - `options`: follow the type.
fn gre_frame(pair: &Pair, flags: u16, kind: u16, options: &[u8]) -> Vec<u8> {
    frame(pair, 0, GRE, &[&flags.to_be_bytes()[..], &kind.to_be_bytes(), options].concat())
}

/// The frame with another destination address.
fn elsewhere(mut frame: Vec<u8>) -> Vec<u8> {
    frame[33] += 1;
    frame
}

fn id(pair: &Pair, carrier: TunnelCarrier) -> TunnelId {
    TunnelId { local: pair.far.ip.into(), carrier }
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
    let ours = [
        vxlan_frame(&pair, 8, 42),
        vxlan_frame(&pair, 8, 0xff_ffff),
        gre_frame(&pair, 0, 0x6558, &[]),
        gre_frame(&pair, 0x2000, 0x6558, &KEY_7),
        gre_frame(&pair, 0xa000, 0x6558, &[[0; 4], KEY_7].concat()),
        gre_frame(&pair, 0x3000, 0x6558, &[KEY_7, [0; 4]].concat()),
    ];
    let others = [
        vxlan_frame(&pair, 8, 43),
        vxlan_frame(&pair, 0, 42),
        elsewhere(vxlan_frame(&pair, 8, 42)),
        vxlan_frame(&pair, 8, 42)[..48].to_vec(),
        frame(&pair, 0, UDP, &udp(4790, &[8, 0, 0, 0, 0, 0, 42, 0])),
        frame(&pair, 0x2000, UDP, &udp(4789, &[8, 0, 0, 0, 0, 0, 42, 0])),
        gre_frame(&pair, 0x2000, 0x6558, &KEY_8),
        gre_frame(&pair, 0xa000, 0x6558, &[[0; 4], KEY_8].concat()),
        gre_frame(&pair, 0x2000, 0x6558, &KEY_7[..3]),
        gre_frame(&pair, 0, 0x0800, &[]),
        gre_frame(&pair, 1, 0x6558, &[]),
        elsewhere(gre_frame(&pair, 0, 0x6558, &[])),
    ];
    let ids = vec![
        id(&pair, TunnelCarrier::Vxlan { vni: 42 }),
        id(&pair, TunnelCarrier::Vxlan { vni: 0xff_ffff }),
        id(&pair, TunnelCarrier::Gre { key: None }),
        id(&pair, TunnelCarrier::Gre { key: Some(7) }),
    ];
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
    filter
        .set_tunnels(&[
            id(&pair, TunnelCarrier::Vxlan { vni: 43 }),
            id(&pair, TunnelCarrier::Vxlan { vni: 42 }),
        ])
        .expect("changed");
    send(
        &pair.near,
        &[vxlan_frame(&pair, 8, 43), vxlan_frame(&pair, 8, 42), gre_frame(&pair, 0, 0x6558, &[])],
    );
    expected.map_missed += 2;
    expected.passed += 1;
    wait_for_counts(&filter, expected);
}
