//! The results database: opening it, reading outcomes from it and comparing them.

use std::error::Error;
use std::path::{Path, PathBuf};

use model::{
    Ended, Experiment, ExperimentPlan, Outcome, RESOLVE_UNRECORDED, RunComparison, Support,
};
use remote::Failure;
use report::store::{Filter, SqliteStore, Store, StoreError, Stored};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::header::stored_resolve;

/// Finds a path by its name.
pub type FindPath = fn(&str) -> Option<Box<dyn model::Path>>;

/// The results of a user.
#[derive(Debug, Clone)]
pub struct Database {
    /// `None` for the user's data folder.
    pub folder: Option<PathBuf>,
    pub find_path: FindPath,
}

impl Database {
    /// Its file.
    pub fn file(&self) -> Result<PathBuf, Failure> {
        let folder = self.folder.clone().or_else(|| {
            let dirs = directories::ProjectDirs::from("", "", "wirepath");
            dirs.map(|dirs| dirs.data_dir().to_path_buf())
        });
        let folder = folder.ok_or_else(|| {
            Failure::failed("no home folder for results; give a folder with --data-dir")
        })?;
        Ok(folder.join("history.db"))
    }

    pub fn open(&self) -> Result<SqliteStore, Failure> {
        Ok(SqliteStore::open(self.file()?)?)
    }

    /// Opens it read-only, which works without write permission.
    pub fn open_reading(&self) -> Result<SqliteStore, Failure> {
        SqliteStore::open_reading(self.file()?).map_err(store_failure)
    }

    /// Outcome of a stored experiment; that of a killed one is computed from its trials.
    pub fn outcome(&self, stored: Stored) -> Outcome {
        match stored.outcome {
            Some(outcome) => outcome,
            None => self.recover(stored),
        }
    }

    /// Replays the trials of an experiment that was killed, up to that moment.
    fn recover(&self, stored: Stored) -> Outcome {
        let header = stored.header;
        let whole_block = stored.trials.iter().any(|trial| trial.block > 0);
        let mut arms = Vec::new();
        for arm in &header.arms {
            // An arm without a trial in a whole block was not meant to run.
            let ran = stored.trials.iter().any(|trial| trial.arm == arm.name);
            let support = if ran || !whole_block {
                Support::Yes
            } else {
                Support::unsupported(format!("{} was not run", arm.name), "see the run's output")
            };
            arms.push((arm.clone(), support));
        }
        let judged = match header.load.get("judged") {
            Some(names) => names.split(',').map(str::to_owned).collect(),
            None => self.judged_by_default(&header.path, header.load.get("kind")),
        };
        let mut plan =
            ExperimentPlan::new(header.seed, arms, judged, u64::MAX, header.machine.cpus);
        plan.resolve = stored_resolve(&header.load).unwrap_or(RESOLVE_UNRECORDED);
        plan.schedule = header.schedule;
        let mut experiment = Experiment::new(plan);
        experiment.restore(stored.trials);
        let mut outcome = experiment.outcome(header.into());
        outcome.ended = Ended::Unfinished;
        outcome
    }

    /// Judged metrics of a load of a path; none if it is not known.
    fn judged_by_default(&self, path: &str, load: Option<&String>) -> Vec<String> {
        let path = (self.find_path)(path);
        let loads = path.iter().flat_map(|path| path.loads());
        let kind = loads.into_iter().find(|kind| Some(kind.name) == load.map(String::as_str));
        let judged = kind.map_or(&[][..], |kind| kind.judged);
        judged.iter().map(|&name| name.to_owned()).collect()
    }

    /// Loads experiments in the form of the command line: as [`series`](Self::series) does, and from files of
    /// documents.
    ///
    /// A name that ends in `.json` or has a `/` is that of a file.
    pub fn named(&self, wanted: &str) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::new();
        for one in wanted.split(',').map(str::trim) {
            if one.ends_with(".json") || one.contains('/') {
                outcomes.extend(read_documents(Path::new(one))?);
            } else {
                let named = self.series(&self.open_reading()?, one);
                outcomes.extend(named.map_err(store_failure)?);
            }
        }
        Ok(outcomes)
    }

    /// Loads a series of experiments, oldest first.
    ///
    /// - `wanted`: ids, unique prefixes or `last`, separated by commas; `PREFIX*` is every experiment whose id begins so.
    ///
    /// Errors: one of them is not stored.
    pub fn series(&self, store: &SqliteStore, wanted: &str) -> Result<Vec<Outcome>, StoreError> {
        let mut ids = Vec::new();
        for one in wanted.split(',').map(str::trim) {
            let Some(prefix) = one.strip_suffix('*') else {
                ids.push(one.to_owned());
                continue;
            };
            let rows = store.list(&Filter::default())?;
            let before = ids.len();
            let named = rows.into_iter().rev().map(|row| row.id);
            ids.extend(named.filter(|id| id.starts_with(prefix)));
            if ids.len() == before {
                return Err(StoreError::no_such_id(one));
            }
        }
        ids.iter().map(|id| Ok(self.outcome(store.load_outcome(id)?))).collect()
    }
}

/// Failure of the database; an id that names no experiment, or several, is a mistake of the user.
pub fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::Empty | StoreError::NoSuchId { .. } | StoreError::Ambiguous { .. } => {
            Failure::usage(error)
        }
        error => error.into(),
    }
}

const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads outcomes from a file of documents. Errors name the file.
pub fn read_documents(file: &Path) -> Result<Vec<Outcome>, Failure> {
    let text = read_document_text(file)?;
    report::json::all_from_json(&text).map_err(|error| unreadable(file, &error))
}

/// Reads outcomes from a file of documents, or from a JSON export of hyperfine or k6. Errors name the file.
pub fn read_any_documents(file: &Path) -> Result<Vec<Outcome>, Failure> {
    let text = read_document_text(file)?;
    let modified = std::fs::metadata(file).and_then(|of| of.modified());
    let modified = OffsetDateTime::from(modified.map_err(|error| unreadable(file, &error))?);
    let modified = modified.format(&Rfc3339).map_err(|error| unreadable(file, &error))?;
    match report::foreign::from_json(&text, &modified) {
        Ok(Some(outcome)) => Ok(vec![outcome]),
        Ok(None) => report::json::all_from_json(&text).map_err(|error| unreadable(file, &error)),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn read_document_text(file: &Path) -> Result<String, Failure> {
    host::user_file::read_text(file, FILE_BYTES_MAX).map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &dyn Error) -> Failure {
    Failure::Usage(format!("cannot read {}: {}", file.display(), host::text::chain(error)))
}

/// Compares two series of runs. Errors: they are not comparable, which is a usage error.
pub fn compare(
    olds: &[Outcome],
    news: &[Outcome],
    unit: model::Unit,
    resolve: f64,
) -> Result<RunComparison, Failure> {
    model::compare(olds, news, unit, resolve).map_err(|e| Failure::Usage(e.to_string()))
}
