//! Planted causes of addresses, neighbours and routes.

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};

/// Sends a datagram each 5 ms, whatever becomes of them.
fn send_datagrams(scene: &mut Scene, from: &str, to: &str) {
    let family = if to.contains(':') { "AF_INET6" } else { "AF_INET" };
    let program = format!(
        "import socket, time\ns = socket.socket(socket.{family}, socket.SOCK_DGRAM)\nprint('ready')\n\
         while True:\n    try: s.sendto(b'x' * 100, ('{to}', 9000))\n    except OSError: pass\n    time.sleep(0.005)"
    );
    scene.python(from, &program);
}

/// Connects again and again from new ports, each time for half a minute at most.
fn connect_again(scene: &mut Scene, from: &str, to: &str) {
    let family = if to.contains(':') { "AF_INET6" } else { "AF_INET" };
    let program = format!(
        "import socket, time\nprint('ready')\nopen = []\nwhile True:\n    s = socket.socket(socket.{family})\n    \
         s.setblocking(False)\n    s.connect_ex(('{to}', 8080))\n    open.append(s)\n    time.sleep(0.05)\n    \
         if len(open) > 100: open.pop(0).close()"
    );
    scene.python(from, &program);
}

fn serve(scene: &mut Scene, name: &str) {
    scene.python(
        name,
        "import socket\ns = socket.socket(socket.AF_INET6)\ns.bind(('::', 8080))\ns.listen(500)\nprint('ready')\nopen = []\n\
         while True:\n    open.append(s.accept()[0])\n    if len(open) > 100: open.pop(0).close()",
    );
}

/// A client and two hosts at one bridge, of which `b` has 10.1.0.9.
fn failover() -> Scene {
    let mut scene = Scene::new(&["a", "r", "b", "c"]);
    for (name, port, address) in
        [("a", "pa", "10.1.0.1/24"), ("b", "pb", "10.1.0.2/24"), ("c", "pc", "10.1.0.3/24")]
    {
        scene.wire((name, "eth0", address), ("r", port, ""));
    }
    scene.sh("r", "ip link add br0 type bridge && ip link set br0 up");
    scene.sh("r", "for port in pa pb pc; do ip link set $port master br0; done");
    scene.sh("b", "ip addr add 10.1.0.9/24 dev eth0");
    // An entry is doubted after a second, and its host is asked for a while.
    scene.sh(
        "a",
        "sysctl -qw net.ipv4.neigh.eth0.base_reachable_time_ms=1000 net.ipv4.neigh.eth0.delay_first_probe_time=1 \
         net.ipv4.neigh.eth0.ucast_solicit=30",
    );
    scene.sh("a", "ping -c1 -W5 10.1.0.9 > /dev/null");
    send_datagrams(&mut scene, "a", "10.1.0.9");
    scene
}

#[test]
fn address_that_moved_without_an_announcement_is_named() {
    let scene = failover();
    silent(&scene.examine("a"), "garp");
    scene.sh("b", "ip addr del 10.1.0.9/24 dev eth0");
    scene.sh("c", "ip addr add 10.1.0.9/24 dev eth0");
    let probes = "for i in $(seq 100); do ip neigh show to 10.1.0.9 | grep -q PROBE && exit 0; sleep 0.1; done; exit 1";
    scene.sh("a", probes);
    let report = scene.examine("a");
    let words =
        ["10.1.0.9 on eth0", "does not answer", "Probe", "ip neigh flush to 10.1.0.9 dev eth0"];
    let found = named(&report, "garp", Severity::High, &words);
    // The host that had it gets the packets.
    let old = scene.examine("b");
    let old =
        named(&old, "not-router", Severity::High, &["InAddrErrors", "forwarding is off on eth0"]);
    row("garp", "an address moves to another host", "doctor", found);
    row("not-router", "an address moved away", "doctor", old);
}

#[test]
fn two_hosts_with_one_address_are_named() {
    let mut scene = Scene::pair();
    scene.sh("a", "sysctl -qw net.ipv4.neigh.eth0.locktime=0");
    scene.sh("a", "ping -c1 -W5 10.1.0.2 > /dev/null");
    // Two owners by turns answer with their own address.
    scene.python(
        "b",
        "import socket, struct, time\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('eth0', 0))\n\
         ip = socket.inet_aton('10.1.0.2')\nprint('ready')\nn = 0\nwhile True:\n    n += 1\n    \
         mac = bytes([2, 0, 0, 0, 0, n % 251])\n    \
         arp = struct.pack('!HHBBH6s4s6s4s', 1, 0x800, 6, 4, 2, mac, ip, b'\\xff' * 6, ip)\n    \
         s.send(b'\\xff' * 6 + mac + b'\\x08\\x06' + arp)\n    time.sleep(0.1)",
    );
    let report = scene.examine("a");
    let found = named(
        &report,
        "garp",
        Severity::Medium,
        &["10.1.0.2 on eth0 changed from 02:00", "two hosts have"],
    );
    row("garp", "two hosts announce one address", "doctor", found);
}

