use std::cell::Cell;

use super::*;
use crate::{
    ArmKind, ArmPlan, Ended, FakeSource, FakeSwitch, FakeWorld, PathSwitch, Replayed, Verdict,
};

/// Virtual time that trials advance.
#[derive(Default)]
pub(crate) struct Virtual(pub(crate) Cell<u64>);

impl Clock for Virtual {
    fn elapsed_ns(&self) -> u64 {
        self.0.get()
    }
}

struct Fake<'a> {
    source: FakeSource,
    clock: &'a Virtual,
    /// Fails from this trial on.
    fails_from: u32,
    /// CPU time of other programs in each trial.
    others_cpu_ns: u64,
    trials: u32,
    /// Trials before each begin of a block.
    begun: Vec<u32>,
}

impl Trials for Fake<'_> {
    fn begin_block(&mut self) {
        self.begun.push(self.trials);
    }

    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
        self.trials += 1;
        let mut measurement = self.source.trial(arm);
        measurement.others_cpu_ns = self.others_cpu_ns;
        self.clock.0.set(self.source.now_ns());
        if self.trials > self.fails_from { Err("lost".into()) } else { Ok(measurement) }
    }
}

#[derive(Default)]
struct Memory {
    begun: u32,
    trials: Vec<TrialRecord>,
    progress: Vec<f64>,
    needed: Vec<TimeNeeded>,
    /// Trials that had ended then.
    needed_at: Option<usize>,
    looks: Vec<Outcome>,
    outcome: Option<Outcome>,
    /// Trials that fit.
    room: Option<usize>,
}

impl Sink for Memory {
    type Error = &'static str;

    fn begin(&mut self, _: &OutcomeHeader, _: &ExperimentPlan) -> Result<(), Self::Error> {
        self.begun += 1;
        Ok(())
    }

    fn next(&mut self, _: &Arm, progress: &RunProgress) {
        self.progress.push(progress.elapsed_ns as f64 / progress.end_ns as f64);
    }

    fn lacks_time(&mut self, needed: &TimeNeeded) {
        self.needed.push(*needed);
        self.needed_at = Some(self.trials.len());
    }

    fn block(&mut self, outcome: &dyn Fn() -> Outcome) {
        self.looks.push(outcome());
    }

    fn trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), Self::Error> {
        assert_eq!(id, "one");
        self.trials.push(trial.clone());
        if self.room.is_some_and(|room| self.trials.len() > room) { Err("full") } else { Ok(()) }
    }

    fn finish(&mut self, outcome: &Outcome) -> Result<(), Self::Error> {
        self.outcome = Some(outcome.clone());
        Ok(())
    }
}

struct Case {
    fails_from: u32,
    others_cpu_ns: u64,
    sink: Memory,
    stop: bool,
    budget_ns: u64,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            fails_from: u32::MAX,
            others_cpu_ns: 0,
            sink: Memory::default(),
            stop: false,
            budget_ns: plan().budget_ns,
        }
    }
}

fn plan() -> ExperimentPlan {
    let arms =
        crate::arms(&ArmPlan::Alone, &crate::ids(FakeSwitch::SPECS), &[], &mut FakeSource::support);
    ExperimentPlan::new(1, arms, vec!["rtt_ns_p50".into()], 60_000_000_000, 2)
}

/// Arms that run: trials of a block.
fn arms_count() -> usize {
    plan().arms.iter().filter(|(_, support)| support.is_yes()).count()
}

impl<'a> Fake<'a> {
    fn new(case: &Case, clock: &'a Virtual) -> Self {
        let source = FakeSource::new(FakeWorld::default());
        let (fails_from, others_cpu_ns) = (case.fails_from, case.others_cpu_ns);
        Fake { source, clock, fails_from, others_cpu_ns, trials: 0, begun: Vec::new() }
    }
}

