//! The forwarder against the kernel's VXLAN device, in three namespaces. The middle one contains
//! only the forwarder.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host::net::{self, ethtool};
use io::XdpMode;
use io::forward::{
    FastSpec, Pool, PortSpec, TunnelCarrier, TunnelFrames, TunnelId, open_fast_ports, open_port,
};
use lab::{End, PairSpec, Triple};
use wirepath_forward::decap::DecapSpec;
use wirepath_forward::encap::{Encap, Mark, Place};
use wirepath_forward::fdb::{Fdb, FdbSpec};
use wirepath_forward::forwarder::{
    Forwarder, ForwarderSpec, PolicerSpec, RulesSpec, Tuning, Worker, ecn_table,
};
use wirepath_forward::order::OrderSpec;
use wirepath_forward::qos::{Classifier, QueueSpec, RATE_BITS_PER_S_MAX, Shaper, TokenBucket};
use wirepath_forward::spec::{Carrier, Outer, Tunnel};
use wirepath_forward::tcx::open_tcx_ports;

#[path = "forward/domains.rs"]
mod domains;
#[path = "forward/esp.rs"]
mod esp;
#[path = "forward/fast.rs"]
mod fast;
#[path = "forward/gateway.rs"]
mod gateway;
#[path = "forward/overlay.rs"]
mod overlay;
#[path = "forward/pmtu.rs"]
mod pmtu;
#[path = "forward/queues.rs"]
mod queues;

const OURS: &str = "10.99.0.1";
const THEIRS: &str = "10.99.0.2";
const VNI: u32 = 42;
/// Room for inner packets of 1500 bytes with their outer headers.
const UNDERLAY_MTU: u16 = 1600;

/// Runs one lab at a time: there are few CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static LAB: Mutex<()> = Mutex::new(());
    LAB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command in this thread's namespace. Returns its output if it succeeds.
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

/// Pings until each of the first `count` requests is answered. Errors: its output.
///
/// - `more`: further arguments of ping.
fn ping(count: u64, more: &str) -> Result<(), String> {
    let said = run(&format!("ping -c {count} -w 10 {more}"))?;
    if testkit::unanswered(&said, count).is_empty() { Ok(()) } else { Err(said) }
}

fn ip(arguments: &str) {
    run(&format!("ip {arguments}")).expect("ip succeeds");
}

/// True if the programs are installed; reports the missing ones.
fn has(programs: &[&str]) -> bool {
    programs.iter().all(|program| testkit::is_installed(program))
}

/// A host, the forwarder's namespace, and a host behind a kernel VXLAN device. Offloads are off, so
/// that no frame is incomplete: the forwarder sends frames as they are.
fn lab() -> Triple {
    lab_of(1)
}

/// The same with several queues of each interface.
fn lab_of(queues: u32) -> Triple {
    let mtu_bytes = UNDERLAY_MTU.into();
    let spec = PairSpec { mtu_bytes, queues, tso: false, ..PairSpec::default() };
    let lab = Triple::new(&spec).expect("the lab can be built");
    let (near_mac, far_mac) = (mac(&lab.near), mac(&lab.far));
    lab.near.set_feature(ethtool::Feature::TX_CHECKSUM, false).expect("veth has the feature");
    lab.far.set_feature(ethtool::Feature::TX_CHECKSUM, false).expect("veth has the feature");
    lab.near
        .run(|| {
            ip("link set wp-near mtu 1500");
            // Has to be resolved through the tunnel.
            ip("neigh del 10.77.0.2 dev wp-near");
        })
        .expect("the namespace exists");
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
            let vx0 = net::link_named("vx0").expect("it was created").index;
            let off = [ethtool::Feature::TX_CHECKSUM, ethtool::Feature::GSO];
            ethtool::set_features(vx0, &off.map(|name| (name, false)))
                .expect("vxlan has the features");
        })
        .expect("the namespace exists");
    assert_ne!(near_mac, far_mac);
    lab
}

fn mac(end: &End) -> String {
    wirepath_forward::fdb::Mac(end.mac).to_string()
}

fn port(end: &End, frames: TunnelFrames, mode: XdpMode) -> PortSpec {
    PortSpec {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        queues: end.queues,
        mode,
        copying: io::Copying::Copy,
        frames,
        fill_target: 1024,
    }
}

