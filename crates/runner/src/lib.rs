//! Runs a [`Request`](model::Request) in this process: opens what it measures, conducts the experiment, stores the result.
//!
//! A [`Runner`] holds what a run needs of its process: the paths that are there, the folders of results and of journals,
//! the stop flag, and a [`Console`] that shows progress. Words of a command line and printed results are of the caller.

mod against;
mod answering;
mod arms;
mod best;
mod conduct;
mod console;
mod database;
mod driver;
mod external;
mod header;
mod load;
mod opened;
mod path;
mod plan;
mod programs;
mod proof;
mod runner;
mod series;

pub use answering::answer_path;
pub use arms::WHOLE_PLAN;
pub use console::Console;
pub use database::{
    Database, FindPath, compare, read_any_documents, read_documents, store_failure,
};
pub use driver::Planned;
pub use external::{ExternalPath, external_names, external_program};
pub use header::{experiment_id, resolve_text, stored_resolve};
pub use load::{check_support, find_load, requested_load};
pub use path::PathPlan;
pub use programs::{ProgramsPlan, check_programs, startable};
pub use proof::{NOTHING_KNOWN, Proven, Resumed};
pub use runner::{JournalFolder, OpenPath, Runner, StartGuard, lock};
pub use series::Earlier;
