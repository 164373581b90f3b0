//! Built-in loads by the commands that experiments start: from namespace to namespace, through a bridge, a router and a
//! tunnel, with counts that agree with those of the kernel.

mod common;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{LONG, Running, all_text, clean, enter, fail, ip, json, run, succeed, until};
use lab::BuiltInLoad;
use serde_json::Value;

/// Time of a load.
const TIME: Duration = Duration::from_millis(400);
const PORT: u16 = 9700;
/// Packets of the control connection at most.
const CONTROL_PACKETS_MAX: u64 = 100;

/// Way between the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Bridge,
    Router,
    RouterIpv6,
    Vxlan,
}

/// Namespaces of a way, gone when dropped.
struct Scene {
    near: String,
    far: String,
    middle: String,
    near_ip: &'static str,
    far_ip: &'static str,
    /// Interface of the far end.
    far_link: &'static str,
}

impl Scene {
    fn new(way: Way) -> Scene {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let [near, far, middle] =
            ["a", "b", "m"].map(|end| format!("wpl{}-{n}{end}", std::process::id()));
        let (near_ip, far_ip) = match way {
            Way::Direct | Way::Bridge => ("10.77.0.1", "10.77.0.2"),
            Way::Router => ("10.77.0.1", "10.78.0.2"),
            Way::RouterIpv6 => ("fd77::1", "fd78::2"),
            Way::Vxlan => ("10.79.0.1", "10.79.0.2"),
        };
        let far_link = if way == Way::Vxlan { "vx" } else { "vb" };
        let scene = Scene { near, far, middle, near_ip, far_ip, far_link };
        for name in [&scene.near, &scene.far, &scene.middle] {
            succeed(ip(&["netns", "add", name]));
            scene.set(name, &["link", "set", "lo", "up"]);
        }
        scene.join(way);
        scene
    }

    fn set(&self, name: &str, words: &[&str]) {
        succeed(ip(&[&["-n", name], words].concat()));
    }

    fn sysctl(&self, name: &str, setting: &str) {
        succeed(enter(name, &["sysctl", "-qw", setting]));
    }

    /// Makes a wire whose ends are up.
    fn wire(&self, (one, first): (&str, &str), (other, second): (&str, &str)) {
        let ends = ["netns", one, "type", "veth", "peer", "name", second, "netns", other];
        succeed(ip(&[&["link", "add", first], &ends[..]].concat()));
        self.set(one, &["link", "set", "dev", first, "up"]);
        self.set(other, &["link", "set", "dev", second, "up"]);
    }

    fn address(&self, name: &str, link: &str, address: &str) {
        let is_ipv6 = address.contains(':');
        let words = ["address", "add", address, "dev", link];
        let no_detection: &[&str] = if is_ipv6 { &["nodad"] } else { &[] };
        self.set(name, &[&words[..], no_detection].concat());
    }

    fn join(&self, way: Way) {
        let (near, far, middle) = (&*self.near, &*self.far, &*self.middle);
        if way != Way::RouterIpv6 {
            for name in [near, far, middle] {
                self.sysctl(name, "net.ipv6.conf.all.disable_ipv6=1");
                self.sysctl(name, "net.ipv6.conf.default.disable_ipv6=1");
            }
        }
        match way {
            Way::Direct | Way::Vxlan => self.wire((near, "va"), (far, "vb")),
            Way::Bridge | Way::Router | Way::RouterIpv6 => {
                self.wire((near, "va"), (middle, "ma"));
                self.wire((far, "vb"), (middle, "mb"));
            }
        }
        match way {
            Way::Direct | Way::Bridge => {
                self.address(near, "va", "10.77.0.1/24");
                self.address(far, "vb", "10.77.0.2/24");
            }
            Way::Router | Way::RouterIpv6 => self.route(way == Way::RouterIpv6),
            Way::Vxlan => self.tunnel(),
        }
        if way == Way::Bridge {
            self.set(middle, &["link", "add", "br0", "type", "bridge"]);
            self.set(middle, &["link", "set", "br0", "up"]);
            for port in ["ma", "mb"] {
                self.set(middle, &["link", "set", "dev", port, "master", "br0"]);
            }
        }
        let ping = ["ping", "-c1", "-W1", self.far_ip];
        assert!(
            until(LONG, || run(enter(near, &ping)).status.success()),
            "{way:?} does not answer pings"
        );
    }

