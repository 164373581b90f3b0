//! Switches, arms, trials, measurements, experiments and verdicts.
//!
//! Pure: no I/O, no clock, no threads. Time comes in as numbers, randomness
//! from a seed, so that every schedule and every verdict can be repeated.

mod arm;
mod measurement;
mod outcome;
mod switch;

pub use arm::{Arm, ArmKind};
pub use measurement::{
    Better, Cost, Delivery, Measurement, Metric, NotEffective, QUANTILES, Refusal,
    SAMPLES_BEYOND_QUANTILE, Throughput, latency_histogram,
};
pub use outcome::{
    ArmOutcome, Distribution, Ended, Floor, Machine, MetricOutcome, Outcome, SCHEMA, Verdict,
    Warning,
};
pub use switch::{Scope, Support, Switch};