#[test]
fn ipv6_address_that_another_host_has_is_named() {
    let scene = Scene::pair();
    scene.sh("b", "ip addr add fd00::9/64 dev eth0 nodad");
    silent(&scene.examine("a"), "garp");
    scene.sh("a", "ip addr add fd00::9/64 dev eth0");
    scene.sh("a", "for i in $(seq 100); do ip addr show dev eth0 | grep -q dadfailed && exit 0; sleep 0.1; done; exit 1");
    named(
        &scene.examine("a"),
        "garp",
        Severity::High,
        &["fd00::9 of eth0 is not used", "DADFAILED"],
    );
}

#[test]
fn router_that_does_not_answer_is_named() {
    let scene = |router: &str| {
        let mut scene = Scene::pair();
        scene.sh("a", &format!("ip route add default via {router}"));
        scene.sh("a", "ping -c1 -W5 10.1.0.2 > /dev/null");
        send_datagrams(&mut scene, "a", "198.18.0.1");
        scene
    };
    let report = scene("10.1.0.77").examine("a");
    let words = [
        "router 10.1.0.77 on eth0 does not answer",
        "by the default route",
        "arping -I eth0 10.1.0.77",
    ];
    let found = named(&report, "no-neighbour", Severity::High, &words);
    silent(&scene("10.1.0.2").examine("a"), "no-neighbour");
    row("no-neighbour", "default route via an absent host", "doctor", found);
}

#[test]
fn host_that_a_program_waits_for_is_named_with_the_program() {
    let mut scene = Scene::pair();
    connect_again(&mut scene, "a", "10.1.0.77");
    let words = ["10.1.0.77 on eth0 does not answer", "python3", "port 8080"];
    named(&scene.examine("a"), "no-neighbour", Severity::Medium, &words);
}

#[test]
fn default_route_of_ipv6_that_leads_nowhere_is_named() {
    let scene = |router: &str| {
        let mut scene = Scene::pair();
        scene.sh("a", "ip addr add fd00::1/64 dev eth0 nodad && ip route add default via 10.1.0.2");
        scene.sh(
            "b",
            "ip addr add fd00::2/64 dev eth0 nodad && ip addr add 2001:db8::1/128 dev lo nodad",
        );
        scene.sh("a", &format!("ip -6 route add default via {router} dev eth0"));
        serve(&mut scene, "b");
        connect_again(&mut scene, "a", "2001:db8::1");
        scene
    };
    let report = scene("fd00::77").examine("a");
    let words = [
        "default route of IPv6 via fd00::77 on eth0 leads nowhere",
        "IPv4 is tried",
        "python3",
        "ip -6 route del default",
    ];
    let found = named(&report, "bad-v6", Severity::High, &words);
    assert!(
        !report.findings.iter().any(|found| found.cause == "no-neighbour"),
        "one fault, one finding"
    );
    silent(&scene("fd00::2").examine("a"), "bad-v6");
    row("bad-v6", "IPv6 default route via an absent host", "doctor", found);
}

/// A server with two uplinks to a router that accepts no sources of one at the other.
fn two_uplinks(rule: bool) -> Scene {
    let mut scene = Scene::routed();
    scene.wire(("b", "eth1", "10.3.0.1/24"), ("r", "second", "10.3.0.254/24"));
    scene.sh("r", "sysctl -qw net.ipv4.conf.all.rp_filter=1");
    scene.sh("b", "sysctl -qw net.ipv4.conf.all.rp_filter=0");
    if rule {
        scene.sh("b", "ip route add default via 10.3.0.254 dev eth1 table 100 && ip rule add from 10.3.0.1 table 100");
    }
    // The router would refuse the question for its own address, too.
    scene.sh("b", "ping -c1 -W5 10.2.0.254 > /dev/null");
    serve(&mut scene, "b");
    connect_again(&mut scene, "a", "10.3.0.1");
    // The SYN-ACK is sent again after a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    scene
}