    fn route(&self, is_ipv6: bool) {
        let (near, far, middle) = (&*self.near, &*self.far, &*self.middle);
        let (nets, version, forwarding) = if is_ipv6 {
            (["fd77::", "fd78::"], "-6", "net.ipv6.conf.all.forwarding=1")
        } else {
            (["10.77.0.", "10.78.0."], "-4", "net.ipv4.ip_forward=1")
        };
        let length = if is_ipv6 { "64" } else { "24" };
        self.sysctl(middle, forwarding);
        let ends = [(near, "va", "1", "ma", nets[0]), (far, "vb", "2", "mb", nets[1])];
        for (name, link, host, port, net) in ends {
            self.address(name, link, &format!("{net}{host}/{length}"));
            self.address(middle, port, &format!("{net}9/{length}"));
            self.set(name, &[version, "route", "add", "default", "via", &format!("{net}9")]);
        }
    }

    fn tunnel(&self) {
        let ends = [(&self.near, "va", "1", "2"), (&self.far, "vb", "2", "1")];
        for (name, link, own, other) in ends {
            self.address(name, link, &format!("10.77.0.{own}/24"));
            let (local, remote) = (format!("10.77.0.{own}"), format!("10.77.0.{other}"));
            let vxlan = ["link", "add", "vx", "type", "vxlan", "id", "7", "dstport", "4789"];
            let ends = ["local", &local, "remote", &remote, "dev", link];
            self.set(name, &[&vxlan[..], &ends].concat());
            self.address(name, "vx", &format!("10.79.0.{own}/24"));
            self.set(name, &["link", "set", "vx", "up"]);
        }
    }

    /// A command of a load, as an experiment runs it.
    fn shell(&self, name: &str, command: &str) -> Command {
        let mut shell = clean(enter(name, &["sh", "-c", command]), &[]);
        shell
            .env("WIREPATH", env!("CARGO_BIN_EXE_wirepath"))
            .env("WIREPATH_NEAR", self.near_ip)
            .env("WIREPATH_FAR", self.far_ip)
            .env("WIREPATH_PORT", PORT.to_string());
        shell
    }

    /// The server of a load, ready.
    fn serve(&self, load: &BuiltInLoad) -> Running {
        let mut server = Running::start(self.shell(&self.far, &load.server()));
        server.await_stderr("listening on ");
        server
    }

    fn run(&self, load: &BuiltInLoad) -> Value {
        json(self.shell(&self.near, &load.client(TIME)))
    }

