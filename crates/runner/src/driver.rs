//! The one driver of experiments.

use std::time::Instant;

use model::{PlanRequest, Request, Subject};
use remote::Failure;

use crate::best::{self, Record};
use crate::conduct::{Timing, conduct};
use crate::path::{self, PathPlan};
use crate::plan;
use crate::programs::{self, ProgramsPlan};
use crate::proof::{NOTHING_KNOWN, Proven, Resumed};
use crate::runner::{Runner, lock};

/// A request whose arms are known, as far as they are before its session is opened.
pub enum Planned {
    Path(Box<PathPlan>),
    Programs(Box<ProgramsPlan>),
    Settings(Box<PlanRequest>),
}

impl Runner<'_> {
    /// The failure of a session that could not be opened: the stop, if one was requested meanwhile.
    fn ended_by(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Failed(why) if self.is_stopped() => {
                Failure::Interrupted(format!("{NOTHING_KNOWN} ({why})"))
            }
            failure => failure,
        }
    }

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
        let begun = match &planned {
            Planned::Path(plan) => plan.begun,
            Planned::Programs(_) | Planned::Settings(_) => Instant::now(),
        };
        let _lock = lock()?;
        let mut opened = match planned {
            Planned::Path(planned) => path::open(*planned).map_err(|why| self.ended_by(why))?,
            Planned::Programs(planned) => programs::open(self, *planned, resumed.as_ref())
                .map_err(|why| self.ended_by(why))?,
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
                best::find(self, limits, begun, &opened.proof, &mut space, session, record)
            }
            None => {
                let timing = Timing::whole(begun);
                conduct(self, limits, timing, opened.proof, session, resumed)
            }
        };
        let broken = opened.session.broken();
        drop(opened.session);
        drop(opened.guards);
        Ok(Proven { broken, ..proven? })
    }
}
