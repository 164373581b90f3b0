//! A trace ends with its packet: stages appear only where they can be, and their counts are those of
//! the interfaces.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sys::netns::Netns;

use crate::common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, enter, get, ip, succeed, udp_in, until, wirepath,
};
use crate::{drops, ended, stage};

/// Bytes of each stream: some thousand segments, and their acknowledgements.
const STREAM_BYTES: usize = 48 << 20;
const DATAGRAMS_COUNT: u64 = 3_000;
const PORT: u16 = 9000;

/// A host between two others: `vl` to `m0`, and `m1` to `vr`. Gone when dropped.
struct Middle {
    left: String,
    middle: String,
    right: String,
}

impl Middle {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("wpm{}-{n}{end}", std::process::id());
        let hosts = Middle { left: name("l"), middle: name("m"), right: name("r") };
        for name in hosts.names() {
            succeed(ip(&["netns", "add", name]));
            for of in ["all", "default"] {
                let quiet = format!("net.ipv6.conf.{of}.disable_ipv6=1");
                succeed(enter(name, &["sysctl", "-qw", &quiet]));
            }
        }
        for (host, link, port) in [(&hosts.left, "vl", "m0"), (&hosts.right, "vr", "m1")] {
            let pair = ["link", "add", link, "netns", host, "type", "veth"];
            succeed(ip(&[&pair[..], &["peer", "name", port, "netns", &hosts.middle]].concat()));
            hosts.ip(host, &["link", "set", link, "up"]);
            hosts.ip(&hosts.middle, &["link", "set", port, "up"]);
        }
        hosts
    }

    fn names(&self) -> [&str; 3] {
        [&self.left, &self.middle, &self.right]
    }

    fn ip(&self, host: &str, args: &[&str]) {
        succeed(ip(&[&["-n", host], args].concat()));
    }

    /// Resolves all addresses: a packet that waits for that leaves no trace of its way.
    fn greet(&self, right: &str) {
        let receiver = udp_in(&netns(&self.right), (right, PORT));
        let sender = udp_in(&netns(&self.left), ("0.0.0.0", 0));
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        let arrives = || {
            sender.send_to(&[0], (right, PORT)).expect("a route");
            let answered = receiver.recv_from(&mut [0]);
            answered.is_ok_and(|(_, from)| receiver.send_to(&[0], from).is_ok())
        };
        assert!(until(LONG, arrives), "{right} is reached");
    }

    /// The host in the middle forwards by route. Returns the right one's address.
    fn router() -> (Self, &'static str) {
        let hosts = Middle::new();
        for (host, link, address, gateway) in [
            (&hosts.left, "vl", "10.78.1.2/24", "10.78.1.1"),
            (&hosts.right, "vr", "10.78.2.2/24", "10.78.2.1"),
        ] {
            hosts.ip(host, &["address", "add", address, "dev", link]);
            hosts.ip(host, &["route", "add", "default", "via", gateway]);
        }
        hosts.ip(&hosts.middle, &["address", "add", "10.78.1.1/24", "dev", "m0"]);
        hosts.ip(&hosts.middle, &["address", "add", "10.78.2.1/24", "dev", "m1"]);
        succeed(enter(&hosts.middle, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]));
        hosts.greet("10.78.2.2");
        (hosts, "10.78.2.2")
    }

    /// The host in the middle is a bridge with an address of its own, 10.78.3.1. Returns the right one's.
    fn bridge() -> (Self, &'static str) {
        let hosts = Middle::new();
        hosts.ip(&hosts.middle, &["link", "add", "br0", "type", "bridge"]);
        for link in ["m0", "m1", "br0"] {
            hosts.ip(&hosts.middle, &["link", "set", link, "up"]);
            if link != "br0" {
                hosts.ip(&hosts.middle, &["link", "set", link, "master", "br0"]);
            }
        }
        hosts.ip(&hosts.middle, &["address", "add", "10.78.3.1/24", "dev", "br0"]);
        hosts.ip(&hosts.left, &["address", "add", "10.78.3.2/24", "dev", "vl"]);
        hosts.ip(&hosts.right, &["address", "add", "10.78.3.3/24", "dev", "vr"]);
        hosts.greet("10.78.3.3");
        (hosts, "10.78.3.3")
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        for name in self.names() {
            let _ = ip(&["netns", "delete", name]).output();
        }
    }
}

fn netns(name: &str) -> Netns {
    Netns::open(format!("/run/netns/{name}")).expect("a namespace")
}

