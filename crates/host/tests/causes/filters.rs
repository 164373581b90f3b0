//! Planted causes of filters, address translation and connection tracking.

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};

/// Enters rules in a namespace, in the form of `nft -f`.
fn nft(scene: &Scene, name: &str, rules: &str) {
    scene.sh(name, &format!("nft -f - <<'RULES'\n{rules}\nRULES"));
}

/// Sends a datagram each 5 ms from one socket, whatever becomes of them.
fn send_datagrams(scene: &mut Scene, from: &str, to: &str, port: u16) {
    let program = format!(
        "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 40000))\nprint('ready')\n\
         while True:\n    try: s.sendto(b'x' * 100, ('{to}', {port}))\n    except OSError: pass\n    time.sleep(0.005)"
    );
    scene.python(from, &program);
}

/// A socket that is bound and read.
pub(super) fn receive_datagrams(scene: &mut Scene, name: &str, port: u16) {
    let program = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', {port}))\nprint('ready')\n\
         while True: s.recv(2000)"
    );
    scene.python(name, &program);
}

/// Answers each datagram.
fn answer_datagrams(scene: &mut Scene, name: &str, port: u16) {
    let program = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', {port}))\nprint('ready')\n\
         while True:\n    _, client = s.recvfrom(2000)\n    s.sendto(b'y', client)"
    );
    scene.python(name, &program);
}

/// Connects again and again, each time from another port, and gives up after a while.
fn connect_again(scene: &mut Scene, from: &str, to: &str, port: u16) {
    let program = format!(
        "import socket, time\nprint('ready')\nopen = []\nwhile True:\n    s = socket.socket()\n    s.setblocking(False)\n    \
         s.connect_ex(('{to}', {port}))\n    open.append(s)\n    if len(open) > 200: open.pop(0).close()\n    time.sleep(0.02)"
    );
    scene.python(from, &program);
}

/// Accepts all connections.
fn serve(scene: &mut Scene, name: &str, port: u16) {
    let program = format!(
        "import socket\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\ns.bind(('', {port}))\n\
         s.listen(500)\nprint('ready')\nopen = []\nwhile True:\n    open.append(s.accept()[0])\n    \
         if len(open) > 200: open.pop(0).close()"
    );
    scene.python(name, &program);
}

const DNAT: &str = "table ip nat {\nchain pre {\ntype nat hook prerouting priority -100;\n\
                    udp dport 9000 dnat to 10.2.0.1\n}\n}";

#[test]
fn udp_stream_to_a_target_that_no_rule_has_any_more_is_named() {
    let mut scene = Scene::routed();
    nft(&scene, "r", DNAT);
    receive_datagrams(&mut scene, "b", 9000);
    send_datagrams(&mut scene, "a", "10.1.0.254", 9000);
    // A stream without an answer is no fault while its rule is there.
    silent(&scene.examine("r"), "udp-stale-ct");
    nft(&scene, "r", &format!("flush ruleset\n{}", DNAT.replace("10.2.0.1", "10.2.0.7")));
    let report = scene.examine("r");
    let words =
        ["10.1.0.1:40000", "10.1.0.254:9000", "10.2.0.1", "conntrack -D -p udp", "UNREPLIED"];
    let found = named(&report, "udp-stale-ct", Severity::High, &words);
    row("udp-stale-ct", "DNAT of a running stream, then another target", "doctor", found);
}

#[test]
fn udp_stream_that_began_before_its_rule_is_named() {
    let mut scene = Scene::routed();
    nft(
        &scene,
        "r",
        "table ip t {\nchain pre {\ntype filter hook prerouting priority 0;\nct state new accept\n}\n}",
    );
    send_datagrams(&mut scene, "a", "10.1.0.254", 9000);
    nft(&scene, "r", DNAT);
    let words = ["began before the rule", "10.1.0.254:9000"];
    let report = scene.examine("r");
    let found = named(&report, "udp-stale-ct", Severity::High, &words);
    // A container engine's rule, with conditions; a map; and one for another port.
    let instead = |rule| {
        let rules = DNAT.replace("udp dport 9000 dnat to 10.2.0.1", rule);
        nft(&scene, "r", &format!("flush ruleset\n{rules}"));
        scene.examine("r")
    };
    let report_of_docker =
        instead("iifname != \"docker0\" udp dport 9000 counter dnat to 10.2.0.1:9001");
    named(&report_of_docker, "udp-stale-ct", Severity::High, &words);
    let report_of_map = instead("dnat to udp dport map { 9000 : 10.2.0.1, 9001 : 10.2.0.1 }");
    named(&report_of_map, "udp-stale-ct", Severity::High, &words);
    let twin = instead("udp dport 9002 dnat to 10.2.0.1");
    // Nothing listens on the router, which is another cause.
    assert!(twin.passed.contains(&"udp-stale-ct"), "{twin:#?}");
    row("udp-stale-ct", "a running stream, then a rule of DNAT for it", "doctor", found);
}

