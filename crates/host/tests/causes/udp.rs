//! Planted causes of UDP and multicast.

use std::time::{Duration, Instant};

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};

/// Python that sends datagrams for ever.
///
/// - `options`: lines that set up socket `s`.
fn sender(to: &str, port: u16, bytes: usize, options: &str) -> String {
    format!(
        "import socket, struct, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n{options}\n\
         print('ready')\nwhile True:\n    try:\n        s.sendto(b'x' * {bytes}, ('{to}', {port}))\n    \
         except OSError:\n        pass\n    time.sleep(0.002)"
    )
}

/// Python that binds a socket, sets it up, and reads it for ever, or not at all.
fn receiver(address: &str, port: u16, options: &str, reads: bool) -> String {
    let then = if reads { "while True:\n    s.recv(9000)" } else { "time.sleep(60)" };
    format!(
        "import socket, struct, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n{options}\ns.bind(('{address}', {port}))\n\
         print('ready')\n{then}"
    )
}

/// Python that joins a group on the interface with an address.
fn join(group: &str, address: &str) -> String {
    format!(
        "s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('{group}') + socket.inet_aton('{address}'))"
    )
}

/// Python that sends multicast by the interface with an address.
fn by(address: &str) -> String {
    format!("s.setsockopt(0, socket.IP_MULTICAST_IF, socket.inet_aton('{address}'))")
}

/// Waits until a command in a namespace prints a number above a limit.
pub(crate) fn await_above(scene: &Scene, netns: &str, command: &str, limit: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while scene.sh(netns, command).trim().parse::<u64>().unwrap_or(0) <= limit {
        assert!(Instant::now() < deadline, "{command} stays at {limit} or below");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a receive buffer of `b` has overflowed.
fn await_drops(scene: &Scene) {
    await_above(scene, "b", "nstat -asz UdpRcvbufErrors | awk 'END { print $2 }'", 0);
}

fn reader_that(reads: bool) -> Scene {
    let mut scene = Scene::pair();
    scene.python("b", &receiver("0.0.0.0", 9000, "", reads));
    scene.python("a", &sender("10.1.0.2", 9000, 1000, ""));
    scene
}

#[test]
fn full_receive_buffer_is_named_with_its_program_and_the_limit_that_binds() {
    let scene = reader_that(false);
    await_drops(&scene);
    let report = scene.examine("b");
    let words = ["UDP port 9000 of python3", "reads nothing", "RMEM_ALLOC", "rmem_max"];
    let found = named(&report, "udp-rcvbuf", Severity::High, &words);
    silent(&reader_that(true).examine("b"), "udp-rcvbuf");
    row("udp-rcvbuf", "a receiver that does not read, 500 datagrams a second", "doctor", found);
}

#[test]
fn port_without_a_program_is_named_with_the_sender_of_this_host() {
    let mut scene = Scene::pair();
    let connected = "s.connect(('127.0.0.1', 8125))";
    let local = sender("127.0.0.1", 8125, 10, connected)
        .replace("s.sendto(b'x' * 10, ('127.0.0.1', 8125))", "s.send(b'x')");
    scene.python("b", &local);
    scene.python("b", &receiver("127.0.0.1", 9000, "", true));
    let report = scene.examine("b");
    let words =
        ["port 8125 of 127.0.0.1", "python3", "NoPorts", "UDP port 9000", "bound to one address"];
    let found = named(&report, "udp-no-port", Severity::High, &words);
    let mut twin = Scene::pair();
    twin.python("b", &receiver("127.0.0.1", 8125, "", true));
    twin.python("b", &local);
    silent(&twin.examine("b"), "udp-no-port");
    row("udp-no-port", "a metrics sender without its receiver", "doctor", found);
}

#[test]
fn socket_with_as_many_groups_as_it_may_is_named() {
    let joined = |count: u32| {
        let mut scene = Scene::pair();
        let joins = format!(
            "for i in range({count}):\n    try:\n        s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, \
             socket.inet_aton('239.1.1.%d' % (i + 1)) + socket.inet_aton('10.1.0.2'))\n    except OSError:\n        pass"
        );
        scene.python("b", &receiver("0.0.0.0", 9000, &joins, true));
        scene
    };
    let report = joined(25).examine("b");
    let words = ["20 groups", "ENOBUFS", "igmp_max_memberships=1024", "igmp_max_memberships=20"];
    let found = named(&report, "igmp-max", Severity::Medium, &words);
    silent(&joined(5).examine("b"), "igmp-max");
    row("igmp-max", "25 joins on one socket", "doctor", found);
}

/// A server with 3,000 bytes for an answer, a client that asks again and again, and a router between that drops
/// fragments, or not.
fn large_answers(port: u16, drops: bool) -> Scene {
    let mut scene = Scene::routed();
    if drops {
        scene.sh(
            "r",
            "nft add table ip f; nft add chain ip f c '{ type filter hook forward priority 0; }'",
        );
        scene.sh("r", "nft add rule ip f c ip frag-off '&' 0x1fff != 0 drop");
    }
    let server = receiver("0.0.0.0", port, "", false).replace(
        "time.sleep(60)",
        "while True:\n    _, peer = s.recvfrom(100)\n    s.sendto(b'x' * 3000, peer)",
    );
    scene.python("a", &server);
    scene.python(
        "b",
        &format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('10.1.0.1', {port}))\n\
             s.settimeout(0.02)\nprint('ready')\nwhile True:\n    try:\n        s.send(b'query')\n        s.recv(9000)\n    \
             except OSError:\n        pass"
        ),
    );
    scene
}

