//! The forwarder against the kernel's VXLAN device: three namespaces, one of which has nothing
//! but us in it.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use host::lab::{End, PairSpec, Triple};
use host::net::{self, ethtool};
use io::XdpMode;
use io::forward::{Pool, PortSpec, TunnelFrames, open_port};
use wirepath_paths::tunnel::decap::DecapSpec;
use wirepath_paths::tunnel::encap::Encap;
use wirepath_paths::tunnel::fdb::{Fdb, FdbSpec};
use wirepath_paths::tunnel::forward::{
    Forwarder, ForwarderSpec, PolicerSpec, RulesSpec, Tuning, Worker,
};
use wirepath_paths::tunnel::order::OrderSpec;
use wirepath_paths::tunnel::qos::{Classifier, QueueSpec, Shaper, TokenBucket};
use wirepath_paths::tunnel::spec::{Carrier, Outer, Tunnel};

const OURS: &str = "10.99.0.1";
const THEIRS: &str = "10.99.0.2";
const VNI: u32 = 42;
/// Inner packets of 1500 bytes fit with their outer headers.
const UNDERLAY_MTU: u16 = 1600;

/// One lab at a time: there are few CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static LAB: Mutex<()> = Mutex::new(());
    LAB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command in this thread's namespace; what it prints, if it succeeds.
fn run(command: &str) -> Result<String, String> {
    let mut words = command.split_whitespace();
    let out = Command::new(words.next().unwrap_or_default())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command}: {error}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    match out.status.success() {
        true => Ok(text),
        false => Err(format!("{command}: {text}{}", String::from_utf8_lossy(&out.stderr))),
    }
}

fn ip(arguments: &str) {
    run(&format!("ip {arguments}")).expect("ip does it");
}

/// Whether the programs that the test needs are there; says which are not.
fn has(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs
        .iter()
        .filter(|name| Command::new(name).arg("--version").output().is_err())
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(std::io::stderr(), "skipped: {missing:?} are not installed");
    }
    missing.is_empty()
}

/// A host, the middle, and a host behind a kernel's VXLAN device. No offload leaves a frame
/// unfinished: what we forward goes on as it is.
fn lab() -> Triple {
    let spec = PairSpec { mtu_bytes: UNDERLAY_MTU.into(), tso: false, ..PairSpec::default() };
    let lab = Triple::new(&spec).expect("the lab can be built");
    let (near_mac, far_mac) = (mac(&lab.near), mac(&lab.far));
    lab.near.set_feature(ethtool::Feature::TX_CHECKSUM, false).expect("veth has it");
    lab.far.set_feature(ethtool::Feature::TX_CHECKSUM, false).expect("veth has it");
    lab.near
        .run(|| {
            ip("link set wp-near mtu 1500");
            // Asked for through the tunnel.
            ip("neigh del 10.77.0.2 dev wp-near");
        })
        .expect("the namespace is there");
    let under_mac = mac(&lab.middle.far_if);
    lab.far
        .run(|| {
            ip("addr del 10.77.0.2/24 dev wp-far");
            ip(&format!("addr add {THEIRS}/24 dev wp-far"));
            ip(&format!("neigh replace {OURS} lladdr {under_mac} dev wp-far nud permanent"));
            ip(&format!(
                "link add vx0 type vxlan id {VNI} local {THEIRS} remote {OURS} dstport 4789 \
                 dev wp-far"
            ));
            ip(&format!("link set vx0 address {far_mac} mtu 1500 up"));
            ip("addr add 10.77.0.2/24 dev vx0");
            let vx0 = net::link_named("vx0").expect("it was made").index;
            let off = [ethtool::Feature::TX_CHECKSUM, ethtool::Feature::GSO];
            ethtool::set_features(vx0, &off.map(|name| (name, false))).expect("vxlan has them");
        })
        .expect("the namespace is there");
    assert_ne!(near_mac, far_mac);
    lab
}

fn mac(end: &End) -> String {
    wirepath_paths::tunnel::fdb::Mac(end.mac).to_string()
}

fn port(end: &End, frames: TunnelFrames, mode: XdpMode) -> PortSpec {
    PortSpec {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        queue: 0,
        queues: 1,
        mode,
        copying: io::Copying::Copy,
        frames,
        fill_target: 1024,
    }
}

