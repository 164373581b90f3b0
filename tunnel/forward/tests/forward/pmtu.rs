//! Inner packets of 1500 bytes over an underlay of 1500.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use super::fast::fast_lab;
use super::*;

const STREAM_BYTES: usize = 1 << 20;
const IO_TIMEOUT: Duration = Duration::from_secs(60);

/// A stream from one end to an address at the other arrives whole.
fn stream(from: &End, to: &End, address: &'static str) {
    let listener = to
        .run(|| TcpListener::bind((address, 5001)).expect("the address is there"))
        .expect("the namespace exists");
    let mut sender = from
        .run(|| TcpStream::connect((address, 5001)).expect("it listens"))
        .expect("the namespace exists");
    let (mut receiver, _) = listener.accept().expect("a connection");
    receiver.set_read_timeout(Some(IO_TIMEOUT)).expect("a socket");
    sender.set_write_timeout(Some(IO_TIMEOUT)).expect("a socket");
    let sent: Vec<u8> = (0..STREAM_BYTES).map(|n| (n ^ n >> 8) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&sent).expect("it is read");
            drop(sender);
        });
        let mut got = Vec::new();
        receiver.read_to_end(&mut got).expect("it ends");
        assert!(got == sent, "{} of {STREAM_BYTES} bytes", got.len());
    });
}

#[test]
fn tcp_over_an_underlay_of_the_same_mtu_completes_and_others_are_told_the_mtu() {
    let _alone = alone();
    if !has(&["ip", "ping"]) {
        return;
    }
    let lab = fast_lab();
    for ports in [Ports::Xdp(XdpMode::Native), Ports::InKernel] {
        lab.near.run(|| ip("route flush cache")).expect("the namespace exists");
        let (told, counts) = forwarding_by(
            &lab,
            ports,
            1,
            |spec: &mut ForwarderSpec| {
                let tunnel = *spec.rules.encaps[0].tunnel();
                let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
                let outer = Outer { mtu_bytes: 1500, ..suggested };
                spec.rules.encaps = vec![Encap::new(tunnel, outer).expect("valid tunnel")];
            },
            |_| {
                stream(&lab.near, &lab.far, "10.77.0.2");
                stream(&lab.far, &lab.near, "10.77.0.1");
                let large = "ping -c 2 -i 0.2 -W 60 -s 1472 -M do 10.77.0.2";
                let told = lab.near.run(|| run(large)).expect("the namespace exists");
                let fits = lab.near.run(|| ping(3, "-i 0.2 -s 1422 -M do 10.77.0.2"));
                fits.expect("it exists").expect("every ping is answered");
                told
            },
        );
        let told = told.expect_err("the first packet is too large, the second is not sent");
        assert!(told.contains("mtu = 1450") || told.contains("mtu=1450"), "{told}");
        // Both ends of both connections announce 1460, at least once.
        for (name, at_least) in [("mss_clamped", 4), ("too_big_answered_v4", 1), ("too_big", 1)] {
            assert!(count(&counts, name) >= at_least, "{ports:?}: {name}: {counts:?}");
        }
    }
}
