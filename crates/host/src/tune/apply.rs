//! Applying plans: all of their settings, or none.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use thiserror::Error;

use super::confirm::deadline_ms;
use super::error::KnobError;
use super::identity::{Identity, Whereabouts, locate};
use super::journal::{Entry, EntryState, Journal, JournalHeader, Phase, Record, SCHEMA, Writer};
use super::knob::Knob;
use super::plan::{Plan, PlanError, ReadyStep};
use super::registry;
use super::rollback::{self, boot_id, rollback};
use super::store::{JournalStore, JournalStoreError, Lock};
use super::system::System;
use super::target::{Scope, Target};
use super::value::Value;
use crate::text::chain;

#[derive(Debug, Error)]
pub enum ApplyError {
    #[error("the plan cannot be applied; nothing was changed")]
    Plan(#[from] PlanError),
    #[error("nothing was changed")]
    Store(#[from] JournalStoreError),
    #[error(
        "another plan ({profile} for {interface}) is applied: undo it with `wirepath tune \
         rollback`; nothing was changed now"
    )]
    OtherPlan { profile: String, interface: String },
    #[error(
        "this plan was applied by a process that did not finish: undo it with `wirepath tune \
         rollback`; nothing was changed now"
    )]
    Unfinished,
    #[error("{}; all changes were rolled back", chain(.cause))]
    RolledBack { cause: Box<Interruption>, report: rollback::RollbackReport },
    #[error(
        "{}; rollback also failed: {failure}. `wirepath tune rollback` tries again", chain(.cause)
    )]
    Stuck { cause: Box<Interruption>, failure: String },
    #[error("the settings that are applied are of {found}, not of {owner}; nothing was changed")]
    OtherOwner { owner: String, found: String },
    #[error("nothing is applied: there is nothing to confirm")]
    NothingToConfirm,
    #[error("the time to confirm has passed: undo the plan with `wirepath tune rollback`")]
    ConfirmedTooLate,
    #[error("the plan was not applied to its end: undo it with `wirepath tune rollback`")]
    ConfirmedTooEarly,
}

/// Reason why applied settings were rolled back.
#[derive(Debug, Error)]
pub enum Interruption {
    #[error("stopped before step {next}")]
    Stopped { next: usize },
    #[error("stopped after the last step")]
    StoppedAtEnd,
    #[error("step {number} ({knob} of {target}) failed")]
    Step {
        number: usize,
        knob: &'static str,
        target: Target,
        #[source]
        source: Box<KnobError>,
    },
    #[error("cannot write the journal")]
    Journal(#[source] io::Error),
    #[error(transparent)]
    Unconfirmed(#[from] Unconfirmed),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unconfirmed {
    #[error("not confirmed in time")]
    TimedOut,
    #[error("stopped before it was confirmed")]
    Stopped,
}

/// A completed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Done {
    pub knob: String,
    pub target: Target,
    pub before: Value,
    /// Value read back.
    pub now: Value,
    /// Part of the effect that could not be verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// All values were already set; no journal was written.
    Nothing,
    /// This plan is already applied; settings that changed since, as `(knob, target, wanted, found)`.
    Already(Vec<(String, Target, Value, String)>),
    Done {
        steps: Vec<Done>,
        /// Deadline for confirmation, CLOCK_BOOTTIME in milliseconds.
        confirm_by_ms: Option<u64>,
    },
}

/// Points of [`apply`] that its caller can observe, for progress and for tests that interrupt it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The journal is on disk.
    Journaled,
    /// The start of a step is in the journal.
    Announced(usize),
    /// A step's knob has been set and read back.
    Changed(usize),
    /// A step's outcome is in the journal.
    Recorded(usize),
    /// All steps are completed and recorded.
    Finished,
}

pub struct Options<'a> {
    /// When set, all changes are rolled back.
    pub stop: &'a AtomicBool,
    /// Time in which the user has to confirm.
    pub confirm_within: Option<Duration>,
    /// Name for the journal; `None` for a user's own plan.
    pub owner: Option<&'a str>,
    pub watch: &'a mut dyn FnMut(Moment),
}