#[test]
fn replies_by_the_other_uplink_are_named() {
    let faulty = two_uplinks(false);
    let report = faulty.examine("b");
    let words = [
        "replies of 10.3.0.1 to 10.1.0.1 leave by eth0",
        "address is of eth1",
        "ip rule add from 10.3.0.1",
    ];
    let found = named(&report, "asym-route", Severity::High, &words);
    // The router drops them for their source.
    let router = faulty.examine("r");
    let dropped =
        named(&router, "reverse-path", Severity::High, &["rp_filter", "IPReversePathFilter"]);
    silent(&two_uplinks(true).examine("b"), "asym-route");
    row("asym-route", "two uplinks, one default route", "doctor", found);
    row("reverse-path", "a source that comes by another interface", "doctor", dropped);
}

#[test]
fn sends_and_forwarded_packets_without_a_route_are_named() {
    let mut scene = Scene::routed();
    send_datagrams(&mut scene, "a", "198.18.0.1");
    send_datagrams(&mut scene, "r", "198.18.0.2");
    let report = scene.examine("r");
    let of = |what: &str| {
        report.findings.iter().find(|found| found.cause == "no-route" && found.what.contains(what))
    };
    let sent = of("sends of programs").unwrap();
    assert_eq!(sent.severity, Severity::High, "{sent:#?}");
    assert!(
        of("to be forwarded").is_some_and(|found| found.severity == Severity::High),
        "{report:#?}"
    );
    named(&report, "no-route", Severity::High, &["no default route of IPv4", "ip route add"]);
    let mut twin = Scene::routed();
    send_datagrams(&mut twin, "a", "10.2.0.1");
    silent(&twin.examine("r"), "no-route");
    row("no-route", "a destination without a route", "doctor", sent);
}

#[test]
fn tries_by_ipv6_on_a_host_without_it_are_no_fault() {
    let mut scene = Scene::pair();
    scene.sh("a", "ip route add default via 10.1.0.2");
    send_datagrams(&mut scene, "a", "2001:db8::1");
    let report = scene.examine("a");
    silent(&report, "no-route");
    assert!(
        report.facts.iter().any(|fact| fact.text.contains("tries of programs by IPv6")),
        "{:?}",
        report.facts
    );
}

#[test]
fn blackhole_that_forwarded_packets_meet_is_named() {
    let mut scene = Scene::routed();
    scene.sh("r", "ip route add blackhole 10.9.0.0/16");
    send_datagrams(&mut scene, "a", "10.2.0.1");
    silent(&scene.examine("r"), "dead-route");
    send_datagrams(&mut scene, "a", "10.9.0.1");
    let report = scene.examine("r");
    let found = named(
        &report,
        "dead-route",
        Severity::High,
        &["blackhole 10.9.0.0/16", "ip route del blackhole"],
    );
    row("dead-route", "blackhole route", "doctor", found);
}

#[test]
fn packets_for_others_at_a_host_that_does_not_forward_are_named() {
    let mut scene = Scene::routed();
    send_datagrams(&mut scene, "a", "10.2.0.1");
    silent(&scene.examine("r"), "not-router");
    scene.sh("r", "sysctl -qw net.ipv4.ip_forward=0");
    let report = scene.examine("r");
    let found = named(
        &report,
        "not-router",
        Severity::High,
        &["forwarding is off on left", "ip_forward=1"],
    );
    row("not-router", "ip_forward=0 on a router", "doctor", found);
}

#[test]
fn loop_between_two_routers_is_named() {
    let mut scene = Scene::routed();
    scene.sh("b", "sysctl -qw net.ipv4.ip_forward=1");
    scene.sh("r", "ip route add 198.18.0.0/16 via 10.2.0.1");
    // The kernel limits the answers of either.
    for router in ["r", "b"] {
        scene.sh(router, "sysctl -qw net.ipv4.icmp_ratelimit=0");
    }
    send_datagrams(&mut scene, "a", "10.2.0.1");
    silent(&scene.examine("r"), "routing-loop");
    send_datagrams(&mut scene, "a", "198.18.0.1");
    let reports = [scene.examine("r"), scene.examine("b")];
    // The hops are used up at one of them, always the same.
    let report =
        reports.iter().find(|one| one.findings.iter().any(|found| found.cause == "routing-loop"));
    let report = report.unwrap_or_else(|| panic!("{reports:#?}"));
    let found =
        named(report, "routing-loop", Severity::High, &["used up their hops", "OutTimeExcds"]);
    row("routing-loop", "two routers that point at each other", "doctor", found);
}

