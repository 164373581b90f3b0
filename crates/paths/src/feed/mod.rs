//! Path `feed`: a multicast market-data receiver that shows where each microsecond goes.

pub mod arbiter;
pub mod capture;
pub mod excess;
pub mod json;
pub mod listen;
pub mod messages;
pub mod record;
pub mod recovery;
pub mod replay;
pub mod schedule;
pub mod symbols;
pub mod synthetic;
