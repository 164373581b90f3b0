//! Latency from a time in the packet, by arm: its zero is the fastest packet of the calibration. Reported beside the judged
//! figures, because receivers that have no clock in common with the sender count in the same way.

use model::{ArmKind, Outcome};

use crate::units;

/// Segment with this zero.
const SEGMENT: &str = "match→app";
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
const SHARE: &str = "match_to_app_share_within_1us";

/// Quantiles over all trials, and the share of the packets within a microsecond of the zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    pub caption: &'static str,
    pub labels: Vec<String>,
    /// A figure per label; `None` if the arm has none.
    pub rows: Vec<(String, Vec<Option<String>>)>,
}

/// Returns the figures of an outcome; `None` without such a segment.
pub(super) fn calibrated(outcome: &Outcome) -> Option<Calibrated> {
    let arms = outcome.arms.iter().filter(|arm| arm.kind != ArmKind::Control);
    let rows: Vec<_> = arms
        .filter_map(|arm| {
            let latency = arm.latency.get(SEGMENT)?;
            let quantiles = QUANTILES.iter().map(|(_, wanted)| {
                let found = latency.quantiles.iter().find(|(known, _)| known == wanted)?;
                Some(units::value(found.1 as f64, "ns"))
            });
            let share = arm.metrics.get(SHARE).and_then(|share| share.median).map(units::percent);
            Some((arm.label(), quantiles.chain([share]).collect()))
        })
        .collect();
    let labels = QUANTILES.iter().map(|(label, _)| *label).chain(["within 1 µs"]);
    (!rows.is_empty()).then(|| Calibrated {
        caption: "match→app from the fastest packet of the calibration, all trials together; the share within 1 µs of it \
                  is the trials' median",
        labels: labels.map(str::to_owned).collect(),
        rows,
    })
}
