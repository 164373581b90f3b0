//! Path `feed`: a multicast market-data receiver that shows where each microsecond goes.

pub mod arbiter;
pub mod capture;
pub mod json;
pub mod recovery;
pub mod schedule;
pub mod symbols;
pub mod synthetic;
