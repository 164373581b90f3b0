//! Trials of a search, stored as they end, so that it goes on after a kill.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use model::{
    Arm, BEST, Clock, Ended, Limits, Measurement, Schedule, Search, Session, TrialRecord, Trials,
};
use remote::Failure;
use report::store::{ExperimentHeader, SqliteStore, Store};

use crate::conduct::{Continued, SessionTrials};
use crate::header::{header, session_machine};
use crate::proof::{Proof, Resumed};
use crate::runner::Runner;

/// Record of a search, stored while it runs. It is removed when the search is over: the experiments that
/// measure its result have the set that it found.
pub(crate) enum Record {
    /// Nothing: its command has no `--resume`.
    Nothing,
    /// Each trial, under a new id.
    Begins,
    /// A search, or the experiment that measured its result, goes on after its last stored trial.
    Goes(Box<Resumed>),
}

/// Runs the trials of a search and stores them; those that are stored already are not run again.
pub(super) struct Recorded<'a> {
    stop: &'static AtomicBool,
    session: SessionTrials<'a>,
    /// Stored trials that the search has not asked for yet.
    before: VecDeque<TrialRecord>,
    pub(super) clock: Rc<SearchClock>,
    pub(super) seed: u64,
    into: Option<(SqliteStore, String)>,
    next: u32,
    fault: Option<Failure>,
}

/// Time of a search: of a stored trial, when it began.
pub(super) struct SearchClock {
    stored_ns: Cell<Option<u64>>,
    now: Continued,
}

impl Clock for SearchClock {
    fn elapsed_ns(&self) -> u64 {
        self.stored_ns.get().unwrap_or_else(|| self.now.elapsed_ns())
    }
}

fn began_ns(trial: &TrialRecord) -> u64 {
    trial.started_ms * 1_000_000
}

impl<'a> Recorded<'a> {
    pub(super) fn open(
        runner: &Runner<'a>,
        limits: &Limits,
        begun: Instant,
        proof: &Proof,
        session: &'a mut dyn Session,
        record: Record,
    ) -> Result<Self, Failure> {
        let (seed, before, into) = match record {
            Record::Goes(run) => {
                (run.seed, run.trials.into(), Some((runner.database.open()?, run.header.id)))
            }
            record => {
                let (mut new, started_ns) = header(proof, session_machine(session))?;
                let seed = limits.seed.unwrap_or(started_ns);
                let is_stored = matches!(record, Record::Begins) && proof.is_stored;
                let mut into = is_stored.then(|| runner.database.open()).transpose()?;
                new.load.insert("arms".to_owned(), BEST.to_owned());
                if let Some(store) = &mut into {
                    let (schedule, arms) = (Schedule::default(), vec![Arm::baseline()]);
                    store.begin(&ExperimentHeader::new(&new, seed, schedule, arms))?;
                }
                (seed, VecDeque::new(), into.map(|store| (store, new.id)))
            }
        };
        let clock = Rc::new(SearchClock {
            stored_ns: Cell::new(before.front().map(began_ns)),
            now: Continued::after(before.back(), begun),
        });
        session.seed(seed.wrapping_add(before.len() as u64));
        let (session, next) = (SessionTrials(session), before.len() as u32);
        let stop = runner.stop;
        Ok(Recorded { stop, session, before, clock, seed, into, next, fault: None })
    }

    /// Ends the record of a search.
    ///
    /// Errors: the search was interrupted; what is stored of it cannot be written, or is of another search.
    pub(super) fn end(self, found: Search) -> Result<Search, Failure> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let Some((mut store, id)) = self.into else { return Ok(found) };
        if self.stop.load(Ordering::Relaxed) {
            store.finish(&id, Ended::Interrupted)?;
            return Err(Failure::Interrupted(format!(
                "interrupted during the search; to continue it: wirepath prove command --resume {id}"
            )));
        }
        store.remove(&[id])?;
        Ok(found)
    }

    /// A stored trial of this arm; another one is a fault.
    fn stored(&mut self, arm: &Arm) -> Option<Result<Measurement, String>> {
        let trial = self.before.pop_front()?;
        self.clock.stored_ns.set(self.before.front().map(began_ns));
        if trial.arm == arm.name {
            return Some(trial.result);
        }
        let why = format!(
            "trial {} of the search is not the one that this version orders there, so it cannot be resumed; \
             start a new experiment",
            trial.ordinal
        );
        self.fault = Some(Failure::failed(why));
        None
    }
}

impl Trials for Recorded<'_> {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
        if let Some(result) = self.stored(arm) {
            return result;
        }
        if self.fault.is_some() {
            return Err("the search has ended".to_owned());
        }
        let started_ns = self.clock.elapsed_ns();
        let result = self.session.trial(arm);
        let Some((store, id)) = &mut self.into else { return result };
        if result.is_err() && self.stop.load(Ordering::Relaxed) {
            // The stop broke it off; it says nothing about the arm.
            return result;
        }
        let record = TrialRecord {
            ordinal: self.next,
            block: 0,
            arm: arm.name.clone(),
            warmup: true,
            noisy: false,
            started_ms: started_ns / 1_000_000,
            wall_ns: self.clock.elapsed_ns().saturating_sub(started_ns),
            result,
        };
        self.next += 1;
        self.fault = store.save_trial(id, &record).err().map(Failure::from);
        record.result
    }
}
