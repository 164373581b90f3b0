//! A wire with distance, in words.

use model::{ArmOutcome, Outcome};

use crate::units;

/// Returns losses, congestion control and the gain of pairing: `wire lost 153 of 151,234 segments (0.101 %); congestion
/// control cubic; same losses for all arms of a block: new shares 0.95 of its spread, 19 times less variance`; `None`
/// without such a wire.
pub(super) fn line(outcome: &Outcome) -> Option<String> {
    outcome.load.get("wire")?;
    let parts = [lost(outcome), controls(outcome), pairing(outcome)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn lost(outcome: &Outcome) -> Option<String> {
    let sum = |name: &str| {
        let counts = outcome.arms.iter().filter_map(|arm| arm.counters.get(name));
        model::total(counts.copied())
    };
    let segment_count = sum("wire_segment_count");
    let loss_count = sum("wire_loss_count");
    (segment_count > 0).then(|| {
        format!(
            "the wire lost {} of {} segments ({:.3} %)",
            units::grouped_count(loss_count),
            units::grouped_count(segment_count),
            loss_count as f64 / segment_count as f64 * 100.0
        )
    })
}

fn control(arm: &ArmOutcome) -> Option<&String> {
    arm.mode.get("tcp_congestion_control")
}

/// Congestion control of all arms, or of each where they differ.
fn controls(outcome: &Outcome) -> Option<String> {
    let first = outcome.arms.iter().find_map(control)?;
    if outcome.arms.iter().filter_map(control).all(|name| name == first) {
        return Some(format!("congestion control {first}"));
    }
    let arms =
        outcome.arms.iter().filter_map(|arm| Some(format!("{} {}", arm.name, control(arm)?)));
    Some(format!("congestion control: {}", arms.collect::<Vec<_>>().join(", ")))
}

/// Gain of pairing in the first judged metric.
fn pairing(outcome: &Outcome) -> Option<String> {
    let metric = outcome.judged.first()?;
    let compared = outcome.arms.iter().filter(|arm| arm.kind.is_compared());
    let gains: Vec<String> = compared
        .filter_map(|arm| {
            let pairing = outcome.pairing(&arm.name, metric)?;
            let text = if pairing.is_shown {
                format!(
                    "{} {:.1} times less variance (correlation {:.2})",
                    arm.name, pairing.gain, pairing.correlation
                )
            } else {
                format!("{} no gain shown (correlation {:.2})", arm.name, pairing.correlation)
            };
            Some(text)
        })
        .collect();
    (!gains.is_empty()).then(|| format!("pairing by equal losses: {}", gains.join(", ")))
}
