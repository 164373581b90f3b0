//! Routes, neighbours, interfaces and offloads of a lab.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use lab::{End, Pair, PairSpec};
use sys::bpf::{PassProgram, XdpMode};
use sys::child::{Child, ChildError, ChildPlace};
use wirepath_host::irq_suspend::{DEFERRED, IrqSuspend, IrqSuspendError};
use wirepath_host::net::{
    self, AttachedMode, Channels, LinkEvent, LinkWatch, NetError, Resolved, ethtool, neighbour,
    resolve, route_to,
};

fn pair() -> Pair {
    Pair::new(&PairSpec::default()).unwrap()
}

fn resolve_at(
    end: &End,
    ip: impl Into<IpAddr> + Send,
    interface: Option<&str>,
) -> Result<Resolved, NetError> {
    end.run(|| resolve(ip, interface)).unwrap()
}

#[test]
fn a_frame_to_the_other_end_gets_all_it_needs() {
    let Pair { near, far } = &pair();
    for interface in [None, Some("wp-near")] {
        let expected = Resolved {
            ifindex: near.ifindex,
            ifname: "wp-near".into(),
            source_ip: near.ip.into(),
            next_hop_mac: far.mac,
            own_mac: near.mac,
            mtu_bytes: 1500,
        };
        assert_eq!(resolve_at(near, far.ip, interface).unwrap(), expected);
    }
    let route = near.run(|| route_to(far.ip)).unwrap().unwrap();
    assert_eq!((route.ifindex, route.gateway, route.source), (near.ifindex, None, near.ip.into()));
}

#[test]
fn an_unknown_neighbour_is_made_known() {
    let Pair { near, far } = &pair();
    let second = Ipv4Addr::new(10, 77, 0, 3);
    far.run(|| net::add_address(far.ifindex, second, 24)).unwrap().unwrap();
    let known = || near.run(|| neighbour(near.ifindex, second.into())).unwrap().unwrap();
    assert_eq!(known(), None);
    assert_eq!(resolve_at(near, second, None).unwrap().next_hop_mac, far.mac);
    assert_eq!(known(), Some(far.mac));
}

#[test]
fn routes_and_neighbours_of_ipv6_are_those_of_the_kernel() {
    let pair = Pair::new(&PairSpec { ipv6: true, ..PairSpec::default() }).unwrap();
    let Pair { near, far } = &pair;
    let found = resolve_at(near, far.load_ip(), None).unwrap();
    assert_eq!((found.source_ip, found.next_hop_mac), (near.load_ip(), far.mac));
    let route = near.run(|| route_to(far.load_ip())).unwrap().unwrap();
    assert_eq!((route.ifindex, route.gateway), (near.ifindex, None));
    // One that the kernel must ask for.
    let second: IpAddr = "fd77::3".parse().unwrap();
    far.run(|| net::add_address(far.ifindex, second, 64)).unwrap().unwrap();
    assert!(testkit::until(Duration::from_secs(60), || far
        .run(|| route_to(second))
        .unwrap()
        .unwrap()
        .ifindex
        != far.ifindex));
    let known = || near.run(|| neighbour(near.ifindex, second)).unwrap().unwrap();
    assert_eq!(known(), None);
    assert_eq!(resolve_at(near, second, None).unwrap().next_hop_mac, far.mac);
    assert_eq!(known(), Some(far.mac));
    let addresses =
        |like: IpAddr| far.run(|| net::addresses_like(far.ifindex, like)).unwrap().unwrap();
    let all = addresses(second);
    assert!(all.contains(&(second, 64)) && all.contains(&(far.load_ip(), 64)), "{all:?}");
    assert_eq!(addresses(far.ip.into()), [(far.ip.into(), 24)]);
    let silent = resolve_at(near, "fd77::9".parse::<IpAddr>().unwrap(), None).unwrap_err();
    assert!(matches!(silent, NetError::NoNeighbour { .. }), "{silent:?}");
    let no_route = resolve_at(near, "fd78::1".parse::<IpAddr>().unwrap(), None).unwrap_err();
    assert!(matches!(no_route, NetError::NoRoute { .. }), "{no_route:?}");
}

#[test]
fn a_router_on_the_way_is_the_next_hop() {
    let Pair { near, far } = &pair();
    let mut command = Command::new("ip");
    command.args(["route", "add", "192.0.2.0/24", "via", "10.77.0.2"]);
    let mut child = match Child::spawn(command, &ChildPlace { netns: Some(&near.netns), cpus: &[] })
    {
        Err(error @ ChildError::NotFound { .. }) => {
            testkit::skip("ip", format!("{error}; package iproute2"));
            return;
        }
        child => child.unwrap(),
    };
    let finished = child.wait(Duration::from_secs(20)).unwrap().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let beyond = Ipv4Addr::new(192, 0, 2, 7);
    let route = near.run(|| route_to(beyond)).unwrap().unwrap();
    assert_eq!(route.gateway, Some(far.ip.into()));
    assert_eq!(resolve_at(near, beyond, None).unwrap().next_hop_mac, far.mac);
}