#[test]
fn packets_with_an_own_source_are_named() {
    let mut scene = Scene::pair();
    scene.sh("a", "ip addr add 10.1.0.7/32 dev lo && sysctl -qw net.ipv4.conf.all.rp_filter=0");
    scene.sh("b", "ip addr add 10.1.0.7/32 dev lo && sysctl -qw net.ipv4.conf.all.rp_filter=0");
    let sender = |from: &str| {
        format!(
            "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('{from}', 0))\nprint('ready')\n\
             while True:\n    s.sendto(b'x', ('10.1.0.2', 9000))\n    time.sleep(0.005)"
        )
    };
    scene.python("b", "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.1.0.2', 9000))\nprint('ready')\nwhile True: s.recv(99)");
    scene.python("a", &sender("10.1.0.1"));
    silent(&scene.examine("b"), "martian");
    scene.python("a", &sender("10.1.0.7"));
    let report = scene.examine("b");
    let found = named(
        &report,
        "martian",
        Severity::High,
        &["impossible source", "in_martian_src", "accept_local=1"],
    );
    row("martian", "a source that is an address of the receiver", "doctor", found);
}

#[test]
fn two_interfaces_in_one_network_are_noted() {
    let scene = Scene::pair();
    scene.wire(("a", "eth1", "10.1.0.5/24"), ("b", "eth1", ""));
    let report = scene.examine("a");
    let words = ["eth0 (10.1.0.1/24) and eth1 (10.1.0.5/24)", "arp_ignore=1"];
    let found = named(&report, "arp-flux", Severity::Low, &words);
    scene.sh("a", "sysctl -qw net.ipv4.conf.all.arp_ignore=1");
    silent(&scene.examine("a"), "arp-flux");
    row("arp-flux", "two interfaces in one network", "doctor", found);
}

#[test]
fn plain_host_and_router_have_no_fault_of_addresses() {
    let mut scene = Scene::routed();
    serve(&mut scene, "b");
    connect_again(&mut scene, "a", "10.2.0.1");
    crate::filters::receive_datagrams(&mut scene, "b", 9000);
    send_datagrams(&mut scene, "a", "10.2.0.1");
    for name in ["a", "r", "b"] {
        let report = scene.examine(name);
        for cause in [
            "garp",
            "no-neighbour",
            "bad-v6",
            "asym-route",
            "rt6-max",
            "no-route",
            "dead-route",
            "martian",
        ] {
            silent(&report, cause);
        }
    }
}

/// Eight peers behind a router to which a program connects.
fn session_with_ttl(ttl: u8) -> Scene {
    let mut scene = Scene::routed();
    serve(&mut scene, "b");
    let program = format!(
        "import socket, time\nprint('ready')\nwhile True:\n    s = socket.socket()\n    s.setsockopt(0, socket.IP_TTL, {ttl})\n    \
         s.settimeout(3)\n    try: s.connect(('10.2.0.1', 8080))\n    except OSError: pass\n    s.close()\n    time.sleep(0.1)"
    );
    for _ in 0..8 {
        scene.python("a", &program);
    }
    scene
}

#[test]
fn session_whose_packets_die_at_a_router_is_named() {
    let report = session_with_ttl(1).examine("a");
    let words = ["TTL exceeded", "10.2.0.1:8080", "python3", "IP_TTL", "InTimeExcds"];
    let found = named(&report, "ttl-too-small", Severity::High, &words);
    silent(&session_with_ttl(64).examine("a"), "ttl-too-small");
    row("ttl-too-small", "IP_TTL of 1 to a peer behind a router", "doctor", found);
}

/// A host that forwards, and a router that advertises itself.
fn advertised(accept_ra: u8) -> Scene {
    let mut scene = Scene::pair();
    scene.sh(
        "a",
        &format!(
            "sysctl -qw net.ipv6.conf.eth0.accept_ra={accept_ra} net.ipv6.conf.all.forwarding=1"
        ),
    );
    scene.python(
        "b",
        "import socket, struct, time\nto = socket.if_nametoindex('eth0')\n\
         s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)\n\
         s.setsockopt(41, socket.IPV6_MULTICAST_HOPS, 255)\ns.setsockopt(41, socket.IPV6_MULTICAST_IF, to)\n\
         m = struct.pack('!BBHBBHII', 134, 0, 0, 64, 0, 1800, 0, 0)\nsent = 0\nwhile True:\n    \
         try:\n        s.sendto(m, ('ff02::1', 0, 0, to))\n        sent += 1\n    except OSError: pass\n    \
         if sent == 5: print('ready')\n    time.sleep(0.3)",
    );
    scene
}

#[test]
fn host_that_ignores_advertisements_as_it_forwards_is_named() {
    let report = advertised(1).examine("a");
    let words = ["eth0 ignores router advertisements", "accept_ra=2", "no default route"];
    let found = named(&report, "ra-ignored", Severity::Medium, &words);
    silent(&advertised(2).examine("a"), "ra-ignored");
    row("ra-ignored", "forwarding 1 beside accept_ra 1, advertisements", "doctor", found);
}
