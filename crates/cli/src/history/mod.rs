//! `wirepath history`, and where the results are kept.

pub(crate) mod args;
mod check;
pub(crate) mod compare;
mod export;
mod prune;

use std::fmt::Write;
use std::path::PathBuf;

use model::{Ended, Experiment, ExperimentPlan, OutcomeHeader, Step, Support};
use report::store::{Filter, SqliteStore, Store, StoreError, Stored};

use crate::args::Cli;
use crate::console;
use crate::end::Failure;
use args::HistoryCommand;

/// The results database: `--data-dir`, or the user's data folder.
pub(crate) fn database(cli: &Cli) -> Result<PathBuf, Failure> {
    let dir = match &cli.data_dir {
        Some(dir) => dir.clone(),
        None => directories::ProjectDirs::from("", "", "wirepath")
            .map(|dirs| dirs.data_dir().to_path_buf())
            .ok_or_else(|| {
                Failure::failed("no home folder to keep results in; give one with --data-dir")
            })?,
    };
    Ok(dir.join("history.db"))
}

pub(crate) fn open(cli: &Cli) -> Result<SqliteStore, Failure> {
    Ok(SqliteStore::open(database(cli)?)?)
}

/// To look at only: also where nothing may be written.
pub(crate) fn open_reading(cli: &Cli) -> Result<SqliteStore, Failure> {
    Ok(SqliteStore::open_reading(database(cli)?)?)
}

pub(crate) fn run(cli: &Cli, command: Option<&HistoryCommand>) -> Result<(), Failure> {
    match command {
        None => list(cli, args::ROWS, None),
        Some(HistoryCommand::List { last, path }) => list(cli, *last, path.clone()),
        Some(HistoryCommand::Show { id }) => show(cli, id),
        Some(HistoryCommand::Compare(args)) => compare::run(cli, args),
        Some(HistoryCommand::Export(args)) => export::run(cli, args),
        Some(HistoryCommand::Prune(args)) => prune::run(cli, args),
        Some(HistoryCommand::Check) => check::run(cli),
    }
}

fn list(cli: &Cli, last: usize, path: Option<String>) -> Result<(), Failure> {
    let filter = Filter { limit: Some(last as u32), path, ..Filter::default() };
    let rows = match SqliteStore::open_reading(database(cli)?) {
        Err(StoreError::Empty) => Vec::new(),
        store => store?.list(&filter)?,
    };
    if cli.json {
        let json = serde_json::json!({ "schema": model::SCHEMA, "experiments": rows });
        return console::text(&format!("{json:#}"));
    }
    if rows.is_empty() {
        return console::text("no experiments yet; run: wirepath prove probe");
    }
    console::text(&report::text::list(&rows, console::style()))
}

/// The outcome of a stored experiment; one that was killed is put together from its trials.
pub(crate) fn outcome_of(stored: Stored) -> model::Outcome {
    match stored.outcome {
        Some(outcome) => outcome,
        None => recover(stored),
    }
}

/// Replays the trials of an experiment that was killed: what its outcome was at that moment.
fn recover(stored: Stored) -> model::Outcome {
    let header = stored.header;
    let ran = |arm: &model::Arm| stored.trials.iter().any(|t| t.arm == arm.name);
    let whole_block = stored.trials.iter().any(|t| t.block > 0);
    let arms = header
        .arms
        .iter()
        .map(|arm| {
            // What was never run in a whole block was not to be run.
            let support = if ran(arm) || !whole_block {
                Support::Yes
            } else {
                Support::unsupported(format!("{} was not run", arm.name), "see the run's output")
            };
            (arm.clone(), support)
        })
        .collect();
    let judged = crate::prove::find_path(&header.path)
        .iter()
        .flat_map(|p| p.loads())
        .find(|l| Some(l.name) == header.load.get("kind").map(String::as_str))
        .map(|l| l.judged.iter().map(|&m| m.to_owned()).collect())
        .unwrap_or_default();
    let mut plan = ExperimentPlan::new(header.seed, arms, judged, u64::MAX, header.machine.cpus);
    plan.stop_early = false;
    plan.max_blocks = u32::MAX;
    let mut experiment = Experiment::new(plan);
    for trial in stored.trials {
        let started_ns = trial.started_ms * 1_000_000;
        match experiment.next(started_ns) {
            Step::Trial { arm, .. } if experiment.arms()[arm].0.name == trial.arm => {
                experiment.record(trial.result);
            }
            // An order that this version would not have chosen: what came before still stands.
            _ => break,
        }
    }
    let mut outcome = experiment.outcome(OutcomeHeader {
        id: header.id,
        started: header.started,
        version: header.version,
        machine: header.machine,
        path: header.path,
        load: header.load,
    });
    outcome.ended = Ended::Unfinished;
    outcome
}

fn show(cli: &Cli, id: &str) -> Result<(), Failure> {
    let stored = open_reading(cli)?.load(id)?;
    let trials: Vec<_> = stored
        .trials
        .iter()
        .map(|t| {
            let result = t.result.as_ref();
            let p50 = result.ok().and_then(|m| {
                m.metrics().into_iter().find(|x| x.value.is_ok()).map(|x| (x.name, x.value))
            });
            (t.ordinal, t.block, t.arm.clone(), t.warmup, t.wall_ns, p50, result.err().cloned())
        })
        .collect();
    let outcome = outcome_of(stored);
    if cli.json {
        return console::text(&report::json::to_json(&outcome));
    }
    let mut out = report::text::ladder(&outcome, console::style());
    let _ = writeln!(out, "\ntrials ({})", trials.len());
    for (ordinal, block, arm, warmup, wall_ns, first, error) in trials {
        let note = match (&first, error) {
            (_, Some(error)) => format!("failed: {error}"),
            (Some((name, Ok(value))), None) => format!("{name} {value:.0}"),
            _ => String::new(),
        };
        let warmup = if warmup { " (warm-up)" } else { "" };
        let _ = writeln!(
            out,
            "{ordinal:>5}  block {block:>3}  {arm:<18} {:>5} ms  {note}{warmup}",
            wall_ns / 1_000_000
        );
    }
    console::text(&out)
}
