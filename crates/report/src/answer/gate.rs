//! Sentences of a gate's decisions.

use model::{By, Decision, Gate, GateAnswer, Reliability, Undecided};

use super::change::Change;
use super::words::{about, percent, value};
use super::{capital, with_label};
use crate::units;

/// Sentences in one message; the rest are counted.
const SENTENCES_MAX: usize = 6;

/// Returns the answer of a gate in a few sentences: what is worse, else what is not decided, else all figures.
pub fn summary(gate: &Gate) -> String {
    let of: Vec<&Decision> =
        gate.decisions.iter().filter(|decision| decision.answer == gate.answer).collect();
    if of.is_empty() {
        return "Not decided: there is no arm to compare with the baseline.".into();
    }
    let names_figure = has_several_figures(gate);
    let mut said: Vec<String> = of
        .iter()
        .take(SENTENCES_MAX)
        .map(|decision| sentence(gate, decision, names_figure))
        .collect();
    if of.len() > SENTENCES_MAX {
        said.push(format!("And {} more.", of.len() - SENTENCES_MAX));
    }
    said.join(" ")
}

/// True if a sentence has to say which figure it is about.
pub(crate) fn has_several_figures(gate: &Gate) -> bool {
    let mut metrics: Vec<&str> =
        gate.decisions.iter().filter_map(|decision| decision.metric.as_deref()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    metrics.len() > 1
}

/// Returns one decision as a sentence.
///
/// - `names_figure`: the sentence says which figure it is about.
pub(crate) fn sentence(gate: &Gate, decision: &Decision, names_figure: bool) -> String {
    let Some(change) = Change::from_decision(decision, gate.by) else {
        return match &decision.failures {
            Some(failures) => failures_sentence(decision, failures),
            None => {
                format!(
                    "Not decided: {} against {}: {}.",
                    decision.arm,
                    decision.base,
                    reason(gate, decision)
                )
            }
        };
    };
    let text = match decision.answer {
        GateAnswer::Worse => format!("{}.", change.differs(true)),
        GateAnswer::NoWorse => format!("{}.", change.no_worse(gate.threshold)),
        GateAnswer::NotDecided => open(gate, decision, &change),
    };
    with_label(&change, names_figure, text)
}

/// A decision that is open: the range or the reason, and the remedy.
pub(super) fn open(gate: &Gate, decision: &Decision, change: &Change<'_>) -> String {
    let is_wide = matches!(
        decision.reason,
        None | Some(Undecided::Wide | Undecided::Corrected { .. } | Undecided::Interrupted)
    );
    let range = is_wide.then(|| change.between()).flatten();
    let head = match (&decision.reason, range) {
        (None | Some(Undecided::Wide), Some(range)) => format!("Not decided: {range}."),
        (Some(_), Some(range)) => {
            format!("Not decided: {range}. {}.", capital(&reason(gate, decision)))
        }
        _ if gate.by == By::Worth => {
            format!("Not decided: worth of {}: {}.", decision.arm, reason(gate, decision))
        }
        _ => format!(
            "Not decided: {} against {}: {}.",
            decision.arm,
            decision.base,
            reason(gate, decision)
        ),
    };
    match more(decision) {
        Some(more) => {
            format!("{head} About {more} more would decide {}.", percent(gate.threshold - 1.0))
        }
        None => head,
    }
}

/// `4 minutes`, or `40 blocks` where the time is not known.
fn more(decision: &Decision) -> Option<String> {
    let blocks = decision.more_blocks?;
    Some(match decision.more_ms.filter(|ms| *ms > 0) {
        Some(ms) => about(ms),
        None => units::plural(blocks, "block"),
    })
}

fn failures_sentence(decision: &Decision, failures: &Reliability) -> String {
    let Decision { arm, base, .. } = decision;
    let counts = counts(failures);
    match decision.answer {
        GateAnswer::Worse => format!("{arm} fails more often than {base}: {counts}."),
        GateAnswer::NoWorse => format!("{arm} fails no more often than {base}: {counts}."),
        GateAnswer::NotDecided => {
            format!("Not decided: {arm} failed in {counts} of {base}.")
        }
    }
}

/// `5 of 20 trials against 0 of 20`.
pub(super) fn counts(failures: &Reliability) -> String {
    format!(
        "{} of {} trials against {} of {}",
        failures.failed, failures.trials, failures.baseline_failed, failures.baseline_trials
    )
}

/// Reason for no decision, and its remedy.
fn reason(gate: &Gate, decision: &Decision) -> String {
    let base = &decision.base;
    match &decision.reason {
        None => "no reason is given".into(),
        Some(Undecided::Wide) => match (decision.more_blocks, gate.by) {
            (None, _) => "the interval reaches beyond the resolution".into(),
            (Some(_), _) => "the interval is too wide".into(),
        },
        Some(Undecided::FewBlocks { blocks, needed }) => {
            format!("{} with the figure, {needed} are needed", units::plural(*blocks, "block"))
        }
        Some(Undecided::FewRuns { needed }) => {
            format!("a verdict needs a figure in at least {needed} runs a side")
        }
        Some(Undecided::FewSessions { unit, old, new, needed }) => {
            let sides = [(old, "before"), (new, "now")];
            let missing = sides.iter().filter(|(count, _)| *count < needed).map(|(count, when)| {
                format!("{} more {when}", units::plural(needed - *count, unit.name()))
            });
            format!(
                "the day cannot be told from the change; {} can decide it, or both states in one run (--against)",
                missing.collect::<Vec<_>>().join(" and ")
            )
        }
        Some(Undecided::FewPoints { unit, sessions, needed }) => format!(
            "{} of {needed} without which no change can be found; {} more",
            units::plural(*sessions, unit.name()),
            needed.saturating_sub(*sessions)
        ),
        Some(Undecided::Corrected { figures }) => format!(
            "that is beyond the resolution, but not after the correction for {figures} figures"
        ),
        Some(Undecided::Resolution { step }) => format!(
            "the figures come in steps of {}, too coarse to resolve {}; let the program print \
             smaller units, or give a higher --resolve",
            value(*step, &decision.unit),
            percent(gate.threshold - 1.0)
        ),
        Some(Undecided::Tail) => {
            "no worse in the typical trial, but in all trials taken together".into()
        }
        Some(Undecided::Failures) => "it failed in more trials".into(),
        Some(Undecided::Unread { why }) => format!("there is no figure: {why}"),
        Some(Undecided::Missing { why }) => format!("the arm did not run: {why}"),
        Some(Undecided::Distrusted) => format!(
            "{base} differs from itself, so the machine cannot be trusted; run again on a quiet \
             machine"
        ),
        Some(Undecided::OneStart) => {
            "each program was started once, and two starts of one program differ, too; give more --time, or leave \
             out --keep-servers"
                .into()
        }
        Some(Undecided::CarryOver) => {
            "the trial before moves its figures, so they cannot be trusted; run again with --settle"
                .into()
        }
        Some(Undecided::NoControl) => format!(
            "the second run of {base} gave no figure, so nothing shows the noise; see why its \
             trials failed"
        ),
        Some(Undecided::Interrupted) => "the run did not reach its planned end; let it end".into(),
        Some(Undecided::BaselineMoved) => {
            "the baseline itself changed, so either the machine did or something that all arms \
             share; compare both states in one run (--against), or ask for --fail-on less-worth"
                .into()
        }
        Some(Undecided::Runs { undecided, of }) => format!("in {undecided} of {of} runs"),
    }
}
