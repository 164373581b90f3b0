//! Results of many strangers' machines: contributions without names, their check, and the worth of each switch and knob by
//! driver, kernel and machine.

mod check;
mod contribution;
mod pooled;
mod redacted;

pub use check::{ContributionProblem, check};
pub use contribution::{CONTRIBUTION_SCHEMA, Contribution, ContributionError};
pub use pooled::{Atlas, AtlasCounts, AtlasEntry, AtlasGroup, AtlasMetric, AtlasSection, Row};
pub use redacted::{Vocabulary, redacted};