/// A router that masquerades, behind which a client and a server exchange; segments far outside of the window come to the
/// router's own address.
fn masquerade(extra: &str) -> Scene {
    let mut scene = Scene::routed();
    let rules = format!(
        "table ip nat {{\nchain post {{\ntype nat hook postrouting priority 100;\noifname \"right\" masquerade\n}}\n}}\n{extra}"
    );
    nft(&scene, "r", &rules);
    serve(&mut scene, "b", 8080);
    scene.python(
        "a",
        "import socket, time\ns = socket.socket()\ns.bind(('10.1.0.1', 41000))\ns.connect(('10.2.0.1', 8080))\n\
         print('ready')\ntime.sleep(60)",
    );
    scene.python(
        "b",
        "import socket, struct, time\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)\n\
         def sum16(d):\n    t = sum(struct.unpack('!%dH' % (len(d) // 2), d))\n    t = (t >> 16) + (t & 0xffff)\n    \
         return ~(t + (t >> 16)) & 0xffff\n\
         a, b = socket.inet_aton('10.2.0.1'), socket.inet_aton('10.2.0.254')\nprint('ready')\nn = 0\n\
         while True:\n    n += 1\n    h = struct.pack('!HHIIBBHHH', 8080, 41000, (n * 77777777) & 0xffffffff, (n * 99999999) & 0xffffffff, 0x50, 0x10, 500, 0, 0)\n    \
         c = sum16(a + b + struct.pack('!HH', 6, 20) + h)\n    s.sendto(h[:16] + struct.pack('!H', c) + h[18:], ('10.2.0.254', 0))\n    \
         time.sleep(0.02)",
    );
    scene
}

const DROP_INVALID: &str = "table ip f {\nchain in {\ntype filter hook input priority 0;\nct state invalid counter drop\n}\n}";

#[test]
fn segments_that_are_not_translated_and_reset_are_named() {
    let report = masquerade("").examine("r");
    let words = ["belonged to no tracked connection", "OutRsts", "be_liberal=1"];
    let found = named(&report, "ct-invalid", Severity::High, &words);
    let twin = masquerade(DROP_INVALID).examine("r");
    assert!(!twin.findings.iter().any(|found| found.cause == "ct-invalid"), "{:#?}", twin.findings);
    row("ct-invalid", "masquerade, segments far outside of the window", "doctor", found);
}