/// Datagrams that wait for a fragment.
const WAITING: &str = "awk '/^FRAG/ { print $3 }' /proc/net/sockstat";

#[test]
fn dns_answers_without_some_of_their_fragments_are_named() {
    let scene = large_answers(53, true);
    await_above(&scene, "b", WAITING, 5);
    let report = scene.examine("b");
    let words = ["answers of DNS", "python3", "asks 10.1.0.1", "ReasmReqds", "1232"];
    let found = named(&report, "edns", Severity::High, &words);
    silent(&large_answers(53, false).examine("b"), "edns");
    row("edns", "a router that drops fragments, answers of 3,000 bytes", "doctor", found);
}

#[test]
fn datagrams_whose_fragments_do_not_all_arrive_are_named() {
    let scene = large_answers(9000, true);
    await_above(&scene, "b", WAITING, 5);
    let report = scene.examine("b");
    let words = ["fragmented datagrams", "a fragment of each is missing", "30 s", "ipfrag_time"];
    let found = named(&report, "reasm", Severity::High, &words);
    assert!(!report.findings.iter().any(|one| one.cause == "edns"));
    silent(&large_answers(9000, false).examine("b"), "reasm");
    row("reasm", "a router that drops fragments, datagrams of 3,000 bytes", "doctor", found);
}

#[test]
fn multicast_route_with_a_gateway_is_named() {
    let routed = |route: &str| {
        let mut scene = Scene::pair();
        scene.sh("a", &format!("ip route add 224.0.0.0/4 {route}"));
        scene.python("a", &sender("239.1.1.1", 9000, 100, ""));
        scene
    };
    let report = routed("via 10.1.0.2").examine("a");
    let words = [
        "router 10.1.0.2",
        "OutMcastPkts",
        "route replace 224.0.0.0/4 dev eth0",
        "via 10.1.0.2 dev eth0",
    ];
    let found = named(&report, "mcast-route", Severity::High, &words);
    silent(&routed("dev eth0").examine("a"), "mcast-route");
    row("mcast-route", "route to 224.0.0.0/4 via a gateway", "doctor", found);
}