/// Forwards with so many workers while `body` runs; gives its result and the counters.
fn forwarding<T>(
    lab: &Triple,
    mode: XdpMode,
    workers: usize,
    body: impl FnOnce() -> T,
) -> (T, Vec<(&'static str, u64)>) {
    forwarding_with(lab, mode, workers, |_| {}, body)
}

/// As above, with something else in the forwarder.
fn forwarding_with<T>(
    lab: &Triple,
    mode: XdpMode,
    workers: usize,
    tweak: impl FnOnce(&mut ForwarderSpec),
    body: impl FnOnce() -> T,
) -> (T, Vec<(&'static str, u64)>) {
    let pool = Pool::allocate(2048, 8192).expect("16 MiB are there");
    let address = |text: &str| text.parse::<IpAddr>().expect("it is an address");
    let carrier = Carrier::Vxlan { vni: VNI };
    let tunnel = Tunnel { local: address(OURS), remote: address(THEIRS), carrier };
    let middle = &lab.middle;
    let tunnels = TunnelFrames::Tunnels { vxlan_port: 4789, gre: true };
    let (near, far) =
        (port(&middle.near_if, TunnelFrames::All, mode), port(&middle.far_if, tunnels, mode));
    let ports = middle.netns.run(|| {
        let near = open_port(&pool, &near, None).expect("the port opens");
        let far = open_port(&pool, &far, Some(&near.rx)).expect("the underlay opens");
        (near, far)
    });
    let (near, far) = ports.expect("the namespace is there");
    let mut spec = ForwarderSpec {
        rules: RulesSpec {
            encaps: vec![encap(lab, tunnel)],
            decap: DecapSpec { tunnels: vec![tunnel], ..DecapSpec::default() },
            learns: true,
            classifier: Classifier::new(0),
            policer: None,
        },
        fdb: Fdb::new(FdbSpec { entry_count_max: 256, ageing_ns: 60_000_000_000, seed: 1 }),
        shaper: None,
        order: OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: 5_000_000_000 },
        tuning: Tuning::default(),
    };
    tweak(&mut spec);
    let forwarder = Forwarder::new(&pool, near, far, spec).expect("the order is in range");
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut worker = Worker::default();
                while !stop.load(Ordering::Relaxed) {
                    let now_ns = io::clock::monotonic_ns();
                    if forwarder.turn(&mut worker, now_ns).expect("the links are up") == 0 {
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stop.store(true, Ordering::Relaxed);
        result
    });
    let counts = forwarder.counts();
    for books in forwarder.books() {
        assert_eq!(books.in_flight_frames(), 0, "{books:?}");
        assert_eq!((books.passed_count, books.undelivered_frames), (0, 0), "{books:?}");
    }
    let balance = pool.balance();
    assert!(balance.balances(), "{balance:?}");
    drop(forwarder);
    match result {
        Ok(result) => (result, counts),
        Err(panic) => {
            let _ = writeln!(std::io::stderr(), "counters: {counts:?}");
            std::panic::resume_unwind(panic)
        }
    }
}

/// Into a tunnel whose other end is, or would be, behind the far host's interface.
fn encap(lab: &Triple, tunnel: Tunnel) -> Encap {
    let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    let outer = Outer { mtu_bytes: UNDERLAY_MTU, ..suggested };
    Encap::new(tunnel, outer).expect("the tunnel is a good one")
}

fn count(counts: &[(&str, u64)], name: &str) -> u64 {
    counts.iter().find(|(known, _)| *known == name).map(|(_, count)| *count).expect("it is there")
}

#[test]
fn pings_pass_through_our_tunnel_and_the_kernel_s_both_ways() {
    let _alone = alone();
    if !has(&["ip", "ping"]) {
        return;
    }
    let lab = lab();
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let ((), counts) = forwarding(&lab, mode, 1, || {
            let there = lab.near.run(|| run("ping -c 5 -i 0.05 -W 2 10.77.0.2"));
            there.expect("the namespace is there").expect("every ping is answered");
            // The largest that needs no fragments, and none allowed.
            let largest = lab.far.run(|| run("ping -c 3 -i 0.05 -W 2 -s 1472 -M do 10.77.0.1"));
            largest.expect("the namespace is there").expect("every ping is answered");
        });
        assert!(count(&counts, "into_tunnels_sent") >= 8, "{counts:?}");
        assert!(count(&counts, "out_of_tunnels_sent") >= 8, "{counts:?}");
        for bad in ["ip_checksum", "udp_checksum", "unknown_tunnel", "looped", "too_big"] {
            assert_eq!(count(&counts, bad), 0, "{counts:?}");
        }
    }
}

