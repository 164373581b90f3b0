//! Blocks and time that a run needs, and has used.

use serde::{Deserialize, Serialize};

/// Blocks from which on a forecast rests on enough figures.
pub const FORECAST_AFTER: u32 = 8;

/// Needs of a resolution in blocks and time, and the resolution that the given time reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// Blocks after which a difference of the resolution is found in 19 of 20 runs.
    pub blocks: u32,
    /// Time of a run with so many, milliseconds.
    pub whole_ms: u64,
    /// Difference that is found in 19 of 20 runs of the given time, as a ratio above 1.
    pub reaches: f64,
}

impl Forecast {
    /// Whole seconds for `--time`, with a tenth more: blocks differ.
    pub fn whole_s(&self) -> u64 {
        seconds_with_reserve(self.whole_ms as f64 * 1e6)
    }
}

/// Time for a verdict; see [`Experiment::lacks_time`](crate::Experiment::lacks_time).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeNeeded {
    /// Fewest blocks with a verdict.
    pub blocks: u32,
    /// Expected duration of one.
    pub block_ns: u64,
    /// Expected duration of the run, its warm-up included; of a search and the experiment after it, of both.
    pub whole_ns: u64,
}

impl TimeNeeded {
    /// Whole seconds for `--time`, with a tenth more: blocks differ.
    pub fn whole_s(&self) -> u64 {
        seconds_with_reserve(self.whole_ns as f64)
    }
}

/// Extent of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunProgress {
    /// Block under way; 0 is the warm-up.
    pub block: u32,
    /// Blocks that the time is enough for, about; `None` during the warm-up.
    pub blocks: Option<u32>,
    /// Time since the start of the experiment.
    pub elapsed_ns: u64,
    /// Time at which it ends at the latest, as far as is known.
    pub end_ns: u64,
}

/// Whole seconds of a time in nanoseconds and a tenth more: blocks differ.
fn seconds_with_reserve(ns: f64) -> u64 {
    (ns * 1.1 / 1e9).ceil() as u64
}
