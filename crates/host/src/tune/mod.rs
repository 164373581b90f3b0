//! Settings of the host: read, planned, changed with a journal, and restored.
//!
//! A [`Knob`] is a named setting. It has a [`Scope`], reads and sets one line of text (its
//! [`Value`]) at a [`Target`], and reports where it does not exist. A [`Plan`] is a file with a list
//! of settings, each with the value seen at the time of planning and a reason. [`apply()`] applies
//! all of it or nothing:
//!
//! 1. It locks out other processes that change settings, and checks every step without changing
//!    anything: machine, interface, current value, permission.
//! 2. It writes a [`Journal`] with the value of every knob that will change, and of every knob of the
//!    interface that a change may disturb. The journal is on disk before the first change.
//! 3. It sets the knobs one by one, those that disturb others first, and reads each back.
//! 4. After a failed step, a signal or a missing confirmation, [`rollback()`] restores all settings:
//!    the steps from the last to the first, then their side effects. Settings that another process
//!    changed are reported and kept.
//!
//! A killed process leaves its journal, which is all that a rollback needs. A reboot resets all
//! settings, so that there is nothing to restore.

mod apply;
mod confirm;
mod error;
mod export;
mod files;
pub mod fuzzing;
mod identity;
mod irq_counts;
mod journal;
mod knob;
pub(crate) mod knobs;
mod plan;
mod profile;
mod registry;
mod rollback;
mod route_target;
mod rules;
mod scoped;
mod store;
mod switched;
mod system;
mod target;
#[cfg(test)]
mod tests;
mod value;
mod wanted;

pub use apply::{
    Applied, ApplyError, Done, Interruption, Moment, Options, Setting, Unconfirmed, apply, settings,
};
pub use confirm::{Confirmation, await_confirmation, boot_clock_ms, confirm, postpone};
pub use error::KnobError;
pub use export::{ExportError, Exported, ExportedFile, Form, Omitted, export};
pub use identity::{Device, Identity};
pub(crate) use irq_counts::irq_counts;
pub use journal::{
    Entry, EntryState, Journal, JournalError, JournalHeader, JournalRecordError, Phase, Record,
    SCHEMA as JOURNAL_SCHEMA,
};
pub use knob::{About, Knob, Reaches};
pub use plan::{
    Drift, LeftOut, Plan, PlanError, PlanFileError, ReadyStep, SCHEMA as PLAN_SCHEMA, Step,
    StepError, StepProblem, machine_id, read as read_plan,
};
pub use profile::{Profile, Wanted, plan};
pub use registry::{all, find, targets};
pub use rollback::{
    RestoreOutcome, RestoredSetting, RollbackError, RollbackReport, forget, rollback,
};
pub use scoped::ScopedSettings;
pub use store::{DEFAULT_FOLDER, JournalStore, JournalStoreError, Lock};
pub use switched::{SwitchError, SwitchedPlan};
pub use system::{Place, System};
pub use target::{InvalidTarget, RouteTarget, Scope, Target, is_command_name, is_interface_name};
pub use value::{InvalidValue, Value, ValueFormat, cpus_to_mask, list_to_cpus, mask_to_cpus};
pub use wanted::{WantedSetting, interfaces, settings_plan};
