//! Planted causes that the observer counts, on kernels that let no program trace functions too.

use std::time::Duration;

use sys::netns::Netns;
use testkit::{CONSTANT_HASH, bpf_object, is_installed};
use wirepath_host::causes::{self, Confidence, DoctorReport, Evidence, Severity};
use wirepath_host::observer::Observation;
use wirepath_host::scratch::Scratch;
use wirepath_host::tune::{Place, Profile, System};

use crate::scene::{Scene, named, row, silent};

/// Sends from 64 ports of `a` to `b` for as long as the scene lives, from one CPU.
const LOAD: &str = "
import os, socket, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
for s in sockets:
    s.connect(('10.1.0.2', 9000))
print('ready')
while True:
    for s in sockets:
        try:
            s.send(bytes(200))
        except OSError:
            pass
        time.sleep(0.002)
";

/// Two namespaces with traffic of 64 flows from `a` to `b`, which spreads it over these CPUs by RPS.
fn scene(rps_mask: &str) -> Scene {
    let mut scene = Scene::pair();
    scene.sh("b", &format!("echo {rps_mask} > /sys/class/net/eth0/queues/rx-0/rps_cpus"));
    scene.python(
        "b",
        "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                       s.bind(('10.1.0.2', 9000))\nprint('ready')\nwhile True: s.recv(2048)",
    );
    scene.python("a", LOAD);
    scene
}

/// Mask of all CPUs; `None` on a machine with one.
fn all_cpus() -> Option<String> {
    let count = std::thread::available_parallelism().unwrap().get().min(30);
    (count > 1).then(|| format!("{:x}", (1_u32 << count) - 1))
}

fn observe(scene: &Scene, name: &str, profile: Option<Profile>) -> DoctorReport {
    let evidence = scene.evidence(name, profile);
    let netns = Netns::open(format!("/run/netns/{}", scene.netns(name))).unwrap();
    let mut observation = Observation::start(Some(netns), 0).unwrap();
    observation.wait(Duration::from_millis(800), || false).unwrap();
    causes::examine(&evidence.observed(observation.finish().unwrap().0))
}

#[test]
fn one_queue_without_rps_and_a_mask_of_one_cpu_are_named_with_the_frames_of_their_cpu() {
    let Some(mask) = all_cpus() else { return };
    let twin = observe(&scene(&mask), "b", None);
    let off = observe(&scene("0"), "b", None);
    let words = ["eth0 has one receive queue and no RPS", "frames of 64 flows", "rps_cpus"];
    let found = named(&off, "receive-steering", Severity::Low, &words);
    assert_eq!(found.confidence, Confidence::Now);
    assert!(
        found.cost.as_ref().unwrap().contains("64 flows in the window, all on CPU"),
        "{found:?}"
    );
    silent(&twin, "receive-steering");
    row("receive-steering", "64 flows, one queue, no RPS", "doctor --observe", found);
    // For latency it is as it should be.
    let latency = observe(&scene("0"), "b", Some(Profile::Latency));
    assert!(!latency.findings.iter().any(|found| found.cause == "receive-steering"));

    let one = observe(&scene("1"), "b", None);
    let words = ["passes all packets to CPU 0", "frames of 64 flows"];
    let found = named(&one, "receive-steering", Severity::Low, &words);
    assert!(found.cost.as_ref().unwrap().contains("all on CPU 0"), "{found:?}");
    row("receive-steering", "64 flows, RPS mask of one CPU", "doctor --observe", found);
}

#[test]
fn one_hash_for_all_flows_is_named_with_both_counts() {
    let Some(mask) = all_cpus() else { return };
    if !["tc", "clang"].iter().all(|program| is_installed(program)) {
        return;
    }
    let twin = observe(&scene(&mask), "b", None);
    let planted = scene(&mask);
    let folder = Scratch::new().unwrap();
    let object = bpf_object(folder.path(), CONSTANT_HASH);
    let object = object.display();
    planted.sh("a", "tc qdisc add dev eth0 clsact");
    planted.sh("a", &format!("tc filter add dev eth0 egress bpf da obj {object} sec classifier"));
    let report = observe(&planted, "b", None);
    let words = ["the 64 flows that eth0 receives have 1 hash", "tc filter show dev eth0"];
    let found = named(&report, "constant-hash", Severity::Medium, &words);
    assert_eq!(found.confidence, Confidence::Now);
    silent(&twin, "constant-hash");
    row("constant-hash", "bpf_set_hash(1) at the sender, 64 flows", "doctor --observe", found);
}

#[test]
fn a_capture_and_empty_chains_are_named_with_the_frames_that_pass_them() {
    let Some(mask) = all_cpus() else { return };
    let quiet = scene(&mask);
    let twin = observe(&quiet, "b", None);
    drop(quiet);
    let mut planted = scene(&mask);
    planted.python(
        "b",
        "import socket, time\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\nprint('ready')\n\
         while True: s.recv(2048)",
    );
    planted.sh(
        "b",
        "nft 'table ip empty { chain before { type filter hook prerouting priority 0; }; \
         chain in { type filter hook input priority 0; }; }'",
    );
    let report = observe(&planted, "b", None);
    let found = named(
        &report,
        "taps",
        Severity::Medium,
        &["python3", "receives all packets on all interfaces"],
    );
    assert!(found.cost.as_ref().unwrap().contains("frames passed its filter"), "{found:?}");
    assert_eq!(found.confidence, Confidence::Now);
    silent(&twin, "taps");
    row("taps", "a packet socket for all protocols", "doctor --observe", found);
    let words = ["without a rule", "ip prerouting ran for", "delete table"];
    let found = named(&report, "hooks", Severity::Low, &words);
    assert!(found.cost.as_ref().unwrap().contains("for each received frame"), "{found:?}");
    silent(&twin, "hooks");
    row("hooks", "two chains without a rule", "doctor --observe", found);
}

/// `ap` bridges a wire from `a` into an unbound VXLAN whose far end is behind `b`: a host of containers.
fn container_host() -> Scene {
    let scene = Scene::new(&["a", "ap", "b"]);
    scene.wire(("a", "eth0", "10.1.0.1/24"), ("ap", "port", ""));
    scene.wire(("ap", "uplink", "10.2.0.1/24"), ("b", "eth0", "10.2.0.2/24"));
    scene.sh(
        "ap",
        "ip addr add 10.3.0.1/32 dev lo && ip route add 10.3.0.2/32 via 10.2.0.2 && \
         ip link add tun0 type vxlan id 7 local 10.3.0.1 remote 10.3.0.2 dstport 4789 && \
         ip link add br0 type bridge && ip link set port master br0 && ip link set tun0 master br0 && \
         ip link set br0 up && ip link set tun0 up",
    );
    scene
}

#[test]
fn a_plain_vxlan_of_a_container_host_is_no_fault_and_its_route_is_followed() {
    let scene = container_host();
    let place = Place { netns: Some(scene.netns("ap")), root: None };
    let examine_tunnel = || {
        let system = System::open(&place).unwrap();
        causes::examine(&Evidence::new(system, Some("tun0"), None, None).unwrap())
    };
    silent(&examine_tunnel(), "tunnel-headroom");
    if all_cpus().is_some() {
        // The interface below is that of the route to the far end, although the tunnel is bound to none.
        scene.sh("ap", "echo 1 > /sys/class/net/uplink/queues/rx-0/rps_cpus");
        named(&examine_tunnel(), "receive-steering", Severity::Low, &["RPS of queue uplink"]);
    }
}
