//! Causes of what is lost in a trial, from the library of causes.

use host::causes::{self, Confidence, Evidence, Sample, Severity};
use host::netns::Netns;
use host::text::printable;
use host::tune::{Place, System};
use model::Trap;

/// Most causes of one place that are reported.
const CAUSES_MAX: usize = 4;
/// Longest sentence of another host, characters.
const SENTENCE_MAX: usize = 300;

/// Ends of names of counters that count losses.
const LOSSES: [&str; 14] = [
    "Errors",
    "Overflows",
    "Drops",
    "Drop",
    "dropped",
    "Discards",
    "Fails",
    "Filter",
    "NoPorts",
    "NoRoutes",
    "IgnoredMulti",
    "missed_errors",
    "insert_failed",
    "table_fulls",
];

/// Counters of a place before a trial.
#[derive(Debug)]
pub struct LossWatch {
    system: System,
    before: Sample,
}

impl LossWatch {
    /// Reads the counters of a namespace; `None` if they cannot be read, and then no cause is named.
    pub fn begin(netns: &Netns) -> Option<Self> {
        let system = System::from_netns(netns.try_clone().ok()?, Place::default()).ok()?;
        let before = Sample::take(&system).ok()?;
        Some(LossWatch { system, before })
    }

    /// Causes of losses since then, a sentence each, the worst first. Call it after the measured time.
    pub fn end(self) -> Vec<String> {
        let Ok(after) = Sample::take(&self.system) else { return Vec::new() };
        let has_grown = |(name, count): (&String, &u64)| {
            let is_loss = LOSSES.iter().any(|end| name.ends_with(end));
            is_loss && *count > self.before.counters.get(name).copied().unwrap_or(*count)
        };
        if !after.counters.iter().any(has_grown) {
            return Vec::new();
        }
        let Ok(evidence) = Evidence::new(self.system, None, None, None) else { return Vec::new() };
        let report = causes::examine_counted(&evidence.watched(self.before, after));
        let lost = report.findings.into_iter().filter(|found| {
            found.confidence == Confidence::Now && found.severity == Severity::High
        });
        lost.map(|found| found.what).take(CAUSES_MAX).collect()
    }
}

/// Warnings about the causes of losses at an end of a trial.
///
/// - `end`: `near`, `far`.
/// - `causes`: of [`LossWatch::end`], or of another host.
pub fn loss_traps(end: &str, causes: &[String]) -> Vec<Trap> {
    let trap = |cause: &String| {
        Trap {
        what: format!("{end} end, in a trial: {}", printable(cause, SENTENCE_MAX)),
        advice: "compare arms at a rate without losses, or remove the cause: `wirepath doctor` at that end while it \
                 runs says how"
            .into(),
    }
    };
    causes.iter().take(CAUSES_MAX).map(trap).collect()
}
