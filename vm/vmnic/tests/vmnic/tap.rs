use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use guest_pages::Mode;
use lab::{GuestWire, TapEnd};
use vmm::{GuestTask, Switches, ring_backend, tap_backend, xdp_backend};

use crate::guest::{self, Opened};

fn echo(guest: std::net::Ipv4Addr, host: std::net::Ipv4Addr) -> GuestTask {
    GuestTask { mode: Mode::Echo, ip: guest, peer_ip: host, ..GuestTask::send(1514, 0) }
}

/// Asks the guest for an echo of datagrams of many sizes, and has the host's own ping ask too.
pub(crate) fn ask(guest_ip: std::net::Ipv4Addr, netns: &host::netns::Netns) {
    let answers = netns
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((guest_ip, 7)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let mut answers = 0;
            for i in 0..100usize {
                let sent: Vec<u8> = (0..1 + i * 14).map(|k| (i + k) as u8).collect();
                let mut answer = [0; 2000];
                // The first may be lost while the guest starts.
                for _ in 0..5 {
                    socket.send(&sent).unwrap();
                    match socket.recv(&mut answer) {
                        Ok(len) => {
                            assert_eq!(answer[..len], sent);
                            answers += 1;
                            break;
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            answers
        })
        .unwrap();
    assert_eq!(answers, 100);
    // One echo at a time: ping waits for the last of several no longer than two round trips or one interval.
    for _ in 0..3 {
        let mut ping = Command::new("ping");
        ping.args(["-c", "1", "-W", "10"]).arg(guest_ip.to_string());
        match netns.run(|| ping.output()).unwrap() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(text.contains(" 0% packet loss"), "{text}");
            }
            Err(error) => testkit::skip("ping", error),
        }
    }
}

#[test]
fn guest_answers_ping_and_udp_echo_through_a_tap() {
    for switches in [Switches::default(), Switches::SOURCE, guest::LANCE, Switches::ALL] {
        let lab = TapEnd::new().expect("the test runs as root");
        let task = echo(lab.guest_ip, lab.host.ip);
        let Some(running) = guest::start(task, switches, || tap(&lab)) else { return };
        ask(lab.guest_ip, &lab.host.netns);
        running.stop().expect("it stops");
    }
}

pub(crate) fn tap(lab: &TapEnd) -> Opened {
    let (sender, receiver) = tap_backend(&lab.tap)?;
    guest::halves(sender, receiver)
}

/// A ring of either kind at the guest's port.
pub(crate) fn ring(lab: &GuestWire, xdp: bool) -> Opened {
    let port = &lab.port;
    if xdp {
        let (sender, receiver) = port.run(|| xdp_backend(port.ifindex, &port.ifname))??;
        return guest::halves(sender, receiver);
    }
    let (sender, receiver) = port.run(|| ring_backend(port.ifindex))??;
    guest::halves(sender, receiver)
}

#[test]
fn guest_answers_ping_and_udp_echo_through_either_shared_ring() {
    let packet = [Switches::default(), Switches::SOURCE];
    let xdp = packet.map(|switches| Switches { xdp_ring: true, ..switches });
    for switches in packet.into_iter().chain(xdp).chain([guest::LANCE, Switches::ALL]) {
        let lab = GuestWire::new().expect("the test runs as root");
        let task = echo(lab.guest_ip, lab.host.ip);
        let started = guest::start(task, switches, || ring(&lab, switches.xdp_ring));
        let Some(running) = started else { return };
        ask(lab.guest_ip, &lab.host.netns);
        running.stop().expect("it stops");
    }
}
