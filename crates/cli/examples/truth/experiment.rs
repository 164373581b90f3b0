//! Experiments of a fixed number of blocks, and their claims.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use model::{
    Arm, ArmKind, Clock, ExperimentPlan, Measurement, Outcome, OutcomeHeader, RunProgress, Sink,
    Support, TrialRecord, Trials, Verdict,
};

/// Long enough never to end a run.
const BUDGET_NS: u64 = 3_600_000_000_000;

struct Since(Instant);

impl Clock for Since {
    fn elapsed_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

struct Nowhere;

impl Sink for Nowhere {
    type Error = Infallible;

    fn begin(&mut self, _: &OutcomeHeader, _: &ExperimentPlan) -> Result<(), Infallible> {
        Ok(())
    }

    fn next(&mut self, _: &Arm, _: &RunProgress) {}

    fn trial(&mut self, _: &str, _: &TrialRecord) -> Result<(), Infallible> {
        Ok(())
    }

    fn finish(&mut self, _: &Outcome) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Trials by a function.
struct By<F>(F);

impl<F: FnMut(&Arm) -> Result<Measurement, String>> Trials for By<F> {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
        (self.0)(arm)
    }
}

/// Runs an experiment of a fixed number of blocks.
pub(crate) fn experiment(
    seed: u64,
    blocks: u32,
    arms: Vec<Arm>,
    judged: &[&str],
    trial: impl FnMut(&Arm) -> Result<Measurement, String>,
) -> Outcome {
    let arms = arms.into_iter().map(|arm| (arm, Support::Yes)).collect();
    let judged = judged.iter().map(|&name| name.to_owned()).collect();
    let mut plan = ExperimentPlan::new(seed, arms, judged, BUDGET_NS, lab_cpus());
    (plan.min_blocks, plan.max_blocks, plan.stop_early) = (blocks, blocks, false);
    let (clock, stop) = (Since(Instant::now()), AtomicBool::new(false));
    let header = OutcomeHeader::default();
    match model::run(plan, header, &mut By(trial), &clock, &mut Nowhere, &stop) {
        Ok(finished) => finished.outcome,
    }
}

fn lab_cpus() -> u32 {
    thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

/// Verdicts that claim a difference: arm, metric, ratio.
pub(crate) fn differences(outcome: &Outcome) -> Vec<(String, String, f64, Verdict)> {
    let variants = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
    variants
        .flat_map(|arm| arm.metrics.iter().map(move |(name, metric)| (arm, name, metric)))
        .filter_map(|(arm, name, metric)| {
            let verdict = metric.verdict?;
            let claims = matches!(verdict, Verdict::Better | Verdict::Worse);
            claims.then(|| {
                (arm.name.clone(), name.clone(), metric.ratio.unwrap_or(f64::NAN), verdict)
            })
        })
        .collect()
}

/// 95 % interval of a share, by Wilson 1927.
pub(crate) fn wilson(count: u64, of: u64) -> (f64, f64) {
    let (n, z) = (of as f64, 1.96);
    let share = count as f64 / n;
    let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), middle + half)
}