/// A multicast router between a sender and a member.
fn multicast_router(ttl: u32) -> Scene {
    let mut scene = Scene::routed();
    // MRT_INIT, MRT_ADD_VIF by index, MRT_ADD_MFC from the first to the second with a threshold of 1.
    scene.python(
        "r",
        "import socket, struct, time\ns = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)\n\
         s.setsockopt(0, 200, struct.pack('i', 1))\n\
         for number, name in enumerate(['left', 'right']):\n    \
         s.setsockopt(0, 202, struct.pack('HBBIi4s', number, 8, 1, 0, socket.if_nametoindex(name), b'\\0' * 4))\n\
         ttls = bytes([0, 1] + [0] * 30)\n\
         s.setsockopt(0, 204, socket.inet_aton('10.1.0.1') + socket.inet_aton('239.1.1.1') + struct.pack('H', 0) + ttls + \
         b'\\0\\0' + struct.pack('IIIi', 0, 0, 0, 0))\n\
         print('ready')\ntime.sleep(60)",
    );
    scene.python("b", &receiver("0.0.0.0", 9000, &join("239.1.1.1", "10.2.0.1"), true));
    let options = format!("{}\ns.setsockopt(0, socket.IP_MULTICAST_TTL, {ttl})", by("10.1.0.1"));
    scene.python("a", &sender("239.1.1.1", 9000, 100, &options));
    scene
}

#[test]
fn multicast_with_a_ttl_of_one_is_named_at_the_router() {
    let report = multicast_router(1).examine("r");
    let words = ["239.1.1.1 from 10.1.0.1", "TTL", "ip_mr_cache"];
    let found = named(&report, "mcast-forward", Severity::High, &words);
    silent(&multicast_router(4).examine("r"), "mcast-forward");
    row("mcast-forward", "multicast router, sender with TTL 1", "doctor", found);
}

#[test]
fn member_of_a_group_that_is_bound_to_its_own_address_is_named() {
    let bound = |address: &str| {
        let mut scene = Scene::pair();
        scene.python("b", &receiver(address, 9000, &join("239.1.1.1", "10.1.0.2"), true));
        scene.python("a", &sender("239.1.1.1", 9000, 100, &by("10.1.0.1")));
        scene
    };
    let report = bound("10.1.0.2").examine("b");
    let words = [
        "239.1.1.1 is joined on eth0",
        "UDP port 9000 of python3",
        "bound to 10.1.0.2:9000",
        "IgnoredMulti",
    ];
    let found = named(&report, "group-bind", Severity::High, &words);
    silent(&bound("239.1.1.1").examine("b"), "group-bind");
    row("group-bind", "a member bound to its unicast address", "doctor", found);
}

#[test]
fn group_that_is_joined_on_another_interface_is_named() {
    let joined = |address: &str| {
        let mut scene = Scene::new(&["a", "b", "c"]);
        scene.wire(("a", "eth0", "10.1.0.1/24"), ("b", "eth0", "10.1.0.2/24"));
        scene.wire(("c", "eth0", "10.3.0.1/24"), ("b", "eth1", "10.3.0.2/24"));
        scene.python("b", &receiver("0.0.0.0", 9000, &join("239.1.1.1", address), true));
        scene.python("a", &sender("239.1.1.1", 9000, 100, &by("10.1.0.1")));
        scene
    };
    let report = joined("10.3.0.2").examine("b");
    let words = ["239.1.1.1 is joined on eth1", "arrived on eth0", "InDelivers"];
    let found = named(&report, "group-interface", Severity::Low, &words);
    silent(&joined("10.1.0.2").examine("b"), "group-interface");
    row("group-interface", "a group joined on eth1, sent to eth0", "doctor", found);
}

