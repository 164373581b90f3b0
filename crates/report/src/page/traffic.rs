//! Rates of each direction, round trips and jitter by arm, for loads whose question is a rate.

use model::{ArmKind, ArmOutcome, Outcome};

use super::{Bar, BarChart, median};
use crate::units;

/// Segment of round trips.
const ROUND_TRIP: &str = "rtt";

/// What went over the wire, in pictures and in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    pub charts: Vec<BarChart>,
    pub labels: Vec<String>,
    /// A figure per label; `None` if the arm has none.
    pub rows: Vec<(String, Vec<Option<String>>)>,
}

/// Returns the traffic of an outcome; `None` if its question is not a rate, or its arms know neither directions nor
/// jitter.
pub(super) fn traffic(outcome: &Outcome) -> Option<Traffic> {
    let arms: Vec<&ArmOutcome> = outcome
        .arms
        .iter()
        .filter(|arm| arm.kind != ArmKind::Control && arm.metrics.contains_key("goodput_bps"))
        .collect();
    let is_asked = outcome.judged.iter().any(|name| name == "received_pps");
    let has_figures = |name: &str| arms.iter().any(|arm| arm.metrics.contains_key(name));
    let is_both_ways = has_figures("goodput_bps_return");
    if !is_asked || !(is_both_ways || has_figures("jitter_ns")) {
        return None;
    }
    let charts = [rates(&arms, is_both_ways), round_trips(&arms), jitter(&arms)];
    let charts = charts.into_iter().flatten().collect();
    let figures: Vec<_> = arms.iter().map(|arm| figures(arm, is_both_ways)).collect();
    let columns = labels(is_both_ways).into_iter().enumerate();
    let columns: Vec<(usize, &str)> =
        columns.filter(|(at, _)| figures.iter().any(|row| row[*at].is_some())).collect();
    let shown =
        |row: &Vec<Option<String>>| columns.iter().map(|(at, _)| row[*at].clone()).collect();
    Some(Traffic {
        charts,
        labels: columns.iter().map(|(_, label)| (*label).to_owned()).collect(),
        rows: arms.iter().map(|arm| arm.label()).zip(figures.iter().map(shown)).collect(),
    })
}

/// Of all columns; those in which no arm has a figure are left out.
fn labels(is_both_ways: bool) -> [&'static str; 7] {
    let [first, second] = if is_both_ways { ["forth", "back"] } else { ["received", "lost"] };
    [first, second, "rtt min", "rtt mean", "rtt max", "jitter", "sent"]
}

fn figures(arm: &ArmOutcome, is_both_ways: bool) -> Vec<Option<String>> {
    let text = |name: &str| arm.metrics.get(name).and_then(median);
    let [first, second] = if is_both_ways {
        ["goodput_bps_forward", "goodput_bps_return"]
    } else {
        ["goodput_bps", "lost_count"]
    };
    let rtt = arm.latency.get(ROUND_TRIP);
    let time = |ns: Option<u64>| ns.map(|ns| units::value(ns as f64, "ns"));
    vec![
        text(first),
        text(second),
        time(rtt.map(|rtt| rtt.min_ns)),
        time(rtt.and_then(|rtt| rtt.mean_ns)),
        time(rtt.map(|rtt| rtt.max_ns)),
        text("jitter_ns"),
        sent_bps(arm).map(|bps| units::value(bps, "bps")),
    ]
}

fn finite(arm: &ArmOutcome, name: &str) -> Option<f64> {
    arm.metrics.get(name)?.median.filter(|median| median.is_finite() && *median >= 0.0)
}

/// Payload that the near end sent: its datagrams have the size of those that arrived.
fn sent_bps(arm: &ArmOutcome) -> Option<f64> {
    let received_pps = finite(arm, "received_pps").filter(|pps| *pps > 0.0)?;
    Some(finite(arm, "sent_pps")? * finite(arm, "goodput_bps")? / received_pps)
}

fn rates(arms: &[&ArmOutcome], is_both_ways: bool) -> Option<BarChart> {
    let bars = arms.iter().flat_map(|arm| {
        let received = finite(arm, "goodput_bps");
        let pair = if is_both_ways {
            let forth = finite(arm, "goodput_bps_forward");
            [("→", forth), ("←", finite(arm, "goodput_bps_return").or(received))]
        } else {
            [("↑", sent_bps(arm)), ("↓", received)]
        };
        let pair = pair.into_iter().enumerate();
        pair.filter_map(|(line, (sign, bps))| {
            Some(Bar {
                label: format!("{sign} {}", arm.label()),
                value: bps? as u64,
                text: units::value(bps?, "bps"),
                line,
            })
        })
    });
    let caption = if is_both_ways {
        "Payload that arrived, median of the trials: → at the far end, ← at the near end."
    } else {
        "Payload, median of the trials: ↑ sent, ↓ received."
    };
    chart("Rate by tool and direction", caption, bars.collect())
}

fn round_trips(arms: &[&ArmOutcome]) -> Option<BarChart> {
    let bars = arms.iter().filter_map(|arm| {
        let rtt = arm.latency.get(ROUND_TRIP)?;
        let [least, mean, most] = [rtt.min_ns, rtt.mean_ns?, rtt.max_ns];
        let text = [mean, least, most].map(|ns| units::value(ns as f64, "ns"));
        let text = format!("{} ({} to {})", text[0], text[1], text[2]);
        Some(Bar { label: arm.label(), value: mean, text, line: 0 })
    });
    let caption = "Mean of the answers that arrived, all trials together; the shortest and the longest in brackets.";
    chart("Round trip", caption, bars.collect())
}

fn jitter(arms: &[&ArmOutcome]) -> Option<BarChart> {
    let bars = arms.iter().filter_map(|arm| {
        let ns = finite(arm, "jitter_ns")?;
        Some(Bar { label: arm.label(), value: ns as u64, text: units::value(ns, "ns"), line: 0 })
    });
    let caption =
        "Smoothed difference of successive transit times (RFC 3550), median of the trials.";
    chart("Jitter", caption, bars.collect())
}

/// `None` without a bar.
fn chart(title: &str, caption: &str, bars: Vec<Bar>) -> Option<BarChart> {
    if bars.is_empty() {
        return None;
    }
    let texts: Vec<String> =
        bars.iter().map(|bar| format!("{}: {}", bar.label, bar.text)).collect();
    Some(BarChart {
        title: title.to_owned(),
        caption: caption.to_owned(),
        description: texts.join(". ") + ".",
        bars,
    })
}