/// A router on the way of one direction only, which drops what it cannot track.
fn one_way(rules: &str) -> Scene {
    let mut scene = Scene::routed();
    scene.wire(("a", "direct", "10.3.0.1/24"), ("b", "direct", "10.3.0.2/24"));
    for name in ["a", "b"] {
        scene.sh(name, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.direct.rp_filter=0");
    }
    scene.sh("b", "ip route replace 10.1.0.0/24 via 10.3.0.1");
    nft(&scene, "r", rules);
    serve(&mut scene, "b", 8080);
    let client = "import socket, time\nprint('ready')\nopen = []\nwhile True:\n    s = socket.socket()\n    \
                  s.setblocking(False)\n    s.connect_ex(('10.2.0.1', 8080))\n    open.append(s)\n    time.sleep(0.02)\n    \
                  try: s.send(b'x' * 100)\n    except OSError: pass\n    \
                  if len(open) > 200: open.pop(0).close()";
    scene.python("a", client);
    scene
}

#[test]
fn rule_against_invalid_packets_that_meets_one_direction_is_named() {
    let rules = "table ip f {\nchain way {\ntype filter hook forward priority 0;\nct state invalid counter drop\n}\n}";
    let report = one_way(rules).examine("r");
    let words = ["chain way of table ip f", "only one direction", "delete rule ip f way handle"];
    let found = named(&report, "ct-drop-rule", Severity::High, &words);
    silent(&one_way(&rules.replace("counter drop", "counter accept")).examine("r"), "ct-drop-rule");
    row("ct-drop-rule", "replies around the router that drops ct state invalid", "doctor", found);
}

#[test]
fn policy_of_the_forward_chain_that_drops_is_named() {
    let scene = || {
        let mut scene = Scene::routed();
        receive_datagrams(&mut scene, "b", 9000);
        send_datagrams(&mut scene, "a", "10.2.0.1", 9000);
        scene
    };
    let rules = |accepted: &str| {
        format!(
            "table ip filter {{\nchain FORWARD {{\ntype filter hook forward priority 0; policy drop;\niifname \"{accepted}\" accept\n}}\n}}"
        )
    };
    let faulty = scene();
    nft(&faulty, "r", &rules("docker0"));
    let report = faulty.examine("r");
    let words = ["policy of chain FORWARD of table ip filter", "nft insert rule ip filter FORWARD"];
    let found = named(&report, "forward-policy", Severity::High, &words);
    let twin = scene();
    nft(&twin, "r", &rules("left"));
    silent(&twin.examine("r"), "forward-policy");
    row("forward-policy", "router with a forward chain of policy drop", "doctor", found);
}

/// A bridge with two ports, and a service whose address is the bridge's.
fn hairpin(masquerade: &str) -> Scene {
    let mut scene = Scene::new(&["a", "r", "b"]);
    scene.wire(("a", "eth0", "10.1.0.1/24"), ("r", "pa", ""));
    scene.wire(("b", "eth0", "10.1.0.2/24"), ("r", "pb", ""));
    scene.sh(
        "r",
        "ip link add br0 type bridge && ip link set pa master br0 && ip link set pb master br0",
    );
    scene.sh("r", "ip addr add 10.1.0.254/24 dev br0 && ip link set br0 up && sysctl -qw net.ipv4.ip_forward=1");
    let (_, _) = scene.try_sh("r", "sysctl -qw net.bridge.bridge-nf-call-iptables=0");
    nft(
        &scene,
        "r",
        &format!(
            "table ip nat {{\nchain pre {{\ntype nat hook prerouting priority -100;\ntcp dport 80 dnat to 10.1.0.2:8080\n}}\n\
             chain post {{\ntype nat hook postrouting priority 100;\n{masquerade}\n}}\n}}"
        ),
    );
    serve(&mut scene, "b", 8080);
    connect_again(&mut scene, "a", "10.1.0.254", 80);
    scene
}

#[test]
fn answer_that_is_bridged_around_the_translation_is_named() {
    let report = hairpin("").examine("r");
    let words =
        ["10.1.0.1 gets no answer from 10.1.0.254:80", "10.1.0.2:8080", "behind br0", "masquerade"];
    let found = named(&report, "bridge-nf-off", Severity::High, &words);
    silent(
        &hairpin("ip saddr 10.1.0.0/24 ip daddr 10.1.0.2 masquerade").examine("r"),
        "bridge-nf-off",
    );
    row("bridge-nf-off", "DNAT between two ports of one bridge", "doctor", found);
}

fn rules(count: usize, first: &str) -> String {
    let rules: String =
        (0..count).map(|at| format!("ip saddr 198.18.{}.{} drop\n", at / 250, at % 250)).collect();
    format!(
        "table ip many {{\nchain in {{\ntype filter hook input priority 0;\n{first}\n{rules}}}\n}}"
    )
}

#[test]
fn thousands_of_rules_in_turn_are_named_and_those_behind_an_early_decision_are_low() {
    let scene = Scene::new(&["a"]);
    nft(&scene, "a", &rules(2000, ""));
    let report = scene.examine("a");
    let words =
        ["2000 firewall rules in turn at the hook input", "ip many in (input)", "sets and maps"];
    let found = named(&report, "rule-count", Severity::Medium, &words);
    let twin = Scene::new(&["a"]);
    nft(&twin, "a", &rules(2000, "ct state established accept"));
    named(&twin.examine("a"), "rule-count", Severity::Low, &["each later packet with 1"]);
    let twin = Scene::new(&["a"]);
    nft(
        &twin,
        "a",
        "table ip few {\nset s {\ntype ipv4_addr\nelements = { 198.18.0.1, 198.18.0.2 }\n}\n\
                     chain in {\ntype filter hook input priority 0;\nip saddr @s drop\n}\n}",
    );
    silent(&twin.examine("a"), "rule-count");
    row("rule-count", "2,000 rules", "doctor", found);
}

/// Many connections through a router that masquerades to a range of ports.
fn crowd(ports: &str) -> Scene {
    let mut scene = Scene::routed();
    nft(
        &scene,
        "r",
        &format!(
            "table ip nat {{\nchain post {{\ntype nat hook postrouting priority 100;\nip protocol tcp masquerade {ports}\n}}\n}}"
        ),
    );
    serve(&mut scene, "b", 8080);
    connect_again(&mut scene, "a", "10.2.0.1", 8080);
    scene
}

#[test]
fn more_connections_than_source_ports_are_named() {
    let report = crowd("to :5000-5003").examine("r");
    let words =
        ["source port was taken", "chain post of table ip nat", "insert_failed", "fully-random"];
    let found = named(&report, "snat-collision", Severity::High, &words);
    silent(&crowd("").examine("r"), "snat-collision");
    row("snat-collision", "masquerade to four ports", "doctor", found);
}

#[test]
fn sends_that_a_rule_at_output_refuses_are_named() {
    let scene = |verdict: &str| {
        let mut scene = Scene::pair();
        let rules = format!(
            "table inet own {{\nchain out {{\ntype filter hook output priority 0;\nudp dport 9000 {verdict}\n}}\n}}"
        );
        nft(&scene, "a", &rules);
        receive_datagrams(&mut scene, "b", 9000);
        send_datagrams(&mut scene, "a", "10.1.0.2", 9000);
        scene
    };
    let report = scene("drop").examine("a");
    let words =
        ["EPERM", "chain out of table inet own", "OutDiscards", "delete rule inet own out handle"];
    let found = named(&report, "send-eperm", Severity::High, &words);
    silent(&scene("accept").examine("a"), "send-eperm");
    row("send-eperm", "output rule", "doctor", found);
}

#[test]
fn connects_that_a_rule_at_output_drops_name_the_program() {
    let mut scene = Scene::pair();
    nft(
        &scene,
        "a",
        "table inet own {\nchain out {\ntype filter hook output priority 0;\ntcp dport 8080 drop\n}\n}",
    );
    connect_again(&mut scene, "a", "10.1.0.2", 8080);
    // The first retransmission is after a second.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    named(
        &scene.examine("a"),
        "send-eperm",
        Severity::High,
        &["python3", "to port 8080", "TCPRetransFail"],
    );
}

