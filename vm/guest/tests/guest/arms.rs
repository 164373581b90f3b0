//! Trials through the interface of `prove`.

use std::path::Path as FilePath;
use std::time::Duration;

use model::{Arm, Measurement, Support};
use model::{Load, Path, Session};
use testkit::arms::supported;
use testkit::is_installed;
use wirepath_guest::echo::{Echo, EchoKind};
use wirepath_guest::qemu::Boot;
use wirepath_guest::telemetry::Counter;
use wirepath_guest::{Guest, Switch};

use super::{booted, image};

pub(super) fn load(kind: &str) -> Load {
    let known = Guest.loads().iter().find(|load| load.name == kind).expect("it is a load");
    Load {
        kind: kind.to_owned(),
        size_bytes: known.size_bytes,
        rate_pps: 0,
        trial: Duration::from_millis(60),
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
    }
}

pub(super) fn check(name: &str, m: &Measurement) {
    assert!(
        m.deliveries.values().next().is_some_and(|first| first.sent_count > 0),
        "{name}: {m:?}"
    );
    assert_eq!(m.lost_count(), 0, "{name}: {:?}", m.deliveries);
    assert!(m.counters.contains_key("main_wait_ns"), "{name}");
    assert!(m.figures.contains_key("main_wait_ns_per_packet"), "{name}");
    assert!(m.costs["main"].cpu_ns() > 0 && m.costs["vcpu"].cpu_ns() > 0, "{name}: {:?}", m.costs);
}

fn trial(session: &mut dyn Session, arm: &Arm) -> Measurement {
    session.trial(arm).unwrap_or_else(|error| panic!("{}: {error}", arm.name))
}

#[test]
fn every_rung_of_the_ladder_boots_and_loses_nothing() {
    if image().is_none() {
        return;
    }
    let load = load("ping");
    let mut session = Guest.open(&load).expect("all parts are installed");
    for rung in 0..=Switch::ALL.len() {
        let arm = Arm::with(Switch::ALL[..rung].iter().copied());
        if !supported(&Guest, &arm, &load) {
            continue;
        }
        let m = trial(session.as_mut(), &arm);
        check(&arm.name, &m);
        // One echo at a time leaves nothing to batch; all other switches are effective. `event-idx` spares a notification
        // only where frames come close together, which a busy machine decides.
        let idle = m.not_effective.iter().map(|found| &found.switch[..]);
        let idle: Vec<&str> = idle.filter(|id| *id != "event-idx").collect();
        let is_polled = arm.has(Switch::PollMode);
        let is_counted = !arm.has(Switch::NoCounters);
        let expected: &[&str] = if !arm.has(Switch::Batching) {
            &[]
        } else if !is_counted {
            // The others would show in counts of packets.
            &["rx-budget"]
        } else if arm.has(Switch::RxBudget) {
            &["rx-task", "batching", "rx-budget"]
        } else if is_polled {
            &["rx-task", "batching"]
        } else {
            &["batching"]
        };
        assert_eq!(idle, expected, "{}", arm.name);
        let answers = if is_counted { "return" } else { model::ROUND_TRIP };
        assert_eq!(m.segments["rtt"].len(), m.deliveries[answers].received_count);
        let ring = if arm.has(Switch::Packed) { "packed" } else { "split" };
        let events = if arm.has(Switch::EventIdx) { "event index" } else { "flags" };
        assert_eq!(m.mode["ring"], format!("{ring}, {events}"));
        let tables = m.counters["guest_tx_tables_count"] > 0;
        assert_eq!(tables, arm.has(Switch::Indirect), "{}", arm.name);
        let polled = m.counters["guest_tx_poll_turns_count"] > 0;
        assert_eq!(polled, !arm.has(Switch::AsyncTx), "{}", arm.name);
        assert_eq!(m.counters.contains_key("guest_rx_wakes_count"), is_counted, "{}", arm.name);
        if !is_counted {
            continue;
        }
        let woken = m.counters["guest_rx_wakes_count"] > 0;
        assert_eq!(woken, arm.has(Switch::RxTask) && !is_polled, "{}", arm.name);
        let interrupts = m.counters["guest_interrupts_count"];
        // A baseline polls after each send and finds most frames then, and a busy machine handles
        // few: only the presence of interrupts is certain.
        let fits = if is_polled { interrupts < 20 } else { interrupts > 0 };
        assert!(fits, "{}: {interrupts} interrupts", arm.name);
    }
}

