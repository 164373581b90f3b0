//! Datagrams over IPv6 arrive unchanged by every kind of engine, and all other IPv6 traffic stays the host's.

mod common;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use common::{FAR_PORT, NEAR_PORT, alone, engines, local, remote};
use io::{AnyEngine, Arrival, Engine, EngineKind, EngineSpec, Role, Setup};
use lab::{Pair, PairSpec};
use testkit::engines::{open, towards};
use wire::probe::{Header, Kind};

/// Payload whose length makes the last word of the checksum a half one.
const SIZE_BYTES: usize = 451;
/// Datagrams of a round, and rounds.
const ROUND: usize = 32;
const ROUNDS: usize = 8;
/// UDP port of DNS.
const DNS_PORT: u16 = 53;

/// Order and bytes of payloads.
#[derive(Default)]
struct Digest(DefaultHasher, usize);

impl Digest {
    fn add(&mut self, payload: &[u8]) {
        payload.hash(&mut self.0);
        self.1 += 1;
    }

    fn value(&self) -> (u64, usize) {
        (self.0.finish(), self.1)
    }
}

fn send(engine: &mut AnyEngine, sent: &mut Digest, first: usize) {
    let mut next = first;
    let mut fill = |payload: &mut [u8]| {
        let time_ns = next as u64 * 0x1234_5678_9abc;
        let (flow, session, sequence) = (0, 7, next as u32);
        let header = Header { kind: Kind::Data, flow, session, sequence, reply: 0, time_ns };
        header.write(payload).expect("it fits");
        sent.add(payload);
        next += 1;
    };
    let mut left = ROUND;
    let posted = testkit::until(Duration::from_secs(60), || {
        left -=
            io::on_engine!(engine, engine => engine.tx_post(0, left, &mut fill)).expect("it sends");
        io::on_engine!(engine, engine => engine.tx_reap());
        left == 0
    });
    assert!(posted, "{left} datagrams were not sent");
}

fn receive(engine: &mut AnyEngine, arrived: &mut Digest, until_count: usize) {
    let all = testkit::until(Duration::from_secs(60), || {
        let taken = io::on_engine!(engine, engine => {
            engine.rx_take(&mut |arrival: Arrival<'_>| arrived.add(arrival.payload))
        });
        taken.expect("it receives");
        arrived.1 >= until_count
    });
    assert!(all, "{} of {until_count} datagrams arrived", arrived.1);
}

/// A socket of the host at either end, whose calls end after a minute.
fn socket(end: &lab::End, at: SocketAddr) -> UdpSocket {
    let socket = end.run(|| UdpSocket::bind(at)).expect("the lab").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    socket
}

/// A question to a socket of the far host, and its answer.
fn ask(near: &UdpSocket, far: &UdpSocket, at: SocketAddr, round: usize) {
    let question = [round as u8; 64];
    near.send_to(&question, at).expect("sent");
    let mut buffer = [0; 128];
    let (bytes, from) = far.recv_from(&mut buffer).expect("the question");
    assert_eq!(buffer[..bytes], question, "{at}");
    far.send_to(b"answer", from).expect("sent");
    let (bytes, from) = near.recv_from(&mut buffer).expect("the answer");
    assert_eq!((&buffer[..bytes], from), (&b"answer"[..], at));
}

fn exchange(name: &str, spec: &EngineSpec) {
    let pair = Pair::new(&PairSpec { ipv6: true, tso: false, ..PairSpec::default() });
    let pair = pair.expect("a lab");
    let (near, far) = (&pair.near, &pair.far);
    let second: IpAddr = "fd77::3".parse().expect("an address");
    far.run(|| host::net::add_address(far.ifindex, second, 64)).expect("the lab").expect("added");
    let has_route = testkit::until(Duration::from_secs(60), || {
        let route = far.run(|| host::net::route_to(second)).expect("the lab");
        route.is_ok_and(|route| route.ifindex != far.ifindex)
    });
    assert!(has_route, "{second} has no route");
    let (near_local, far_local) = (local(near, NEAR_PORT), local(far, FAR_PORT));
    let to = remote(far, FAR_PORT);
    let mut receiver = open(far, &Setup::receive(spec, &far_local, SIZE_BYTES)).expect(name);
    let mut sender =
        open(near, &towards(spec, Role::Send, &near_local, &to, SIZE_BYTES)).expect(name);
    // The same port of another address, and another port of the same address. AF_PACKET sees a copy of what is
    // for the host, at any address.
    let second_port = FAR_PORT + u16::from(spec.kind == EngineKind::Packet);
    let asked = [SocketAddr::new(second, second_port), SocketAddr::new(far.load_ip(), DNS_PORT)];
    let answering = asked.map(|at| socket(far, at));
    let asking = socket(near, SocketAddr::new(near.load_ip(), 0));
    let (mut sent, mut arrived) = (Digest::default(), Digest::default());
    for round in 0..ROUNDS {
        send(&mut sender, &mut sent, round * ROUND);
        for (at, answering) in asked.iter().zip(&answering) {
            ask(&asking, answering, *at, round);
        }
        receive(&mut receiver, &mut arrived, (round + 1) * ROUND);
    }
    assert_eq!(arrived.value(), sent.value(), "{name}");
    let report = io::on_engine!(&mut receiver, engine => engine.finish());
    let counter = |name: &str| report.counters.iter().find(|(n, _)| n == name).map(|(_, n)| *n);
    if let Some(redirected) = counter("xdp_redirected_count") {
        assert_eq!(redirected, (ROUND * ROUNDS) as u64, "{name}: {:?}", report.counters);
        let passed = counter("xdp_passed_count");
        assert!(passed >= Some(2 * ROUNDS as u64), "{name}: {:?}", report.counters);
    }
}

#[test]
fn datagrams_over_ipv6_arrive_unchanged_beside_those_of_the_host() {
    let _alone = alone();
    let names = [
        "udp",
        "udp, batch 64",
        "udp, gso",
        "udp, io_uring, zero-copy send, spin, batch 64",
        "packet, spin, batch 64",
        "xdp skb",
        "xdp native, spin, batch 64",
    ];
    let chosen = engines().into_iter().filter(|(name, _)| names.contains(name));
    let mut count = 0;
    for (name, spec) in chosen {
        exchange(name, &spec);
        count += 1;
    }
    assert_eq!(count, names.len());
}
