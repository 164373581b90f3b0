//! hyperfine's `--export-json`: schema 1 (up to 1.x) and schema 2.
//!
//! Source: hyperfine 1.20 and 2.0, `src/export/json.rs` and `src/benchmark`.

use std::collections::BTreeSet;

use model::{Better, Warning};
use serde::Deserialize;

use super::{
    ENTRIES_MAX, ForeignArm, ForeignError, ForeignMetric, ForeignRun, RUNS_MAX, at_most, name,
    value,
};

const TOOL: &str = "hyperfine";
const SCHEMA_MAX: u64 = 2;
/// Errors of an arm that are kept.
const FAILURES_MAX: usize = 100;
const NS_PER_S: f64 = 1e9;
const WHY: &str = "hyperfine runs one command after the other: without interleaving and a second baseline there is no verdict";

/// Metrics: those of `compare` for programs that end.
const WALL: &str = "client_wall_ns";
const CPU: &str = "client_cpu_ns";
const MEMORY: &str = "client_memory_bytes_max";

#[derive(Deserialize)]
struct Version {
    schema_version: Option<u64>,
}

#[derive(Deserialize)]
struct First {
    results: Vec<FirstResult>,
}

#[derive(Deserialize)]
struct FirstResult {
    command: String,
    /// Of 1.x before the times of all runs were exported, absent.
    times: Option<Vec<f64>>,
    median: f64,
    user: Option<f64>,
    system: Option<f64>,
    memory_usage_byte: Option<Vec<u64>>,
    exit_codes: Option<Vec<Option<i32>>>,
}

#[derive(Deserialize)]
struct Second {
    metadata: Option<Metadata>,
    results: Vec<SecondResult>,
}

#[derive(Deserialize)]
struct Metadata {
    hyperfine_version: Option<String>,
    start_time: Option<String>,
}

#[derive(Deserialize)]
struct SecondResult {
    command: String,
    name: Option<String>,
    measurements: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    time_wall_clock: Quantity,
    time_user: Option<Quantity>,
    time_system: Option<Quantity>,
    memory_peak_resident: Option<Quantity>,
    exit_code: Option<i32>,
}

/// Seconds or bytes; each quantity of the format has one unit.
#[derive(Clone, Copy, Deserialize)]
struct Quantity {
    value: f64,
}

