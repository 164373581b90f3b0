//! A replay to a socket on loopback.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use market::mold::{END_OF_SESSION, MoldPacket};
use wirepath_marketdata::replay::{Faults, Replay, ReplayPace, ReplayPlan, ReplaySource};
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::synthetic::{MoldSession, MoldSpec};

fn plan(to: SocketAddrV4) -> ReplayPlan {
    ReplayPlan {
        to: vec![to],
        from: Vec::new(),
        ifindex: 1,
        ifname: "lo".into(),
        ttl: 1,
        pace: ReplayPace::Rate(SendSchedule::paced(1000)),
        faults: Faults::default(),
        duration: None,
        count: None,
        pin: None,
        stamps: None,
        serve: None,
    }
}

#[test]
fn the_end_of_a_session_announces_no_message_that_was_not_sent() {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    receiver.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let Ok(SocketAddr::V4(to)) = receiver.local_addr() else { panic!("an IPv4 address") };
    // The session's time ends between two datagrams: the later one is made and not sent.
    let plan = ReplayPlan { duration: Some(Duration::from_millis(20)), ..plan(to) };
    let source = ReplaySource::Mold(Box::new(MoldSession::new(&MoldSpec::new(1))), 3);
    let replay = Replay::open(plan, source).expect("a replay");
    let report = replay.run(&AtomicBool::new(false)).expect("it runs");
    assert!(report.messages >= 18, "{report:?}");
    let (mut buffer, mut next) = ([0; 2000], 1);
    loop {
        let len = receiver.recv(&mut buffer).expect("a datagram");
        let packet = MoldPacket::parse(&buffer[..len]).expect("whole");
        let header = packet.header();
        assert_eq!(header.sequence, next);
        if header.count == END_OF_SESSION {
            break;
        }
        next += packet.messages().count() as u64;
    }
    assert_eq!(next, report.messages + 1);
}