#[test]
fn rule_that_drops_what_a_program_waits_for_is_named_with_and_without_a_counter() {
    let scene = |rule: &str| {
        let mut scene = Scene::pair();
        nft(
            &scene,
            "b",
            &format!(
                "table inet own {{\nchain in {{\ntype filter hook input priority 0;\n{rule}\n}}\n}}"
            ),
        );
        receive_datagrams(&mut scene, "b", 9000);
        send_datagrams(&mut scene, "a", "10.1.0.2", 9000);
        scene
    };
    let words = [
        "chain in of table inet own",
        "UDP port 9000 of python3",
        "nft delete rule inet own in handle",
    ];
    let report = scene("udp dport 9000 counter drop").examine("b");
    let found = named(&report, "drop-rule", Severity::High, &words);
    named(&scene("udp dport 9000 drop").examine("b"), "drop-rule", Severity::High, &words);
    silent(&scene("udp dport 9000 counter accept").examine("b"), "drop-rule");
    row("drop-rule", "input rule that drops the port of a listener", "doctor", found);
}

/// Enters a rule of iptables-legacy in the table `filter`: `accept` in front of the policy of INPUT. False if this kernel has
/// no legacy tables.
fn enter_legacy_rule(scene: &Scene, name: &str) -> bool {
    // struct ipt_entry of 112 bytes with a target of 40; four rules of the chains' own, and an end of 176 bytes.
    let program = "
import ctypes, socket, struct, sys
def entry(verdict):
    return bytes(84) + struct.pack('=IHHI', 0, 112, 152, 0) + bytes(16) + struct.pack('=H', 40) + bytes(30) + struct.pack('=i', verdict) + bytes(4)
accept = -2
end = bytes(84) + struct.pack('=IHHI', 0, 112, 176, 0) + bytes(16) + struct.pack('=H', 64) + b'ERROR'.ljust(30, b'\\0') + b'ERROR'.ljust(32, b'\\0')
entries = entry(accept) * 4 + end
size = len(entries)
chains = struct.pack('=5I', 0, 0, 304, 456, 0)
under = struct.pack('=5I', 0, 152, 304, 456, 0)
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
info = ctypes.create_string_buffer(b'filter'.ljust(32, b'\\0') + bytes(52))
length = ctypes.c_int(84)
if libc.getsockopt(s.fileno(), 0, 64, info, ctypes.byref(length)) != 0: sys.exit('no table')
old = struct.unpack('=I', info.raw[76:80])[0]
counters = ctypes.create_string_buffer(16 * old)
head = b'filter'.ljust(32, b'\\0') + struct.pack('=III', 0xe, 5, size) + chains + under + struct.pack('=I', old)
head += bytes(-len(head) % 8) + struct.pack('=Q', ctypes.addressof(counters))
text = head + entries
if libc.setsockopt(s.fileno(), 0, 64, text, len(text)) != 0: sys.exit('replace: %d' % ctypes.get_errno())
";
    let (done, said) = scene.try_sh(name, &format!("python3 - <<'PROGRAM'\n{program}\nPROGRAM"));
    if !done && said.contains("no table") {
        testkit::skip("iptables-legacy", "this kernel has no legacy tables");
        return false;
    }
    assert!(done, "{said}");
    true
}

