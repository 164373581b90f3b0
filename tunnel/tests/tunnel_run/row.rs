//! The lab of these tests: a plain host, ours, and one with the kernel's VXLAN device; and its traffic.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use host::net::ethtool::{self, Feature};
use host::netns::Netns;
use serde_json::Value;

use crate::common::{self, Data, LONG, Running, finish_frames, ip, is_installed, succeed};

/// The plain host's address, and that behind the kernel's device.
pub(super) const PLAIN_IP: &str = "10.88.0.1";
pub(super) const BEHIND_IP: &str = "10.88.0.2";
/// None that a dissector claims.
pub(super) const PORT: u16 = 47_011;

/// A plain host, the forwarder's, and one with the kernel's VXLAN device; gone when dropped.
pub(super) struct Row {
    pub(super) names: [String; 3],
    pub(super) mtu: u32,
}

impl Row {
    /// Its veths hand over whole frames, as a NIC does.
    ///
    /// - `mtu`: of the frames inside the tunnel; its wire carries 100 bytes more.
    pub(super) fn new(mtu: u32) -> Row {
        let row = Row::with_offloads(mtu);
        let [plain, ours, theirs] = &row.names;
        // Frames leave a veth unfinished, for a NIC that is not there: XDP forwards them as they are.
        for (name, link) in [(plain, "hp"), (theirs, "vx0"), (theirs, "tb"), (ours, "ua")] {
            finish_frames(&row.space(name), link);
        }
        // A veth takes frames that XDP redirects only if its other end polls.
        for (name, link) in [(plain, "hp"), (theirs, "tb")] {
            row.set_gro(name, link, true);
        }
        row
    }

    /// Every offload is as the kernel made it.
    pub(super) fn with_offloads(mtu: u32) -> Row {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let names = ["p", "f", "k"].map(|end| format!("wpr{}-{n}{end}", std::process::id()));
        let row = Row { names, mtu };
        let outer = mtu + 100;
        let [plain, ours, theirs] = &row.names;
        for name in &row.names {
            succeed(ip(&["netns", "add", name]));
            // Out of the way of ports that a dissector claims.
            let ports = "net.ipv4.ip_local_port_range=51100 51900";
            succeed(common::enter(name, &["sysctl", "-qw", ports]));
            for key in ["all", "default"] {
                let quiet = format!("net.ipv6.conf.{key}.disable_ipv6=1");
                succeed(common::enter(name, &["sysctl", "-qw", &quiet]));
            }
        }
        let veth = |one: (&str, &str), other: (&str, &str)| {
            let args = ["link", "add", one.1, "netns", one.0, "type", "veth", "peer", "name"];
            succeed(ip(&[&args[..], &[other.1, "netns", other.0]].concat()));
        };
        veth((plain, "hp"), (ours, "pa"));
        veth((ours, "ua"), (theirs, "tb"));
        let in_space = |name: &str, line: &str| {
            let words: Vec<_> = ["-n", name].into_iter().chain(line.split_whitespace()).collect();
            succeed(ip(&words));
        };
        for (name, link, mtu) in
            [(plain, "hp", mtu), (ours, "pa", mtu), (ours, "ua", outer), (theirs, "tb", outer)]
        {
            in_space(name, &format!("link set {link} mtu {mtu}"));
        }
        in_space(plain, &format!("address add {PLAIN_IP}/24 dev hp"));
        in_space(ours, "address add 10.99.0.1/24 dev ua");
        in_space(theirs, "address add 10.99.0.2/24 dev tb");
        for (name, link) in [(plain, "hp"), (ours, "pa"), (ours, "ua"), (theirs, "tb")] {
            in_space(name, &format!("link set {link} up"));
        }
        in_space(
            theirs,
            "link add vx0 type vxlan id 42 local 10.99.0.2 remote 10.99.0.1 dstport 4789 dev tb",
        );
        in_space(theirs, &format!("link set vx0 mtu {mtu} up"));
        in_space(theirs, &format!("address add {BEHIND_IP}/24 dev vx0"));
        row
    }