    /// Counters of the UDP and IP of a namespace, and of the far end's interface.
    fn counters(&self) -> Counters {
        let counted_in = |name: &str| {
            let files = ["cat", "/proc/net/snmp", "/proc/net/snmp6"];
            let text = succeed(enter(name, &files));
            let [sent, received, reassembled, refused] = [
                ("Udp", "OutDatagrams", "Udp6OutDatagrams"),
                ("Udp", "InDatagrams", "Udp6InDatagrams"),
                ("Ip", "ReasmOKs", "Ip6ReasmOKs"),
                ("Udp", "SndbufErrors", "Udp6SndbufErrors"),
            ]
            .map(|(table, name, of_ipv6)| {
                let of_ipv6 = text.lines().find_map(|line| line.strip_prefix(of_ipv6));
                let of_ipv6: u64 =
                    of_ipv6.map_or(0, |count| count.trim().parse().expect("a count"));
                of_ipv6 + host::net::snmp_counter(&text, table, name).expect("a counter")
            });
            // A datagram that finds the backlog of the veth's peer full is dropped there: its sender sees no error, and
            // it counts as refused in place of sent.
            [sent + refused, received, reassembled]
        };
        let link = json(ip(&["-n", &self.far, "-s", "-j", "link", "show", self.far_link]));
        let rx = |what: &str| link[0]["stats64"]["rx"][what].as_u64().expect("a count");
        Counters {
            near: counted_in(&self.near),
            far: counted_in(&self.far),
            rx_packets: rx("packets"),
            rx_bytes: rx("bytes"),
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for name in [&self.near, &self.far, &self.middle] {
            let _ = ip(&["netns", "delete", name]).output();
        }
    }
}

/// Datagrams sent and received and packets put together, of each end; packets and bytes at the far interface.
struct Counters {
    near: [u64; 3],
    far: [u64; 3],
    rx_packets: u64,
    rx_bytes: u64,
}

impl Counters {
    fn since(&self, before: &Counters) -> Counters {
        let minus =
            |now: [u64; 3], before: [u64; 3]| std::array::from_fn(|at| now[at] - before[at]);
        Counters {
            near: minus(self.near, before.near),
            far: minus(self.far, before.far),
            rx_packets: self.rx_packets - before.rx_packets,
            rx_bytes: self.rx_bytes - before.rx_bytes,
        }
    }
}

fn count(document: &Value, name: &str) -> u64 {
    document[name].as_u64().unwrap_or_else(|| panic!("{name}: {document:#}"))
}

/// Asserts that a load's own counts are those of the kernel.
fn assert_counted(load: &str, way: Way, document: &Value, kernel: &Counters) {
    let context = format!("{load} over {way:?}: {document:#}");
    let received_bytes = count(document, "received_bytes");
    assert!(document["goodput_bps"].as_f64() > Some(0.0), "{context}");
    if load.starts_with("tcp") {
        assert_eq!(received_bytes, count(document, "sent_bytes"), "{context}");
        assert!(received_bytes > 100_000 && kernel.rx_bytes > received_bytes, "{context}");
        return;
    }
    let [sent, received, lost] =
        ["sent_count", "received_count", "lost_count"].map(|name| count(document, name));
    assert!(sent > 10 && received > 0, "{context}");
    let twice = count(document, "duplicated_count");
    assert_eq!(received - twice + lost, sent, "{context}");
    // A VXLAN is of UDP itself.
    if way != Way::Vxlan {
        let answered = if load.starts_with("ping") { received } else { 0 };
        assert_eq!((kernel.near[0], kernel.near[1]), (sent, answered), "{context}");
        let echoed = if load.starts_with("ping") { kernel.far[1] } else { 0 };
        assert_eq!(kernel.far[0], echoed, "{context}");
        let at_far = if load.starts_with("ping") { echoed } else { received };
        assert_eq!(kernel.far[1], at_far, "{context}");
    }
    let payload = received_bytes / received;
    let pieces = if payload > 3000 { 3 } else { 1 };
    if pieces > 1 && way != Way::Vxlan {
        assert!(kernel.far[2] >= received, "{context}");
    }
    let packets = kernel.rx_packets;
    let most = sent * pieces + CONTROL_PACKETS_MAX;
    assert!(received * pieces <= packets && packets <= most, "{packets}: {context}");
}

fn assert_loads_are_counted(way: Way) {
    let scene = Scene::new(way);
    for text in [
        "udp:1200@1000",
        "udp:100@500/16",
        "udp:4000@200",
        "udp:64@max",
        "ping:200",
        "tcp",
        "tcp:4",
    ] {
        let load: BuiltInLoad = text.parse().expect("a load");
        let server = scene.serve(&load);
        let before = scene.counters();
        let document = scene.run(&load);
        let kernel = scene.counters().since(&before);
        // The receiver does not count datagrams that its full socket drops.
        assert_counted(text, way, &document, &kernel);
        assert_eq!(document["load"], load.to_string());
        if text.starts_with("ping") {
            let rtt = &document["rtt_ns"];
            let [least, p50, most] = ["min", "p50", "max"].map(|name| rtt[name].as_u64());
            assert!(least > Some(0) && least <= p50 && p50 <= most, "{document:#}");
        }
        let ended = server.end_by("TERM", LONG);
        assert!(ended.status.success(), "{text}: {}", all_text(&ended));
    }
}

#[test]
fn loads_between_two_namespaces_are_counted_as_the_kernel_counts_them() {
    assert_loads_are_counted(Way::Direct);
}

#[test]
fn loads_through_a_bridge_without_addresses_are_counted() {
    assert_loads_are_counted(Way::Bridge);
}

#[test]
fn loads_through_a_router_are_counted() {
    assert_loads_are_counted(Way::Router);
}

#[test]
fn loads_through_a_router_over_ipv6_are_counted() {
    assert_loads_are_counted(Way::RouterIpv6);
}

#[test]
fn loads_through_a_tunnel_are_counted() {
    assert_loads_are_counted(Way::Vxlan);
}

#[test]
fn flows_have_source_ports_of_their_own() {
    let scene = Scene::new(Way::Direct);
    let load: BuiltInLoad = "udp:64@2000/64".parse().expect("a load");
    let _server = scene.serve(&load);
    let filter = ["tcpdump", "-n", "-i", "vb", "-c", "300", "udp", "and", "dst", "port", "9700"];
    if !common::is_installed("tcpdump") {
        return;
    }
    let mut capture = Running::start(enter(&scene.far, &filter));
    capture.await_stderr("listening on");
    scene.run(&load);
    let text = all_text(&capture.finish(LONG).expect("it has its packets"));
    let ports: BTreeSet<&str> = text.lines().filter_map(source_port).collect();
    assert_eq!(ports.len(), 64, "{ports:?}");
}

/// `12:00:00.1 IP 10.77.0.1.9701 > …`: `9701`.
fn source_port(line: &str) -> Option<&str> {
    let (from, _) = line.split_once(" > ")?;
    from.contains(" IP ").then(|| from.rsplit('.').next()).flatten()
}

#[test]
fn sender_that_is_too_slow_for_its_rate_says_so() {
    let scene = Scene::new(Way::Direct);
    let load: BuiltInLoad = "udp:64@10000000".parse().expect("a load");
    let _server = scene.serve(&load);
    let output = run(scene.shell(&scene.near, &load.client(TIME)));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let missed = document["missed_rate"].as_str().expect("a sentence");
    assert!(missed.contains("did not reach its rate of 10000000"), "{missed}");
    assert!(all_text(&output).contains("warning: the sender did not reach"), "{output:?}");
    let due = count(&document, "sent_count") + count(&document, "unsent_count");
    assert_eq!(due, 4_000_000, "{document:#}");
    let slow: BuiltInLoad = "udp:64@100".parse().expect("a load");
    assert_eq!(scene.run(&slow)["missed_rate"], Value::Null, "a rate that any sender keeps");
}

#[test]
fn load_without_a_far_end_ends_with_one_error_that_names_it() {
    let scene = Scene::new(Way::Direct);
    for text in ["udp:64@1000", "tcp:2", "ping"] {
        let load: BuiltInLoad = text.parse().expect("a load");
        let begun = Instant::now();
        let said = fail(scene.shell(&scene.near, &load.client(TIME)), 1);
        assert!(begun.elapsed() < LONG, "{text}");
        assert!(said.contains("no load server answers at 10.77.0.2:9700"), "{said}");
        assert!(
            said.contains(&format!("wirepath load serve {load} 10.77.0.2 --port 9700")),
            "{said}"
        );
        // Nor does anything answer for an address that no host has.
        let mut nowhere = scene.shell(&scene.near, &load.client(TIME));
        nowhere.env("WIREPATH_FAR", "10.77.0.99");
        let said = fail(nowhere, 1);
        assert!(said.contains("10.77.0.99"), "{text}: {said}");
    }
}

#[test]
fn datagrams_that_a_filter_drops_are_an_error_and_not_a_result() {
    let scene = Scene::new(Way::Direct);
    let rules =
        "table ip t { chain c { type filter hook input priority 0; meta l4proto udp drop; }; }";
    if !common::is_installed("nft") {
        return;
    }
    succeed(enter(&scene.far, &["nft", rules]));
    for (text, what) in [("udp:64@1000", "arrived"), ("ping", "was answered")] {
        let load: BuiltInLoad = text.parse().expect("a load");
        let _server = scene.serve(&load);
        let said = fail(scene.shell(&scene.near, &load.client(TIME)), 1);
        assert!(said.contains("none of ") && said.contains(what), "{said}");
    }
}
