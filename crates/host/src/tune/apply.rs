//! Doing what a plan says, or nothing of it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use thiserror::Error;

use super::error::KnobError;
use super::journal::{Cell, CellState, Header, Journal, Phase, Record, SCHEMA, Writer};
use super::knob;
use super::plan::{Plan, PlanError, Ready};
use super::rollback::{self, RollbackError, boot_id, rollback};
use super::store::{Lock, Store, StoreError};
use super::system::System;
use super::target::Target;
use super::value::Value;
use crate::text::chain;

/// Why a plan was not applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// It cannot be applied here; nothing was changed.
    #[error("the plan cannot be applied, and nothing was changed")]
    Plan(#[from] PlanError),
    /// The journal could not be read or begun; nothing was changed.
    #[error("nothing was changed")]
    Store(#[from] StoreError),
    /// Another plan is applied, or one was not finished.
    #[error(
        "{what}: `wirepath tune rollback` gives back what was changed; nothing was changed now"
    )]
    Unfinished {
        /// What is.
        what: String,
    },
    /// A step failed, or the user asked to stop, and what was done was undone.
    #[error("{why}; what was changed was given back")]
    RolledBack {
        /// Why.
        why: String,
        /// What became of each setting.
        report: rollback::Report,
    },
    /// And undoing failed too.
    #[error(
        "{why}; and not all could be given back: {failure}. `wirepath tune rollback` tries again"
    )]
    Stuck {
        /// Why it was to be undone.
        why: String,
        /// What could not be.
        failure: String,
    },
    /// There is nothing to confirm.
    #[error("{what}")]
    NotConfirmed {
        /// Why not.
        what: String,
    },
}

/// What one step came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Id of the knob.
    pub knob: String,
    /// Where.
    pub target: Target,
    /// Value from before.
    pub before: Value,
    /// What it reads now.
    pub now: Value,
    /// What could not be verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What applying a plan came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// Everything was so already; no journal was begun.
    Nothing,
    /// This very plan is applied; what has changed since is listed as `(knob, target, wanted,
    /// found)`.
    Already(Vec<(String, Target, Value, String)>),
    /// It is done.
    Done {
        /// Each step that changed something.
        steps: Vec<Done>,
        /// CLOCK_BOOTTIME in milliseconds by which it has to be confirmed.
        confirm_by_ms: Option<u64>,
    },
}

/// Moments at which [`apply`] can be watched; for progress, and for tests that end it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The journal is on disk.
    Journaled,
    /// A step has been announced in the journal.
    Announced(usize),
    /// A step's knob has been set and read back.
    Changed(usize),
    /// A step's outcome is in the journal.
    Recorded(usize),
    /// All is done and recorded.
    Finished,
}

/// How to apply.
pub struct Options<'a> {
    /// Ends it, with everything given back, once set.
    pub stop: &'a AtomicBool,
    /// Time by which the user has to confirm.
    pub confirm_within: Option<Duration>,
    /// Is told how far it is.
    pub watch: &'a mut dyn FnMut(Moment),
}

/// Applies a plan: all of it, or nothing.
///
/// With `confirm_within`, whoever called this calls [`await_confirmation`] next.
pub fn apply(
    system: &System,
    plan: &Plan,
    store: &Store,
    options: Options<'_>,
) -> Result<Applied, ApplyError> {
    let lock = store.lock()?;
    if let Some(journal) = store.read()? {
        return already(system, plan, &journal);
    }
    let ready = plan.check(system)?;
    let ready: Vec<Ready> = ready.into_iter().filter(|step| !step.is_done()).collect();
    if ready.is_empty() {
        return Ok(Applied::Nothing);
    }
    let cells = cells(system, plan, &ready);
    let mut records = vec![Record::Begin(header(system, plan)?)];
    records.extend(cells.iter().cloned().map(Record::Cell));
    records.push(Record::Ready);
    let writer = store.begin(&lock, &records)?;
    (options.watch)(Moment::Journaled);
    let mut running = Running { system, cells: &cells, writer, watch: options.watch };
    let confirm_by_ms = options.confirm_within.map(|within| {
        boot_clock_ms().saturating_add(u64::try_from(within.as_millis()).unwrap_or(u64::MAX))
    });
    match running.run(&ready, options.stop, confirm_by_ms) {
        Ok(steps) => Ok(Applied::Done { steps, confirm_by_ms }),
        Err(why) => Err(give_back(system, store, &lock, why)),
    }
}

struct Running<'a> {
    system: &'a System,
    cells: &'a [Cell],
    writer: Writer,
    watch: &'a mut dyn FnMut(Moment),
}

