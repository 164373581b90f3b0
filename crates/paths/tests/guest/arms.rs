//! Trials as `prove` runs them.

use std::time::Duration;

use model::{Arm, Measurement, Support};
use wirepath_paths::guest::{Guest, SWITCHES};
use wirepath_paths::{Load, Path, Session};

use super::{has, image, skipped};

pub(super) fn load(kind: &str) -> Load {
    let known = Guest.loads().iter().find(|load| load.name == kind).expect("it is a load");
    Load {
        kind: kind.to_owned(),
        size_bytes: known.size_bytes,
        rate_pps: 0,
        trial: Duration::from_millis(60),
        far: None,
        secret: None,
    }
}

pub(super) fn check(name: &str, m: &Measurement) {
    assert!(m.deliveries["forward"].sent_count > 0, "{name}: {m:?}");
    assert_eq!(m.lost_count(), 0, "{name}: {:?}", m.deliveries);
    assert!(m.counters.contains_key("main_wait_ns"), "{name}");
    assert!(m.figures.contains_key("main_wait_ns_per_packet"), "{name}");
    assert!(m.costs["main"].cpu_ns() > 0 && m.costs["vcpu"].cpu_ns() > 0, "{name}: {:?}", m.costs);
}

fn trial(session: &mut dyn Session, arm: &Arm) -> Measurement {
    session.trial(arm).unwrap_or_else(|error| panic!("{}: {error}", arm.name))
}

#[test]
fn every_rung_of_the_ladder_boots_and_its_books_balance() {
    if image().is_none() {
        return;
    }
    let load = load("ping");
    let mut session = Guest.open(&load).expect("what it takes is there");
    for rung in 0..=SWITCHES.len() {
        let ids: Vec<&str> = SWITCHES[..rung].iter().map(|switch| switch.id).collect();
        let arm = Arm::of(ids.iter().copied());
        match Guest.support(&arm, &load) {
            Support::Yes => {}
            no => {
                skipped(format!("{}: {no:?}", arm.name));
                continue;
            }
        }
        let m = trial(session.as_mut(), &arm);
        check(&arm.name, &m);
        // One echo at a time leaves nothing to batch, and that is said; all else does something.
        let idle: Vec<&str> = m.not_effective.iter().map(|found| &found.switch[..]).collect();
        let is_polled = ids.contains(&"poll-mode");
        let expected: &[&str] = match ids.contains(&"batching") {
            true if is_polled => &["rx-task", "batching"],
            true => &["batching"],
            false => &[],
        };
        assert_eq!(idle, expected, "{}", arm.name);
        assert_eq!(m.segments["rtt"].len(), m.deliveries["return"].received_count);
        let ring = if ids.contains(&"packed") { "packed" } else { "split" };
        let wish = if ids.contains(&"event-idx") { "event index" } else { "flags" };
        assert_eq!(m.mode["ring"], format!("{ring}, {wish}"));
        let tables = m.counters["guest_tx_tables_count"] > 0;
        assert_eq!(tables, ids.contains(&"indirect"), "{}", arm.name);
        let polled = m.counters["guest_tx_poll_turns_count"] > 0;
        assert_eq!(polled, !ids.contains(&"async-tx"), "{}", arm.name);
        let woken = m.counters["guest_rx_wakes_count"] > 0;
        assert_eq!(woken, ids.contains(&"rx-task") && !is_polled, "{}", arm.name);
        let interrupts = m.counters["guest_interrupts_count"];
        // A baseline that polls after each send finds most answers so, and a busy machine carries
        // few: only that there are some can be said.
        let fits = if is_polled { interrupts < 20 } else { interrupts > 0 };
        assert!(fits, "{}: {interrupts} interrupts", arm.name);
    }
}

