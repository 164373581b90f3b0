//! Path `command`: the user's own programs as arms of an experiment.
//!
//! [`model::Programs`] is an experiment as its user writes it; a [`CheckedPrograms`] is the same, checked. Each trial runs a
//! server at the far end and a client at the near end, and reads the client's figures from its output.

mod accounting;
mod agent;
mod check;
mod exchange;
mod figures;
mod life;
mod middle;
mod path;
mod place;
mod problem;
mod remote;
mod resolve;
mod samples;
mod scout;
mod serve;
mod session;
mod settings;
mod side;
mod spec;
mod switches;
mod turn;
mod variables;

pub use agent::{FarMeans, serve_near};
pub use check::{check, unstartable};
pub use path::{arms, support};
pub use problem::Problem;
pub use resolve::{read, resolve, resolve_programs};
pub use scout::{ServerCommand, ServersSeen, scout};
pub use session::{CommandSession, Journals, rehearse};
pub use spec::{ArmSpec, CheckedPrograms, ProgramLimits, SharedPlace, SpecError};
pub use switches::{Act, At, Switch, SwitchError};

/// Name of the service of the far end, `wirepath answer programs`.
pub const SERVICE: &str = "programs";

/// Name of the path in results.
pub const NAME: &str = model::Programs::PATH;