#[test]
fn loopback_broadcast_and_multicast_need_no_neighbour() {
    let lab = pair();
    let near = &lab.near;
    let own = resolve_at(near, near.ip, None).unwrap();
    assert_eq!((own.ifname.as_str(), own.next_hop_mac), ("lo", [0; 6]));
    let all = resolve_at(near, Ipv4Addr::new(10, 77, 0, 255), None).unwrap();
    assert_eq!(all.next_hop_mac, [0xff; 6]);
    // There is no default route, so the group needs an interface's network to be reached by.
    let group = resolve_at(near, Ipv4Addr::new(239, 129, 2, 3), None);
    assert!(matches!(group, Err(NetError::NoRoute { .. })), "{group:?}");
}

#[test]
fn each_way_not_to_reach_an_address_has_its_own_message() {
    let Pair { near, far } = &pair();
    let no_route = resolve_at(near, Ipv4Addr::new(192, 0, 2, 1), None).unwrap_err();
    assert!(matches!(no_route, NetError::NoRoute { .. }), "{no_route:?}");
    assert!(no_route.to_string().contains("192.0.2.1"), "{no_route}");
    let silent = resolve_at(near, Ipv4Addr::new(10, 77, 0, 9), None).unwrap_err();
    assert!(matches!(silent, NetError::NoNeighbour { .. }), "{silent:?}");
    assert!(silent.to_string().contains("10.77.0.9") && silent.to_string().contains("wp-near"));
    let other = resolve_at(near, far.ip, Some("lo")).unwrap_err();
    assert!(matches!(other, NetError::OtherInterface { .. }), "{other:?}");
    assert!(other.to_string().contains("wp-near") && other.to_string().contains("not lo"));
    let absent = resolve_at(near, far.ip, Some("eth77")).unwrap_err();
    assert!(matches!(absent, NetError::NoInterface { .. }), "{absent:?}");
    for name in ["", "a-name-of-more-than-fifteen"] {
        assert!(matches!(net::link_named(name), Err(NetError::NoInterface { .. })));
    }
    assert!(matches!(net::link(1_000_000), Err(NetError::NoInterface { .. })));
}

#[test]
fn all_interfaces_of_the_namespace_are_listed() {
    let lab = pair();
    let near = &lab.near;
    let links = near.run(net::links).unwrap().unwrap();
    let names: Vec<_> = links.iter().map(|link| (link.name.as_str(), link.is_up)).collect();
    assert_eq!(names, [("lo", true), ("wp-near", true)]);
    assert!(links[0].is_loopback && links[0].peer.is_none());
}

#[test]
fn attached_programs_are_seen_with_their_mode() {
    let lab = pair();
    let near = &lab.near;
    for (mode, seen) in [(XdpMode::Skb, AttachedMode::Skb), (XdpMode::Native, AttachedMode::Native)]
    {
        let mut program = PassProgram::load(false).unwrap();
        near.run(|| program.attach(near.ifindex, mode)).unwrap().unwrap();
        let xdp = near.link().unwrap().xdp;
        assert_eq!(xdp.iter().map(|attached| attached.mode).collect::<Vec<_>>(), [seen]);
        assert_ne!(xdp[0].program_id, 0);
        program.detach();
        assert!(near.link().unwrap().xdp.is_empty());
    }
}

#[test]
fn channels_and_mtu_can_be_changed() {
    let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).unwrap();
    let near = &pair.near;
    near.run(|| {
        let now = ethtool::channels(near.ifindex).unwrap();
        assert_eq!((now.rx_queues(), now.tx_queues(), now.rx_max), (2, 2, 2));
        ethtool::set_channels(near.ifindex, &Channels { rx: 1, ..now }).unwrap();
        let now = ethtool::channels(near.ifindex).unwrap();
        assert_eq!((now.rx_queues(), now.tx_queues()), (1, 2));
        assert!(ethtool::set_channels(near.ifindex, &Channels { rx: 9, ..now }).is_err());
        net::set_mtu(near.ifindex, 9000).unwrap();
        assert_eq!(net::link(near.ifindex).unwrap().mtu_bytes, 9000);
    })
    .unwrap();
}