    pub(super) fn set_gro(&self, name: &str, link: &str, on: bool) {
        self.space(name)
            .run(|| {
                let index = host::net::link_named(link).expect("it was made").index;
                ethtool::set_features(index, &[(Feature::GRO, on)]).expect("veth has it");
            })
            .expect("the namespace is there");
    }

    pub(super) fn space(&self, name: &str) -> Netns {
        Netns::open(format!("/run/netns/{name}")).expect("the namespace is there")
    }

    /// The forwarder, up and forwarding.
    pub(super) fn start(&self, args: &[&str], file: &str) -> Running {
        let program = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", file];
        let command = common::enter(&self.names[1], &[&program[..], args].concat());
        let mut running = Running::start(command);
        running.await_stderr("tunnel b: ");
        running
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]).output();
        }
    }
}

pub(super) fn config(engine: &str, port: &str, more: &str) -> String {
    config_of(engine, port, 1500, more)
}

/// Workers that wait for a CPU on a busy machine are no test's matter: they are waited for.
///
/// - `mtu`: of the frames inside the tunnel.
pub(super) fn config_of(engine: &str, port: &str, mtu: u32, more: &str) -> String {
    let outer = mtu + 100;
    format!(
        "workers = 2\nengine = \"{engine}\"\n\
         [order]\nstuck_after_us = 1000000\n\
         [port]\ninterface = \"{port}\"\nmtu = {mtu}\n\
         [underlay]\ninterface = \"ua\"\naddress = \"10.99.0.1\"\nmtu = {outer}\n\
         [[tunnel]]\nname = \"b\"\ncarrier = \"vxlan\"\nvni = 42\nremote = \"10.99.0.2\"\n{more}"
    )
}

/// The answer to each datagram comes back, from a host in `from` to one in `to`.
pub(super) fn udp_echo(from: &Netns, to: (&Netns, &str), count: u32, size_bytes: usize) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            to.0.enter().expect("the namespace is there");
            let socket = UdpSocket::bind((to.1, PORT)).expect("the address is there");
            socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            let mut bytes = [0; 16_384];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((len, sender)) = socket.recv_from(&mut bytes) {
                    let _ = socket.send_to(&bytes[..len], sender);
                }
            }
        });
        let asked = scope.spawn(|| {
            from.enter().expect("the namespace is there");
            let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
            socket.connect((to.1, PORT)).expect("a route");
            socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
            let mut bytes = vec![0; size_bytes];
            for n in 0..count {
                // The echo server may not listen yet; a retry is harmless on a busy machine.
                let answered = (0..20).any(|_| {
                    let mut ask = vec![n as u8; size_bytes];
                    ask[..4].copy_from_slice(&n.to_be_bytes());
                    let _ = socket.send(&ask);
                    socket.recv(&mut bytes).is_ok_and(|len| bytes[..len] == ask)
                });
                assert!(answered, "datagram {n} of {count}");
            }
        });
        let result = asked.join();
        stop.store(true, Ordering::Relaxed);
        result.expect("every datagram is answered");
    });
}

/// A stream of the given length arrives complete.
pub(super) fn tcp_stream(from: &Netns, to: (&Netns, &str), len: usize) {
    let sent: Vec<u8> = (0..len).map(|n| (n ^ n >> 8) as u8).collect();
    let sending = &sent;
    thread::scope(|scope| {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (to_space, to_ip) = to;
        let receiver = scope.spawn(move || {
            to_space.enter().expect("the namespace is there");
            let listener = TcpListener::bind((to_ip, PORT)).expect("the address is there");
            ready.send(()).expect("the sender waits");
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("it ends");
            bytes
        });
        is_ready.recv().expect("it listens");
        scope.spawn(move || {
            from.enter().expect("the namespace is there");
            let mut stream = TcpStream::connect((to_ip, PORT)).expect("a route");
            stream.write_all(sending).expect("it is read");
        });
        let got = receiver.join().expect("the receiver ends");
        assert!(got == *sending, "{} of {len} bytes", got.len());
    });
}