/// Applies all of a plan or nothing.
///
/// With `confirm_within`, the caller has to call [`super::await_confirmation`] next.
pub fn apply(
    system: &System,
    plan: &Plan,
    store: &JournalStore,
    options: Options<'_>,
) -> Result<Applied, ApplyError> {
    let lock = store.lock()?;
    match store.read() {
        Ok(Some(journal)) if journal.header.boot == boot_id() => {
            return already(system, plan, &journal);
        }
        Err(error) if error.boot().is_none_or(|boot| boot == boot_id()) => return Err(error.into()),
        // Settings of an earlier boot have not survived, and a journal without a complete first
        // line was begun by a process that changed nothing.
        _ => store.close(&lock)?,
    }
    let ready = plan.check(system, options.stop)?;
    let ready: Vec<ReadyStep> = ready.into_iter().filter(|step| !step.is_done()).collect();
    if ready.is_empty() {
        return Ok(Applied::Nothing);
    }
    let entries = entries(system, plan, &ready);
    let mut records = vec![Record::Begin(header(system, plan, options.owner)?)];
    records.extend(entries.iter().cloned().map(Record::Entry));
    records.push(Record::Ready);
    let writer = store.begin(&lock, &records)?;
    (options.watch)(Moment::Journaled);
    let mut running = Running { system, entries: &entries, writer, watch: options.watch };
    let confirm_by_ms = options.confirm_within.map(deadline_ms);
    match running.run(&ready, options.stop, confirm_by_ms) {
        Ok(steps) => Ok(Applied::Done { steps, confirm_by_ms }),
        Err(cause) => Err(roll_back(system, store, &lock, cause)),
    }
}

struct Running<'a> {
    system: &'a System,
    entries: &'a [Entry],
    writer: Writer,
    watch: &'a mut dyn FnMut(Moment),
}

impl Running<'_> {
    fn run(
        &mut self,
        ready: &[ReadyStep],
        stop: &AtomicBool,
        confirm_by_ms: Option<u64>,
    ) -> Result<Vec<Done>, Interruption> {
        let mut done = Vec::new();
        for (index, step) in ready.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(Interruption::Stopped { next: index + 1 });
            }
            done.push(self.step(index, step)?);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Interruption::StoppedAtEnd);
        }
        self.record(&[Record::Applied { confirm_by_ms }])?;
        (self.watch)(Moment::Finished);
        Ok(done)
    }

    /// - `entry`: number of the step; the first entries are the steps, in their order.
    fn step(&mut self, entry: usize, step: &ReadyStep) -> Result<Done, Interruption> {
        self.record(&[Record::Started { entry }])?;
        (self.watch)(Moment::Announced(entry));
        let failed = |source| Interruption::Step {
            number: entry + 1,
            knob: step.knob.id(),
            target: step.target.clone(),
            source: Box::new(source),
        };
        let found =
            step.knob.set_and_verify(self.system, &step.target, &step.value).map_err(failed)?;
        let note = step.knob.settled(self.system, &step.target, &step.value).map_err(failed)?;
        (self.watch)(Moment::Changed(entry));
        let mut records = vec![Record::Completed { entry, found: found.clone() }];
        if step.knob.disturbs() {
            records.extend(disturbed(self.system, self.entries, entry));
        }
        self.record(&records)?;
        (self.watch)(Moment::Recorded(entry));
        Ok(Done {
            knob: step.knob.id().to_owned(),
            target: step.target.clone(),
            before: step.before.clone(),
            now: found,
            note,
        })
    }

    fn record(&mut self, records: &[Record]) -> Result<(), Interruption> {
        self.writer.append(records).map_err(Interruption::Journal)
    }
}

/// Side effects of a step: other entries whose value has changed.
pub(super) fn disturbed(system: &System, entries: &[Entry], by: usize) -> Vec<Record> {
    let others = entries.iter().enumerate().filter(|(number, _)| *number != by);
    let not_steps = others.filter(|(_, entry)| entry.wanted.is_none());
    not_steps
        .filter_map(|(number, entry)| {
            let found = registry::find_recorded(&entry.knob)?.read(system, &entry.target).ok()?;
            (found != entry.before).then_some(Record::SideEffect { entry: number, found })
        })
        .collect()
}

/// Entries of the journal: the steps in order, then all settings that they may disturb.
pub(super) fn entries(system: &System, plan: &Plan, ready: &[ReadyStep]) -> Vec<Entry> {
    let interfaces: Vec<&String> = plan.interface.iter().chain(&plan.other_interfaces).collect();
    let identities: HashMap<&str, Option<Identity>> = interfaces
        .iter()
        .map(|name| (name.as_str(), Identity::of(system, &Target::Interface((*name).clone()))))
        .collect();
    let entry = |knob: &str, target: Target, before: Value, wanted: Option<Value>| {
        let known = target.interface().and_then(|name| identities.get(name));
        let identity = known.cloned().unwrap_or_else(|| Identity::of(system, &target));
        Entry { knob: knob.to_owned(), target, before, wanted, identity }
    };
    let step = |step: &ReadyStep| {
        entry(step.knob.id(), step.target.clone(), step.before.clone(), Some(step.value.clone()))
    };
    let mut entries: Vec<Entry> = ready.iter().map(step).collect();
    if !ready.iter().any(|step| step.knob.disturbs()) {
        return entries;
    }
    let steps: HashSet<(&str, &Target)> =
        ready.iter().map(|step| (step.knob.id(), &step.target)).collect();
    for interface in interfaces {
        // No setting of an interface changes the metrics of its routes.
        for knob in registry::all().into_iter().filter(|knob| knob.scope() != Scope::Route) {
            let targets = registry::targets(knob, system, Some(interface)).unwrap_or_default();
            for target in targets {
                let is_listed = steps.contains(&(knob.id(), &target));
                // Steps disturb settings of interfaces alone.
                let is_of_interface =
                    target.interface().is_some() || matches!(target, Target::Irq(_));
                if is_listed || !is_of_interface {
                    continue;
                }
                if let Ok(before) = knob.read(system, &target) {
                    entries.push(entry(knob.id(), target, before, None));
                }
            }
        }
    }
    entries
}

