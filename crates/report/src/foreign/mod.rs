//! Results of other tools as outcomes: hyperfine's and k6's JSON.
//!
//! Such a run has values and no verdict: its arms were neither interleaved nor compared with a second baseline. Runs of
//! several days can be compared and watched like any others.

mod hyperfine;
mod k6;

use std::collections::BTreeMap;

use model::{
    ArmKind, ArmOutcome, Better, Ended, Machine, MetricOutcome, Outcome, Phrases, RESOLVE, SCHEMA,
    Schedule, Support, Trust, Warning, statistics,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::formats::one_line;
use crate::hash::short_hash;

/// Most commands or metrics of a file, and most runs of a command.
const ENTRIES_MAX: usize = 1000;
const RUNS_MAX: usize = 1_000_000;
/// Longest name of an arm or a metric, characters.
const NAME_CHARS_MAX: usize = 120;
/// Note of the machine that names the tool and its version.
const ORIGIN: &str = "imported from";
/// Greatest value that is believed: times and sizes of any real run are far below it.
const VALUE_MAX: f64 = 1e18;

/// A document of another tool that is not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// It looks like a document of the tool, and is none.
    #[error("not a valid JSON export of {tool}")]
    Shape {
        /// Name of the other tool.
        tool: &'static str,
        #[source]
        source: serde_json::Error,
    },
    /// A newer tool wrote it.
    #[error("schema {found} of {tool}, but this Wirepath reads 1 to {known}")]
    Schema {
        tool: &'static str,
        found: u64,
        /// Newest version that is read.
        known: u64,
    },
    #[error("a JSON export of {tool} without {what}")]
    Empty { tool: &'static str, what: &'static str },
    #[error("a JSON export of {tool} with more than {max} {what}")]
    TooMany { tool: &'static str, what: &'static str, max: usize },
    #[error("a JSON export of {tool} with {what} that is below 0 or beyond {VALUE_MAX:e}")]
    Value { tool: &'static str, what: &'static str },
}

/// Fields that tell the documents apart.
#[derive(Deserialize)]
struct Head {
    /// Of Wirepath's own results.
    schema: Option<IgnoredAny>,
    /// Of hyperfine's.
    results: Option<IgnoredAny>,
    /// Of k6's.
    metrics: Option<IgnoredAny>,
}

/// Reads the JSON of another tool; `None` if the text is not of one that is known.
///
/// - `modified`: RFC 3339 UTC time of the file, of a document that does not say when it was measured.
///
/// Errors: it is of a known tool and not valid.
pub fn from_json(text: &str, modified: &str) -> Result<Option<Outcome>, ForeignError> {
    let Ok(head) = serde_json::from_str::<Head>(text) else { return Ok(None) };
    let run = match head {
        Head { schema: Some(_), .. } => return Ok(None),
        Head { results: Some(_), .. } => hyperfine::read(text)?,
        Head { metrics: Some(_), .. } => k6::read(text)?,
        _ => return Ok(None),
    };
    Ok(Some(run.outcome(text, modified)))
}

/// Content of a tool's document.
struct ForeignRun {
    tool: &'static str,
    version: Option<String>,
    /// RFC 3339 UTC time, if the document has one.
    started: Option<String>,
    wall_ms: u64,
    judged: Vec<String>,
    arms: Vec<ForeignArm>,
    warnings: Vec<Warning>,
    /// Reason why there is no verdict.
    why: &'static str,
}

struct ForeignArm {
    name: String,
    /// Value of each run; `None` of a run that failed.
    metrics: Vec<ForeignMetric>,
    failures: Vec<String>,
}

struct ForeignMetric {
    name: String,
    unit: &'static str,
    better: Better,
    values: Vec<Option<f64>>,
}

impl ForeignRun {
    /// The outcome of a document; its id is that of its content, so that it is stored once.
    fn outcome(self, text: &str, modified: &str) -> Outcome {
        let tool = self.tool;
        let arms = self.arms.into_iter().enumerate();
        let arms: Vec<ArmOutcome> =
            arms.map(|(place, arm)| arm_outcome(place, arm, self.why)).collect();
        let version = self.version.map_or(tool.to_owned(), |version| format!("{tool} {version}"));
        Outcome {
            schema: SCHEMA,
            id: format!("{tool}-{}", short_hash(text)),
            name: None,
            note: None,
            started: self.started.unwrap_or_else(|| modified.to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine {
                id: "unrecorded".into(),
                notes: BTreeMap::from([(ORIGIN.to_owned(), name(&version))]),
                ..Machine::default()
            },
            path: tool.to_owned(),
            load: BTreeMap::new(),
            phrases: Phrases::default(),
            seed: 0,
            schedule: Schedule::default(),
            blocks: arms.iter().map(|arm| arm.trials).max().unwrap_or(0),
            wall_ms: self.wall_ms,
            ended: Ended::BlockLimit,
            looks: 0,
            looked: Vec::new(),
            forecast: None,
            resolve: RESOLVE,
            judged: self.judged,
            arms,
            best: Vec::new(),
            floor: BTreeMap::new(),
            warnings: self.warnings,
            trust: Trust::default(),
            gate: None,
            search: None,
        }
    }
}

fn arm_outcome(place: usize, arm: ForeignArm, why: &str) -> ArmOutcome {
    let trials = arm.metrics.iter().map(|metric| metric.values.len()).max().unwrap_or(0);
    let metrics = arm.metrics.into_iter().map(|metric| {
        let values: Vec<f64> = metric.values.iter().flatten().copied().collect();
        let outcome = MetricOutcome {
            median: statistics::median(&values),
            why: Some(why.to_owned()),
            ..MetricOutcome::unjudged(metric.unit, metric.better, metric.values)
        };
        (metric.name, outcome)
    });
    ArmOutcome {
        name: arm.name,
        kind: if place == 0 { ArmKind::Baseline } else { ArmKind::Variant },
        switches: Vec::new(),
        support: Support::Yes,
        trials: u32::try_from(trials).unwrap_or(u32::MAX),
        metrics: metrics.collect(),
        latency: BTreeMap::new(),
        mode: BTreeMap::new(),
        counters: BTreeMap::new(),
        samples: None,
        reliability: None,
        failures: arm.failures,
    }
}

/// True for an outcome of another tool's document.
pub fn is_foreign(outcome: &Outcome) -> bool {
    outcome.machine.notes.contains_key(ORIGIN)
}

/// A name in one line, without characters that drive a terminal.
fn name(text: &str) -> String {
    one_line(text).trim().chars().take(NAME_CHARS_MAX).collect()
}

/// A value in the unit of its metric. Errors: it is no measured value.
fn value(
    tool: &'static str,
    what: &'static str,
    value: f64,
    factor: f64,
) -> Result<f64, ForeignError> {
    let scaled = value * factor;
    if (0.0..=VALUE_MAX).contains(&scaled) {
        Ok(scaled)
    } else {
        Err(ForeignError::Value { tool, what })
    }
}

/// Errors: there are more than `max`.
fn at_most(
    tool: &'static str,
    what: &'static str,
    count: usize,
    max: usize,
) -> Result<(), ForeignError> {
    if count > max { Err(ForeignError::TooMany { tool, what, max }) } else { Ok(()) }
}