fn ran(case: Case) -> (Result<FinishedRun, &'static str>, Memory) {
    let clock = Virtual::default();
    let mut fake = Fake::new(&case, &clock);
    let header = OutcomeHeader { id: "one".into(), ..OutcomeHeader::default() };
    let (mut sink, stop) = (case.sink, AtomicBool::new(case.stop));
    let plan = ExperimentPlan { budget_ns: case.budget_ns, ..plan() };
    let finished = run(plan, header, &mut fake, &clock, &mut sink, &stop);
    (finished, sink)
}

#[test]
fn every_trial_is_recorded_in_order_and_the_outcome_last() {
    let (finished, sink) = ran(Case::default());
    let finished = finished.unwrap();
    assert!(!finished.gave_up);
    assert_eq!(sink.begun, 1);
    assert!(sink.trials.iter().enumerate().all(|(n, trial)| trial.ordinal == n as u32));
    assert!(sink.trials.windows(2).all(|t| t[0].started_ms <= t[1].started_ms));
    assert!(sink.trials.iter().all(|trial| trial.wall_ns > 0 && !trial.noisy));
    assert!(sink.progress.is_sorted() && sink.progress.iter().all(|p| (0.0..=1.0).contains(p)));
    assert_eq!(sink.progress.len(), sink.trials.len());
    assert_eq!(sink.outcome.unwrap(), finished.outcome);
    let fast = finished.outcome.arms.iter().find(|arm| arm.name == "fast").unwrap();
    assert!(fast.metrics.contains_key("rtt_ns_p50"));
}

#[test]
fn trials_hear_of_each_block_before_its_first_one() {
    let clock = Virtual::default();
    let mut fake = Fake::new(&Case::default(), &clock);
    let header = OutcomeHeader { id: "one".into(), ..OutcomeHeader::default() };
    let (mut sink, stop) = (Memory::default(), AtomicBool::new(false));
    run(plan(), header, &mut fake, &clock, &mut sink, &stop).unwrap();
    let firsts: Vec<u32> = (0..sink.trials.len())
        .filter(|at| *at == 0 || sink.trials[*at].block != sink.trials[at - 1].block)
        .map(|at| at as u32)
        .collect();
    assert_eq!(fake.begun, firsts);
}

#[test]
fn too_little_time_for_a_verdict_is_reported_once_after_the_first_block() {
    let (enough, sink) = ran(Case::default());
    assert!(enough.is_ok() && sink.needed.is_empty(), "{:?}", sink.needed);
    let (finished, sink) = ran(Case { budget_ns: 6_000_000_000, ..Case::default() });
    let outcome = finished.unwrap().outcome;
    let [needed] = sink.needed[..] else { panic!("{:?}", sink.needed) };
    assert_eq!(sink.needed_at, Some(arms_count()), "after the warm-up");
    assert!(needed.blocks > outcome.blocks && needed.whole_s() > 6, "{needed:?}");
    let wall_ns = outcome.wall_ms * 1_000_000;
    assert!(wall_ns <= 6_000_000_000 + needed.block_ns, "{wall_ns}");
}

#[test]
fn a_killed_run_that_is_resumed_has_the_outcome_of_an_uninterrupted_one() {
    let (whole, sink) = ran(Case::default());
    let whole = whole.unwrap().outcome;
    for kept in [0, 1, 9, 40, sink.trials.len() - 1] {
        let stored = sink.trials[..kept].to_vec();
        let mut experiment = Experiment::new(plan());
        assert_eq!(experiment.replay(stored), Ok(Replayed { trials: kept }));
        let clock = Virtual::default();
        // The fake's time and noise go on where the killed run was.
        let mut fake = Fake::new(&Case::default(), &clock);
        for trial in &sink.trials[..kept] {
            let arms = plan().arms;
            let arm = arms.into_iter().find(|(arm, _)| arm.name == trial.arm);
            let arm = arm.map_or_else(
                || Arm { name: trial.arm.as_str().into(), ..Arm::baseline() },
                |(arm, _)| arm,
            );
            let _known = fake.trial(&arm);
        }
        let header = OutcomeHeader { id: "one".into(), ..OutcomeHeader::default() };
        let (mut rest, stop) = (Memory::default(), AtomicBool::new(false));
        let ended = resume(experiment, header, &mut fake, &clock, &mut rest, &stop).unwrap();
        assert_eq!(rest.begun, 0);
        assert_eq!(rest.trials.first().map(|t| t.ordinal), Some(kept as u32));
        assert_eq!(ended.outcome, whole, "{kept} trials kept");
    }
}