/// Forwards with `workers` threads while `body` runs. Returns its result and the counters.
fn forwarding<T>(
    lab: &Triple,
    mode: XdpMode,
    workers: usize,
    body: impl FnOnce() -> T,
) -> (T, Vec<(&'static str, u64)>) {
    forwarding_with(lab, mode, workers, |_| {}, |_| body())
}

/// Like [`forwarding`], with a changed specification.
fn forwarding_with<T>(
    lab: &Triple,
    mode: XdpMode,
    workers: usize,
    tweak: impl FnOnce(&mut ForwarderSpec),
    body: impl FnOnce(&Forwarder) -> T,
) -> (T, Vec<(&'static str, u64)>) {
    forwarding_by(lab, Ports::Xdp(mode), workers, tweak, body)
}

/// The forwarder's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    Xdp(XdpMode),
    /// XDP programs that forward, and AF_XDP behind them.
    InKernel,
    /// tcx programs that forward, and TAP devices behind them.
    Tcx,
}

/// Like [`forwarding_with`], by ports of any kind; `body` gets the forwarder.
fn forwarding_by<T>(
    lab: &Triple,
    ports: Ports,
    workers: usize,
    tweak: impl FnOnce(&mut ForwarderSpec),
    body: impl FnOnce(&Forwarder<'_>) -> T,
) -> (T, Vec<(&'static str, u64)>) {
    let mode = match ports {
        Ports::Xdp(mode) => mode,
        Ports::InKernel | Ports::Tcx => XdpMode::Native,
    };
    let pool = Pool::allocate(2048, 8192).expect("16 MiB are available");
    let address = |text: &str| text.parse::<IpAddr>().expect("valid address");
    let carrier = Carrier::Vxlan { vni: VNI };
    let tunnel = Tunnel { local: address(OURS), remote: address(THEIRS), carrier };
    let middle = &lab.middle;
    // Those of the rules, once these are known.
    let tunnels = TunnelFrames::Tunnels { vxlan_port: 4789, ids: Vec::new() };
    let (near, far) =
        (port(&middle.near_if, TunnelFrames::All, mode), port(&middle.far_if, tunnels, mode));
    let ports = middle.netns.run(|| {
        let fast = FastSpec {
            station_count_max: 256,
            inner_bytes_max: 1518,
            vxlan_port: 4789,
            ecn: ecn_table(),
        };
        if ports == Ports::Tcx {
            let interfaces =
                [&middle.near_if, &middle.far_if].map(|end| (end.ifindex, end.mtu_bytes));
            let ([near, far], path) =
                open_tcx_ports(&pool, interfaces, true, &fast).expect("the ports open");
            return (near, far, Some(path));
        }
        if ports == Ports::InKernel {
            let ([near, far], path) =
                open_fast_ports(&pool, [&near, &far], &fast).expect("the ports open");
            return (near, far, Some(path));
        }
        let near = open_port(&pool, &near, None).expect("the port opens");
        let far = open_port(&pool, &far, Some(&near.rx)).expect("the underlay opens");
        (near, far, None)
    });
    let (near, far, fast) = ports.expect("the namespace exists");
    let mut spec = ForwarderSpec {
        rules: RulesSpec {
            keepalives: Vec::new(),
            encaps: vec![encap(lab, tunnel)],
            vlans: Vec::new(),
            associations: Vec::new(),
            decap: DecapSpec { tunnels: vec![tunnel], ..DecapSpec::default() },
            learns: true,
            classifier: Classifier::new(0),
            policer: None,
        },
        fdb: Fdb::new(FdbSpec { entry_count_max: 256, ageing_ns: 60_000_000_000, seed: 1 }),
        shaper: None,
        order: OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: 5_000_000_000 },
        tuning: Tuning::default(),
        fast,
    };
    tweak(&mut spec);
    let id = |tunnel: &Tunnel| TunnelId { local: tunnel.local, carrier: tunnel.carrier.into() };
    let ids: Vec<_> = spec.rules.decap.tunnels.iter().map(id).collect();
    let forwarder = Forwarder::new(&pool, near, far, spec).expect("the order is in range");
    if let [_, Some(filter)] = forwarder.filters() {
        filter.set_tunnels(&ids).expect("there is room");
    }
    let attached = middle.netns.run(|| forwarder.attach(XdpMode::Native));
    attached.expect("the namespace exists").expect("the programs attach");
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut worker = Worker::default();
                while !stop.load(Ordering::Relaxed) {
                    let now_ns = sys::clock::monotonic_ns();
                    if forwarder.turn(&mut worker, now_ns).expect("the links are up") == 0 {
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&forwarder)));
        stop.store(true, Ordering::Relaxed);
        result
    });
    let counts = forwarder.counts();
    for books in forwarder.counters() {
        assert_eq!(books.in_flight_frames(), 0, "{books:?}");
        assert_eq!((books.timed_out_count, books.undelivered_frames), (0, 0), "{books:?}");
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

/// Encapsulation for a tunnel whose remote end is reached through the far host's interface.
fn encap(lab: &Triple, tunnel: Tunnel) -> Encap {
    let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    let outer = Outer { mtu_bytes: UNDERLAY_MTU, ..suggested };
    Encap::new(tunnel, outer).expect("valid tunnel")
}

fn count(counts: &[(&str, u64)], name: &str) -> u64 {
    counts.iter().find(|(known, _)| *known == name).map(|(_, count)| *count).expect("it is there")
}

#[test]
fn pings_pass_between_forwarder_and_kernel_tunnel_both_ways() {
    let _alone = alone();
    if !has(&["ip", "ping"]) {
        return;
    }
    let lab = lab();
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let ((), counts) = forwarding(&lab, mode, 1, || {
            let there = lab.near.run(|| ping(5, "-i 0.05 10.77.0.2"));
            there.expect("the namespace exists").expect("every ping is answered");
            // The largest ping without fragmentation, with fragmentation forbidden.
            let largest = lab.far.run(|| ping(3, "-i 0.05 -s 1472 -M do 10.77.0.1"));
            largest.expect("the namespace exists").expect("every ping is answered");
        });
        assert!(count(&counts, "into_tunnels_sent") >= 8, "{counts:?}");
        assert!(count(&counts, "out_of_tunnels_sent") >= 8, "{counts:?}");
        for bad in ["ip_checksum", "udp_checksum", "unknown_tunnel", "looped", "too_big"] {
            assert_eq!(count(&counts, bad), 0, "{counts:?}");
        }
    }
}