pub(super) fn read(text: &str) -> Result<ForeignRun, ForeignError> {
    let version: Version = parse(text)?;
    match version.schema_version {
        None | Some(1) => first(parse(text)?),
        Some(SCHEMA_MAX) => second(parse(text)?),
        Some(found) => Err(ForeignError::Schema { tool: TOOL, found, known: SCHEMA_MAX }),
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ForeignError> {
    serde_json::from_str(text).map_err(|source| ForeignError::Shape { tool: TOOL, source })
}

fn first(document: First) -> Result<ForeignRun, ForeignError> {
    let mut arms = Vec::new();
    for result in checked(document.results)? {
        let times = result.times.unwrap_or_else(|| vec![result.median]);
        let codes = result.exit_codes.unwrap_or_default();
        let memory = result.memory_usage_byte.unwrap_or_default();
        let mut runs = Vec::with_capacity(times.len());
        for (place, time) in times.into_iter().enumerate() {
            let code = codes.get(place).copied().unwrap_or(Some(0));
            runs.push(Run {
                wall_s: time,
                cpu_s: None,
                memory_bytes: memory.get(place).map(|bytes| *bytes as f64),
                code,
            });
        }
        let mut arm = arm(&result.command, &runs)?;
        // One figure for all runs, the mean.
        if let (Some(user), Some(system)) = (result.user, result.system) {
            let ns = value(TOOL, "a CPU time", user + system, NS_PER_S)?;
            arm.metrics.push(metric(CPU, "ns", vec![Some(ns)]));
        }
        arms.push(arm);
    }
    run(arms, None, None)
}

fn second(document: Second) -> Result<ForeignRun, ForeignError> {
    let mut arms = Vec::new();
    for result in checked(document.results)? {
        let runs: Vec<Run> = result.measurements.iter().map(Run::new).collect();
        arms.push(arm(result.name.as_deref().unwrap_or(&result.command), &runs)?);
    }
    let (version, started) =
        document.metadata.map_or((None, None), |of| (of.hyperfine_version, of.start_time));
    run(arms, version, started)
}

fn checked<T>(results: Vec<T>) -> Result<Vec<T>, ForeignError> {
    at_most(TOOL, "commands", results.len(), ENTRIES_MAX)?;
    if results.is_empty() {
        return Err(ForeignError::Empty { tool: TOOL, what: "a result" });
    }
    Ok(results)
}

/// One run of a command.
struct Run {
    wall_s: f64,
    cpu_s: Option<f64>,
    memory_bytes: Option<f64>,
    /// `None` if a signal ended it.
    code: Option<i32>,
}

impl Run {
    fn new(measured: &Measured) -> Self {
        let [user, system] = [measured.time_user, measured.time_system];
        Run {
            wall_s: measured.time_wall_clock.value,
            cpu_s: user.zip(system).map(|(user, system)| user.value + system.value),
            memory_bytes: measured.memory_peak_resident.map(|of| of.value),
            code: measured.exit_code,
        }
    }

    fn failure(&self, place: usize) -> Option<String> {
        match self.code {
            Some(0) => None,
            Some(code) => Some(format!("run {} ended with exit code {code}", place + 1)),
            None => Some(format!("run {} was ended by a signal", place + 1)),
        }
    }
}

/// An arm of the runs of a command; a run that failed has no figures.
fn arm(command: &str, runs: &[Run]) -> Result<ForeignArm, ForeignError> {
    at_most(TOOL, "runs of a command", runs.len(), RUNS_MAX)?;
    if runs.is_empty() {
        return Err(ForeignError::Empty { tool: TOOL, what: "a run of a command" });
    }
    let figures = [
        metric(WALL, "ns", values(runs, "a time", NS_PER_S, |run| Some(run.wall_s))?),
        metric(CPU, "ns", values(runs, "a CPU time", NS_PER_S, |run| run.cpu_s)?),
        metric(MEMORY, "bytes", values(runs, "a size", 1.0, |run| run.memory_bytes)?),
    ];
    let known = figures
        .into_iter()
        .filter(|metric| metric.name == WALL || metric.values.iter().any(Option::is_some));
    let failures = runs.iter().enumerate().filter_map(|(place, run)| run.failure(place));
    Ok(ForeignArm {
        name: name(command),
        metrics: known.collect(),
        failures: failures.take(FAILURES_MAX).collect(),
    })
}

fn values(
    runs: &[Run],
    what: &'static str,
    factor: f64,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Result<Vec<Option<f64>>, ForeignError> {
    runs.iter()
        .map(|run| {
            let found = figure(run).map(|found| value(TOOL, what, found, factor)).transpose()?;
            Ok(found.filter(|_| run.code == Some(0)))
        })
        .collect()
}

fn metric(name: &str, unit: &'static str, values: Vec<Option<f64>>) -> ForeignMetric {
    ForeignMetric { name: name.to_owned(), unit, better: Better::Lower, values }
}

fn run(
    mut arms: Vec<ForeignArm>,
    version: Option<String>,
    started: Option<String>,
) -> Result<ForeignRun, ForeignError> {
    number_equal_names(&mut arms);
    let wall = arms.iter().flat_map(|arm| arm.metrics.iter().find(|of| of.name == WALL));
    let wall_ns: f64 = wall.flat_map(|metric| metric.values.iter().flatten()).sum();
    let warnings = vec![Warning {
        what: "the commands were run one after the other (hyperfine)".into(),
        advice: "wirepath compare runs them interleaved, with the baseline twice".into(),
    }];
    let judged = vec![WALL.to_owned()];
    let started = started.and_then(|time| utc(&time));
    let wall_ms = (wall_ns / 1e6) as u64;
    Ok(ForeignRun { tool: TOOL, version, started, wall_ms, judged, arms, warnings, why: WHY })
}

/// The same command may be there twice, and names of arms are unique.
fn number_equal_names(arms: &mut [ForeignArm]) {
    let mut known = BTreeSet::new();
    for arm in arms {
        let plain = arm.name.clone();
        let mut number = 2;
        while !known.insert(arm.name.clone()) {
            arm.name = format!("{plain} ({number})");
            number += 1;
        }
    }
}

/// A time in the form of the store: RFC 3339 with `Z`; `None` of another one.
fn utc(text: &str) -> Option<String> {
    let text =
        text.strip_suffix("+00:00").map_or_else(|| text.to_owned(), |time| format!("{time}Z"));
    crate::store::is_time(&text).then_some(text)
}