#[test]
fn trials_of_another_schedule_are_not_replayed() {
    let (_, sink) = ran(Case::default());
    let mut stored = sink.trials[..12].to_vec();
    stored.swap(7, 8);
    let mut experiment = Experiment::new(plan());
    let diverged = experiment.replay(stored).unwrap_err();
    assert_eq!(diverged.trials, 7);
    assert_eq!(experiment.trials().len(), 7);
}

#[test]
fn trials_beside_other_load_are_recorded_as_noisy() {
    let (_, sink) = ran(Case { others_cpu_ns: 400_000_000, ..Case::default() });
    assert!(sink.trials.iter().all(|trial| trial.noisy));
}

#[test]
fn a_run_whose_trials_all_fail_from_some_point_on_is_given_up() {
    let (finished, sink) = ran(Case { fails_from: 20, ..Case::default() });
    let finished = finished.unwrap();
    assert!(finished.gave_up);
    assert_eq!(finished.outcome.ended, Ended::Interrupted);
    let failed = sink.trials.iter().filter(|trial| trial.result.is_err()).count();
    assert_eq!(failed, FAILED_BLOCKS_MAX * finished.outcome.arms.len());
}

#[test]
fn a_run_whose_warm_up_fails_in_every_arm_is_given_up_after_it() {
    let (finished, sink) = ran(Case { fails_from: 0, ..Case::default() });
    let finished = finished.unwrap();
    assert!(finished.gave_up);
    assert_eq!(finished.outcome.ended, Ended::Interrupted);
    let arms = arms_count();
    assert_eq!(sink.trials.len(), arms);
    // One arm that succeeds shows that the others may.
    let (_, sink) = ran(Case { fails_from: 1, ..Case::default() });
    assert!(sink.trials.len() > 2 * arms, "{}", sink.trials.len());
}

fn verdicts(look: &Outcome) -> Vec<Verdict> {
    let arms = look.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
    arms.filter_map(|arm| arm.metrics.get(&look.judged[0])?.verdict).collect()
}

#[test]
fn looks_during_a_run_have_verdicts_that_hold_at_every_look_or_none() {
    let (finished, seen) = ran(Case::default());
    let outcome = finished.expect("a result").outcome;
    let blocks: Vec<u32> = seen.looks.iter().map(|look| look.blocks).collect();
    assert_eq!(blocks, (1..outcome.blocks).collect::<Vec<_>>(), "after each but the last");
    for look in &seen.looks {
        assert_eq!(look.ended, Ended::Unfinished);
        // Below 7 values no interval holds at every look.
        let differs = verdicts(look).into_iter().any(Verdict::differs);
        assert!(look.blocks >= 7 || !differs, "{:?} at {}", verdicts(look), look.blocks);
    }
    let mut shown = seen.looks.iter().flat_map(verdicts);
    assert!(shown.any(|verdict| verdict == Verdict::Exploratory));
    assert!(verdicts(&outcome).into_iter().all(|verdict| verdict != Verdict::Exploratory));
}

#[test]
fn a_stop_ends_the_run_with_an_outcome() {
    let (finished, sink) = ran(Case { stop: true, ..Case::default() });
    assert_eq!(finished.unwrap().outcome.ended, Ended::Interrupted);
    assert!(sink.trials.is_empty() && sink.outcome.is_some());
}

#[test]
fn a_trial_that_cannot_be_stored_ends_the_run() {
    let sink = Memory { room: Some(3), ..Memory::default() };
    let (finished, sink) = ran(Case { sink, ..Case::default() });
    assert_eq!(finished.unwrap_err(), "full");
    assert_eq!(sink.trials.len(), 4);
    assert!(sink.outcome.is_none());
}
