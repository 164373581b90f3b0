//! The forwarder against the kernel's VXLAN device, in three namespaces. The middle one contains
//! only the forwarder.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host::net::{self, ethtool};
use io::XdpMode;
use lab::{End, PairSpec, Triple};
use testkit::alone;
use wirepath_forward::decap::DecapSpec;
use wirepath_forward::encap::{Encap, Mark, PacketPlace};
use wirepath_forward::fdb::{Fdb, FdbSpec};
use wirepath_forward::forwarder::{
    Forwarder, ForwarderSpec, PolicerSpec, RulesSpec, Tuning, Worker, ecn_table,
};
use wirepath_forward::order::OrderSpec;
use wirepath_forward::ports::{
    FastSpec, Pool, PortSpec, TunnelFrames, TunnelId, open_fast_ports, open_port,
};
use wirepath_forward::qos::{Classifier, QueueSpec, RATE_BITS_PER_S_MAX, Shaper, TokenBucket};
use wirepath_forward::spec::{Carrier, Outer, Tunnel};
use wirepath_forward::tcx::open_tcx_ports;

#[path = "forward/domains.rs"]
mod domains;
#[path = "forward/fast.rs"]
mod fast;
#[path = "forward/flood.rs"]
mod flood;
#[path = "forward/gateway.rs"]
mod gateway;
#[path = "forward/overlay.rs"]
mod overlay;
#[path = "forward/pmtu.rs"]
mod pmtu;
#[path = "forward/queues.rs"]
mod queues;
#[path = "forward/reload.rs"]
mod reload;
#[path = "forward/testbed.rs"]
mod testbed;

use testbed::*;

const OURS: &str = "10.99.0.1";
const THEIRS: &str = "10.99.0.2";
const VNI: u32 = 42;
/// Room for inner packets of 1500 bytes with their outer headers.
const UNDERLAY_MTU: u16 = 1600;

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
    let ((), counts) = forwarding_with(
        &lab,
        XdpMode::Skb,
        1,
        |spec: &mut ForwarderSpec| {
            let known = *spec.rules.encaps[0].tunnel();
            // A second tunnel without a device behind it: the far host drops its frames.
            let remote = "10.99.0.3".parse().expect("valid address");
            let unused = Tunnel { remote, ..known };
            spec.rules.encaps.push(encap(&lab, unused));
            spec.rules.decap.tunnels.push(unused);
        },
        |_| {
            let pings = lab.near.run(|| ping(20, "-i 0.02 10.77.0.2"));
            pings.expect("the namespace exists").expect("every ping is answered");
        },
    );
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
    let (report, counts) = forwarding_with(
        &lab,
        XdpMode::Skb,
        2,
        |spec: &mut ForwarderSpec| {
            let queue = QueueSpec { frame_count_max: 64, byte_count_max: 1 << 20 };
            let bucket = TokenBucket::new(4_000_000, 20_000, sys::clock::monotonic_ns());
            spec.shaper = Some(Shaper::new(Some(bucket), 24, &[queue]));
        },
        |_| iperf3(&lab, "-u -b 20M -l 1400"),
    );
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
    let (report, counts) = forwarding_with(
        &lab,
        XdpMode::Skb,
        2,
        |spec: &mut ForwarderSpec| {
            spec.rules.policer =
                Some(PolicerSpec { rate_bits_per_s: 4_000_000, burst_bytes: 20_000 });
        },
        |_| iperf3(&lab, "-u -b 20M -l 1400"),
    );
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
        let large_count = (0..COUNT).filter(|n| is_large(*n, percent)).count() as u64;
        let (sent, seen) = (AtomicBool::new(false), AtomicU32::new(0));
        let (got, counts) = forwarding_with(
            &lab,
            XdpMode::Skb,
            2,
            |spec: &mut ForwarderSpec| {
                spec.rules.policer = Some(policer);
                spec.tuning.batch_frames = BATCH_FRAMES;
            },
            |forwarder| {
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
                    let sending = lab.near.run(|| {
                        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
                        for n in 0..COUNT {
                            let mut payload = [0; 1472];
                            payload[..4].copy_from_slice(&n.to_be_bytes());
                            let payload = &payload[..if is_large(n, percent) { 1472 } else { 4 }];
                            socket.send_to(payload, ("10.77.0.2", 9)).expect("a route");
                            // Keeps fewer in flight than rings and the receiver's socket buffer.
                            if n % 64 == 63 {
                                await_passed(n + 1, &seen, forwarder);
                            }
                        }
                    });
                    sent.store(true, Ordering::Relaxed);
                    sending.expect("the namespace exists");
                    got.join().expect("it ends")
                })
            },
        );
        assert!(got.is_sorted_by(|a, b| a < b), "{percent} %: reordered or duplicated");
        let (policed, sent) = (count(&counts, "policed"), count(&counts, "into_tunnels_sent"));
        let passed = u64::from(COUNT) - large_count;
        assert_eq!((policed, got.len() as u64), (large_count, passed), "{percent} %: {counts:?}");
        // Small frames of the host other than the test's datagrams.
        let strays = sent.checked_sub(passed).expect("all were admitted");
        assert!(strays < 10, "{percent} %: {counts:?}");
    }
}

/// True for `percent` of the frames: spread evenly, and the same in every run.
fn is_large(n: u32, percent: u32) -> bool {
    (n.wrapping_mul(0x9e37_79b9) >> 16) % 100 < percent
}

/// Waits until `sent` datagrams have been received or policed, however long the workers lack a CPU; gives
/// up after 10 s without progress, and leaves the verdict to the counts.
fn await_passed(sent: u32, received: &AtomicU32, forwarder: &Forwarder<'_>) {
    let mut last = (0, Instant::now());
    while last.0 < u64::from(sent) && last.1.elapsed() < Duration::from_secs(10) {
        let now =
            u64::from(received.load(Ordering::Relaxed)) + count(&forwarder.counts(), "policed");
        if now > last.0 {
            last = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(1));
    }
}