pub(super) fn header(
    system: &System,
    plan: &Plan,
    owner: Option<&str>,
) -> Result<JournalHeader, PlanError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let netns = system.netns().id().map_err(KnobError::from)?;
    Ok(JournalHeader {
        schema: SCHEMA,
        plan: plan.digest(),
        profile: plan.profile.clone(),
        interface: plan.interface.clone(),
        netns: plan.netns.clone(),
        netns_inode: netns.inode,
        netns_device: Some(netns.device),
        netns_cookie: system.netns_cookie(),
        owner: owner.map(str::to_owned),
        boot: boot_id(),
        pid: std::process::id(),
        unix_s: now.map_or(0, |since| since.as_secs()),
    })
}

/// Result of applying a plan while there is a journal.
fn already(system: &System, plan: &Plan, journal: &Journal) -> Result<Applied, ApplyError> {
    if journal.header.plan != plan.digest() {
        let interface = journal.header.interface.as_deref().unwrap_or("the host").to_owned();
        return Err(ApplyError::OtherPlan { profile: journal.header.profile.clone(), interface });
    }
    match journal.phase {
        Phase::Applied(_) | Phase::Confirmed => {}
        _ => return Err(ApplyError::Unfinished),
    }
    let drift = journal.steps().filter_map(|(_, entry)| {
        let wanted = entry.wanted.clone()?;
        let knob = registry::find_recorded(&entry.knob)?;
        let found = match read(system, knob, entry) {
            Ok(found) if knob.format().agrees(wanted.as_str(), found.as_str()) => return None,
            Ok(found) => found.to_string(),
            Err(error) => chain(&error),
        };
        Some((entry.knob.clone(), entry.target.clone(), wanted, found))
    });
    Ok(Applied::Already(drift.collect()))
}

/// Reads an entry's knob where its device is now.
fn read(system: &System, knob: &dyn Knob, entry: &Entry) -> Result<Value, KnobError> {
    match locate(system, &entry.target, entry.identity.as_ref()) {
        Whereabouts::Here(target) => knob.read(system, &target),
        _ => Err(KnobError::NoTarget { target: entry.target.clone() }),
    }
}

fn roll_back(
    system: &System,
    store: &JournalStore,
    lock: &Lock,
    cause: Interruption,
) -> ApplyError {
    let root = system.place().root.as_deref();
    let rolled_back = rollback(store, lock, root, &chain(&cause));
    let cause = Box::new(cause);
    match rolled_back {
        Ok(report) => match report.failure() {
            None => ApplyError::RolledBack { cause, report },
            Some(failure) => ApplyError::Stuck { cause, failure },
        },
        Err(error) => ApplyError::Stuck { cause, failure: chain(&error) },
    }
}

/// One step of a journal with its current value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setting {
    pub knob: String,
    pub target: Target,
    pub before: Value,
    /// Value that was set.
    pub wanted: Value,
    /// Current value; `None` if it cannot be read, for example because the interface is gone.
    pub now: Option<Value>,
    /// The step was begun.
    pub was_begun: bool,
}

/// Reads the current values of a journal's steps.
pub fn settings(journal: &Journal, root: Option<&Path>) -> Result<Vec<Setting>, KnobError> {
    let place = super::Place { netns: journal.header.netns.clone(), root: root.map(Into::into) };
    let system = rollback::find_namespace(journal, &place)?;
    let setting = |(number, entry): (usize, &Entry)| {
        let now = registry::find_recorded(&entry.knob)
            .zip(system.as_ref())
            .and_then(|(knob, system)| read(system, knob, entry).ok());
        Some(Setting {
            knob: entry.knob.clone(),
            target: entry.target.clone(),
            before: entry.before.clone(),
            wanted: entry.wanted.clone()?,
            now,
            was_begun: journal.states[number] != EntryState::Untouched,
        })
    };
    Ok(journal.steps().filter_map(setting).collect())
}