#[test]
fn membership_that_the_network_may_ignore_is_named() {
    let mut scene = Scene::new(&["a", "b"]);
    scene.wire(("a", "eth0", ""), ("b", "eth0", ""));
    let by_index = "s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.1.1.1') + b'\\0' * 4 + \
                    struct.pack('i', socket.if_nametoindex('eth0')))";
    scene.python("b", &receiver("0.0.0.0", 9000, by_index, true));
    let report = scene.examine("b");
    let found =
        named(&report, "igmp-report", Severity::Low, &["eth0 has no IPv4 address", "239.1.1.1"]);
    let with_source = |version: u32| {
        let mut scene = Scene::pair();
        scene.sh("b", &format!("sysctl -qw net.ipv4.conf.eth0.force_igmp_version={version}"));
        let source = "s.setsockopt(0, 39, b''.join(map(socket.inet_aton, ['232.1.1.1', '10.1.0.2', '10.1.0.1'])))";
        scene.python("b", &receiver("0.0.0.0", 9000, source, true));
        scene
    };
    let words = ["IGMPv2", "force_igmp_version=0", "mcfilter"];
    named(&with_source(2).examine("b"), "igmp-report", Severity::Low, &words);
    silent(&with_source(0).examine("b"), "igmp-report");
    row("igmp-report", "a member without an address; a source with IGMPv2", "doctor", found);
}

#[test]
fn bridge_that_snoops_without_a_querier_and_a_fast_leave_are_named() {
    let bridged = |querier: u32| {
        let mut scene = Scene::new(&["a", "r", "b"]);
        scene.wire(("a", "eth0", "10.1.0.1/24"), ("r", "left", ""));
        scene.wire(("b", "eth0", "10.1.0.2/24"), ("r", "right", ""));
        scene.sh(
            "r",
            &format!("ip link add br0 type bridge mcast_snooping 1 mcast_querier {querier}"),
        );
        scene.sh("r", "for i in left right br0; do test $i = br0 || ip link set $i master br0; ip link set $i up; done");
        scene.python("b", &receiver("0.0.0.0", 9000, &join("239.1.1.1", "10.1.0.2"), true));
        scene.python("a", &sender("239.1.1.1", 9000, 100, &by("10.1.0.1")));
        scene
    };
    let scene = bridged(0);
    let report = scene.examine("r");
    let words = ["bridge br0", "no querier", "mcast_querier 1", "mcast_querier 0"];
    let found = named(&report, "snooping", Severity::Low, &words);
    let twin = bridged(1);
    silent(&twin.examine("r"), "snooping");
    twin.sh("r", "bridge link set dev right fastleave on");
    for last in 1..3 {
        twin.sh("r", &format!("bridge fdb add 02:00:00:00:00:0{last} dev right master dynamic"));
    }
    let words = ["hosts behind right", "fast_leave 1", "fastleave off"];
    named(&twin.examine("r"), "snooping", Severity::Low, &words);
    row("snooping", "a snooping bridge without querier, 500 frames a second", "doctor", found);
}

/// Python that sends UDP with this checksum, or with a right one, by a raw socket.
pub(crate) fn raw_sender(from: &str, to: &str, is_right: bool) -> String {
    // Zero is none, which is right. The kernel checks datagrams above 76 bytes at the socket.
    let sum = if is_right { 0 } else { 0x1234 };
    format!(
        "import socket, struct, time\ns = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)\n\
         s.bind(('{from}', 0))\nprint('ready')\nwhile True:\n    \
         s.sendto(struct.pack('!HHHH', 5000, 9000, 108, {sum}) + b'x' * 100, ('{to}', 0))\n    time.sleep(0.005)"
    )
}

#[test]
fn wrong_checksums_are_named_with_the_socket() {
    let sent = |is_right| {
        let mut scene = Scene::pair();
        scene.python("b", &receiver("0.0.0.0", 9000, "", true));
        scene.python("a", &raw_sender("10.1.0.1", "10.1.0.2", is_right));
        scene
    };
    let report = sent(false).examine("b");
    let words = ["wrong checksum", "UdpInCsumErrors", "UDP port 9000 of python3", "tx off"];
    let found = named(&report, "checksum", Severity::High, &words);
    silent(&sent(true).examine("b"), "checksum");
    row("checksum", "a raw socket with a wrong sum", "doctor", found);
}

