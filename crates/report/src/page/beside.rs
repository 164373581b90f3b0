//! Gain of an arm in one figure beside its price in another: arms down, figures across.

use model::{ArmKind, ArmOutcome, Outcome};

use super::median;
use crate::screen::Tone;
use crate::{units, wording};

/// Counts that explain a cost and are not judged: exits of a virtual machine by their handler.
const COUNTS: [&str; 2] = ["exits_per_packet", "kernel_exits_per_packet"];

/// A figure of an arm; `None` if it has none.
pub type BesideCell = (Option<String>, Tone);

/// Judged figures of all arms in one table, and counts beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Meaning of the cells.
    pub note: &'static str,
    pub labels: Vec<String>,
    /// A cell per label: medians of the baseline and of counts, ratios to the baseline of judged figures.
    pub rows: Vec<(String, Vec<BesideCell>)>,
}

/// Judged figures up to which their own tables are enough.
const FEW: usize = 3;

/// Returns the figures of an outcome side by side; `None` if they are few.
pub(super) fn beside(outcome: &Outcome) -> Option<Beside> {
    let counts: Vec<&str> = COUNTS
        .into_iter()
        .filter(|name: &&str| outcome.arms.iter().any(|arm| arm.metrics.contains_key(*name)))
        .collect();
    let judged = outcome.judged.iter().map(String::as_str);
    let names: Vec<&str> = judged.chain(counts.iter().copied()).collect();
    if names.len() <= FEW {
        return None;
    }
    Some(Beside {
        note: match counts.as_slice() {
            [] => "ratios to the baseline, whose row has medians",
            _ => "ratios to the baseline, whose row has medians; exits are medians per packet",
        },
        labels: names
            .iter()
            .map(|name: &&str| wording::metric(name).replace(" per packet", ""))
            .collect(),
        rows: outcome
            .arms
            .iter()
            .map(|arm| (arm.label(), names.iter().map(|name| cell(arm, name)).collect()))
            .collect(),
    })
}

fn cell(arm: &ArmOutcome, name: &str) -> BesideCell {
    let Some(metric) = arm.metrics.get(name) else { return (None, Tone::Dim) };
    let is_ratio = arm.kind != ArmKind::Baseline && !COUNTS.contains(&name);
    let text = if is_ratio { metric.ratio.map(units::ratio) } else { median(metric) };
    (text, wording::tone(metric.verdict))
}