#[test]
fn what_a_veth_does_not_offer_is_unsupported() {
    let lab = pair();
    let near = &lab.near;
    near.run(|| {
        assert_eq!(ethtool::driver(near.ifindex).unwrap().as_deref(), Some("veth"));
        let stamps = ethtool::timestamping(near.ifindex).unwrap();
        assert!(stamps.software_rx && !stamps.hardware_rx && stamps.clock_index.is_none());
        // Named since 6.8; the driver has nothing for sent frames.
        match net::xdp_hints(near.ifindex) {
            Ok(hints) => {
                let veth =
                    "rx-timestamp, rx-hash, rx-vlan; not tx-timestamp, tx-checksum, launch-time";
                assert_eq!(hints.to_string(), veth);
            }
            Err(why) => testkit::skip("kernel", why),
        }
        let coalesce = ethtool::coalesce(near.ifindex);
        assert!(matches!(coalesce, Err(NetError::Unsupported { .. })), "{coalesce:?}");
        let rings = ethtool::rings(near.ifindex);
        assert!(matches!(rings, Err(NetError::Unsupported { .. })), "{rings:?}");
    })
    .unwrap();
}

#[test]
fn an_unknown_offload_is_an_error_and_a_known_one_follows() {
    let lab = pair();
    let near = &lab.near;
    assert!(near.set_feature("no-such-offload", true).is_err());
    near.set_feature(ethtool::Feature::GSO, false).unwrap();
    let offloads = near.run(|| ethtool::offloads(near.ifindex)).unwrap().unwrap();
    assert!(!offloads[ethtool::Feature::GSO].is_on);
}

#[test]
fn interrupts_are_as_before_when_the_last_of_two_runs_has_ended() {
    let lab = pair();
    let near = &lab.near;
    // Gives a veth NAPI instances.
    near.set_feature(ethtool::Feature::GRO, true).unwrap();
    near.run(|| {
        let settings = || -> Vec<_> {
            net::napi_instances(near.ifindex).unwrap().iter().map(|napi| napi.settings).collect()
        };
        if let Err(error) = net::napi_instances(near.ifindex) {
            testkit::skip("kernel", error);
            return;
        }
        let before = settings();
        let deferred = vec![DEFERRED; before.len()];
        assert!(!before.is_empty() && before != deferred);
        for first_ends_first in [true, false] {
            let [first, second] =
                [(); 2].map(|()| IrqSuspend::defer(near.ifindex, &near.ifname).unwrap());
            let other = IrqSuspend::hold(near.ifindex, &near.ifname).unwrap_err();
            assert!(matches!(other, IrqSuspendError::Taken { .. }), "{other}");
            let [one, last] = if first_ends_first { [first, second] } else { [second, first] };
            drop(one);
            assert_eq!(settings(), deferred, "the other run still needs it");
            drop(last);
            assert_eq!(settings(), before);
        }
    })
    .unwrap();
}

#[test]
fn a_watched_link_tells_down_up_change_and_end() {
    let Pair { near, far } = &pair();
    let mut watch = near.run(|| LinkWatch::new(near.ifindex)).unwrap().unwrap();
    assert_eq!(watch.poll().unwrap(), None);
    far.set_up(false).unwrap();
    assert_eq!(next_but(&mut watch, LinkEvent::Changed), LinkEvent::Down);
    far.set_up(true).unwrap();
    assert_eq!(next_but(&mut watch, LinkEvent::Changed), LinkEvent::Up);
    near.run(|| net::set_mtu(near.ifindex, 1400)).unwrap().unwrap();
    assert_eq!(next(&mut watch), LinkEvent::Changed);
    far.delete_link().unwrap();
    loop {
        match next(&mut watch) {
            LinkEvent::Deleted => break,
            event => assert_ne!(event, LinkEvent::Up),
        }
    }
    assert_eq!(watch.poll().unwrap(), None);
}

#[test]
fn a_watch_that_was_overrun_still_learns_the_end_state() {
    let Pair { near, far } = &pair();
    let mut watch = near.run(|| LinkWatch::new(near.ifindex)).unwrap().unwrap();
    // More messages than a socket's buffer holds.
    near.run(|| {
        for round in 0..2000 {
            net::set_mtu(near.ifindex, 1400 + round % 2).unwrap();
        }
    })
    .unwrap();
    far.delete_link().unwrap();
    let mut events = Vec::new();
    while let Some(event) = watch.poll().unwrap() {
        events.push(event);
    }
    assert!(events.len() < 2000, "the buffer was never overrun: {}", events.len());
    assert_eq!(events.iter().filter(|&&event| event == LinkEvent::Deleted).count(), 1);
}

fn next(watch: &mut LinkWatch) -> LinkEvent {
    loop {
        if let Some(event) = watch.poll().unwrap() {
            return event;
        }
        let ready = sys::socket::wait(watch.as_fd(), false, Duration::from_secs(20)).unwrap();
        assert!(ready.readable, "no event in time");
    }
}

fn next_but(watch: &mut LinkWatch, boring: LinkEvent) -> LinkEvent {
    loop {
        match next(watch) {
            event if event == boring => {}
            event => return event,
        }
    }
}
