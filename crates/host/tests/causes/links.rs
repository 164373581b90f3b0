//! Planted causes of interfaces, their queues and offloads, and of clouds.

use std::fs;

use sys::netns::Netns;
use wirepath_host::causes::{Evidence, Sample, Severity, examine};
use wirepath_host::tune::{Place, Profile, System};

use crate::scene::{Scene, named, row, silent};

/// Sends UDP datagrams to port 9000 of 10.1.0.2 until it is ended.
///
/// - `per_s`: datagrams a second, sent in steps of 5 ms.
fn stream(scene: &mut Scene, from: &'static str, bytes: usize, per_s: usize) {
    let program = format!(
        "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ready')\nwhile True:\n    \
         for _ in range({}):\n        s.sendto(b'x' * {bytes}, ('10.1.0.2', 9000))\n    time.sleep(0.005)",
        per_s / 200
    );
    scene.python(from, &program);
}

/// Reads UDP datagrams of port 9000 as fast as it can.
pub(super) fn sink(scene: &mut Scene, at: &'static str) {
    scene.python(
        at,
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('0.0.0.0', 9000))\n\
         print('ready')\nwhile True:\n    s.recv(65536)",
    );
}

/// Evidence on a machine with these files whose interface `eth0` is that of namespace `a`.
pub(super) fn machine(
    scene: &Scene,
    files: &[(&str, &str)],
    profile: Option<Profile>,
) -> (tempfile::TempDir, Evidence) {
    let root = tempfile::tempdir().unwrap();
    let usual = [("sys/devices/system/cpu/online", "0-3\n"), ("sys/class/net/eth0/mtu", "1500\n")];
    for (path, text) in usual.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let netns = Netns::open(format!("/run/netns/{}", scene.netns("a"))).unwrap();
    let place = Place { netns: None, root: Some(root.path().into()) };
    let system = System::from_netns(netns, place).unwrap();
    let evidence = Evidence::new(system, Some("eth0"), profile, None).unwrap();
    (root, evidence)
}

/// As [`machine`], with a window of a second in which these counters grew from 1000.
pub(super) fn counted(
    scene: &Scene,
    files: &[(&str, &str)],
    profile: Option<Profile>,
    grown: &[(&str, u64)],
) -> (tempfile::TempDir, Evidence) {
    let (root, evidence) = machine(scene, files, profile);
    let netns = Netns::open(format!("/run/netns/{}", scene.netns("a"))).unwrap();
    let place = Place { netns: None, root: Some(root.path().into()) };
    let system = System::from_netns(netns, place).unwrap();
    let take = || Sample::take(&system).unwrap();
    let (mut before, mut after) = (take(), take());
    after.at = before.at + std::time::Duration::from_secs(1);
    for (name, count) in grown {
        before.counters.insert((*name).to_owned(), 1000);
        after.counters.insert((*name).to_owned(), 1000 + count);
    }
    (root, evidence.watched(before, after))
}

#[test]
fn queue_that_never_drains_is_named_with_its_delay() {
    let scene = |shaper: Option<&str>| {
        let mut scene = Scene::pair();
        if let Some(shaper) = shaper {
            scene.sh("a", &format!("tc qdisc add dev eth0 root {shaper}"));
        }
        sink(&mut scene, "b");
        stream(&mut scene, "a", 1000, 600);
        std::thread::sleep(std::time::Duration::from_millis(700));
        scene
    };
    let report = scene(Some("tbf rate 1mbit burst 4kb limit 500kb")).examine("a");
    let words = ["each packet that eth0 sends waits about", "tbf", "fq_codel"];
    let found = named(&report, "standing-queue", Severity::High, &words);
    let shaped =
        named(&report, "shaper", Severity::Medium, &["sends at most 1 Mbit/s", "tc qdisc del"]);
    let twin = scene(None).examine("a");
    silent(&twin, "standing-queue");
    silent(&twin, "shaper");
    row("standing-queue", "tbf of 1 Mbit/s, stream of 5 Mbit/s", "doctor", found);
    row("shaper", "tbf of 1 Mbit/s", "doctor", shaped);
}

