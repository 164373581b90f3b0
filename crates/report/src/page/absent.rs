//! Arms without figures of their own: those that cannot run here, and those whose switch did nothing.

use model::{ArmKind, ArmOutcome, Outcome, Support, Verdict};

/// Longest reason beside a name, characters.
const REASON_LEN_MAX: usize = 32;

/// An arm without figures of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// Its last switch, or its name.
    pub name: String,
    /// Reason, as far as it is known.
    pub why: Option<String>,
}

impl Absent {
    /// The name, with the reason if that is short: `zero-copy (no driver has it)`.
    pub(crate) fn briefly(&self) -> String {
        match self.why.as_ref().filter(|why| why.chars().count() <= REASON_LEN_MAX) {
            Some(why) => format!("{} ({why})", self.name),
            None => self.name.clone(),
        }
    }
}

/// The switch that an arm adds to the one before, or its name.
fn short_name(arm: &ArmOutcome) -> String {
    match arm.switches.last() {
        Some(last) if arm.name == format!("+{last}") => last.clone(),
        _ => arm.name.clone(),
    }
}

/// Arms that could not run, or were not run on purpose.
pub(super) fn not_here(outcome: &Outcome) -> Vec<Absent> {
    let arms = outcome.arms.iter().filter(|arm| arm.kind != ArmKind::Control);
    arms.filter_map(|arm| {
        let why = match &arm.support {
            Support::Yes => return None,
            Support::Unsupported { what, .. } => what,
            Support::Refused { why } => why,
        };
        Some(Absent { name: short_name(arm), why: Some(why.clone()) })
    })
    .collect()
}

/// Arms whose last switch did nothing.
pub(super) fn without_effect(outcome: &Outcome) -> Vec<Absent> {
    let Some(first) = outcome.judged.first() else { return Vec::new() };
    let arms = outcome.arms.iter();
    arms.filter_map(|arm| {
        let metric = arm.metrics.get(first)?;
        let is_idle = metric.verdict == Some(Verdict::NotEffective);
        is_idle.then(|| Absent { name: short_name(arm), why: metric.why.clone() })
    })
    .collect()
}