#[test]
fn two_programs_on_one_port_are_named() {
    let shared = |name: &str| {
        let mut scene = Scene::pair();
        scene.python("b", &receiver("10.1.0.2", 9000, "", true));
        let renamed = format!("open('/proc/self/comm', 'w').write('{name}')");
        scene.python("b", &receiver("10.1.0.2", 9000, &renamed, true));
        scene.python("a", &sender("10.1.0.2", 9000, 100, ""));
        scene
    };
    let report = shared("other").examine("b");
    let found =
        named(&report, "udp-shared-port", Severity::Low, &["python3", "other", "10.1.0.2:9000"]);
    silent(&shared("python3").examine("b"), "udp-shared-port");
    row("udp-shared-port", "two programs with SO_REUSEADDR", "doctor", found);
}

#[test]
fn flow_that_falls_to_one_of_several_sockets_is_named() {
    let workers = |reads| {
        let mut scene = Scene::pair();
        let others = "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)\n\
                      s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\nothers = []\nfor i in range(3):\n    \
                      o = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    \
                      o.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n    others.append(o)";
        let program = receiver("0.0.0.0", 9000, others, false);
        let then = if reads {
            "import select\nwhile True:\n    for one in select.select(others + [s], [], [])[0]:\n        one.recv(9000)"
        } else {
            "time.sleep(60)"
        };
        let bind = "s.bind(('0.0.0.0', 9000))\nfor o in others:\n    o.bind(('0.0.0.0', 9000))";
        let program =
            program.replace("s.bind(('0.0.0.0', 9000))", bind).replace("time.sleep(60)", then);
        scene.python("b", &program);
        scene.python("a", &sender("10.1.0.2", 9000, 1400, "s.bind(('10.1.0.1', 5000))"));
        scene
    };
    let scene = workers(false);
    await_drops(&scene);
    let report = scene.examine("b");
    let words = ["3 of the 4 sockets of UDP 0.0.0.0:9000 are idle", "python3"];
    let found = named(&report, "reuseport-imbalance", Severity::High, &words);
    silent(&workers(true).examine("b"), "reuseport-imbalance");
    row("reuseport-imbalance", "four SO_REUSEPORT sockets, one flow", "doctor", found);
}

#[test]
fn full_send_buffer_is_named_with_the_shaper_behind_it() {
    let sends = |shaped: bool| {
        let mut scene = Scene::pair();
        scene.python("b", &receiver("0.0.0.0", 9000, "", true));
        if shaped {
            scene.sh("a", "tc qdisc add dev eth0 root tbf rate 200kbit burst 1600 limit 1mb");
        }
        let options =
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8000)\ns.setblocking(False)";
        scene.python("a", &sender("10.1.0.2", 9000, 1000, options));
        scene
    };
    let report = sends(true).examine("a");
    let words = ["python3", "wmem_max", "SndbufErrors", "drops of tbf", "SO_SNDBUF"];
    let found = named(&report, "udp-sndbuf", Severity::High, &words);
    silent(&sends(false).examine("a"), "udp-sndbuf");
    row("udp-sndbuf", "SO_SNDBUF 8,000 before a slow shaper", "doctor", found);
}

/// A server with two addresses, and clients that ask the second.
fn second_address(bind: &str) -> Scene {
    let mut scene = Scene::pair();
    scene.sh("b", "ip addr add 10.1.0.3/24 dev eth0");
    scene.python(
        "b",
        &format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('{bind}', 5353))\nprint('ready')\n\
             while True:\n    d, a = s.recvfrom(2000)\n    s.sendto(d, a)"
        ),
    );
    scene.python(
        "a",
        "import socket, time\nprint('ready')\nwhile True:\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    \
         s.connect(('10.1.0.3', 5353))\n    s.settimeout(0.02)\n    s.send(b'?')\n    try: s.recv(2000)\n    \
         except OSError: pass\n    time.sleep(0.02)",
    );
    scene
}

#[test]
fn answers_from_another_address_are_named() {
    let report = second_address("").examine("b");
    let words =
        ["UDP port 5353 of python3", "10.1.0.2, 10.1.0.3", "port unreachable", "IP_PKTINFO"];
    let found = named(&report, "answers-refused", Severity::Medium, &words);
    silent(&second_address("10.1.0.3").examine("b"), "answers-refused");
    row("answers-refused", "socket of any address, clients of the second one", "doctor", found);
}
