//! Labs carry traffic, have the requested configuration, and leave nothing behind.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use host::net::{self, ethtool};
use wirepath_lab::{End, Pair, PairSpec, Triple};

fn udp_at(end: &End) -> UdpSocket {
    let socket = end.run(|| UdpSocket::bind((end.ip, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

#[test]
fn a_pair_carries_datagrams_both_ways() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let (near, far) = (udp_at(&pair.near), udp_at(&pair.far));
    let mut buffer = [0; 16];
    near.send_to(b"there", far.local_addr().unwrap()).unwrap();
    let (len, from) = far.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"there"[..], near.local_addr().unwrap()));
    far.send_to(b"back", from).unwrap();
    let (len, from) = near.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"back"[..], far.local_addr().unwrap()));
}

#[test]
fn a_pair_has_the_requested_configuration() {
    for (gro, tso) in [(false, true), (true, false)] {
        let spec = PairSpec { queues: 2, mtu_bytes: 3000, gro, tso, ..PairSpec::default() };
        let pair = Pair::new(&spec).unwrap();
        for end in [&pair.near, &pair.far] {
            let link = end.link().unwrap();
            assert_eq!((link.name.as_str(), link.mac), (end.ifname.as_str(), Some(end.mac)));
            assert_eq!((link.mtu_bytes, link.kind.as_deref()), (3000, Some("veth")));
            assert_eq!((link.rx_queue_count, link.tx_queue_count), (2, 2));
            assert!(link.is_up && link.is_running && link.has_carrier && link.xdp.is_empty());
            assert!(link.peer.unwrap().netns_id.is_some());
            let channels = end.run(|| ethtool::channels(end.ifindex)).unwrap().unwrap();
            assert_eq!((channels.rx_queues(), channels.tx_queues()), (2, 2));
            let offloads = end.run(|| ethtool::offloads(end.ifindex)).unwrap().unwrap();
            let is_on = |name: &str| offloads.get(name).is_some_and(|offload| offload.is_on);
            assert_eq!(is_on(ethtool::Feature::GRO), gro);
            assert_eq!(is_on(ethtool::Feature::TSO), tso);
            assert_eq!(is_on(ethtool::Feature::UDP_SEGMENTATION), tso);
            assert!(is_on(ethtool::Feature::GSO));
        }
    }
}

/// Packets that arrived at an end.
fn arrived(end: &End) -> u64 {
    let path = format!("class/net/{}/statistics/rx_packets", end.ifname);
    end.sysfs().unwrap().read(path).unwrap().parse().unwrap()
}

fn own_interface_count() -> usize {
    std::fs::read_to_string("/proc/thread-self/net/dev").unwrap().lines().count()
}

#[test]
fn the_middle_forwards_nothing_by_itself() {
    let triple = Triple::new(&PairSpec::default()).unwrap();
    let (near, far) = (udp_at(&triple.near), udp_at(&triple.far));
    near.send_to(b"x", far.local_addr().unwrap()).unwrap();
    while arrived(&triple.middle.near_if) == 0 {
        std::thread::yield_now();
    }
    assert_eq!((arrived(&triple.far), arrived(&triple.middle.far_if)), (0, 0));
    let seen = triple.near.run(|| net::resolve(triple.far.ip, None)).unwrap().unwrap();
    assert_eq!(seen.next_hop_mac, triple.far.mac);
    assert_ne!(triple.middle.near_if.ifindex, triple.middle.far_if.ifindex);
}

#[test]
fn a_lab_changes_nothing_in_the_callers_namespace() {
    let before = own_interface_count();
    let pair = Pair::new(&PairSpec::default()).unwrap();
    assert_eq!(own_interface_count(), before);
    assert!(net::link_named(&pair.near.ifname).is_err());
    assert_eq!(pair.near.ip, Ipv4Addr::new(10, 77, 0, 1));
}
