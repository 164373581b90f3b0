//! Load `echo-flood`: requests as fast as they go through every engine, on one thread at the near end
//! and on two.

mod common;

use std::time::Duration;

use common::truth::{self, LOSS};
use common::{alone, counter, engines, run_on, skip, tasks, udp};
use io::Role;
use lab::{Pair, PairSpec};
use model::{Arm, Metric, Path};
use testkit::arms;
use wirepath_probe::role::{Pace, Task, WINDOW};
use wirepath_probe::{Probe, Switch};
use xdp::{Bind, Copying, Frames, Socket};

const COUNT: u64 = 5_000;

/// Without CPUs the near end has one thread, with two CPUs two.
fn placements() -> Vec<Vec<usize>> {
    let cpus = sys::affinity::allowed_cpus().expect("CPUs");
    let mut placements = vec![Vec::new()];
    match cpus.len() {
        0 | 1 => skip("kernel", "two threads at the near end: one CPU"),
        _ => placements.push(cpus[..2].to_vec()),
    }
    placements
}

fn pair() -> Pair {
    Pair::new(&PairSpec { tso: false, ..PairSpec::default() }).expect("a lab")
}

#[test]
fn every_request_is_answered_and_measured_by_every_engine() {
    let _alone = alone();
    let pair = pair();
    for cpus in placements() {
        for (name, engine) in engines() {
            let (near, far) = tasks(Role::Ping, &engine, Pace::Window(64), 64, Some(COUNT));
            let ran = run_on(&cpus, &pair.near, &pair.far, &near, &far);
            let (near, far) = ran.unwrap_or_else(|e| panic!("{name}, CPUs {cpus:?}: {e}"));
            let what = format!("{name}, CPUs {cpus:?}: {near:?}, {far:?}");
            assert_eq!((near.sent_count, far.arrived.received_count), (COUNT, COUNT), "{what}");
            assert_eq!((far.sent_count, near.arrived.received_count), (COUNT, COUNT), "{what}");
            assert_eq!(near.arrived.duplicated_count, Some(0), "{what}");
            assert_eq!(near.segments["rtt"].len(), COUNT, "{what}");
            for report in [&near, &far] {
                assert!(report.engine.ledger.is_none_or(|l| l.balances()), "{what}");
            }
            let threads = near.engine.mode.iter().any(|(mode, _)| mode == "threads");
            assert_eq!(threads, !cpus.is_empty(), "{what}");
        }
    }
}

#[test]
fn losses_and_duplicates_are_counted_to_the_datagram_in_each_direction() {
    let _alone = alone();
    for cpus in placements() {
        for (name, engine) in engines() {
            let both = truth::echo_on(&cpus, Pace::Window(64), &LOSS, &engine);
            let both = both.unwrap_or_else(|e| panic!("{name}, CPUs {cpus:?}: {e}"));
            for (direction, judged) in ["forward", "return"].iter().zip(both) {
                let what = format!("{name}, CPUs {cpus:?}, {direction}");
                assert!(judged.mismatch().is_none(), "{what}: {}", judged.mismatch().unwrap());
                assert!(judged.injected.dropped >= 70, "{what}: {judged:?}");
            }
        }
    }
}

#[test]
fn a_window_without_any_answer_is_reopened_and_the_run_ends() {
    let _alone = alone();
    let pair = pair();
    for cpus in placements() {
        // The far end receives and never answers.
        let (near, far) = tasks(Role::Ping, &udp(), Pace::Window(8), 64, Some(20));
        let far = Task { role: Role::Receive, ..far };
        let (near, _) = run_on(&cpus, &pair.near, &pair.far, &near, &far).expect("it ends");
        assert_eq!((near.sent_count, near.arrived.received_count), (20, 0), "{near:?}");
        assert_eq!(counter(&near, "window_reopened_count"), 2, "{near:?}");
    }
}

/// Both halves run on CPUs of their own, and a veth has a queue for each CPU: frames that left by the receiver's
/// would overtake those of the sender, and the lab would reorder by itself.
#[test]
fn the_receiving_half_of_a_socket_sends_nothing_that_the_other_has_posted() {
    let _alone = alone();
    let pair = pair();
    let near = &pair.near;
    let (posted, left) = near
        .run(|| {
            let mut shares = Frames::allocate(2048, 128, 2).expect("memory").into_iter();
            let bind = Bind {
                ifindex: near.ifindex,
                ifname: near.ifname.clone(),
                queue: 0,
                queues: 1,
                copying: Copying::Copy,
                need_wakeup: false,
                multi_buffer: false,
                ring_entries: 64,
                fill_target: 64,
                tx_budget: 64,
            };
            let mut share = || shares.next().expect("a share");
            let socket = Socket::open(share(), bind, None).expect("a socket");
            let (mut tx, mut rx) = socket.split(share()).expect("two halves");
            let posted = tx.tx_post(8, 60, |frame| frame.fill(0xff)).expect("posted");
            rx.wait(Duration::from_millis(20)).expect("poll");
            let waiting = tx.tx_pending();
            assert!(tx.kick().is_ok() || tx.kick().is_ok(), "the sender's own call sends");
            (posted, [waiting, tx.tx_pending()])
        })
        .expect("the lab");
    assert_eq!((posted, left), (8, [8, 0]));
}

#[test]
fn a_trial_reports_both_directions_and_the_whole_round_trip() {
    let _alone = alone();
    let load = arms::load(&Probe, "echo-flood", Duration::from_millis(100));
    let mut session = Probe.open(&load).expect("a lab");
    let bypass = Arm::with([Switch::Spin, Switch::Batch, Switch::Bypass]);
    for arm in [Arm::baseline(), Arm::with([Switch::Spin, Switch::Batch]), bypass] {
        if !arms::supported(&Probe, &arm, &load) {
            continue;
        }
        let m = session.trial(&arm).expect("it runs");
        assert_eq!(m.lost_count(), 0, "{}: the window fits every queue: {m:?}", arm.name);
        let metrics = m.metrics();
        let value = |name: &str| {
            let metric = metrics.iter().find(|metric| metric.name == name);
            let Some(Metric { value: Ok(value), .. }) = metric else {
                panic!("{name}: {metric:?}")
            };
            *value
        };
        for direction in ["forward", "return"] {
            let pps = value(&format!("received_pps_{direction}"));
            let bps = value(&format!("goodput_bps_{direction}"));
            assert!(pps > 1_000.0 && (bps / (pps * 512.0) - 1.0).abs() < 1e-6, "{pps} {bps}");
        }
        assert_eq!(value("received_pps"), value("received_pps_return"));
        let order = ["min", "p50", "p99", "max"].map(|q| value(&format!("rtt_ns_{q}")));
        assert!(order.is_sorted(), "{order:?}");
        let mean = value("rtt_ns_mean");
        assert!(mean > order[0] && mean < order[3], "{mean}, {order:?}");
        // Little's law: requests in flight are their rate times their round trip. The rate's interval begins with the first
        // arrival, the first round trip before it. Histograms round by less than a hundredth.
        let in_flight = value("received_pps") * mean / 1e9;
        let interval_ns = m.throughput.expect("a rate").interval_ns as f64;
        let most = f64::from(WINDOW) * (1.0 + order[3] / interval_ns) * 1.01;
        assert!(in_flight <= most, "{in_flight} in flight, at most {most}");
        assert!(m.not_effective.iter().all(|n| n.switch != "big-rcvbuf"), "{m:?}");
    }
}