/// Runs iperf3 between the two hosts; its report.
fn iperf3(lab: &Triple, arguments: &str) -> serde_json::Value {
    let server = lab.far.run(|| {
        Command::new("iperf3")
            .args(["-s", "-1", "-B", "10.77.0.2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("iperf3 starts")
    });
    let mut server = server.expect("the namespace is there");
    let mut report = Err("not tried".to_owned());
    for _ in 0..50 {
        // Until the server listens.
        thread::sleep(Duration::from_millis(100));
        report = lab
            .near
            .run(|| run(&format!("iperf3 -c 10.77.0.2 --json -t 1 {arguments}")))
            .expect("the namespace is there");
        if !report.as_ref().is_err_and(|error| error.contains("refused")) {
            break;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    serde_json::from_str(&report.expect("iperf3 succeeds")).expect("it is JSON")
}

#[test]
fn tcp_and_udp_pass_through_our_tunnel_and_the_kernel_s_both_ways() {
    let _alone = alone();
    if !has(&["ip", "iperf3"]) {
        return;
    }
    let lab = lab();
    for workers in [1, 2] {
        for arguments in ["", "-R", "-u -b 20M -l 1400", "-u -b 20M -l 1400 -R"] {
            let (report, counts) =
                forwarding(&lab, XdpMode::Native, workers, || iperf3(&lab, arguments));
            let end = &report["end"];
            if arguments.contains("-u") {
                let sum = &end["sum"];
                assert!(sum["packets"].as_u64() > Some(500), "{arguments}: {sum}");
                assert!(sum["lost_percent"].as_f64() < Some(50.0), "{arguments}: {sum} {counts:?}");
                let disorder = end["streams"][0]["udp"]["out_of_order"].as_u64();
                assert_eq!(disorder, Some(0), "{arguments}, {workers} workers: {end}");
            } else {
                let bytes = end["sum_received"]["bytes"].as_u64();
                assert!(bytes > Some(1_000_000), "{arguments}: {end} {counts:?}");
            }
            assert_eq!(count(&counts, "into_tunnels_ring_full"), 0, "{counts:?}");
        }
    }
}

#[test]
fn frame_to_nobody_known_goes_into_every_tunnel_and_a_learnt_one_into_its_own() {
    let _alone = alone();
    if !has(&["ip", "ping"]) {
        return;
    }
    let lab = lab();
    let two_tunnels = |spec: &mut ForwarderSpec| {
        let known = *spec.rules.encaps[0].tunnel();
        // A second end that nobody is at; its frames reach the far host, and no device there.
        let remote = "10.99.0.3".parse().expect("it is an address");
        let nobody = Tunnel { remote, ..known };
        spec.rules.encaps.push(encap(&lab, nobody));
        spec.rules.decap.tunnels.push(nobody);
    };
    let ((), counts) = forwarding_with(&lab, XdpMode::Skb, 1, two_tunnels, || {
        let pings = lab.near.run(|| run("ping -c 20 -i 0.02 -W 2 10.77.0.2"));
        pings.expect("the namespace is there").expect("every ping is answered");
    });
    // At least the question for the address; later frames have a place to go.
    let (flooded, sent) = (count(&counts, "flooded"), count(&counts, "into_tunnels_sent"));
    assert!((1..10).contains(&flooded), "{counts:?}");
    assert!(sent >= 20 + flooded, "two copies of each: {counts:?}");
    assert_eq!(count(&counts, "into_tunnels_copy_failed"), 0, "{counts:?}");
}

#[test]
fn shaper_drops_the_tail_and_what_passes_is_in_order() {
    let _alone = alone();
    if !has(&["ip", "iperf3"]) {
        return;
    }
    let lab = lab();
    let slow = |spec: &mut ForwarderSpec| {
        let queue = QueueSpec { frame_count_max: 64, byte_count_max: 1 << 20 };
        let bucket = TokenBucket::new(4_000_000, 20_000, io::clock::monotonic_ns());
        spec.shaper = Some(Shaper::new(Some(bucket), 24, &[queue]));
    };
    let (report, counts) =
        forwarding_with(&lab, XdpMode::Skb, 2, slow, || iperf3(&lab, "-u -b 20M -l 1400"));
    let end = &report["end"];
    assert!(count(&counts, "into_tunnels_tail_drop") > 100, "{counts:?}");
    assert!(end["sum"]["lost_percent"].as_f64() > Some(50.0), "{end}");
    assert_eq!(end["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{end}");
}

#[test]
fn policer_before_the_restoration_leaves_holes_and_what_passes_is_in_order() {
    let _alone = alone();
    if !has(&["ip", "iperf3"]) {
        return;
    }
    let lab = lab();
    let slow = |spec: &mut ForwarderSpec| {
        spec.rules.policer = Some(PolicerSpec { rate_bits_per_s: 4_000_000, burst_bytes: 20_000 });
    };
    let (report, counts) =
        forwarding_with(&lab, XdpMode::Skb, 2, slow, || iperf3(&lab, "-u -b 20M -l 1400"));
    let end = &report["end"];
    assert!(count(&counts, "policed") > 100, "{counts:?}");
    assert_eq!(count(&counts, "into_tunnels_tail_drop"), 0, "{counts:?}");
    assert!(end["sum"]["lost_percent"].as_f64() > Some(50.0), "{end}");
    assert_eq!(end["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{end}");
}

#[test]
fn whatever_share_is_dropped_inside_the_order_nothing_stalls_and_each_frame_is_accounted_for() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    const COUNT: u32 = 2000;
    let lab = lab();
    let known =
        format!("neigh replace 10.77.0.2 lladdr {} dev wp-near nud permanent", mac(&lab.far));
    lab.near.run(|| ip(&known)).expect("the namespace is there");
    let receiver = lab
        .far
        .run(|| UdpSocket::bind(("10.77.0.2", 9)).expect("the address is there"))
        .expect("the namespace is there");
    receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    for percent in [0, 1, 50, 99, 100] {
        let police = |spec: &mut ForwarderSpec| spec.tuning.police_percent = percent;
        let (sent, seen) = (AtomicBool::new(false), AtomicU32::new(0));
        let (got, counts) = forwarding_with(&lab, XdpMode::Skb, 2, police, || {
            thread::scope(|scope| {
                // Read as they come: the socket holds but a few hundred.
                let got = scope.spawn(|| {
                    let (mut got, mut bytes) = (Vec::new(), [0; 4]);
                    loop {
                        let is_last = sent.load(Ordering::Relaxed);
                        match receiver.recv(&mut bytes) {
                            Ok(_) => {
                                got.push(u32::from_be_bytes(bytes));
                                seen.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(_) if is_last => return got,
                            Err(_) => {}
                        }
                    }
                });
                let send = || {
                    let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
                    for n in 0..COUNT {
                        socket.send_to(&n.to_be_bytes(), ("10.77.0.2", 9)).expect("a route");
                        // No more on their way than the receiver's socket holds.
                        while n % 64 == 63 && !is_idle(&seen) {}
                    }
                };
                let sending = lab.near.run(send);
                sent.store(true, Ordering::Relaxed);
                sending.expect("the namespace is there");
                got.join().expect("it ends")
            })
        });
        assert!(got.is_sorted_by(|a, b| a < b), "{percent} %: in order, none twice");
        let (policed, sent) = (count(&counts, "policed"), count(&counts, "into_tunnels_sent"));
        // What the host said beside our datagrams.
        let strays = (policed + sent).checked_sub(COUNT.into()).expect("all were taken in");
        assert!(strays < 10, "{percent} %: {counts:?}");
        let passed = u64::from(COUNT).saturating_sub(policed);
        assert!(
            (passed..=passed + strays).contains(&(got.len() as u64)),
            "{percent} %: {counts:?}"
        );
        let share = policed as f64 / f64::from(COUNT) * 100.0;
        assert!((share - f64::from(percent)).abs() < 5.0, "{percent} %: {counts:?}");
        match percent {
            0 => assert_eq!(policed, 0),
            100 => assert_eq!(sent, 0),
            _ => assert!(policed > 0 && sent > 0, "{counts:?}"),
        }
    }
}

/// Whether a count stands still for a while.
fn is_idle(count: &AtomicU32) -> bool {
    let before = count.load(Ordering::Relaxed);
    thread::sleep(Duration::from_millis(10));
    before == count.load(Ordering::Relaxed)
}
