//! Guard of a running service: undoes the setting at once where it harms.
//!
//! The hard tier is here, by samples each 100 ms. The soft tier bets on "worse by more than its factor" pair by pair, in
//! [`LiveExperiment`](super::LiveExperiment). A plain rule "p99 > 2x" does not exist: on real logs without any change it fired a
//! hundred times an hour.

mod hard;
mod rule;

pub use hard::{GuardSample, HardGuard, Trip};
pub use rule::{GuardRule, GuardRuleError};