#[test]
fn queue_beyond_the_host_shows_in_round_trips() {
    let scene = |shaper: &str| {
        let mut scene = Scene::routed();
        if !shaper.is_empty() {
            scene.sh("r", &format!("tc qdisc add dev right root {shaper}"));
        }
        scene.python(
            "b",
            "import socket\ns = socket.socket()\ns.bind(('10.2.0.1', 7000))\ns.listen()\nprint('ready')\nc = \
             s.accept()[0]\nwhile c.recv(65536):\n    pass",
        );
        // BBR keeps the queue short. The shortest round trip is that of the idle line.
        scene.python(
            "a",
            "import socket, time\ns = socket.socket()\ns.setsockopt(6, 13, b'cubic')\ns.connect(('10.2.0.1', \
             7000))\nfor _ in range(10):\n    \
             s.send(b'x' * 100)\n    time.sleep(0.02)\nprint('ready')\nwhile True:\n    s.send(b'x' * 20000)\n    \
             time.sleep(0.01)",
        );
        std::thread::sleep(std::time::Duration::from_millis(2000));
        scene
    };
    let report = scene("tbf rate 4mbit burst 10kb limit 400kb").examine("a");
    let words = ["packets to 10.2.0.1:7000 wait in a queue beyond this host", "min_rtt", "cake"];
    let found = named(&report, "standing-queue", Severity::Medium, &words);
    silent(&scene("").examine("a"), "standing-queue");
    row("standing-queue", "tbf of 4 Mbit/s at a router, TCP of 16 Mbit/s", "doctor", found);
}

#[test]
fn filter_at_ingress_that_drops_is_named() {
    let scene = |filter: bool| {
        let mut scene = Scene::pair();
        scene.sh("b", "tc qdisc add dev eth0 clsact");
        if filter {
            // Classic BPF that returns TC_ACT_SHOT.
            scene.sh("b", "tc filter add dev eth0 ingress protocol ip bpf bytecode '1,6 0 0 2' da");
        }
        sink(&mut scene, "b");
        stream(&mut scene, "a", 100, 400);
        scene
    };
    let report = scene(true).examine("b");
    let words = [
        "dropped by a filter or policer of tc at eth0 (clsact)",
        "tc -s filter show dev eth0 ingress",
    ];
    let found = named(&report, "qdisc-drops", Severity::High, &words);
    silent(&scene(false).examine("b"), "qdisc-drops");
    row("qdisc-drops", "clsact with a program that drops IPv4", "doctor", found);
}

#[test]
fn frames_that_no_protocol_takes_are_benign() {
    let scene = |ethertype: &str| {
        let mut scene = Scene::pair();
        let program = format!(
            "import socket, time\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('eth0', 0))\n\
             print('ready')\nwhile True:\n    s.send(b'\\xff' * 6 + b'\\x02' * 6 + {ethertype} + b'\\x00' * 60)\n    \
             time.sleep(0.02)"
        );
        scene.python("a", &program);
        scene
    };
    let report = scene("b'\\x88\\x99'").examine("b");
    let words = ["eth0 counts", "no program wants", "0800", "tcpdump -e"];
    let found = named(&report, "rx-dropped-benign", Severity::Info, &words);
    let alarms: Vec<_> =
        report.findings.iter().filter(|one| one.severity > Severity::Low).collect();
    assert!(alarms.iter().all(|one| one.cause == "softnet"), "{alarms:#?}");
    silent(&scene("b'\\x08\\x06'").examine("b"), "rx-dropped-benign");
    row("rx-dropped-benign", "50 frames a second of ethertype 0x8899", "doctor", found);
}