impl Running<'_> {
    fn run(
        &mut self,
        ready: &[Ready],
        stop: &AtomicBool,
        confirm_by_ms: Option<u64>,
    ) -> Result<Vec<Done>, String> {
        let mut done = Vec::new();
        for (number, step) in ready.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(format!("stopped before step {}", number + 1));
            }
            let outcome = self.step(number, step);
            done.push(outcome.map_err(|why| {
                format!("step {} ({} of {}) failed: {why}", number + 1, step.knob.id(), step.target)
            })?);
        }
        if stop.load(Ordering::Relaxed) {
            return Err("stopped after the last step".to_owned());
        }
        self.record(&[Record::Applied { confirm_by_ms }])?;
        (self.watch)(Moment::Finished);
        Ok(done)
    }

    /// The first cells are the steps, in their order.
    fn step(&mut self, cell: usize, step: &Ready) -> Result<Done, String> {
        self.record(&[Record::Doing { cell }])?;
        (self.watch)(Moment::Announced(cell));
        let said = |error: KnobError| chain(&error);
        let found =
            step.knob.set_and_verify(self.system, &step.target, &step.value).map_err(said)?;
        let note = step.knob.settled(self.system, &step.target, &step.value).map_err(said)?;
        (self.watch)(Moment::Changed(cell));
        let mut records = vec![Record::Did { cell, found: found.clone() }];
        if step.knob.disturbs() {
            records.extend(self.disturbed(cell));
        }
        self.record(&records)?;
        (self.watch)(Moment::Recorded(cell));
        Ok(Done {
            knob: step.knob.id().to_owned(),
            target: step.target.clone(),
            before: step.before.clone(),
            now: found,
            note,
        })
    }

    /// What else reads otherwise than before.
    fn disturbed(&self, by: usize) -> Vec<Record> {
        let other = self.cells.iter().enumerate().filter(|(number, _)| *number != by);
        let witnesses = other.filter(|(_, cell)| cell.wanted.is_none());
        witnesses
            .filter_map(|(number, cell)| {
                let found = knob::find(&cell.knob)?.read(self.system, &cell.target).ok()?;
                (found != cell.before).then_some(Record::Aside { cell: number, found })
            })
            .collect()
    }

    fn record(&mut self, records: &[Record]) -> Result<(), String> {
        self.writer
            .append(records)
            .map_err(|error| format!("the journal cannot be written: {error}"))
    }
}

/// Everything that will be set, in order, and then what that may disturb.
fn cells(system: &System, plan: &Plan, ready: &[Ready]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = ready
        .iter()
        .map(|step| Cell {
            knob: step.knob.id().to_owned(),
            target: step.target.clone(),
            before: step.before.clone(),
            wanted: Some(step.value.clone()),
        })
        .collect();
    if !ready.iter().any(|step| step.knob.disturbs()) {
        return cells;
    }
    for knob in knob::all() {
        for target in knob::targets(knob, system, plan.interface.as_deref()).unwrap_or_default() {
            let is_listed =
                cells.iter().any(|cell| cell.knob == knob.id() && cell.target == target);
            // Only what belongs to the interface can be disturbed by it.
            let is_near = target.interface().is_some() || matches!(target, Target::Irq(_));
            if is_listed || !is_near {
                continue;
            }
            if let Ok(before) = knob.read(system, &target) {
                cells.push(Cell { knob: knob.id().to_owned(), target, before, wanted: None });
            }
        }
    }
    cells
}

fn header(system: &System, plan: &Plan) -> Result<Header, PlanError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Header {
        schema: SCHEMA,
        plan: plan.digest(),
        profile: plan.profile.clone(),
        interface: plan.interface.clone(),
        netns: plan.netns.clone(),
        netns_inode: system.netns().inode().map_err(KnobError::from)?,
        boot: boot_id(),
        pid: std::process::id(),
        unix_s: now.map_or(0, |since| since.as_secs()),
    })
}

/// What applying means while there is a journal.
fn already(system: &System, plan: &Plan, journal: &Journal) -> Result<Applied, ApplyError> {
    let unfinished = |what: String| Err(ApplyError::Unfinished { what });
    if journal.header.plan != plan.digest() {
        return unfinished(format!(
            "another plan ({} for {}) is applied",
            journal.header.profile,
            journal.header.interface.as_deref().unwrap_or("the host")
        ));
    }
    match journal.phase {
        Phase::Applied(_) | Phase::Confirmed => {}
        _ => return unfinished("this plan was applied by a process that did not finish".into()),
    }
    let drift = journal.steps().filter_map(|(_, cell)| {
        let wanted = cell.wanted.clone()?;
        let knob = knob::find(&cell.knob)?;
        let found = match knob.read(system, &cell.target) {
            Ok(found) if knob.format().agrees(wanted.as_str(), found.as_str()) => return None,
            Ok(found) => found.to_string(),
            Err(error) => chain(&error),
        };
        Some((cell.knob.clone(), cell.target.clone(), wanted, found))
    });
    Ok(Applied::Already(drift.collect()))
}

fn give_back(system: &System, store: &Store, lock: &Lock, why: String) -> ApplyError {
    let root = system.place().root.as_deref();
    match rollback(store, lock, root, &why) {
        Ok(report) => match report.failure() {
            None => ApplyError::RolledBack { why, report },
            Some(failure) => ApplyError::Stuck { why, failure },
        },
        Err(error) => ApplyError::Stuck { why, failure: chain(&error) },
    }
}

