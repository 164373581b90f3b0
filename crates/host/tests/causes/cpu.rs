//! Planted causes of CPUs, interrupts and scheduling.

use std::fs;
use std::path::PathBuf;

use wirepath_host::causes::{Severity, examine};
use wirepath_host::tune::Profile;

use crate::links::{counted, machine, sink};
use crate::scene::{Scene, named, row, silent};

/// A control group of its own, removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// `None` if this machine's groups have no CPU controller that can be used without a change of theirs.
    fn new(quota_us: i64) -> Option<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("wpt-{}-{number}", std::process::id());
        let first = PathBuf::from("/sys/fs/cgroup/cpu").join(&name);
        if first.parent()?.join("cpu.cfs_quota_us").exists() {
            fs::create_dir(&first).ok()?;
            let group = Group(first);
            fs::write(group.0.join("cpu.cfs_quota_us"), quota_us.to_string()).unwrap();
            return Some(group);
        }
        let top = PathBuf::from("/sys/fs/cgroup");
        let offered = fs::read_to_string(top.join("cgroup.subtree_control")).ok()?;
        offered.split_whitespace().find(|controller| *controller == "cpu")?;
        fs::create_dir(top.join(&name)).ok()?;
        let group = Group(top.join(&name));
        let quota = if quota_us < 0 { "max".to_owned() } else { quota_us.to_string() };
        fs::write(group.0.join("cpu.max"), format!("{quota} 100000")).unwrap();
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its process has been ended and may need a moment to leave.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// A program that never waits in a group with this quota, and its process id. The group is removed after the program.
fn with_quota(quota_us: i64) -> Option<(Scene, Group, u32)> {
    let group = Group::new(quota_us)?;
    let mut scene = Scene::pair();
    let pid = scene.start("a", "python3 -c 'while True: pass'");
    fs::write(group.0.join("cgroup.procs"), pid.to_string()).unwrap();
    // A group without a quota has no periods; one with a quota, from its first one on.
    for _ in 0..500 {
        let stat = fs::read_to_string(group.0.join("cpu.stat")).unwrap();
        if quota_us < 0 || !stat.contains("nr_periods 0\n") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Some((scene, group, pid))
}

#[test]
fn program_that_its_quota_stops_is_named() {
    let Some(planted) = with_quota(5000) else {
        return testkit::skip("cgroup", "no CPU controller for new control groups");
    };
    let report = planted.0.examine("a");
    let process = format!("(process {}) is stopped by the CPU quota", planted.2);
    let words = [&process, "nr_throttled", planted.1.0.to_str().unwrap()];
    let found = named(&report, "cfs", Severity::High, &words);
    drop(planted);
    let twin = with_quota(-1).unwrap();
    silent(&twin.0.examine("a"), "cfs");
    row("cfs", "a quota of 5 %, and a program that never waits", "doctor", found);
}

#[test]
fn program_that_captures_too_slowly_is_named() {
    let scene = |pause_s: f64| {
        let mut scene = Scene::pair();
        // ETH_P_IP: a socket for all protocols has a finding of its own.
        let program = format!(
            "import socket, time\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))\n\
             s.setsockopt(1, 8, 8192)\nprint('ready')\nwhile True:\n    s.recv(65536)\n    time.sleep({pause_s})"
        );
        scene.python("b", &program);
        // The packets themselves reach a program.
        sink(&mut scene, "b");
        scene.python(
            "a",
            "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ready')\nwhile \
             True:\n    s.sendto(b'x' * 500, ('10.1.0.2', 9000))\n    time.sleep(0.005)",
        );
        std::thread::sleep(std::time::Duration::from_millis(300));
        scene
    };
    let report = scene(0.2).examine("b");
    let words = ["python3 (process", "misses packets", "SK_MEMINFO_DROPS", "SO_RCVBUF"];
    let found = named(&report, "capture-ring", Severity::High, &words);
    silent(&scene(0.0).examine("b"), "capture-ring");
    row("capture-ring", "a packet socket of 16 KB that is read 5 times a second", "doctor", found);
}

/// A middle that passes frames between two others by hand, and lets every fifth one be overtaken.
fn swapping(is_swapping: bool) -> Scene {
    let mut scene = Scene::new(&["a", "r", "b"]);
    scene.wire(("a", "eth0", "10.1.0.1/24"), ("r", "left", ""));
    scene.wire(("b", "eth0", "10.1.0.2/24"), ("r", "right", ""));
    // Frames leave whole: as long as the MTU, and with their checksums.
    for name in ["a", "b"] {
        scene.sh(name, "ethtool -K eth0 tx off");
    }
    let program = format!(
        "import select, socket\ndef at(name):\n    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)\n    \
         s.setsockopt(263, 23, 1)\n    s.bind((name, 3))\n    return s\nl, r = at('left'), at('right')\nprint('ready')\n\
         held, count = None, 0\nwhile True:\n    for s in select.select([l, r], [], [], 0.005)[0]:\n        f = \
         s.recv(65536)\n        if s is r:\n            l.send(f)\n            continue\n        count += 1\n        if \
         {} and held is None and count % 5 == 0:\n            held = f\n            continue\n        r.send(f)\n        \
         if held:\n            r.send(held)\n            held = None",
        if is_swapping { "True" } else { "False" }
    );
    scene.python("r", &program);
    scene.python(
        "b",
        "import socket\ns = socket.socket()\ns.bind(('10.1.0.2', 7000))\ns.listen()\nprint('ready')\nc = \
         s.accept()[0]\nwhile c.recv(65536):\n    pass",
    );
    scene.python(
        "a",
        "import socket, time\ns = socket.create_connection(('10.1.0.2', 7000))\ns.setsockopt(6, 1, 1)\n\
         print('ready')\nwhile True:\n    s.send(b'x' * 10000)\n    time.sleep(0.01)",
    );
    scene
}

#[test]
fn packets_that_overtake_each_other_are_named() {
    let report = swapping(true).examine("a");
    let words = ["overtake each other", "TcpExtTCPSACKReorder", "rps_cpus"];
    let found = named(&report, "reorder-cpu", Severity::Medium, &words);
    silent(&swapping(false).examine("a"), "reorder-cpu");
    row("reorder-cpu", "a middle that lets every fifth frame be overtaken", "doctor", found);
}

#[test]
fn interrupts_of_another_node_are_named() {
    let scene = Scene::pair();
    let files = |cpus| {
        [
            ("sys/class/net/eth0/device/numa_node", "1\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            ("sys/class/net/eth0/device/msi_irqs/24", "msix\n"),
            ("proc/irq/24/effective_affinity_list", cpus),
        ]
    };
    let grown = [("irq 24 cpu0", 500)];
    let (_root, evidence) = counted(&scene, &files("0\n"), None, &grown);
    let report = examine(&evidence);
    let words = [
        "interrupt 24 at CPU 0",
        "numa_node 1",
        "echo 2,3 > /proc/irq/24/smp_affinity_list",
        "echo 0 >",
    ];
    let found = named(&report, "irq-place", Severity::Medium, &words);
    silent(&examine(&machine(&scene, &files("2\n"), None).1), "irq-place");
    row("irq-place", "files of a machine with two nodes", "doctor", found);
}

#[test]
fn sleep_between_packets_is_named_with_its_exit_latency() {
    let scene = Scene::pair();
    // A CPU that the machine does not have: its own packets do not count.
    let files = [
        ("sys/devices/system/cpu/cpu9/cpuidle/state0/usage", "0\n"),
        ("sys/devices/system/cpu/cpu9/cpuidle/state1/usage", "0\n"),
        ("sys/devices/system/cpu/cpu9/cpuidle/state1/latency", "133\n"),
        ("sys/devices/system/cpu/cpu9/cpuidle/state1/name", "C6\n"),
    ];
    let grown = [("idle cpu9 state1", 80), ("softnet cpu9 processed", 100)];
    for (profile, severity) in [(Some(Profile::Latency), Severity::Medium), (None, Severity::Low)] {
        let (_root, evidence) = counted(&scene, &files, profile, &grown);
        let report = examine(&evidence);
        let words = ["CPU 9 sleeps in C6 between packets", "waits 133 us", "cpu_dma_latency"];
        let found = named(&report, "c-states", severity, &words);
        row("c-states", "files of a CPU, 80 entries a second", "doctor", found);
        let (_root, evidence) = counted(&scene, &files, profile, &[("idle cpu9 state1", 80)]);
        assert!(
            !examine(&evidence).findings.iter().any(|found| found.cause == "c-states"),
            "no packets"
        );
    }
}

#[test]
fn one_cpu_that_does_all_the_work_is_named() {
    let scene = Scene::pair();
    let queue = [("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n")];
    let packets = [
        ("softnet cpu2 processed", 300_000),
        ("softnet cpu0 processed", 900),
        ("link eth0 rx_packets", 290_000),
    ];
    let time = [("cpu2 softirq", 95), ("cpu2 idle", 5)];
    let grown: Vec<(&str, u64)> = packets.iter().chain(&time).copied().collect();
    let (_root, evidence) = counted(&scene, &queue, None, &grown);
    let report = examine(&evidence);
    let words = [
        "CPU 2 processes 99 % of all packets",
        "95 % of its time",
        "eth0 has 1 receive queue",
        "echo f >",
    ];
    let found = named(&report, "one-cpu", Severity::High, &words);
    // Packets of another namespace are not this one's.
    let others: Vec<(&str, u64)> =
        grown.iter().filter(|(name, _)| !name.starts_with("link")).copied().collect();
    let (_root, evidence) = counted(&scene, &queue, None, &others);
    silent(&examine(&evidence), "one-cpu");
    row("one-cpu", "counters of a CPU with 99 % of the packets", "doctor", found);
}