#[test]
fn other_loads_work_and_report_switches_without_effect() {
    if image().is_none() {
        return;
    }
    for kind in ["udp-ping", "flood"] {
        let mut session = Guest.open(&load(kind)).expect("all parts are installed");
        let m = trial(
            session.as_mut(),
            &Arm::with([Switch::Quiet, Switch::AsyncTx, Switch::IcmpInIrq]),
        );
        assert!(m.counters.contains_key("main_wait_ns"), "{kind}");
        assert_eq!(m.not_effective.len(), 1, "{kind}: {:?}", m.not_effective);
        assert_eq!(m.throughput.is_some(), kind == "flood");
        let balances = (kind == "flood").then_some(&0);
        assert_eq!(m.counters.get("firmware_unbalanced_count"), balances, "{:?}", m.traps);
    }
    let mut session = Guest.open(&load("ping-uart-115200")).expect("all parts are installed");
    let slow = trial(session.as_mut(), &Arm::baseline());
    check("baseline at 115,200 baud", &slow);
    // Two lines of about 37 characters of 10 bits.
    assert!(slow.segments["rtt"].min() > 3_000_000, "{}", slow.segments["rtt"].min());
}

/// Boots in which an effect that depends on the order of two threads must appear once.
const BOOTS_MAX: usize = 8;

/// Frames per notification of the device, for requests that arrive while the machine is paused.
fn frames_shown_at_once(image: &FilePath, switches: &str) -> f64 {
    // As many as the card's socket holds unread.
    const BURST: u32 = 8;
    let (mut machine, link, peer) = booted(&Boot::firmware(image, switches));
    let mut echo = Echo::new(EchoKind::Udp, peer, 64).expect("a frame");
    let mut frame = [0; 2048];
    let before = link.counters(&peer, 1).expect("it answers");
    for burst in 0..50 {
        machine.pause().expect("it runs");
        for n in 0..BURST {
            echo.set_number(burst * BURST + n).expect("a number");
            link.send(echo.frame()).expect("the socket has room");
        }
        machine.resume().expect("it is paused");
        for _ in 0..BURST {
            link.receive(&mut frame).expect("a link").expect("an answer");
        }
    }
    let after = link.counters(&peer, 2).expect("it answers");
    let [sent, shown] = [Counter::TxPackets, Counter::TxShown]
        .map(|counter| (after.get(counter) - before.get(counter)) as f64);
    sent / shown
}

#[test]
fn batching_shows_waiting_frames_together_and_others_one_by_one() {
    let Some(image) = image() else { return };
    for ring in ["", ",packed"] {
        let base = format!("quiet,async-tx,lazy-reap,no-tx-interrupt{ring}");
        let one = frames_shown_at_once(&image, &base);
        assert_eq!(one, 1.0, "{base}");
        // QEMU hands the waiting frames over while the guest already runs: how many it finds together depends
        // on which of the two is faster.
        let batching = format!("{base},batching");
        let mut counts = (0..BOOTS_MAX).map(|_| frames_shown_at_once(&image, &batching));
        assert!(counts.any(|many| many > 2.0), "{batching}: in none of {BOOTS_MAX} boots");
    }
}

#[test]
fn ping8_gives_the_same_kind_of_measurement() {
    if image().is_none() || !is_installed("ping") {
        return;
    }
    let load = Load { trial: Duration::from_millis(1250), ..load("tap-ping") };
    let baseline = Arm::baseline();
    if !supported(&Guest, &baseline, &load) {
        return;
    }
    let mut session = Guest.open(&load).expect("all parts are installed");
    // On a busy machine ping may stop waiting before the last answer arrives.
    let mut trials = (0..3).map(|_| trial(session.as_mut(), &baseline));
    let m = trials.find(|m| m.lost_count() == 0).expect("nothing is lost, three times in a row");
    check("baseline by ping(8)", &m);
    assert_eq!(m.deliveries[model::ROUND_TRIP].sent_count, 25);
    let metrics = m.metrics();
    let mean = metrics.iter().find(|metric| metric.name == "rtt_ns_mean").expect("it is a metric");
    let of_times = m.segments["rtt"].mean();
    let mean = mean.value.clone().expect("nothing was lost");
    assert!((mean / of_times - 1.0).abs() < 0.01, "{mean} and {of_times}");
}

#[test]
fn unsupported_arms_are_reported_before_any_boot() {
    let elsewhere = Load { far: Some(model::TwoHosts::default()), ..load("ping") };
    let large = Load { size_bytes: 1473, ..load("ping") };
    for (load, remedy) in [(elsewhere, "omit --far"), (large, "at most 1472")] {
        let error = Guest.open(&load).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(remedy), "{error}");
    }
    for id in [Switch::LazyReap, Switch::Batching] {
        let refused = Guest.support(&Arm::with([id]), &load("ping"));
        if !matches!(refused, Support::Unsupported { .. }) {
            assert!(matches!(refused, Support::Refused { why } if why.contains("async-tx")));
        }
    }
}