#[test]
fn tun_whose_program_reads_slowly_is_named_with_the_program() {
    let scene = |pause_s: f64| {
        let mut scene = Scene::new(&["a"]);
        let program = format!(
            "import fcntl, os, struct, subprocess, threading, time, socket\nf = os.open('/dev/net/tun', os.O_RDWR)\n\
             fcntl.ioctl(f, 0x400454ca, struct.pack('16sH', b'tun7', 0x1001))\nfor c in ('ip link set tun7 txqueuelen \
             50 up', 'ip addr add 10.7.0.1/24 dev tun7'):\n    subprocess.run(c.split(), check=True)\nprint('ready')\n\
             while True:\n    os.read(f, 2000)\n    time.sleep({pause_s})"
        );
        scene.python("a", &program);
        scene.python(
            "a",
            "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ready')\nwhile True:\n    \
             s.sendto(b'x' * 200, ('10.7.0.9', 9000))\n    time.sleep(0.002)",
        );
        std::thread::sleep(std::time::Duration::from_millis(300));
        scene
    };
    let report = scene(0.05).examine("a");
    let words = [
        "python3 (process",
        "reads tun7 too slowly",
        "50 may wait",
        "txqueuelen 2000",
        "txqueuelen 50",
    ];
    let found = named(&report, "tun-queue", Severity::High, &words);
    silent(&scene(0.0).examine("a"), "tun-queue");
    row("tun-queue", "a program that reads 20 packets a second of 500", "doctor", found);
}

#[test]
fn ends_of_a_veth_with_different_mtus_are_named_from_both_sides() {
    let scene = |bytes| {
        let mut scene = Scene::pair();
        scene.sh("b", "ip link set eth0 mtu 1000");
        sink(&mut scene, "b");
        stream(&mut scene, "a", bytes, 400);
        scene
    };
    let long = scene(1300);
    let report = long.examine("a");
    let words =
        ["packets of eth0 (MTU 1500) were dropped at its other end, whose MTU is 1000", "mtu 1000"];
    let found = named(&report, "mtu-mismatch", Severity::High, &words);
    let receiver = long.examine("b");
    named(
        &receiver,
        "mtu-mismatch",
        Severity::High,
        &["dropped at eth0, whose MTU is 1000", "mtu 1500"],
    );
    assert!(
        !receiver.findings.iter().any(|found| found.cause == "rx-dropped-benign"),
        "{receiver:#?}"
    );
    let short = scene(500);
    silent(&short.examine("a"), "mtu-mismatch");
    silent(&short.examine("b"), "mtu-mismatch");
    row("mtu-mismatch", "veth of 1500 and 1000 bytes, datagrams of 1300", "doctor", found);
}

#[test]
fn default_route_over_a_dead_link_is_named() {
    let scene = |dead: u32, alive: u32| {
        let scene = Scene::pair();
        scene.wire(("a", "eth1", "10.3.0.1/24"), ("b", "eth1", ""));
        scene.sh("b", "ip link set eth1 down");
        scene.sh("a", &format!("ip route add default via 10.3.0.2 dev eth1 metric {dead}"));
        scene.sh("a", &format!("ip route add default via 10.1.0.2 dev eth0 metric {alive}"));
        scene
    };
    let report = scene(10, 100).examine("a");
    let words = ["sent to eth1, which has no link", "metric 10", "ignore_routes_with_linkdown=1"];
    let found = named(&report, "route-without-link", Severity::Medium, &words);
    silent(&scene(100, 10).examine("a"), "route-without-link");
    row(
        "route-without-link",
        "default route of the smallest metric by a veth without carrier",
        "doctor",
        found,
    );
}

#[test]
fn virtual_path_without_segmentation_is_named_while_bulk_data_crosses() {
    let scene = |features: &str| {
        let mut scene = Scene::pair();
        scene.sh("a", &format!("ethtool -K eth0 {features}"));
        scene.python(
            "b",
            "import socket\ns = socket.socket()\ns.bind(('10.1.0.2', 7000))\ns.listen()\nprint('ready')\nc = \
             s.accept()[0]\nwhile c.recv(1 << 20):\n    pass",
        );
        scene.python(
            "a",
            "import socket\ns = socket.create_connection(('10.1.0.2', 7000))\nprint('ready')\nwhile True:\n    \
             s.sendall(b'x' * 1000000)",
        );
        scene
    };
    let report = scene("tso off gso off").examine("a");
    let words =
        ["eth0 hands over packets one by one", "tx-tcp-segmentation off", "ethtool -K eth0 tso on"];
    let found = named(&report, "offload-missing", Severity::Medium, &words);
    silent(&scene("tso on").examine("a"), "offload-missing");
    row("offload-missing", "TSO off at a veth, bulk TCP", "doctor", found);
}