/// The last state that it printed.
pub(super) fn last_of(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("no state: {text}"));
    serde_json::from_str(line).expect("JSON")
}

/// A forwarder of `row` with both ends ready to talk: the namespaces of the plain host and of the
/// host behind the kernel's device.
pub(super) fn started(row: &Row, data: &Data, engine: &str) -> (Running, Netns, Netns) {
    let file = data.file("tunnel.toml");
    let port = if engine == "tap" { "lan0" } else { "pa" };
    let kept_alive = "keepalive = { interval_ms = 100, lost = 3 }\n";
    fs::write(&file, config_of(engine, port, row.mtu, kept_alive)).expect("a file");
    let running = row.start(&["--json"], &file);
    let plain = row.space(&row.names[if engine == "tap" { 1 } else { 0 }]);
    if engine == "tap" {
        let add = format!("{PLAIN_IP}/24");
        succeed(ip(&["-n", &row.names[1], "address", "add", &add, "dev", "lan0"]));
    }
    (running, plain, row.space(&row.names[2]))
}

/// Ends a forwarder and checks that its counters add up.
pub(super) fn ended(running: Running, engine: &str) -> Value {
    let holdings = running.holdings();
    let output = running.end_by("TERM", LONG);
    assert!(output.status.success(), "{engine}: {}", common::all_text(&output));
    let last = last_of(&output.stdout);
    for sent in ["into_tunnels_sent", "out_of_tunnels_sent"] {
        assert!(last["frames"][sent].as_u64() > Some(300), "{engine}: {last}");
    }
    let bad =
        ["ip_checksum", "udp_checksum", "unknown_tunnel", "looped", "too_big", "inner_too_big"];
    for bad in bad {
        assert_eq!(last["frames"][bad], 0, "{engine}: {last}");
    }
    for direction in ["into_tunnels", "out_of_tunnels"] {
        assert_eq!(last[direction]["in_flight"], 0, "{engine}: {last}");
        assert_eq!(last[direction]["passed"], 0, "{engine}: {last}");
    }
    for bad in ["misnamed", "oversized"] {
        assert_eq!(last["pool"][bad], 0, "{engine}: {last}");
    }
    assert!(last["addresses"].as_u64() >= Some(2), "{engine}: {last}");
    holdings.assert_gone();
    last
}

/// Capture of the tunnel's wire by tshark, if it is installed.
pub(super) struct Capture(Option<(Running, String)>);

impl Capture {
    pub(super) fn start(row: &Row, data: &Data) -> Capture {
        if !is_installed("tshark") {
            return Capture(None);
        }
        let file = data.file("wire.pcapng");
        let args = ["tshark", "-q", "-i", "tb", "-f", "udp port 4789", "-w", &file];
        let mut running = Running::start(common::enter(&row.names[2], &args));
        running.await_stderr("Capturing on");
        // tshark prints that before dumpcap has opened its socket.
        let sockets = || succeed(common::enter(&row.names[2], &["cat", "/proc/net/packet"]));
        assert!(common::until(LONG, || sockets().lines().count() > 1), "it does not capture");
        Capture(Some((running, file)))
    }

    pub(super) fn check(self) {
        let Some((running, file)) = self.0 else { return };
        running.end_by("INT", LONG);
        let read = |filter: &str| {
            let mut tshark = std::process::Command::new("tshark");
            tshark.args(["-r", &file, "-Y", filter]);
            succeed(tshark)
        };
        assert!(read("vxlan").lines().count() > 300, "it captured the tunnel");
        assert_eq!(read("_ws.malformed || _ws.expert.severity == error"), "");
    }
}
