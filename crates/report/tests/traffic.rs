//! Rates by direction, round trips and jitter: the same figures in the pictures, in the page's table and on the screen.

mod common;

use model::{ArmOutcome, Better, Distribution, MetricOutcome, Outcome};
use wirepath_report::html::page;
use wirepath_report::page::Page;
use wirepath_report::text::{Detail, Style, ladder};

fn add(arm: &mut ArmOutcome, name: &str, unit: &str, median: f64) {
    let plain = MetricOutcome::unjudged(unit, Better::Higher, vec![Some(median)]);
    arm.metrics.insert(name.into(), MetricOutcome { median: Some(median), ..plain });
}

/// Baseline and a peer, which knows no round trip.
fn both_ways() -> Outcome {
    let mut outcome = common::flood();
    outcome.arms.retain(|arm| ["baseline", "baseline again", "sockperf"].contains(&&*arm.name));
    for (arm, rate) in outcome.arms.iter_mut().zip([2e9, 2e9, 5e8]) {
        for (name, unit, median) in [
            ("received_pps", "pps", rate / 8000.0),
            ("sent_pps", "pps", rate / 4000.0),
            ("goodput_bps", "bps", rate),
            ("goodput_bps_forward", "bps", rate * 1.5),
            ("goodput_bps_return", "bps", rate),
            ("jitter_ns", "ns", 357.0),
        ] {
            add(arm, name, unit, median);
        }
    }
    let rtt = Distribution {
        count: 1000,
        min_ns: 43_000,
        mean_ns: Some(467_000),
        max_ns: 11_418_000,
        quantiles: vec![(0.5, 400_000)],
    };
    outcome.arms[0].latency.insert("rtt".into(), rtt);
    outcome
}

#[test]
fn pictures_and_table_have_every_arm_but_the_control() {
    let outcome = both_ways();
    let traffic = Page::from_outcome(&outcome).traffic.expect("rates of both directions");
    assert_eq!(
        traffic.labels,
        ["forth", "back", "rtt min", "rtt mean", "rtt max", "jitter", "sent"]
    );
    let row = |at: usize| -> Vec<&str> {
        let cells = traffic.rows[at].1.iter().map(|cell: &Option<String>| cell.as_deref());
        cells.map(|cell| cell.unwrap_or("–")).collect()
    };
    assert_eq!(traffic.rows.len(), 2);
    assert_eq!(
        row(0),
        ["3.00 Gbit/s", "2.00 Gbit/s", "43.0 µs", "467 µs", "11.4 ms", "357 ns", "4.00 Gbit/s"]
    );
    assert_eq!(row(1)[2..6], ["–", "–", "–", "357 ns"], "it measures no round trip");
    let titles: Vec<&str> = traffic.charts.iter().map(|chart| &*chart.title).collect();
    assert_eq!(titles, ["Rate by tool and direction", "Round trip", "Jitter"]);
    let labels: Vec<&str> = traffic.charts[0].bars.iter().map(|bar| &*bar.label).collect();
    assert_eq!(labels, ["→ baseline", "← baseline", "→ sockperf", "← sockperf"]);
    assert_eq!(traffic.charts[1].bars.len(), 1);
    assert_eq!(traffic.charts[1].bars[0].text, "467 µs (43.0 µs to 11.4 ms)");
    let html = page(&outcome);
    assert!(html.contains("<h3>Jitter</h3>") && html.contains("3.00 Gbit/s"), "{html}");
    for detail in [Detail::Brief, Detail::Full] {
        let text = ladder(&outcome, Style::default(), detail);
        let line = text.lines().find(|line| line.contains("11.4 ms")).expect("the baseline's line");
        assert!(line.contains("3.00 Gbit/s") && line.contains("357 ns"), "{text}");
    }
}

#[test]
fn one_way_has_sent_beside_received_and_a_narrow_screen_keeps_the_rates() {
    let mut outcome = both_ways();
    for arm in &mut outcome.arms {
        arm.metrics.retain(|name, _| !name.starts_with("goodput_bps_"));
        arm.latency.clear();
    }
    let traffic = Page::from_outcome(&outcome).traffic.expect("jitter");
    assert_eq!(traffic.labels, ["received", "lost", "jitter", "sent"]);
    let labels: Vec<&str> = traffic.charts[0].bars.iter().map(|bar| &*bar.label).collect();
    assert_eq!(labels, ["↑ baseline", "↓ baseline", "↑ sockperf", "↓ sockperf"]);
    assert_eq!(traffic.charts.len(), 2, "no round trip");
    let text = ladder(&outcome, Style { width: 40, ..Style::default() }, Detail::Brief);
    assert!(text.contains("2.00 Gbit/s") && !text.contains("4.00 Gbit/s"), "{text}");
}

#[test]
fn a_question_that_is_no_rate_has_no_traffic() {
    assert_eq!(Page::from_outcome(&common::ping()).traffic, None);
    let mut outcome = both_ways();
    outcome.judged = vec!["cpu_ns_per_packet".into()];
    assert_eq!(Page::from_outcome(&outcome).traffic, None);
}

#[test]
fn latency_from_the_time_in_the_packet_is_shown_for_every_arm_that_has_it() {
    let mut outcome = common::flood();
    let latency = Distribution {
        count: 20_000,
        min_ns: 0,
        mean_ns: Some(900),
        max_ns: 9_000_000,
        quantiles: vec![(0.5, 800), (0.9, 2_000), (0.99, 5_330_000), (0.999, 6_010_000)],
    };
    assert_eq!(Page::from_outcome(&outcome).calibrated, None, "no packet has a time");
    let arm = &mut outcome.arms[0];
    arm.latency.insert("match→app".into(), latency);
    add(arm, "match_to_app_share_within_1us", "share", 0.838);
    let calibrated = Page::from_outcome(&outcome).calibrated.expect("an arm has it");
    assert_eq!(calibrated.labels, ["p50", "p99", "p99.9", "within 1 µs"]);
    let [(_, figures)] = calibrated.rows.as_slice() else { panic!("{calibrated:?}") };
    let figures: Vec<&str> = figures.iter().flatten().map(String::as_str).collect();
    assert_eq!(figures, ["800 ns", "5.33 ms", "6.01 ms", "83.8 %"]);
    for detail in [Detail::Brief, Detail::Full] {
        let text = ladder(&outcome, Style::default(), detail);
        assert!(text.contains("5.33 ms  6.01 ms") && text.contains("83.8 %"), "{text}");
    }
    assert!(page(&outcome).contains("6.01 ms"));
}
