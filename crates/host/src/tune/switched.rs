//! Settings of a plan that are switched on and off many times under one journal.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use thiserror::Error;

use super::apply::{ApplyError, disturbed, entries, header};
use super::error::KnobError;
use super::journal::{Entry, Record, Writer};
use super::knob::{Knob, Reaches};
use super::plan::{Plan, ReadyStep};
use super::rollback::{RollbackError, RollbackReport, boot_id, rollback};
use super::store::{JournalStore, JournalStoreError, Lock};
use super::system::System;
use super::target::Target;
use super::value::Value;

/// The settings could not be switched; [`SwitchedPlan::finish`] restores them.
#[derive(Debug, Error)]
pub enum SwitchError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("settings are already applied: undo them with `wirepath tune rollback`")]
    Applied,
    #[error("every setting already has its planned value")]
    Nothing,
    #[error("{knob} of {target} was changed by another process to {found}, from {expected}")]
    Foreign { knob: &'static str, target: Box<Target>, expected: Value, found: Value },
    #[error("{knob} of {target} cannot be switched")]
    Step {
        knob: &'static str,
        target: Box<Target>,
        #[source]
        source: Box<KnobError>,
    },
    #[error("cannot write the journal")]
    Journal(#[source] io::Error),
}

/// Settings of a plan, off until they are switched on. Restored when this is dropped.
///
/// The journal is on disk before the first change and is written once: from then on it has both values of each
/// setting, and a switch appends one short mark before it and one after it. The marks are not synced, because a process
/// that is killed leaves what it wrote, and a power cut ends the settings together with the boot.
///
/// It holds the lock of the journal's folder: no other process applies, confirms or rolls back meanwhile.
#[derive(Debug)]
#[must_use = "settings are restored when this is dropped"]
pub struct SwitchedPlan {
    system: System,
    store: JournalStore,
    lock: Lock,
    writer: Writer,
    /// As in the journal: the steps first, in their order.
    entries: Vec<Entry>,
    steps: Vec<SwitchedStep>,
    /// Entries that the steps change when they are set.
    side_effects: Vec<usize>,
    is_on: bool,
    is_finished: bool,
}

#[derive(Debug)]
struct SwitchedStep {
    ready: ReadyStep,
    /// Value read back when it was first switched on.
    on: Option<Value>,
}

impl SwitchedPlan {
    /// Checks the plan as it will be applied, and writes the journal. No setting is changed.
    pub fn open(
        system: System,
        plan: &Plan,
        store: JournalStore,
        stop: &AtomicBool,
    ) -> Result<Self, SwitchError> {
        let lock = store.lock().map_err(ApplyError::from)?;
        match store.read() {
            Ok(Some(journal)) if journal.header.boot == boot_id() => {
                return Err(SwitchError::Applied);
            }
            Err(error) if error.boot().is_none_or(|boot| boot == boot_id()) => {
                return Err(ApplyError::from(error).into());
            }
            _ => store.close(&lock).map_err(ApplyError::from)?,
        }
        let ready = plan.check(&system, stop).map_err(ApplyError::from)?;
        let ready: Vec<ReadyStep> = ready.into_iter().filter(|step| !step.is_done()).collect();
        if ready.is_empty() {
            return Err(SwitchError::Nothing);
        }
        let entries = entries(&system, plan, &ready);
        let header = header(&system, plan, None).map_err(ApplyError::from)?;
        let mut records = vec![Record::Begin(header)];
        records.extend(entries.iter().cloned().map(Record::Entry));
        records.push(Record::Ready);
        let writer = store.begin(&lock, &records).map_err(ApplyError::from)?;
        let steps = ready.into_iter().map(|ready| SwitchedStep { ready, on: None }).collect();
        Ok(SwitchedPlan {
            system,
            store,
            lock,
            writer,
            entries,
            steps,
            side_effects: Vec::new(),
            is_on: false,
            is_finished: false,
        })
    }

    /// Settings that are switched, in their order.
    pub fn steps(&self) -> impl Iterator<Item = &ReadyStep> {
        self.steps.iter().map(|step| &step.ready)
    }

    /// Connections that the setting reaches which reaches the fewest.
    pub fn reaches(&self) -> Reaches {
        let of_steps: Vec<Reaches> = self.steps().map(|step| step.knob.reaches()).collect();
        [Reaches::NewListeners, Reaches::NewConnections]
            .into_iter()
            .find(|reaches| of_steps.contains(reaches))
            .unwrap_or(Reaches::AtOnce)
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Switches all settings on or off, and reads each back.
    ///
    /// Errors: another process changed one since, whose value is kept; one could not be set. No later switch is
    /// possible then.
    pub fn turn(&mut self, on: bool) -> Result<(), SwitchError> {
        if on == self.is_on {
            return Ok(());
        }
        self.check_own()?;
        self.is_on = on;
        if on && self.steps.iter().any(|step| step.on.is_none()) {
            return self.turn_on_first();
        }
        let marked = self.writer.append_unsynced(&[Record::Switching]);
        if on {
            marked.map_err(SwitchError::Journal)?;
            self.steps.iter().try_for_each(|step| set(&self.system, step, &step.ready.value))?;
        } else {
            // Restored even if that cannot be recorded.
            self.steps
                .iter()
                .rev()
                .try_for_each(|step| set(&self.system, step, &step.ready.before))?;
            self.restore_side_effects();
        }
        let marked = self.writer.append_unsynced(&[Record::Switched]);
        if on { marked.map_err(SwitchError::Journal) } else { Ok(()) }
    }

    /// Records the value that each setting has when it is on, and the settings that change with it.
    fn turn_on_first(&mut self) -> Result<(), SwitchError> {
        let started: Vec<Record> =
            (0..self.steps.len()).map(|entry| Record::Started { entry }).collect();
        self.writer.append(&started).map_err(SwitchError::Journal)?;
        let mut records = Vec::new();
        for (entry, step) in self.steps.iter_mut().enumerate() {
            let ReadyStep { knob, target, value, .. } = &step.ready;
            let found = knob.set_and_verify(&self.system, target, value);
            let found = found.map_err(|source| failed(step.ready.knob, target, source))?;
            records.push(Record::Completed { entry, found: found.clone() });
            step.on = Some(found);
        }
        for (entry, step) in self.steps.iter().enumerate() {
            if step.ready.knob.disturbs() {
                records.extend(disturbed(&self.system, &self.entries, entry));
            }
        }
        for record in &records {
            if let Record::SideEffect { entry, .. } = record
                && !self.side_effects.contains(entry)
            {
                self.side_effects.push(*entry);
            }
        }
        records.push(Record::Applied { confirm_by_ms: None });
        self.writer.append(&records).map_err(SwitchError::Journal)
    }

    /// Errors: another process changed a setting since the last switch.
    fn check_own(&self) -> Result<(), SwitchError> {
        for step in self.steps.iter().filter(|step| step.ready.knob.is_readable()) {
            let ReadyStep { knob, target, before, .. } = &step.ready;
            let expected = step.on.as_ref().filter(|_| self.is_on).unwrap_or(before);
            let found = knob.read(&self.system, target);
            let found = found.map_err(|source| failed(*knob, target, source))?;
            if !knob.format().agrees(expected.as_str(), found.as_str()) {
                let (target, expected) = (Box::new(target.clone()), expected.clone());
                return Err(SwitchError::Foreign { knob: knob.id(), target, expected, found });
            }
        }
        Ok(())
    }

    /// Settings that changed with the steps get their values back; the rollback at the end reports one that cannot.
    fn restore_side_effects(&self) {
        for entry in self.side_effects.iter().filter_map(|entry| self.entries.get(*entry)) {
            let Some(knob) = super::registry::find_recorded(&entry.knob) else { continue };
            let now = knob.read(&self.system, &entry.target);
            if now.is_ok_and(|now| now != entry.before) {
                let _reported_at_the_end =
                    knob.set_and_verify(&self.system, &entry.target, &entry.before);
            }
        }
    }

    /// Restores all settings and closes the journal. Values that another process set are kept and reported.
    pub fn finish(&mut self, why: &str) -> Result<RollbackReport, RollbackError> {
        self.is_finished = true;
        let root: Option<PathBuf> = self.system.place().root.clone();
        rollback(&self.store, &self.lock, root.as_deref(), why)
    }
}

impl Drop for SwitchedPlan {
    fn drop(&mut self) {
        if !self.is_finished {
            // A failure leaves the journal, from which the guard restores.
            let _restored = self.finish("the live proof ended early");
        }
    }
}

fn set(system: &System, step: &SwitchedStep, value: &Value) -> Result<(), SwitchError> {
    let ReadyStep { knob, target, .. } = &step.ready;
    let set = knob.set_and_verify(system, target, value);
    set.map(drop).map_err(|source| failed(*knob, target, source))
}

fn failed(knob: &'static dyn Knob, target: &Target, source: KnobError) -> SwitchError {
    let (target, source) = (Box::new(target.clone()), Box::new(source));
    SwitchError::Step { knob: knob.id(), target, source }
}

impl From<JournalStoreError> for SwitchError {
    fn from(error: JournalStoreError) -> Self {
        SwitchError::Apply(error.into())
    }
}