/// How waiting for a confirmation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// The user keeps it.
    Confirmed,
    /// Somebody rolled it back meanwhile.
    Undone,
    /// Time passed, or the user asked to stop; it was given back.
    RolledBack {
        /// Why.
        why: String,
        /// What became of each setting.
        report: rollback::Report,
    },
}

/// Waits until what was applied is confirmed, and gives it back when that does not come in time or
/// `stop` is set.
///
/// - `tick`: called every 100 ms with the milliseconds that are left.
pub fn await_confirmation(
    store: &Store,
    root: Option<&Path>,
    confirm_by_ms: u64,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(u64),
) -> Result<Confirmation, ApplyError> {
    loop {
        let left_ms = confirm_by_ms.saturating_sub(boot_clock_ms());
        let is_over = left_ms == 0 || stop.load(Ordering::Relaxed);
        let why = match left_ms {
            0 => "it was not confirmed in time",
            _ => "stopped before it was confirmed",
        };
        let lost =
            |error: StoreError| ApplyError::Stuck { why: why.to_owned(), failure: chain(&error) };
        // Whoever confirms or rolls back at this moment has the lock, and decides.
        let lock = if is_over { lock_soon(store).map_err(lost)? } else { None };
        match store.read().map(|journal| journal.map(|journal| journal.phase)) {
            Ok(Some(Phase::Confirmed)) => return Ok(Confirmation::Confirmed),
            Ok(None) => return Ok(Confirmation::Undone),
            Ok(Some(_)) => {}
            // What cannot be opened now may be at the next look, until the time is over.
            Err(StoreError::File { .. }) if !is_over => {}
            Err(error) => return Err(lost(error)),
        }
        if let Some(lock) = lock {
            let report = rollback(store, &lock, root, why).map_err(stuck(why))?;
            let why = why.to_owned();
            return match report.failure() {
                None => Ok(Confirmation::RolledBack { why, report }),
                Some(failure) => Err(ApplyError::Stuck { why, failure }),
            };
        }
        tick(left_ms);
        std::thread::sleep(Duration::from_millis(left_ms.clamp(1, 100)));
    }
}

fn stuck(why: &'static str) -> impl Fn(RollbackError) -> ApplyError {
    move |error| ApplyError::Stuck { why: why.to_owned(), failure: chain(&error) }
}

/// The lock, or `None` while somebody else has it.
fn lock_soon(store: &Store) -> Result<Option<Lock>, StoreError> {
    match store.lock() {
        Ok(lock) => Ok(Some(lock)),
        Err(StoreError::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps what was applied.
pub fn confirm(store: &Store) -> Result<Journal, ApplyError> {
    let lock = store.lock()?;
    let refused = |what: String| Err(ApplyError::NotConfirmed { what });
    let Some(journal) = store.read()? else {
        return refused("nothing is applied: there is nothing to confirm".to_owned());
    };
    match journal.phase {
        Phase::Confirmed | Phase::Applied(None) => return Ok(journal),
        Phase::Applied(Some(by_ms)) if boot_clock_ms() <= by_ms => {}
        Phase::Applied(Some(_)) => {
            return refused(
                "the time to confirm has passed: `wirepath tune rollback` gives back what was \
                 changed"
                    .to_owned(),
            );
        }
        _ => {
            return refused(
                "the plan was not applied to its end: `wirepath tune rollback` gives back what was \
                 changed"
                    .to_owned(),
            );
        }
    }
    let mut writer = store.resume(&lock, &journal)?;
    writer.append(&[Record::Confirmed]).map_err(|source: io::Error| {
        let path = store.journal_file();
        StoreError::File { what: "write", path, source }
    })?;
    Ok(Journal { phase: Phase::Confirmed, ..journal })
}

/// One setting of a journal, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Id of the knob.
    pub knob: String,
    /// Where.
    pub target: Target,
    /// Value from before.
    pub before: Value,
    /// Value that was set.
    pub wanted: Value,
    /// Value of now; `None` when it cannot be read, as when its interface is gone.
    pub now: Option<Value>,
    /// Whether we got as far as this step.
    pub was_begun: bool,
}

/// What a journal's steps read now.
pub fn settings(journal: &Journal, root: Option<&Path>) -> Result<Vec<Setting>, KnobError> {
    let place = super::Place { netns: journal.header.netns.clone(), root: root.map(Into::into) };
    let system = rollback::find_namespace(journal, &place)?;
    let of = |(number, cell): (usize, &Cell)| {
        let now = knob::find(&cell.knob)
            .zip(system.as_ref())
            .and_then(|(knob, system)| knob.read(system, &cell.target).ok());
        Some(Setting {
            knob: cell.knob.clone(),
            target: cell.target.clone(),
            before: cell.before.clone(),
            wanted: cell.wanted.clone()?,
            now,
            was_begun: journal.states[number] != CellState::Untouched,
        })
    };
    Ok(journal.steps().filter_map(of).collect())
}

/// CLOCK_BOOTTIME in milliseconds: goes on while the machine sleeps, and nobody can set it.
pub fn boot_clock_ms() -> u64 {
    sys::clock::boottime_ns() / 1_000_000
}