#[test]
fn merged_datagrams_for_a_reader_of_frames_are_named() {
    let scene = |value: &str| {
        let mut scene = Scene::pair();
        scene.sh("b", &format!("ethtool -K eth0 gro on rx-udp-gro-forwarding {value}"));
        sink(&mut scene, "b");
        // ETH_P_IP, as a receiver of one protocol has it.
        scene.python(
            "b",
            "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))\ns.bind(('eth0', \
             0x800))\nprint('ready')\nwhile True:\n    s.recv(65536)",
        );
        stream(&mut scene, "a", 1000, 1000);
        scene
    };
    let report = scene("on").examine("b");
    let words = ["eth0 merges datagrams", "python3", "packet socket", "rx-udp-gro-forwarding off"];
    let found = named(&report, "udp-merge", Severity::Medium, &words);
    silent(&scene("off").examine("b"), "udp-merge");
    row("udp-merge", "rx-udp-gro-forwarding on, and a packet socket", "doctor", found);
}

#[test]
fn faults_of_a_real_card_are_named_by_its_files() {
    let scene = Scene::pair();
    let device = ("sys/class/net/eth0/device/vendor", "0x8086\n");
    let twin = examine(&machine(&scene, &[device], None).1);
    let asleep = ("sys/class/net/eth0/device/link/l1_aspm", "1\n");
    let errors = ("sys/class/net/eth0/device/aer_dev_correctable", "RxErr 3\nTOTAL_ERR_COR 7\n");
    let report = examine(&machine(&scene, &[asleep, errors], None).1);
    let words = [
        "sleeps when idle (l1_aspm)",
        "7 errors",
        "echo 0 > /sys/class/net/eth0/device/link/l1_aspm",
    ];
    row("aspm", "files of a card", "doctor", named(&report, "aspm", Severity::Low, &words));
    silent(&twin, "aspm");
    // A setting without a sign is a fact.
    let alone = examine(&machine(&scene, &[asleep], None).1);
    silent(&alone, "aspm");
    assert!(alone.facts.iter().any(|fact| fact.cause == "aspm"), "{:?}", alone.facts);

    let log =
        "4,900,90000000,-;NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out 5003 ms\n";
    let hang = [
        ("dev/kmsg", log),
        ("proc/uptime", "100.5 80.0\n"),
        ("sys/class/net/eth0/queues/tx-0/tx_timeout", "2\n"),
    ];
    let report = examine(&machine(&scene, &[device, hang[0], hang[1], hang[2]], None).1);
    let words = ["reset 2 times, 10 s ago", "NETDEV WATCHDOG", "ethtool -K eth0 tso off gso off"];
    row(
        "tx-hang",
        "kernel's log and tx_timeout",
        "doctor",
        named(&report, "tx-hang", Severity::High, &words),
    );
    let quiet = [device, ("dev/kmsg", "6,1,1,-;eth0: link up\n"), ("proc/uptime", "100.5 80.0\n")];
    silent(&examine(&machine(&scene, &quiet, None).1), "tx-hang");

    let mode = [("sys/class/net/eth0/speed", "100\n"), ("sys/class/net/eth0/duplex", "half\n")];
    let half = counted(&scene, &[device, mode[0], mode[1]], None, &[("link eth0 collisions", 40)]);
    let words = ["100 Mbit/s in half duplex", "collisions", "autoneg on"];
    row(
        "link-mode",
        "half duplex, collisions",
        "doctor",
        named(&examine(&half.1), "link-mode", Severity::High, &words),
    );
    silent(&twin, "link-mode");
}