/// Runs iperf3 between the two hosts. Returns its report.
fn iperf3(lab: &Triple, arguments: &str) -> serde_json::Value {
    let server = lab.far.run(|| {
        Command::new("iperf3")
            .args(["-s", "-1", "-B", "10.77.0.2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("iperf3 starts")
    });
    let mut server = server.expect("the namespace exists");
    let mut report = Err("not tried".to_owned());
    for _ in 0..50 {
        // Retries until the server listens.
        thread::sleep(Duration::from_millis(100));
        report = lab
            .near
            .run(|| run(&format!("iperf3 -c 10.77.0.2 --json -t 1 {arguments}")))
            .expect("the namespace exists");
        if !report.as_ref().is_err_and(|error| error.contains("refused")) {
            break;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    serde_json::from_str(&report.expect("iperf3 succeeds")).expect("it is JSON")
}

#[test]
fn tcp_and_udp_pass_between_forwarder_and_kernel_tunnel_both_ways() {
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
fn unknown_addresses_are_flooded_and_learnt_addresses_use_one_tunnel() {
    let _alone = alone();
    if !has(&["ip", "ping"]) {
        return;
    }
    let lab = lab();
    let two_tunnels = |spec: &mut ForwarderSpec| {
        let known = *spec.rules.encaps[0].tunnel();
        // A second tunnel without a device behind it: the far host drops its frames.
        let remote = "10.99.0.3".parse().expect("valid address");
        let unused = Tunnel { remote, ..known };
        spec.rules.encaps.push(encap(&lab, unused));
        spec.rules.decap.tunnels.push(unused);
    };
    let ((), counts) = forwarding_with(&lab, XdpMode::Skb, 1, two_tunnels, |_| {
        let pings = lab.near.run(|| ping(20, "-i 0.02 10.77.0.2"));
        pings.expect("the namespace exists").expect("every ping is answered");
    });
    // At least the ARP request is flooded; later frames have a known destination.
    let (flooded, sent) = (count(&counts, "flooded"), count(&counts, "into_tunnels_sent"));
    assert!((1..10).contains(&flooded), "{counts:?}");
    assert!(sent >= 20 + flooded, "two copies of each: {counts:?}");
    assert_eq!(count(&counts, "into_tunnels_copy_failed"), 0, "{counts:?}");
}

#[test]
fn shaper_drops_the_tail_and_keeps_the_order() {
    let _alone = alone();
    if !has(&["ip", "iperf3"]) {
        return;
    }
    let lab = lab();
    let slow = |spec: &mut ForwarderSpec| {
        let queue = QueueSpec { frame_count_max: 64, byte_count_max: 1 << 20 };
        let bucket = TokenBucket::new(4_000_000, 20_000, sys::clock::monotonic_ns());
        spec.shaper = Some(Shaper::new(Some(bucket), 24, &[queue]));
    };
    let (report, counts) =
        forwarding_with(&lab, XdpMode::Skb, 2, slow, |_| iperf3(&lab, "-u -b 20M -l 1400"));
    let end = &report["end"];
    assert!(count(&counts, "into_tunnels_tail_drop") > 100, "{counts:?}");
    assert!(end["sum"]["lost_percent"].as_f64() > Some(50.0), "{end}");
    assert_eq!(end["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{end}");
}

#[test]
fn policer_before_the_restoration_leaves_holes_and_keeps_the_order() {
    let _alone = alone();
    if !has(&["ip", "iperf3"]) {
        return;
    }
    let lab = lab();
    let slow = |spec: &mut ForwarderSpec| {
        spec.rules.policer = Some(PolicerSpec { rate_bits_per_s: 4_000_000, burst_bytes: 20_000 });
    };
    let (report, counts) =
        forwarding_with(&lab, XdpMode::Skb, 2, slow, |_| iperf3(&lab, "-u -b 20M -l 1400"));
    let end = &report["end"];
    assert!(count(&counts, "policed") > 100, "{counts:?}");
    assert_eq!(count(&counts, "into_tunnels_tail_drop"), 0, "{counts:?}");
    assert!(end["sum"]["lost_percent"].as_f64() > Some(50.0), "{end}");
    assert_eq!(end["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{end}");
}

#[test]
fn drops_inside_the_order_never_stall_it_and_every_frame_is_counted() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    const COUNT: u32 = 2000;
    // A frame above the burst never passes. Those below always do: at this rate the bucket is full
    // again after nanoseconds, and it holds a batch of each worker.
    let policer = PolicerSpec { rate_bits_per_s: RATE_BITS_PER_S_MAX, burst_bytes: 1400 };
    const BATCH_FRAMES: usize = 8;
    let lab = lab();
    let known =
        format!("neigh replace 10.77.0.2 lladdr {} dev wp-near nud permanent", mac(&lab.far));
    lab.near.run(|| ip(&known)).expect("the namespace exists");
    let receiver = lab
        .far
        .run(|| UdpSocket::bind(("10.77.0.2", 9)).expect("the address is there"))
        .expect("the namespace exists");
    receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    for percent in [0, 1, 50, 99, 100] {
        let police = |spec: &mut ForwarderSpec| {
            spec.rules.policer = Some(policer);
            spec.tuning.batch_frames = BATCH_FRAMES;
        };
        // Spread evenly, and the same in every run.
        let is_large = |n: u32| (n.wrapping_mul(0x9e37_79b9) >> 16) % 100 < percent;
        let large_count = (0..COUNT).filter(|n| is_large(*n)).count() as u64;
        let (sent, seen) = (AtomicBool::new(false), AtomicU32::new(0));
        let (got, counts) = forwarding_with(&lab, XdpMode::Skb, 2, police, |forwarder| {
            thread::scope(|scope| {
                // Read as they arrive: the socket buffers only a few hundred.
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
                        let mut payload = [0; 1472];
                        payload[..4].copy_from_slice(&n.to_be_bytes());
                        let payload = &payload[..if is_large(n) { 1472 } else { 4 }];
                        socket.send_to(payload, ("10.77.0.2", 9)).expect("a route");
                        // Keeps fewer in flight than rings and the receiver's socket buffer.
                        if n % 64 == 63 {
                            await_passed(n + 1, &seen, forwarder);
                        }
                    }
                };
                let sending = lab.near.run(send);
                sent.store(true, Ordering::Relaxed);
                sending.expect("the namespace exists");
                got.join().expect("it ends")
            })
        });
        assert!(got.is_sorted_by(|a, b| a < b), "{percent} %: reordered or duplicated");
        let (policed, sent) = (count(&counts, "policed"), count(&counts, "into_tunnels_sent"));
        let passed = u64::from(COUNT) - large_count;
        assert_eq!((policed, got.len() as u64), (large_count, passed), "{percent} %: {counts:?}");
        // Small frames of the host other than the test's datagrams.
        let strays = sent.checked_sub(passed).expect("all were admitted");
        assert!(strays < 10, "{percent} %: {counts:?}");
    }
}

/// Waits until `sent` datagrams have been received or policed, however long the workers lack a CPU; gives
/// up after 10 s without progress, and leaves the verdict to the counts.
fn await_passed(sent: u32, received: &AtomicU32, forwarder: &Forwarder<'_>) {
    let passed =
        || u64::from(received.load(Ordering::Relaxed)) + count(&forwarder.counts(), "policed");
    let mut last = (passed(), Instant::now());
    while last.0 < u64::from(sent) && last.1.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
        let now = passed();
        if now > last.0 {
            last = (now, Instant::now());
        }
    }
}
