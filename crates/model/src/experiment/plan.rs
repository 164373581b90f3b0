//! Arms, limits and rules of an experiment.

use crate::{Arm, ArmKind, Measurement, Support, verdict};

/// Default ratio up to which a difference does not matter.
pub const MARGIN: f64 = 1.10;

#[derive(Debug, Clone)]
pub struct ExperimentPlan {
    pub seed: u64,
    /// Arms and the host's support for them; see [`crate::arms()`].
    pub arms: Vec<(Arm, Support)>,
    /// Judged metrics, most important first. The experiment may stop once these are settled.
    pub judged: Vec<String>,
    pub budget_ns: u64,
    /// Fewest blocks that count; the control needs 8, and many verdicts need more
    /// ([`verdict::blocks_min`]).
    pub min_blocks: u32,
    /// Most blocks that count.
    pub max_blocks: u32,
    /// Ratio up to which a difference does not matter, above 1.
    pub margin: f64,
    /// Share of the time of a trial's cores that other work may take before its block is marked noisy
    /// and repeated.
    pub noise_gate: f64,
    /// CPUs of the machine, for the noise gate of trials whose cores are not known.
    pub cpus: u32,
    /// Stop once every judged verdict is settled; with a gate, once that is decided.
    pub stop_early: bool,
    /// Ratio from which on a change for the worse fails, at least 1; `None` without a gate.
    pub gate: Option<f64>,
}

impl ExperimentPlan {
    /// A plan with the defaults: at least 8 blocks and as many as the number of verdicts needs, at most
    /// 200, margin 1.10, noise gate 0.25, early stop.
    pub fn new(
        seed: u64,
        arms: Vec<(Arm, Support)>,
        judged: Vec<String>,
        budget_ns: u64,
        cpus: u32,
    ) -> Self {
        let is_judged = |(arm, support): &&(Arm, Support)| {
            matches!(arm.kind, ArmKind::Variant | ArmKind::Peer) && support.is_yes()
        };
        let questions = arms.iter().filter(is_judged).count() * judged.len();
        ExperimentPlan {
            seed,
            arms,
            judged,
            budget_ns,
            min_blocks: verdict::blocks_min(questions),
            max_blocks: 200,
            margin: MARGIN,
            noise_gate: 0.25,
            cpus,
            stop_early: true,
            gate: None,
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
