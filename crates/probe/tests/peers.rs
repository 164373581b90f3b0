//! Other programs as arms: each runs once under every load that it carries.

use std::time::Duration;

use model::{Arm, Load, Measurement, Path, PathError};
use testkit::{alone, is_installed};
use wirepath_probe::Probe;

/// One trial of a peer under a load; `None` if it is not installed.
fn trial(name: &str, kind: &str, rate_pps: u64) -> Option<Result<Measurement, PathError>> {
    if !is_installed(name) {
        return None;
    }
    let load = Load { rate_pps, ..testkit::arms::load(&Probe, kind, Duration::from_millis(50)) };
    let arm = Arm::peer(name);
    assert!(Probe.support(&arm, &load).is_yes(), "{name} under {kind}");
    Some(Probe.open(&load).expect("a lab").trial(&arm))
}

/// One trial of a flood.
fn flood(name: &str, kind: &str) -> Option<Measurement> {
    trial(name, kind, 0).map(|m| m.unwrap_or_else(|why| panic!("{name} under {kind}: {why}")))
}

#[test]
fn programs_carry_floods_and_report_no_more_than_they_count() {
    let _alone = alone();
    for kind in ["flood", "tcp-flood"] {
        let Some(m) = flood("qperf", kind) else { continue };
        let seen = m.throughput.expect("a rate");
        assert!(seen.received_count > 0 && seen.payload_bytes > 0, "{kind}: {seen:?}");
        assert!(m.deliveries.is_empty() && m.costs.is_empty(), "{kind}: absent, not 0");
    }
    if let Some(m) = flood("iperf3", "tcp-flood") {
        assert!(m.throughput.expect("a rate").payload_bytes > 0 && m.deliveries.is_empty());
        assert!(m.cpu_ns() > 0);
    }
    if let Some(m) = flood("iperf3", "echo-flood") {
        for direction in ["forward", "return"] {
            let books = m.deliveries[direction];
            assert!(books.sent_count > 0 && books.duplicated_count.is_none(), "{direction}");
        }
        assert!(m.segments.is_empty() && m.reported.is_empty(), "it measures no round trip");
    }
}

#[test]
fn irtt_keeps_a_schedule_or_its_trial_fails() {
    let _alone = alone();
    match trial("irtt", "paced", 200) {
        None => {}
        Some(Ok(m)) => {
            assert!(m.segments["rtt"].len() >= 49, "every round trip");
            assert!(m.costs.is_empty(), "absent, not 0");
        }
        // On a busy machine it skips datagrams; the figures would be those of another load.
        Some(Err(why)) => assert!(why.to_string().contains("that were due"), "{why}"),
    }
}