/// Counters of all interfaces of a host, as the kernel prints them.
fn interfaces_of(host: &str) -> String {
    let read = || fs::read_to_string("/proc/thread-self/net/dev").expect("its counters");
    netns(host).run(read).expect("a namespace")
}

fn all_counters(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|host| interfaces_of(host)).collect()
}

/// Packets that an interface received and sent.
fn packets_of(host: &str, link: &str) -> (u64, u64) {
    let table = interfaces_of(host);
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{link}:")));
    let numbers: Vec<u64> = line
        .unwrap_or_else(|| panic!("no {link} in {table}"))
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    (numbers[1], numbers[9])
}

/// A counter of `/proc/net/snmp` or `netstat`.
fn counter(host: &str, protocol: &str, name: &str) -> u64 {
    let read = || {
        let table = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        table("snmp").and_then(|snmp| Ok(snmp + &table("netstat")?)).expect("its counters")
    };
    let table = netns(host).run(read).expect("a namespace");
    host::net::snmp_counter(&table, protocol, name).unwrap_or_else(|| panic!("no {name}: {table}"))
}

/// Segments that TCP merged into others while a program held the socket, or kept because they came too early.
fn merged(hosts: &[&str]) -> u64 {
    let names = ["TCPBacklogCoalesce", "TCPOFOQueue"];
    hosts.iter().flat_map(|host| names.map(|name| counter(host, "TcpExt", name))).sum()
}

/// One stream in each direction, one after the other, and datagrams.
fn talk(from: &str, to: &str, address: &str) {
    let at: SocketAddr = format!("{address}:{PORT}").parse().expect("an address");
    let listener = netns(to).run(|| TcpListener::bind(at)).expect("a namespace").expect("a port");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        swallow(&mut stream);
        pour(&mut stream);
    });
    let mut stream =
        netns(from).run(|| TcpStream::connect(at)).expect("a namespace").expect("a server");
    pour(&mut stream);
    swallow(&mut stream);
    server.join().expect("a server");
    let receiver = udp_in(&netns(to), (address, PORT));
    let sender = udp_in(&netns(from), ("0.0.0.0", 0));
    receiver.set_read_timeout(Some(LONG)).expect("a socket");
    for _ in 0..DATAGRAMS_COUNT {
        sender.send_to(&[7; 100], at).expect("a route");
        receiver.recv(&mut [0; 200]).expect("the datagram");
    }
}

fn pour(stream: &mut TcpStream) {
    let bytes = vec![7; 1 << 17];
    for _ in 0..STREAM_BYTES / bytes.len() {
        stream.write_all(&bytes).expect("an open stream");
    }
}

/// Reads as much as [`pour`] writes: a connection that is half closed has no tracepoint for acknowledgements.
fn swallow(stream: &mut TcpStream) {
    let mut bytes = vec![0; 1 << 17];
    for _ in 0..STREAM_BYTES / bytes.len() {
        stream.read_exact(&mut bytes).expect("an open stream");
    }
}

/// Traces some namespaces, each packet with its time, while `act` runs. Returns the document.
fn traced(names: &[&str], more: &[&str], act: impl FnOnce(&Running)) -> Value {
    let mut all =
        vec!["explain", "--json", "--duty", "100", "--timed-one-in", "1", "--time", "300s"];
    all.extend(["--samples", "0"]);
    names.iter().for_each(|name| all.extend(["--netns", name]));
    all.extend(more);
    let mut explain = Running::start(wirepath(&all));
    explain.await_stderr("tracing packets");
    act(&explain);
    // The ends of connections, which may be late on a busy machine.
    let is_quiet = || {
        let before = all_counters(names);
        thread::sleep(Duration::from_millis(300));
        all_counters(names) == before
    };
    assert!(until(LONG, is_quiet), "no packet is on its way");
    ended(explain)
}

/// Packets whose stage has a name that begins so.
fn named(doc: &Value, start: &str) -> u64 {
    let rows = doc["stages"].as_array().expect("a list").iter();
    let own = rows.filter(|row| row["name"].as_str().expect("a name").starts_with(start));
    own.map(|row| row["count"].as_u64().expect("a count")).sum()
}

fn count(doc: &Value, field: &str) -> u64 {
    doc[field].as_u64().expect("a count")
}

/// Address resolution may send a few packets while the trace begins or ends. While other programs trace too, as
/// other tests do, the kernel calls none of them for up to five packets in a thousand.
fn tolerance(counted: u64) -> u64 {
    10 + counted / 100
}

#[track_caller]
fn assert_agree(traced: u64, counted: u64, doc: &Value) {
    let is_near = traced.abs_diff(counted) <= tolerance(counted);
    assert!(is_near, "{traced} traced, {counted} counted: {doc:#}");
}

