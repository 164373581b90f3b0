//! Runs experiments on the fake path in virtual time.

#![allow(dead_code, reason = "each test file uses its share")]

pub(crate) mod documents;

use wirepath_model::{
    Arm, ArmOutcome, ArmPlan, Experiment, ExperimentPlan, ExperimentStep, FakeDrift, FakeSource,
    FakeSwitch, FakeWorld, Measurement, MetricOutcome, Outcome, OutcomeHeader, PathSwitch, Support,
    arms, ids,
};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// The machine from hell: everything the build machine was seen to do, and a steady trend.
pub(crate) fn strong_drift() -> Vec<FakeDrift> {
    vec![
        FakeDrift::Walk(0.05),
        FakeDrift::Ramp(0.01),
        FakeDrift::Hog { factor: 1.5, on_ns: 2 * SECOND_NS, off_ns: 4 * SECOND_NS },
    ]
}

pub(crate) fn fake_arms(list: &str) -> Vec<(Arm, Support)> {
    let plan = ArmPlan::parse(list, &ids(FakeSwitch::SPECS)).expect("a good list");
    arms(&plan, &ids(FakeSwitch::SPECS), &[], &mut FakeSource::support)
}

/// Judged by rtt_ns_p50, one minute, two CPUs.
pub(crate) fn plan(seed: u64, list: &str) -> ExperimentPlan {
    let judged = vec!["rtt_ns_p50".to_owned()];
    let mut plan = ExperimentPlan::new(seed, fake_arms(list), judged, 60 * SECOND_NS, 2);
    // A trial that a hog shares with us is the machine's business here, not the gate's.
    plan.noise_gate = 1.0;
    plan
}

/// Runs to the end; `fails` says which arms fail in which block.
pub(crate) fn run_with(
    plan: ExperimentPlan,
    world: FakeWorld,
    mut fails: impl FnMut(&Arm, u32) -> Option<String>,
) -> Experiment {
    run_changed(plan, world, |arm, block, _| fails(arm, block).map_or(Ok(()), Err))
}

/// Runs to the end; `change` changes the measurement of an arm in a block, or makes the trial fail.
pub(crate) fn run_changed(
    plan: ExperimentPlan,
    world: FakeWorld,
    mut change: impl FnMut(&Arm, u32, &mut Measurement) -> Result<(), String>,
) -> Experiment {
    let mut fake = FakeSource::new(world);
    let mut experiment = Experiment::new(plan);
    while let ExperimentStep::Trial { block, arm, .. } = experiment.next(fake.now_ns()) {
        let arm = experiment.arms()[arm].0.clone();
        let mut measurement = fake.trial(&arm);
        let changed = change(&arm, block, &mut measurement);
        experiment.record(changed.map(|()| measurement));
    }
    experiment
}

pub(crate) fn run(plan: ExperimentPlan, world: FakeWorld) -> Outcome {
    run_with(plan, world, |_, _| None).outcome(OutcomeHeader::default())
}

pub(crate) fn arm<'a>(outcome: &'a Outcome, name: &str) -> &'a ArmOutcome {
    outcome.arms.iter().find(|arm| arm.name == name).expect("the arm is listed")
}

pub(crate) fn metric<'a>(outcome: &'a Outcome, name: &str, metric: &str) -> &'a MetricOutcome {
    arm(outcome, name).metrics.get(metric).expect("the metric is there")
}
