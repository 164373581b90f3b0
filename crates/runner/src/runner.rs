//! The one driver of experiments.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use host::exclusive::{Activity, ExclusiveLock};
use host::tune::Store;
use model::{Arm, Load, LoadRequest, Path, PlanRequest, Request, Session, Subject};
use remote::Failure;

use crate::best::{self, Record, Space};
use crate::conduct::{Proof, Proven, Resumed, conduct};
use crate::console::Console;
use crate::path::PathPlan;
use crate::programs::ProgramsPlan;
use crate::{Database, path, plan, programs};

/// Folder of the journal of settings, and for tests a replacement of `/`.
#[derive(Debug, Clone)]
pub struct Journal {
    pub folder: PathBuf,
    pub root: Option<PathBuf>,
}

impl Default for Journal {
    fn default() -> Self {
        Journal { folder: host::tune::DEFAULT_FOLDER.into(), root: None }
    }
}

impl Journal {
    pub fn store(&self) -> Store {
        Store::new(&self.folder)
    }

    /// That of the near end of programs.
    pub(crate) fn near(&self) -> Self {
        Journal { folder: self.folder.join("near"), root: self.root.clone() }
    }
}

/// Takes the experiment lock; `explain` cannot run while it is held.
pub fn lock() -> Result<ExclusiveLock, Failure> {
    ExclusiveLock::acquire(Activity::Measuring)
        .map_err(|conflict| Failure::failed(conflict.to_string()))
}

/// Finds a path by its name, for a load that may be a capture.
pub type OpenPath<'a> = dyn Fn(&str, &LoadRequest) -> Result<Box<dyn Path>, Failure> + 'a;
/// Starts a process that restores the settings of a journal if this one is killed; it ends with the value.
pub type StartGuard<'a> = dyn Fn(&Journal) -> Result<Box<dyn Any>, Failure> + 'a;

/// Starts another build of the program beside this one for trials of an arm; returns its version, too.
pub type StartBuilds<'a> =
    dyn Fn(&std::path::Path, &str, &Load, &Arm) -> Result<(Box<dyn Session>, String), Failure> + 'a;

/// Runs requests.
pub struct Runner<'a> {
    pub find_path: &'a OpenPath<'a>,
    pub database: Database,
    pub journal: Journal,
    pub start_guard: &'a StartGuard<'a>,
    pub start_builds: &'a StartBuilds<'a>,
    /// Ends a run after the trial under way.
    pub stop: &'static AtomicBool,
    pub console: &'a dyn Console,
}

/// A request whose arms are known, as far as they are before its session is opened.
pub enum Planned {
    Path(Box<PathPlan>),
    Programs(Box<ProgramsPlan>),
    Settings(Box<PlanRequest>),
}

/// An experiment whose session is open.
pub(crate) struct Opened<'a> {
    pub(crate) proof: Proof,
    pub(crate) session: Box<dyn Session>,
    /// Sets among which the best is searched; `None` for the arms of the proof.
    pub(crate) space: Option<Space<'a>>,
    /// A search is stored while it runs, so that it can be resumed.
    pub(crate) records_search: bool,
    pub(crate) guards: Vec<Box<dyn Any>>,
}

impl Runner<'_> {
    /// Errors: the request makes no sense here, which shows before anything is locked or measured.
    pub fn plan(&self, request: &Request) -> Result<Planned, Failure> {
        request.check().map_err(Failure::usage)?;
        Ok(match &request.subject {
            Subject::Path(wanted) => Planned::Path(Box::new(path::plan(self, request, wanted)?)),
            Subject::Programs(wanted) => {
                Planned::Programs(Box::new(programs::plan(request, wanted)?))
            }
            Subject::Plan(wanted) => Planned::Settings(wanted.clone()),
        })
    }

    /// Runs a request once, from its arms to its outcome.
    pub fn run(&self, request: &Request) -> Result<Proven, Failure> {
        self.run_planned(request, self.plan(request)?, None)
    }

    /// Runs a request once.
    ///
    /// - `resumed`: the experiment that is continued; `None` for a new one.
    pub fn run_planned(
        &self,
        request: &Request,
        planned: Planned,
        resumed: Option<Resumed>,
    ) -> Result<Proven, Failure> {
        let _lock = lock()?;
        let mut opened = match planned {
            Planned::Path(planned) => path::open(self, *planned)?,
            Planned::Programs(planned) => programs::open(self, *planned, resumed.as_ref())?,
            Planned::Settings(wanted) => plan::open(self, request, &wanted)?,
        };
        let session = opened.session.as_mut();
        let limits = &request.limits;
        let proven = match opened.space.take() {
            Some(mut space) => {
                let record = match resumed {
                    Some(resumed) => Record::Goes(Box::new(resumed)),
                    None if opened.records_search => Record::Begins,
                    None => Record::Nothing,
                };
                best::find(self, limits, &opened.proof, &mut space, session, record)
            }
            None => conduct(self, limits, opened.proof, session, resumed),
        };
        let broken = opened.session.broken();
        drop(opened.session);
        drop(opened.guards);
        Ok(Proven { broken, ..proven? })
    }

    /// True once a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