/// Each packet has one end: in a socket, as an acknowledgement, freed, dropped, or merged into another by TCP. A
/// few others are those of handshakes, which TCP frees without a report.
fn assert_ends_add_up(doc: &Value, merged_count: u64) {
    let rows = doc["stages"].as_array().expect("a list").iter();
    let is_end = |to: &Value| {
        ["sk_data_ready", "tcp_probe", "consume_skb", "kfree_skb"].iter().any(|end| to == end)
    };
    let seen: u64 = rows
        .filter(|row| is_end(&row["to"]))
        .map(|row| row["count"].as_u64().expect("a count"))
        .sum();
    let (ends, packets) = (seen + merged_count, count(doc, "packets_count"));
    assert!(
        packets.abs_diff(ends) <= 50 + tolerance(packets),
        "{seen} and {merged_count} merged: {doc:#}"
    );
    // Those are the ends that the trace does not see.
    assert!(
        count(doc, "evicted_count") <= merged_count + 50 + tolerance(packets),
        "{merged_count} merged: {doc:#}"
    );
}

#[test]
fn hosts_with_one_interface_neither_forward_nor_have_tunnels() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let data = Data::new();
    let (near, far) = (spaces.near.as_str(), spaces.far.as_str());
    for (names, sent_and_received) in [(&[near, far][..], false), (&[near], true), (&[far], true)] {
        let found = |name: &str| {
            let (received, sent) = packets_of(name, if name == near { "va" } else { "vb" });
            sent + if sent_and_received { received } else { 0 }
        };
        let sum = || names.iter().map(|name| found(name)).sum::<u64>();
        let before = (sum(), merged(&[near, far]));
        let mut metrics = String::new();
        let more = ["--listen", "0", "--perfetto", &data.file("trace")];
        let doc = traced(names, &more, |explain| {
            talk(near, far, FAR_IP);
            let all_read = |text: &str| text.contains("until it is read");
            assert!(until(2 * LONG, || all_read(&get(&explain.stderr(), "/metrics"))));
            metrics = get(&explain.stderr(), "/metrics");
        });
        let packets = count(&doc, "packets_count");
        assert_agree(packets, sum() - before.0, &doc);
        let trace = fs::read(data.file("trace")).expect("a trace");
        let trace = String::from_utf8_lossy(&trace);
        for impossible in ["forwarding", "tunnel", "stacked"] {
            assert_eq!(named(&doc, impossible), 0, "{names:?}: {doc:#}");
            assert!(!metrics.contains(&format!("stage=\"{impossible}")), "{metrics}");
            assert!(!trace.contains(impossible), "{impossible} is in the trace");
        }
        assert!(trace.contains("acknowledgement"), "the check must be able to see");
        let received = named(&doc, "backlog");
        assert_agree(received, packets, &doc);
        let datagrams = stage(&doc, "netif_receive_skb", "sk_data_ready");
        assert!(datagrams > DATAGRAMS_COUNT, "{doc:#}");
        assert_ends_add_up(&doc, merged(&[near, far]) - before.1);
    }
}

#[test]
fn packets_that_a_router_forwards_are_counted_as_the_kernel_counts_them() {
    let _lab = testkit::alone();
    let (hosts, address) = Middle::router();
    let sent = || {
        let links = [
            (&hosts.left, "vl"),
            (&hosts.middle, "m0"),
            (&hosts.middle, "m1"),
            (&hosts.right, "vr"),
        ];
        links.map(|(host, link)| packets_of(host, link).1).iter().sum::<u64>()
    };
    let routed = || counter(&hosts.middle, "Ip", "ForwDatagrams");
    let before = (sent(), routed(), merged(&hosts.names()));
    let doc = traced(&hosts.names(), &[], |_| talk(&hosts.left, &hosts.right, address));
    let (sent, routed) = (sent() - before.0, routed() - before.1);
    assert!(routed > DATAGRAMS_COUNT, "{routed}: {doc:#}");
    assert_agree(named(&doc, "forwarding"), routed, &doc);
    // One that is forwarded is sent twice.
    assert_agree(count(&doc, "packets_count"), sent - routed, &doc);
    assert_agree(stage(&doc, "net_dev_queue", "net_dev_start_xmit"), sent, &doc);
    assert_eq!(named(&doc, "tunnel") + named(&doc, "stacked"), 0, "{doc:#}");
    assert_ends_add_up(&doc, merged(&hosts.names()) - before.2);

    // The ends of the path forward nothing.
    for end in [&hosts.left, &hosts.right] {
        let link = if *end == hosts.left { "vl" } else { "vr" };
        let packets = || packets_of(end, link);
        let before = packets();
        let doc = traced(&[end], &[], |_| talk(&hosts.left, &hosts.right, address));
        let (received, sent) = packets();
        let (received, sent) = (received - before.0, sent - before.1);
        assert_agree(count(&doc, "packets_count"), received + sent, &doc);
        // Packets are followed to the other end: those that came from there were forwarded before.
        assert_agree(named(&doc, "forwarding"), sent, &doc);
    }
}

