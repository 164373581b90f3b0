//! Staged roll-outs of a plan of settings, with the proof of each stage as the gate.
//!
//! [`RolloutState::after`] is the machine, [`Conductor`] performs what its states ask for through the traits
//! [`Hosts`] and [`Ledger`]. A state is in the ledger before anything of it is done, so that a roll-out whose
//! process was killed goes on from its last row.

mod answer;
mod conduct;
mod draw;
mod gate;
mod ledger;
mod live;
mod sqlite;
mod state;
mod steps;

pub use answer::{Answers, StepAnswer, Watched};
pub use conduct::{Conductor, Hosts};
pub use draw::{Draw, Size, SizeError};
pub use gate::{HURT_SHARE_MAX, Proof, RolloutGate, Wants, gate};
pub use ledger::{Ledger, LedgerRow, RolloutHeader};
pub use live::{LiveCrossings, live_gate};
pub use sqlite::SqliteLedger;
pub use state::{RolloutEvent, RolloutState};
pub use steps::{HostStep, StepLimits, Steps, measured};

/// Beginning of every roll-out's id, under which hosts keep its settings.
pub const ID_PREFIX: &str = "rollout-";
