//! Switches, arms, trials, measurements, experiments and verdicts.
//!
//! Pure: no I/O, no clock, no threads. Time comes in as numbers, randomness
//! from a seed, so that every schedule and every verdict can be repeated.

mod account;
mod arm;
mod arms;
mod books;
mod compare;
mod experiment;
mod fake;
mod judge;
mod measurement;
mod metrics;
mod outcome;
mod random;
mod schedule;
pub mod statistics;
mod switch;
pub mod two_samples;

pub use arm::{Arm, ArmKind};
pub use arms::{ArmPlan, ArmPlanError, arms};
pub use books::{Arrival, Jitter, SequenceBook};
pub use compare::{
    ArmComparison, COMPARISON_SCHEMA, Change, CompareError, Difference, MetricComparison, Noise,
    Run, RunComparison, comparable, compare,
};
pub use experiment::{Experiment, ExperimentPlan, MARGIN, OutcomeHeader, Step, Trial};
pub use fake::{Drift, FAKE_SWITCHES, FakeSource, FakeWorld};
pub use measurement::{
    Better, Cost, Delivery, Measurement, Metric, NotEffective, QUANTILES, Refusal,
    SAMPLES_BEYOND_QUANTILE, Throughput, Trap, latency_histogram,
};
pub use metrics::{describe, distribution, is_tally, segment_stem};
pub use outcome::{
    ArmOutcome, Distribution, Ended, Floor, Machine, MetricOutcome, Outcome, SCHEMA, Verdict,
    Warning,
};
pub use random::Random;
pub use schedule::order;
pub use switch::{Scope, Support, Switch};