#[test]
fn a_bridge_forwards_between_its_ports_and_its_own_packets_cross_it_once() {
    let _lab = testkit::alone();
    let (hosts, address) = Middle::bridge();
    let ports = || ["m0", "m1"].map(|port| packets_of(&hosts.middle, port));
    let received = |ports: [(u64, u64); 2]| ports[0].0 + ports[1].0;
    // Frames to all are cloned, and each clone is another buffer.
    let to_all = 20 + tolerance(10_000);

    let (mut before, mut merged_before) = (ports(), 0);
    let doc = traced(&hosts.names(), &[], |_| {
        // Frames to all that cross before the trace are in no trace.
        (before, merged_before) = (ports(), merged(&hosts.names()));
        talk(&hosts.left, &hosts.right, address);
    });
    let crossed = received(ports()) - received(before);
    let forwarded = named(&doc, "forwarding");
    let all_forwarded = crossed - to_all..=crossed + to_all;
    assert!(all_forwarded.contains(&forwarded), "{forwarded} of {crossed}: {doc:#}");
    let packets = count(&doc, "packets_count");
    assert!((crossed..=crossed + to_all).contains(&packets), "{packets} of {crossed}: {doc:#}");
    assert!(named(&doc, "stacked") <= to_all && named(&doc, "tunnel") == 0, "{doc:#}");
    assert_ends_add_up(&doc, merged(&hosts.names()) - merged_before);

    // To the bridge's own address, and from it.
    let before = ports();
    let doc = traced(&hosts.names(), &[], |_| talk(&hosts.left, &hosts.middle, "10.78.3.1"));
    let after = ports();
    let (received, sent) = (after[0].0 - before[0].0, after[0].1 - before[0].1);
    assert!(named(&doc, "forwarding") + named(&doc, "tunnel") <= to_all, "{doc:#}");
    let (up, down) = (
        stage(&doc, "netif_receive_skb", "netif_receive_skb"),
        stage(&doc, "net_dev_start_xmit", "net_dev_queue"),
    );
    assert!((received - to_all..=received).contains(&up), "{up} of {received}: {doc:#}");
    assert!((sent - to_all..=sent).contains(&down), "{down} of {sent}: {doc:#}");
    let packets = count(&doc, "packets_count");
    assert!((received + sent..=received + sent + to_all).contains(&packets), "{doc:#}");
}

#[test]
fn a_tunnel_wraps_and_unwraps_as_many_packets_as_its_devices_count() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let ends = [
        (spaces.near.as_str(), "va", NEAR_IP, FAR_IP, "10.79.0.1"),
        (spaces.far.as_str(), "vb", FAR_IP, NEAR_IP, "10.79.0.2"),
    ];
    for (name, link, local, remote, inner) in ends {
        let tunnel =
            ["-n", name, "link", "add", "vx", "type", "vxlan", "id", "7", "dstport", "4789"];
        let path = ["local", local, "remote", remote, "dev", link];
        succeed(ip(&[&tunnel[..], &path].concat()));
        succeed(ip(&["-n", name, "address", "add", &format!("{inner}/24"), "dev", "vx"]));
        succeed(ip(&["-n", name, "link", "set", "vx", "up"]));
    }
    let sums = || {
        let counts = ends.map(|(name, ..)| packets_of(name, "vx"));
        (counts[0].0 + counts[1].0, counts[0].1 + counts[1].1)
    };
    let before = sums();
    let names = [spaces.near.as_str(), spaces.far.as_str()];
    let doc = traced(&names, &[], |_| talk(names[0], names[1], "10.79.0.2"));
    let (received, sent) = sums();
    let (received, sent) = (received - before.0, sent - before.1);
    assert_agree(named(&doc, "tunnel: encapsulation"), sent, &doc);
    assert_agree(named(&doc, "tunnel: decapsulation"), received, &doc);
    assert_eq!(named(&doc, "forwarding") + named(&doc, "stacked"), 0, "{doc:#}");
    assert_eq!(drops(&doc, "NO_SOCKET"), 0, "{doc:#}");
}
