//! Path `feed`: a multicast market-data receiver that shows where each microsecond goes.

pub mod arbiter;
pub mod schedule;
