//! Trials as an experiment counts them, and as they are stored.

use std::collections::BTreeMap;

use crate::tail::Samples;
use crate::{Measurement, Metric, NotEffective, Trap};

#[derive(Debug, Clone)]
pub struct Trial {
    /// 0 is the warm-up.
    pub block: u32,
    /// Index into the plan's arms.
    pub arm: usize,
    /// True if it does not count.
    pub warmup: bool,
    /// Start, nanoseconds since the start of the experiment.
    pub started_ns: u64,
    /// Share of the machine's CPU time that other work took, 0 to about 1.
    pub noise: f64,
    /// True if `noise` is above the noise gate.
    pub noisy: bool,
    /// Start of the program that ran it; see [`Measurement::start`].
    pub start: Option<u32>,
    pub not_effective: Vec<NotEffective>,
    pub traps: Vec<Trap>,
    /// Latencies by stem of the metric, for judged tails.
    pub(crate) samples: BTreeMap<String, Samples>,
    pub result: Result<Vec<Metric>, String>,
}

impl Trial {
    /// A trial without a result.
    pub(super) fn new(block: u32, arm: usize, warmup: bool, started_ns: u64) -> Self {
        Trial {
            block,
            arm,
            warmup,
            started_ns,
            noise: 0.0,
            noisy: false,
            start: None,
            not_effective: Vec::new(),
            traps: Vec::new(),
            samples: BTreeMap::new(),
            result: Err(String::new()),
        }
    }
}

/// One trial, as it is stored when it ends.
#[derive(Debug, Clone)]
pub struct TrialRecord {
    /// Place in the order of execution, from 0; unique in the experiment.
    pub ordinal: u32,
    /// Block it belongs to; 0 is the warm-up.
    pub block: u32,
    pub arm: String,
    /// True if it belongs to the warm-up, which no figure counts.
    pub warmup: bool,
    /// True if other load on the machine was above the noise gate.
    pub noisy: bool,
    /// Milliseconds from the experiment's start to the trial's.
    pub started_ms: u64,
    /// Wall time of the whole trial, set-up included, nanoseconds.
    pub wall_ns: u64,
    pub result: Result<Measurement, String>,
}
