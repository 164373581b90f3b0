//! The results database: opening it, reading outcomes from it and comparing them.

use std::path::{Path, PathBuf};

use model::{
    By, Ended, Experiment, ExperimentPlan, Outcome, RESOLVE_UNRECORDED, RunComparison, Support,
};
use remote::Failure;
use report::store::{Filter, SqliteStore, Store, StoreError, Stored};

use crate::context::Context;
use crate::experiment::RESOLVE_KEY;
use crate::shared_args::{FailOn, parse_resolve};

/// Path of the results database: in `--data-dir`, else in the user's data folder.
pub(crate) fn database(context: &Context) -> Result<PathBuf, Failure> {
    let dir = match &context.data_dir {
        Some(dir) => dir.clone(),
        None => directories::ProjectDirs::from("", "", "wirepath")
            .map(|dirs| dirs.data_dir().to_path_buf())
            .ok_or_else(|| {
                Failure::failed("no home folder for results; give a folder with --data-dir")
            })?,
    };
    Ok(dir.join("history.db"))
}

pub(crate) fn open(context: &Context) -> Result<SqliteStore, Failure> {
    Ok(SqliteStore::open(database(context)?)?)
}

/// Opens the database read-only, which works without write permission.
pub(crate) fn open_reading(context: &Context) -> Result<SqliteStore, Failure> {
    Ok(SqliteStore::open_reading(database(context)?)?)
}

/// Outcome of a stored experiment; that of a killed one is computed from its trials.
pub(crate) fn outcome_of(stored: Stored) -> model::Outcome {
    match stored.outcome {
        Some(outcome) => outcome,
        None => recover(stored),
    }
}

/// Replays the trials of an experiment that was killed, up to that moment.
fn recover(stored: Stored) -> model::Outcome {
    let header = stored.header;
    let ran = |arm: &model::Arm| stored.trials.iter().any(|t| t.arm == arm.name);
    let whole_block = stored.trials.iter().any(|t| t.block > 0);
    let arms = header
        .arms
        .iter()
        .map(|arm| {
            // An arm without a trial in a whole block was not meant to run.
            let support = if ran(arm) || !whole_block {
                Support::Yes
            } else {
                Support::unsupported(format!("{} was not run", arm.name), "see the run's output")
            };
            (arm.clone(), support)
        })
        .collect();
    let of_load = || {
        crate::lookup::find_path(&header.path)
            .iter()
            .flat_map(|p| p.loads())
            .find(|l| Some(l.name) == header.load.get("kind").map(String::as_str))
            .map(|l| l.judged.iter().map(|&m| m.to_owned()).collect())
            .unwrap_or_default()
    };
    let judged = match header.load.get("judged") {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => of_load(),
    };
    let mut plan = ExperimentPlan::new(header.seed, arms, judged, u64::MAX, header.machine.cpus);
    plan.resolve = header
        .load
        .get(RESOLVE_KEY)
        .and_then(|text| parse_resolve(text).ok())
        .unwrap_or(RESOLVE_UNRECORDED);
    plan.schedule = header.schedule;
    let mut experiment = Experiment::new(plan);
    experiment.restore(stored.trials);
    let mut outcome = experiment.outcome(header.into());
    outcome.ended = Ended::Unfinished;
    outcome
}

const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads outcomes from a file of documents. Errors name the file.
pub(crate) fn read_documents(file: &Path) -> Result<Vec<Outcome>, Failure> {
    let unreadable = |why: &str| Failure::Usage(format!("cannot read {}: {why}", file.display()));
    let text =
        host::user_file::read_text(file, FILE_BYTES_MAX).map_err(|e| unreadable(&e.to_string()))?;
    report::json::all_from_json(&text).map_err(|e| unreadable(Failure::from_chain(&e).text()))
}

/// Loads experiments in the form of the command line: as [`series`] does, and from files of documents.
///
/// A name that ends in `.json` or has a `/` is that of a file.
pub(crate) fn named(context: &Context, wanted: &str) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for one in wanted.split(',').map(str::trim) {
        match one.ends_with(".json") || one.contains('/') {
            true => outcomes.extend(read_documents(Path::new(one))?),
            false => outcomes.extend(series(&open_reading(context)?, one)?),
        }
    }
    Ok(outcomes)
}

/// Loads a series of experiments, oldest first.
///
/// - `wanted`: ids, unique prefixes or `last`, separated by commas; `PREFIX*` is every experiment
///   whose id begins so.
///
/// Errors: one of them is not stored.
pub(crate) fn series(store: &SqliteStore, wanted: &str) -> Result<Vec<Outcome>, StoreError> {
    let mut ids = Vec::new();
    for one in wanted.split(',').map(str::trim) {
        let Some(prefix) = one.strip_suffix('*') else {
            ids.push(one.to_owned());
            continue;
        };
        let rows = store.list(&Filter::default())?;
        let before = ids.len();
        ids.extend(rows.into_iter().rev().map(|row| row.id).filter(|id| id.starts_with(prefix)));
        if ids.len() == before {
            return Err(StoreError::NoSuchId { wanted: one.to_owned() });
        }
    }
    ids.iter().map(|id| Ok(outcome_of(store.load_outcome(id)?))).collect()
}

/// Compares two series of runs. Errors: they are not comparable, which is a usage error.
pub(crate) fn compare(
    olds: &[Outcome],
    news: &[Outcome],
    unit: model::Unit,
    resolve: f64,
) -> Result<RunComparison, Failure> {
    model::compare(olds, news, unit, resolve).map_err(|e| Failure::Usage(e.to_string()))
}

/// Question that a threshold asks.
pub(crate) fn by(on: FailOn) -> By {
    match on {
        FailOn::Worse => By::Value,
        FailOn::LessWorth => By::Worth,
    }
}
