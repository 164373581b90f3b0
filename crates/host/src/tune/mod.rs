//! Settings of the host: read, planned, changed with a journal, and given back.
//!
//! A [`Knob`] is a named setting. It has a [`Scope`], reads and sets one line of text (its
//! [`Value`]) at a [`Target`], and says where it does not exist. A [`Plan`] is a list of settings to
//! be made, each with the value seen when it was planned and a reason; it is a file for a person to
//! read. [`apply()`] does all of it or nothing:
//!
//! 1. It takes the lock, so that no second process changes settings, and looks at every step
//!    without changing anything: machine, interface, value of now, permission.
//! 2. It writes a [`Journal`] that holds the value of every knob that is to change, and of every
//!    knob of the interface that such a change may disturb, and has it on disk before the first
//!    change.
//! 3. It sets one knob after the other, those that disturb others first, and reads each back.
//! 4. When a step fails, or a signal comes, or nobody confirms in time, [`rollback()`] gives
//!    everything back: the steps from the last to the first, then whatever that disturbed. What
//!    somebody else changed meanwhile is told and left.
//!
//! A process that is killed leaves its journal, and rolling back needs nothing else. After a restart
//! of the machine there is nothing left to give back.

mod apply;
mod error;
pub mod fuzzing;
mod held;
mod journal;
mod knob;
pub(crate) mod knobs;
mod plan;
mod profile;
mod rollback;
mod store;
mod system;
mod target;
mod value;

pub use apply::{
    Applied, ApplyError, Confirmation, Done, Moment, Options, Setting, apply, await_confirmation,
    boot_clock_ms, confirm, settings,
};
pub use error::KnobError;
pub use held::Held;
pub use journal::{
    Cell, CellState, Header, Journal, JournalError, Phase, Record, SCHEMA as JOURNAL_SCHEMA,
};
pub use knob::{About, Knob, all, find, targets};
pub(crate) use knobs::irq_counts;
pub use plan::{
    LeftOut, Plan, PlanError, Ready, SCHEMA as PLAN_SCHEMA, Step, machine_id, read as read_plan,
};
pub use profile::{Profile, Wanted, plan};
pub use rollback::{Fate, Given, Report, RollbackError, rollback};
pub use store::{DEFAULT_FOLDER, Lock, Store, StoreError};
pub use system::{Place, System};
pub use target::{Scope, Target, is_interface_name};
pub use value::{Format, Value, cpus_to_mask, list_to_cpus, mask_to_cpus};