#[test]
fn counters_of_a_real_card_are_named_while_they_grow() {
    let scene = Scene::pair();
    let device = ("sys/class/net/eth0/device/vendor", "0x8086\n");
    for (cause, counter, severity, words) in [
        (
            "silent-nic-drop",
            "ethtool eth0 rx_discards_phy",
            Severity::High,
            ["lost as rx_discards_phy", "ethtool -G"],
        ),
        (
            "pause",
            "ethtool eth0 pause tx_frames",
            Severity::Medium,
            ["this host is too slow", "ethtool -A eth0"],
        ),
        (
            "wire-errors",
            "link eth0 rx_crc_errors",
            Severity::High,
            ["damaged on the wire of eth0", "cable"],
        ),
        (
            "carrier-flaps",
            "link eth0 carrier_changes",
            Severity::High,
            ["the link of eth0 went up or down", "cable"],
        ),
    ] {
        let (_root, evidence) = counted(&scene, &[device], None, &[(counter, 300)]);
        let report = examine(&evidence);
        row(cause, "grown counter", "doctor", named(&report, cause, severity, &words));
        let (_root, evidence) = counted(&scene, &[device], None, &[]);
        silent(&examine(&evidence), cause);
    }
}

#[test]
fn stolen_time_of_a_virtual_machine_is_named() {
    let scene = Scene::pair();
    let vendor = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
    let grown = [("cpu steal", 30), ("cpu idle", 70)];
    let (_root, evidence) = counted(&scene, &[vendor], None, &grown);
    let report = examine(&evidence);
    let found = named(&report, "steal", Severity::High, &["30 % of the CPU time", "QEMU"]);
    let (_root, evidence) = counted(&scene, &[vendor], None, &[("cpu idle", 100)]);
    silent(&examine(&evidence), "steal");
    row("steal", "30 of 100 ticks", "doctor", found);
}

#[test]
fn port_of_a_bridge_that_does_not_forward_yet_is_named() {
    let scene = |stp: u32| {
        let scene = Scene::new(&["a", "b"]);
        scene.sh("a", &format!("ip link add br7 type bridge stp_state {stp} forward_delay 3000 && ip link set br7 up"));
        scene.wire(("a", "eth0", ""), ("b", "eth0", ""));
        scene.sh("a", "ip link set eth0 master br7");
        scene
    };
    let report = scene(1).examine("a");
    let words = [
        "port eth0 of bridge br7 is listening",
        "for 60 s",
        "forward_delay 200",
        "forward_delay 3000",
    ];
    let found = named(&report, "bridge-port", Severity::Medium, &words);
    silent(&scene(0).examine("a"), "bridge-port");
    row("bridge-port", "spanning tree with a forward delay of 30 s", "doctor", found);
}

#[test]
fn card_that_interrupts_for_each_packet_is_named() {
    let scene = Scene::pair();
    let irq = ("sys/class/net/eth0/device/msi_irqs/24", "msix\n");
    let grown = |interrupts| [("irq 24 cpu0", interrupts), ("link eth0 rx_packets", 60_000)];
    let (_root, evidence) = counted(&scene, &[irq], None, &grown(50_000));
    let report = examine(&evidence);
    let words = ["eth0 interrupts 50000 times a second, for 1.2 packets each", "ethtool -C eth0"];
    let found = named(&report, "irq-rate", Severity::Medium, &words);
    let (_root, evidence) = counted(&scene, &[irq], None, &grown(3_000));
    silent(&examine(&evidence), "irq-rate");
    row("irq-rate", "50,000 interrupts for 60,000 packets", "doctor", found);
}

#[test]
fn shaper_on_an_interface_without_a_queue_is_named() {
    let scene = |length| {
        let mut scene = Scene::pair();
        // A discipline sets a length of its own.
        scene.sh(
            "a",
            &format!(
                "tc qdisc add dev eth0 root handle 1: htb default 10 && ip link set eth0 txqueuelen {length} && \
                 tc class add dev eth0 parent 1: classid 1:10 htb rate 90mbit"
            ),
        );
        scene.python(
            "a",
            "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ready')\nwhile True:\n    \
             try: s.sendto(b'x' * 100, ('10.1.0.2', 9))\n    except OSError: pass\n    time.sleep(0.01)",
        );
        scene
    };
    let report = scene(0).examine("a");
    let words = ["its txqueuelen is 0", "htb", "ip link set eth0 txqueuelen 1000"];
    let found = named(&report, "shaper", Severity::High, &words);
    let twin = scene(1000).examine("a");
    assert!(twin.findings.iter().all(|found| found.severity < Severity::High), "{twin:#?}");
    row("shaper", "htb on an interface with txqueuelen 0", "doctor", found);
}
