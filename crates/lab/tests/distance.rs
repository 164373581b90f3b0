//! A wire with distance carries real traffic with the delay, rate, buffer and losses that were asked for.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use wirepath_lab::{DistantPair, End, PairSpec, WireReport};

fn lab(wire: &str) -> DistantPair {
    DistantPair::new(&PairSpec::default(), &wire.parse().unwrap()).unwrap()
}

fn udp_at(end: &End, ip: IpAddr) -> UdpSocket {
    let socket = end.run(|| UdpSocket::bind((ip, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Sends bytes from near to far over a new connection; returns those that arrived, and the time.
fn send(lab: &DistantPair, bytes: &[u8]) -> (Vec<u8>, Duration) {
    let at = lab.far.load_ip();
    let listener = lab.far.run(|| TcpListener::bind((at, 9000)).unwrap()).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut got = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
            got
        });
        let begun = Instant::now();
        let mut sender = lab.near.run(|| TcpStream::connect((at, 9000)).unwrap()).unwrap();
        sender.write_all(bytes).unwrap();
        drop(sender);
        (receiver.join().unwrap(), begun.elapsed())
    })
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn tcp_arrives_whole_at_the_rate_of_the_wire() {
    let lab = lab("delay=5ms,rate=100mbit,buffer=4bdp");
    let sent = bytes(4_000_000);
    lab.wire.begin(1).unwrap();
    let (got, took) = send(&lab, &sent);
    assert!(got == sent);
    let report = lab.wire.report().unwrap();
    testkit::note(&format!("{took:?} {report:?}"));
    // 4 MB and their headers are 337 ms.
    assert!(took > Duration::from_millis(330), "{took:?}");
    assert_eq!((report.forward.lost_count, report.forward.uncut_count), (0, 0));
}
