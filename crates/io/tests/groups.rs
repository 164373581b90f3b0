//! Multicast groups past the stack.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use lab::End;
use testkit::engines::{local, pair};
use testkit::{alone, until};
use wirepath_io::multicast::{Group, sender};
use wirepath_io::{GroupPort, XdpGroups, XdpMode};

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 10000);

fn send(from: &End, count: u32) {
    let sent = from.run(|| {
        let socket = sender(GROUP, from.ifindex, &from.ifname, 1).expect("an address");
        for n in 0..count {
            socket.send(&n.to_be_bytes()).expect("the link is up");
        }
    });
    sent.expect("the lab");
}

#[test]
fn burst_of_as_many_datagrams_as_a_queue_has_frames_waits_for_its_reader_and_loses_none() {
    const BURST: u32 = 4000;
    let _alone = alone();
    let pair = pair();
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let far = local(&pair.far, GROUP.port());
        let group = Group {
            address: GROUP,
            source: None,
            ifindex: far.ifindex,
            ifname: far.ifname.clone(),
        };
        let port =
            GroupPort { mtu_bytes: far.mtu_bytes, queues: 1, mode, batch: 64, xsk_map: None };
        let mut groups =
            pair.far.run(|| XdpGroups::open(&[group], &port)).expect("the lab").expect("free");
        send(&pair.near, BURST);
        let (mut received, mut last) = (0, None);
        until(Duration::from_secs(2), || {
            groups.take(&mut |_, datagram| {
                let number = u32::from_be_bytes(datagram.payload.try_into().expect("ours"));
                assert!(last.is_none_or(|last| last < number), "{mode:?}: {number} after {last:?}");
                (received, last) = (received + 1, Some(number));
            });
            received == BURST
        });
        // Floods of other programs fill the CPU's backlog, in front of the ring.
        assert!(received > BURST - 500, "{mode:?}: {received} of {BURST}");
        assert_eq!(groups.dropped_count(0), 0, "{mode:?}");
    }
}