#[test]
fn other_loads_are_carried_and_what_does_nothing_there_is_said() {
    if image().is_none() {
        return;
    }
    for kind in ["udp-ping", "flood"] {
        let mut session = Guest.open(&load(kind)).expect("what it takes is there");
        let m = trial(session.as_mut(), &Arm::of(["quiet", "async-tx", "icmp-in-irq"]));
        assert!(m.counters.contains_key("main_wait_ns"), "{kind}");
        assert_eq!(m.not_effective.len(), 1, "{kind}: {:?}", m.not_effective);
        assert_eq!(m.throughput.is_some(), kind == "flood");
    }
    let mut session = Guest.open(&load("ping-uart-115200")).expect("what it takes is there");
    let slow = trial(session.as_mut(), &Arm::baseline());
    check("baseline at 115,200 baud", &slow);
    // Two lines of some 37 characters, each of 10 bits.
    assert!(slow.segments["rtt"].min() > 3_000_000, "{}", slow.segments["rtt"].min());
}

/// Frames a time that the device was shown frames to send, under a flood.
fn frames_shown_at_once(switches: &[&str]) -> f64 {
    let mut session = Guest.open(&load("flood")).expect("what it takes is there");
    let arm = Arm::of(switches.iter().copied());
    let m = trial(session.as_mut(), &arm);
    assert!(m.not_effective.is_empty(), "{switches:?}: {:?}", m.not_effective);
    let answers = m.counters["return_sent_count"] as f64;
    answers / m.counters["guest_tx_shown_count"] as f64
}

#[test]
fn batching_shows_several_frames_at_once_under_a_flood_and_others_one() {
    if image().is_none() {
        return;
    }
    for (ring, first) in [("split", &[][..]), ("packed", &["packed"][..])] {
        let base = [first, &["quiet", "async-tx", "lazy-reap", "no-tx-interrupt"]].concat();
        let one = frames_shown_at_once(&base);
        // A machine that is short of time may deliver them one by one, and so they are answered.
        let batching = [&base[..], &["batching"]].concat();
        let mut trials = (0..5).map(|_| frames_shown_at_once(&batching));
        let has_many = trials.any(|many| many > 1.1);
        // The answers to the questions for the counters are no echoes: one more or less.
        assert!((0.9..=1.01).contains(&one), "{ring}: {one} frames a time");
        assert!(has_many, "{ring}: frames are shown one by one, five times in a row");
    }
}

#[test]
fn real_ping_becomes_the_same_measurement() {
    if image().is_none() || !has("ping") {
        return;
    }
    let load = Load { trial: Duration::from_millis(1250), ..load("tap-ping") };
    let baseline = Arm::baseline();
    match Guest.support(&baseline, &load) {
        Support::Yes => {}
        no => return skipped(format!("{no:?}")),
    }
    let mut session = Guest.open(&load).expect("what it takes is there");
    // On a busy machine ping may give its last echo up before the answer comes.
    let mut trials = (0..3).map(|_| trial(session.as_mut(), &baseline));
    let m = trials.find(|m| m.lost_count() == 0).expect("nothing is lost, three times in a row");
    check("baseline by ping(8)", &m);
    assert_eq!(m.deliveries["forward"].sent_count, 25);
    let metrics = m.metrics();
    let mean = metrics.iter().find(|metric| metric.name == "rtt_ns_mean").expect("it is one");
    let of_times = m.segments["rtt"].mean();
    let mean = mean.value.clone().expect("nothing was lost");
    assert!((mean / of_times - 1.0).abs() < 0.01, "{mean} and {of_times}");
}

#[test]
fn what_cannot_be_proved_is_said_before_anything_boots() {
    let with = |change: fn(&mut Load)| {
        let mut load = load("ping");
        change(&mut load);
        Guest.open(&load).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with(|load| load.far = Some("192.0.2.7".into())).contains("leave --peer out"));
    assert!(with(|load| load.size_bytes = 1473).contains("at most 1472"));
    for id in ["lazy-reap", "batching"] {
        let refused = Guest.support(&Arm::of([id]), &load("ping"));
        if !matches!(refused, Support::Unsupported { .. }) {
            assert!(matches!(refused, Support::Refused { why } if why.contains("async-tx")));
        }
    }
}
