//! Arms, limits and rules of an experiment.

use crate::blocks_min;
use crate::{Arm, BlockOrder, Measurement, Schedule, Support};

/// Default resolution: the ratio up to which a difference is none.
pub const RESOLVE: f64 = 1.05;

/// Most blocks of a run that is given none.
const BLOCKS_MAX: u32 = 2_000;

/// Members of a set that an experiment decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// Name of the arm with all members; arms that lack one are compared with it.
    pub set: String,
    /// Metric that decides.
    pub metric: String,
}

#[derive(Debug, Clone)]
pub struct ExperimentPlan {
    pub seed: u64,
    /// Arms and the host's support for them; see [`crate::arms()`].
    pub arms: Vec<(Arm, Support)>,
    /// Judged metrics, most important first. The experiment may stop once these are settled.
    pub judged: Vec<String>,
    pub budget_ns: u64,
    /// Share of the user's time that the budget is, 0 to 1: 1 but for an experiment after a search.
    pub share: f64,
    /// Fewest blocks that count; the control needs 8, and many verdicts need more
    /// ([`crate::blocks_min`]).
    pub min_blocks: u32,
    /// Most blocks that count.
    pub max_blocks: u32,
    /// Resolution, a ratio above 1: differences up to it are none, and from it on they fail a gate.
    pub resolve: f64,
    /// Share of the time of a trial's cores that other work may take before its block is marked noisy
    /// and repeated.
    pub noise_gate: f64,
    /// CPUs of the machine, for the noise gate of trials whose cores are not known.
    pub cpus: u32,
    /// Stop arms once their judged verdicts are better, worse or equal within the resolution; with a gate, once that is
    /// decided. Without it the run is looked at once, at its end.
    pub stop_early: bool,
    /// True if a change for the worse by more than the resolution fails.
    pub gate: bool,
    /// Judged metrics that decide the gate; empty for all. Others fail it only if they are shown to be worse, and those
    /// of CPU time and memory never.
    pub deciding: Vec<String>,
    /// Members that are decided in place of the arms' verdicts against the baseline.
    pub members: Option<Members>,
    /// Order of trials, and settling trials.
    pub schedule: Schedule,
}

impl ExperimentPlan {
    /// A plan with the defaults: at least 8 blocks and as many as the number of verdicts needs, at most
    /// 2,000, resolution 5 %, noise gate 0.25, early stop, balanced order.
    pub fn new(
        seed: u64,
        arms: Vec<(Arm, Support)>,
        judged: Vec<String>,
        budget_ns: u64,
        cpus: u32,
    ) -> Self {
        let questions =
            arms.iter().filter(|(arm, support)| arm.kind.is_compared() && support.is_yes()).count()
                * judged.len();
        ExperimentPlan {
            seed,
            arms,
            judged,
            budget_ns,
            share: 1.0,
            min_blocks: blocks_min(questions),
            max_blocks: BLOCKS_MAX,
            resolve: RESOLVE,
            noise_gate: 0.25,
            cpus,
            stop_early: true,
            gate: false,
            deciding: Vec::new(),
            members: None,
            schedule: Schedule { order: BlockOrder::Balanced, settle: false },
        }
    }

    /// CPU time of others on the cores of a trial, as a share of the time of these cores; up to the number
    /// of CPUs of a core.
    pub(super) fn noise_of(&self, measurement: &Measurement) -> f64 {
        let cores_ns = match measurement.cores_ns {
            0 => measurement.wall_ns as f64 * f64::from(self.cpus.max(1)),
            cores_ns => cores_ns as f64,
        };
        let others_ns = measurement.others_cpu_ns as f64 + measurement.steal_ns as f64;
        if cores_ns > 0.0 { others_ns / cores_ns } else { 0.0 }
    }
}