#[test]
fn rules_in_two_systems_are_named() {
    let rule = "table ip own {\nchain in {\ntype filter hook input priority 0;\nudp dport 9000 accept\n}\n}";
    let scene = Scene::new(&["a"]);
    if !enter_legacy_rule(&scene, "a") {
        return;
    }
    silent(&scene.examine("a"), "two-backends");
    nft(&scene, "a", rule);
    let report = scene.examine("a");
    let words =
        ["1 rules of iptables-legacy", "1 of nftables", "ip_tables_names: filter", "ip own in"];
    let found = named(&report, "two-backends", Severity::Low, &words);
    row("two-backends", "one rule by each", "doctor", found);
}

#[test]
fn strays_that_a_container_host_drops_are_no_alarm() {
    let mut scene = Scene::routed();
    nft(
        &scene,
        "r",
        "table ip filter {\nchain FORWARD {\ntype filter hook forward priority 0; policy drop;\nct state established,related accept\n\
         oifname \"right\" tcp dport 8080 accept\noifname \"right\" udp dport 9000 accept\n}\nchain INPUT {\n\
         type filter hook input priority 0;\nct state invalid counter drop\ntcp dport 22 counter drop\n}\n}\n\
         table ip nat {\nchain PRE {\ntype nat hook prerouting priority -100;\ntcp dport 80 dnat to 10.2.0.1:8080\n}\n\
         chain POST {\ntype nat hook postrouting priority 100;\noifname \"right\" masquerade\n}\n}",
    );
    scene.sh("r", "ip route add blackhole 10.244.0.0/16");
    answer_datagrams(&mut scene, "b", 9000);
    serve(&mut scene, "b", 8080);
    send_datagrams(&mut scene, "a", "10.2.0.1", 9000);
    connect_again(&mut scene, "a", "10.1.0.254", 80);
    scene.python(
        "a",
        "import socket, time\nprint('ready')\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nwhile True:\n    \
         for to in (('10.2.0.1', 5353), ('10.244.0.9', 9), ('10.1.0.254', 7)): s.sendto(b'stray', to)\n    \
         c = socket.socket()\n    c.setblocking(False)\n    c.connect_ex(('10.1.0.254', 22))\n    time.sleep(1)",
    );
    let report = scene.examine("r");
    let alarms =
        report.findings.iter().filter(|one| one.severity > Severity::Low && one.cause != "softnet");
    assert_eq!(alarms.collect::<Vec<_>>(), Vec::<&wirepath_host::causes::Finding>::new());
}

#[test]
fn answered_streams_and_open_connections_of_a_router_are_no_fault() {
    let mut scene = Scene::routed();
    nft(
        &scene,
        "r",
        &format!(
            "{DNAT}\ntable ip post {{\nchain post {{\ntype nat hook postrouting priority 100;\nmasquerade\n}}\n}}\n{DROP_INVALID}"
        ),
    );
    answer_datagrams(&mut scene, "b", 9000);
    send_datagrams(&mut scene, "a", "10.1.0.254", 9000);
    serve(&mut scene, "b", 8080);
    connect_again(&mut scene, "a", "10.2.0.1", 8080);
    let report = scene.examine("r");
    for cause in [
        "udp-stale-ct",
        "ct-invalid",
        "forward-policy",
        "ct-race",
        "snat-collision",
        "ct-full",
        "flowtable",
        "ct-drop-rule",
    ] {
        silent(&report, cause);
    }
}
