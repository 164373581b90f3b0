//! The experiment as a state machine: order, early stop, limits and outcome.

mod support;

use std::collections::BTreeMap;

use support::{SECOND_NS, arm, metric, plan, run, run_changed, run_with};
use wirepath_model::{
    Arm, ArmKind, Ended, Experiment, ExperimentPlan, ExperimentStep, FakeSource, FakeSwitch,
    FakeWorld, Measurement, Members, NotEffective, Outcome, OutcomeHeader, Search, Support,
    TrialRecord, Verdict,
};

fn world() -> FakeWorld {
    FakeWorld { samples: 2_000, ..FakeWorld::default() }
}

fn outcome(experiment: &Experiment) -> Outcome {
    experiment.outcome(OutcomeHeader::default())
}

fn warned(outcome: &Outcome, of: &str) -> usize {
    outcome.warnings.iter().filter(|warning| warning.what.contains(of)).count()
}

/// Drives an experiment whose trials take `trial_ns` and say nothing.
fn run_silently(plan: ExperimentPlan, trial_ns: u64) -> (Experiment, u64) {
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 0;
    while let ExperimentStep::Trial { .. } = experiment.next(now_ns) {
        now_ns += trial_ns;
        experiment.record(Ok(Default::default()));
    }
    (experiment, now_ns)
}

#[test]
fn same_seed_runs_arms_in_the_same_order_and_another_seed_in_another() {
    let order = |seed| -> Vec<(u32, usize)> {
        let experiment = run_with(plan(seed, "alone"), world(), |_, _| None);
        experiment.trials().map(|trial| (trial.block, trial.arm)).collect()
    };
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
}

fn order(broken: bool) -> Vec<(u32, usize)> {
    let mut plan = plan(3, "alone");
    (plan.stop_early, plan.max_blocks) = (false, 10);
    let experiment = run_with(plan, world(), |arm: &Arm, _| {
        (broken && arm.name == "fast").then(|| "broken".to_owned())
    });
    experiment.trials().filter(|t| t.arm != 2).map(|t| (t.block, t.arm)).collect()
}

#[test]
fn order_of_the_others_does_not_depend_on_an_arm_that_fails() {
    assert_eq!(order(false), order(true));
}

#[test]
fn every_block_runs_every_supported_arm_once_and_the_first_does_not_count() {
    let mut plan = plan(1, "alone");
    (plan.stop_early, plan.max_blocks) = (false, 16);
    let experiment = run_with(plan, world(), |_, _| None);
    let mut runs: BTreeMap<(u32, usize), u32> = BTreeMap::new();
    for trial in experiment.trials() {
        assert_eq!(trial.warmup, trial.block == 0);
        *runs.entry((trial.block, trial.arm)).or_default() += 1;
    }
    let outcome = outcome(&experiment);
    // Seven of eight: `absent` cannot run.
    assert_eq!(runs.len(), 7 * (outcome.blocks as usize + 1));
    assert!(runs.values().all(|&count| count == 1));
    assert_eq!(arm(&outcome, "baseline").trials, outcome.blocks);
}

#[test]
fn unsupported_arm_is_listed_with_its_requirement() {
    let outcome = run(plan(1, "alone"), world());
    let absent = metric(&outcome, "absent", "rtt_ns_p50");
    assert_eq!(absent.verdict, Some(Verdict::Unsupported));
    assert!(absent.why.as_ref().unwrap().contains("needs a path that is not fake"));
    assert_eq!(absent.unit, "ns");
    let step =
        |from: &str, to: &str| outcome.step(arm(&outcome, from), arm(&outcome, to), "rtt_ns_p50");
    assert!(step("fast", "absent").is_none() && step("absent", "fast").is_none());
    assert!(step("fast", "slight").is_some());
}

#[test]
fn early_stop_needs_every_judged_verdict_settled() {
    let outcome = run(plan(1, "fast,nothing"), FakeWorld { drift: vec![], ..world() });
    assert_eq!(outcome.ended, Ended::Settled);
    // Two verdicts need nine blocks, and the check of the trial before eight that tell; the looks are after 9, 12 and 16.
    assert_eq!((outcome.blocks, outcome.looks), (16, 3));
    assert_eq!(metric(&outcome, "fast", "rtt_ns_p50").verdict, Some(Verdict::Better));
    let nothing = metric(&outcome, "nothing", "rtt_ns_p50").verdict;
    assert_eq!(nothing, Some(Verdict::NoDifferenceShown));
    let control = metric(&outcome, "baseline again", "rtt_ns_p50").verdict;
    assert_eq!(control, Some(Verdict::NoDifferenceShown));
    assert_eq!(metric(&outcome, "baseline", "rtt_ns_p50").verdict, None);

    let noisy = FakeWorld { noise: 0.5, ..world() };
    assert_ne!(run(plan(1, "fast,nothing"), noisy).ended, Ended::Settled);
}

#[test]
fn block_that_exceeds_the_budget_is_not_begun() {
    let mut plan = plan(1, "fast,nothing");
    plan.stop_early = false;
    let (experiment, now_ns) = run_silently(plan, SECOND_NS);
    let outcome = outcome(&experiment);
    assert_eq!((outcome.ended, outcome.blocks), (Ended::TimeUp, 14));
    assert!(now_ns <= 60 * SECOND_NS);
    assert_eq!(outcome.wall_ms, 60_000);
}

#[test]
fn fewest_blocks_do_not_exceed_the_budget() {
    let mut plan = plan(1, "fast,nothing");
    plan.budget_ns = 30 * SECOND_NS;
    // A block takes 8 s.
    let (experiment, now_ns) = run_silently(plan, 2 * SECOND_NS);
    assert!(now_ns <= 30 * SECOND_NS);
    let outcome = outcome(&experiment);
    assert_eq!((outcome.ended, outcome.blocks), (Ended::TimeUp, 2));
    assert_eq!(warned(&outcome, "only 2 of 9 blocks"), 1);
    assert!(outcome.warnings[0].advice.contains("--time 88s"), "{:?}", outcome.warnings);
}

#[test]
fn budget_is_exceeded_by_less_than_one_block_whatever_its_length() {
    for (budget_s, blocks) in [(20, 1), (16, 0), (10, 0)] {
        let mut plan = plan(1, "fast,nothing");
        plan.budget_ns = budget_s * SECOND_NS;
        // A block takes 16 s.
        let (experiment, now_ns) = run_silently(plan, 4 * SECOND_NS);
        let outcome = outcome(&experiment);
        assert_eq!((outcome.ended, outcome.blocks), (Ended::TimeUp, blocks), "{budget_s}");
        assert!(now_ns < (budget_s + 16) * SECOND_NS, "{budget_s}");
        assert_eq!(warned(&outcome, "of 9 blocks fit into --time: a block takes 16.0 s"), 1);
    }
}

#[test]
fn block_that_takes_much_longer_than_those_before_it_is_broken_off_a_block_past_the_budget() {
    let mut plan = plan(1, "fast,nothing");
    plan.budget_ns = 30 * SECOND_NS;
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 0;
    while let ExperimentStep::Trial { block, .. } = experiment.next(now_ns) {
        // A block takes 4 s, and from the fifth on 80 s: programs hang until a limit of theirs.
        now_ns += if block < 5 { SECOND_NS } else { 20 * SECOND_NS };
        experiment.record(Ok(Default::default()));
    }
    assert_eq!(now_ns, 40 * SECOND_NS, "the trial under way is completed");
    let outcome = outcome(&experiment);
    assert_eq!((outcome.ended, outcome.blocks), (Ended::TimeUp, 4));
}

#[test]
fn time_before_the_first_block_counts() {
    let mut plan = plan(1, "fast,nothing");
    plan.budget_ns = 30 * SECOND_NS;
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 19 * SECOND_NS;
    while let ExperimentStep::Trial { .. } = experiment.next(now_ns) {
        now_ns += SECOND_NS;
        experiment.record(Ok(Default::default()));
    }
    assert_eq!(now_ns, 27 * SECOND_NS, "a warm-up and a block of 4 s");
    let outcome = outcome(&experiment);
    assert_eq!(warned(&outcome, "only 1 of 9 blocks"), 1);
    // 19 s, the warm-up and nine blocks of 4 s, and a tenth more.
    assert!(outcome.warnings[0].advice.contains("--time 65s"), "{:?}", outcome.warnings);
}

#[test]
fn time_that_an_experiment_after_a_search_lacks_is_that_of_both() {
    let mut plan = plan(1, "fast,nothing");
    (plan.budget_ns, plan.share) = (10 * SECOND_NS, 0.25);
    let (experiment, _) = run_silently(plan, SECOND_NS);
    // The warm-up and nine blocks of 4 s are a quarter.
    assert_eq!(experiment.lacks_time().unwrap().whole_ns, 160 * SECOND_NS);
}

#[test]
fn progress_counts_blocks_to_the_end_that_the_time_leaves() {
    let mut plan = plan(1, "fast,nothing");
    (plan.budget_ns, plan.stop_early) = (42 * SECOND_NS, false);
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 0;
    let mut seen = Vec::new();
    while let ExperimentStep::Trial { .. } = experiment.next(now_ns) {
        seen.push(experiment.progress(now_ns));
        now_ns += SECOND_NS;
        experiment.record(Ok(Default::default()));
    }
    assert!(seen.iter().all(|at| at.end_ns == 42 * SECOND_NS && at.elapsed_ns < at.end_ns));
    assert!(seen[..4].iter().all(|at| (at.block, at.blocks) == (0, None)), "{:?}", seen[0]);
    // The warm-up and nine blocks of 4 s take 40 s.
    assert!(seen[4..].iter().all(|at| at.blocks == Some(9)), "{:?}", seen[4]);
    assert_eq!(seen.last().unwrap().block, 9);
}

#[test]
fn block_limit_ends_the_run() {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early) = (9, false);
    let (experiment, _) = run_silently(plan, 1_000);
    assert_eq!(outcome(&experiment).ended, Ended::BlockLimit);
    assert_eq!(outcome(&experiment).blocks, 9);
}

#[test]
fn arm_that_fails_in_the_first_three_blocks_is_not_run_again() {
    let experiment = run_with(plan(1, "fast,harmful"), world(), |arm, _| {
        (arm.name == "harmful").then(|| "no such device".to_owned())
    });
    assert_eq!(experiment.trials().filter(|trial| trial.arm == 3).count(), 3);
    let outcome = outcome(&experiment);
    assert_eq!(outcome.ended, Ended::Settled, "the others go on");
    let harmful = arm(&outcome, "harmful");
    assert_eq!((harmful.trials, harmful.failures.len()), (0, 3));
    let why = metric(&outcome, "harmful", "rtt_ns_p50").why.clone().unwrap();
    assert_eq!(why, "every trial failed: no such device");
    assert_eq!(warned(&outcome, "3 trials of harmful failed, and it was not run again"), 1);
}

#[test]
fn failed_trial_counts_as_the_worst_of_its_block() {
    let experiment = run_with(plan(1, "fast"), world(), |arm, block| {
        (arm.name == "fast" && block == 4).then(|| "timed out".to_owned())
    });
    let outcome = outcome(&experiment);
    let fast = metric(&outcome, "fast", "rtt_ns_p50");
    assert_eq!(fast.trials.len() as u32, outcome.blocks);
    assert_eq!(fast.trials[3], None);
    assert_eq!(fast.trials.iter().flatten().count() as u32, outcome.blocks - 1);
    assert_eq!(fast.verdict, Some(Verdict::Better));
    assert_eq!(arm(&outcome, "fast").failures, ["timed out"]);
    let seen = arm(&outcome, "fast").reliability.as_ref().unwrap();
    assert_eq!((seen.failed, seen.trials), (1, outcome.blocks));
    assert_eq!((seen.baseline_failed, seen.baseline_trials), (0, 2 * outcome.blocks));
    assert!(!seen.fails_more);
}

#[test]
fn arm_that_fails_half_of_its_trials_is_not_better_and_is_shown_to_fail_more() {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early) = (20, false);
    let experiment = run_with(plan, world(), |arm, block| {
        (arm.name == "fast" && block % 2 == 0).then(|| "died".to_owned())
    });
    let outcome = outcome(&experiment);
    assert_ne!(metric(&outcome, "fast", "rtt_ns_p50").verdict, Some(Verdict::Better));
    assert!(arm(&outcome, "fast").reliability.as_ref().unwrap().fails_more);
}

#[test]
fn run_that_was_interrupted_is_exploratory() {
    let (mut fake, mut plan) = (FakeSource::new(world()), plan(1, "nothing"));
    plan.stop_early = false;
    let mut experiment = Experiment::new(plan);
    while let ExperimentStep::Trial { block, arm, .. } = experiment.next(fake.now_ns()) {
        let measurement = fake.trial(&experiment.arms()[arm].0.clone());
        experiment.record(Ok(measurement));
        if block == 9 {
            experiment.interrupt();
        }
    }
    let nothing = outcome(&experiment);
    let nothing = metric(&nothing, "nothing", "rtt_ns_p50");
    assert_eq!(nothing.verdict, Some(Verdict::Exploratory));
}

#[test]
fn without_a_baseline_there_is_nothing_to_run() {
    let outcome = outcome(&run_with(plan(1, "fast"), world(), |arm: &Arm, _| {
        (arm.name == "baseline").then(|| "no".to_owned())
    }));
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert_eq!(warned(&outcome, "the baseline cannot run"), 1);

    let mut none = plan(1, "fast");
    none.arms.clear();
    assert_eq!(Experiment::new(none).next(0), ExperimentStep::Done(Ended::Interrupted));
}

#[test]
fn without_a_control_nothing_is_better() {
    let outcome = outcome(&run_with(plan(1, "fast"), world(), |arm: &Arm, _| {
        (arm.kind == ArmKind::Control).then(|| "no".to_owned())
    }));
    let fast = metric(&outcome, "fast", "rtt_ns_p50");
    assert_eq!(fast.verdict, Some(Verdict::Inconclusive));
    assert!(fast.why.as_ref().unwrap().contains("no A/A floor"));
    assert_eq!(warned(&outcome, "the A/A control has no trial"), 1);
}

/// Runs with others taking the given share of two CPUs in every block from `from` on.
fn run_noisily(share: f64, from: u32, until: u32) -> Experiment {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early, plan.noise_gate) = (8, false, 0.25);
    run_changed(plan, world(), |arm, block, measurement| {
        if arm.name == "baseline" && (from..until).contains(&block) {
            measurement.others_cpu_ns = (measurement.wall_ns as f64 * share) as u64;
            measurement.steal_ns = (measurement.wall_ns as f64 * share) as u64;
        }
        Ok(())
    })
}

/// A trial on two cores; 16 hogs over the machine's 64 CPUs.
fn trial(cores: u64, others: u64) -> Measurement {
    Measurement {
        wall_ns: 1_000_000,
        cores_ns: cores * 1_000_000,
        others_cpu_ns: others * 1_000_000,
        ..Measurement::default()
    }
}

#[test]
fn sixteen_hogs_of_64_cpus_are_noise_where_the_trial_runs_and_nowhere_else() {
    let mut plan = plan(1, "fast");
    (plan.cpus, plan.noise_gate) = (64, 0.25);
    let experiment = Experiment::new(plan);
    assert!(experiment.is_noisy(&trial(2, 2)), "two of them share the cores");
    assert!(experiment.is_noisy(&trial(2, 1)), "one of them does");
    assert!(!experiment.is_noisy(&trial(2, 0)), "they run elsewhere");
    assert!(experiment.is_noisy(&trial(32, 16)), "unpinned, on cores of two CPUs");
    assert!(!experiment.is_noisy(&trial(0, 16)), "of an older Wirepath: the machine's CPU time");
}

#[test]
fn noisy_block_is_marked_and_repeated_and_kept() {
    let experiment = run_noisily(0.3, 3, 5);
    let outcome = outcome(&experiment);
    assert_eq!(outcome.blocks, 10, "eight and two more");
    let noisy: Vec<u32> = experiment.trials().filter(|t| t.noisy).map(|t| t.block).collect();
    assert_eq!(noisy, [3, 4]);
    for name in ["baseline", "fast"] {
        let kept = metric(&outcome, name, "rtt_ns_p50").trials.iter().flatten().count();
        assert_eq!(kept, 10, "{name}: no trial is dropped, the noisy ones neither");
    }
    assert_eq!(warned(&outcome, "2 of 10 blocks were noisy"), 1);
}

#[test]
fn repeats_are_at_most_a_third_more() {
    let outcome = outcome(&run_noisily(0.3, 0, 1000));
    // 8 + 8 / 3, of which a quarter is not counted: 10 - 2 = 8.
    assert_eq!(outcome.blocks, 10);
    assert_eq!(warned(&outcome, "10 of 10 blocks were noisy"), 1);
}

#[test]
fn quiet_machine_repeats_nothing() {
    let outcome = outcome(&run_noisily(0.2, 0, 1000));
    assert_eq!(outcome.blocks, 8);
    assert_eq!(warned(&outcome, "noisy"), 0);
}

#[test]
fn lost_datagrams_are_infinitely_late_and_leave_the_quantiles_below_them() {
    let losses = [("fast".to_owned(), 0.03)].into();
    let outcome = run(plan(1, "fast"), FakeWorld { losses, ..world() });
    let p50 = metric(&outcome, "fast", "rtt_ns_p50");
    assert_eq!(p50.verdict, Some(Verdict::Better));
    let p99 = metric(&outcome, "fast", "rtt_ns_p99");
    assert_eq!((p99.verdict, p99.median), (Some(Verdict::Refused), None));
    let why = p99.why.as_ref().unwrap();
    assert!(why.starts_with("p99 refused: 60 of 2000 datagrams were lost"), "{why}");
    let lost = metric(&outcome, "fast", "lost_count");
    assert_eq!((lost.median, lost.ratio, lost.verdict), (Some(60.0), None, None));
    let last = |name| arm(&outcome, name).latency["rtt"].quantiles.last().unwrap().0;
    assert!(last("fast") < 0.97 && last("baseline") > 0.999);
}

#[test]
fn trials_that_refuse_a_metric_count_as_the_worst_with_a_warning() {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early) = (12, false);
    let outcome = outcome(&run_changed(plan, world(), |arm, block, measurement| {
        if arm.name == "fast" && block == 3 {
            measurement.deliveries.get_mut("forward").unwrap().received_count -= 1200;
        }
        Ok(())
    }));
    assert_eq!(metric(&outcome, "fast", "rtt_ns_p50").verdict, Some(Verdict::Better));
    assert_eq!(warned(&outcome, "rtt_ns_p50 of fast is missing in 1 of 12 trials"), 1);
}

#[test]
fn switch_without_effect_marks_only_its_own_arm() {
    let alone = run(plan(1, "idle"), world());
    let idle = metric(&alone, "idle", "rtt_ns_p50");
    assert_eq!(idle.verdict, Some(Verdict::NotEffective));
    assert!(idle.why.is_some());
    assert_eq!(warned(&alone, "idle was on"), 0);

    let ladder = run(plan(1, "ladder"), world());
    let verdict = |name| metric(&ladder, name, "rtt_ns_p50").verdict;
    assert_eq!(verdict("+idle"), Some(Verdict::NotEffective));
    assert_ne!(verdict("+harmful"), Some(Verdict::NotEffective));

    let joined = run(plan(1, "fast+idle"), world());
    assert_eq!(metric(&joined, "fast+idle", "rtt_ns_p50").verdict, Some(Verdict::Better));
    assert_eq!(warned(&joined, "idle was on without effect"), 1);
}

/// Stored trials of a run of so many trials, with the run itself.
fn stored(plan: &ExperimentPlan, trials: u32) -> (Experiment, Vec<TrialRecord>) {
    let (mut fake, mut experiment) = (FakeSource::new(world()), Experiment::new(plan.clone()));
    let mut stored = Vec::new();
    for ordinal in 0..trials {
        let started_ms = fake.now_ns() / 1_000_000;
        let ExperimentStep::Trial { block, arm, warmup } = experiment.next(fake.now_ns()) else {
            break;
        };
        let arm = experiment.arms()[arm].0.clone();
        let result = Ok(fake.trial(&arm));
        experiment.record(result.clone());
        let (arm, noisy, wall_ns) = (arm.name, false, 250_000_000);
        stored.push(TrialRecord {
            ordinal,
            block,
            arm,
            warmup,
            noisy,
            started_ms,
            wall_ns,
            result,
        });
    }
    (experiment, stored)
}

#[test]
fn killed_run_keeps_all_trials_and_what_its_looks_showed() {
    let mut plan = plan(1, "fast,nothing");
    plan.resolve = 1.005;
    // The next trial is the first of a block, so that the one before has ended in both.
    let (mut live, stored) = stored(&plan, 4 * 10 + 3 * 15 + 1);
    let _ = live.next(0);
    let mut restored = Experiment::new(plan);
    restored.restore(stored);
    assert_eq!(restored.trials().len(), live.trials().len());
    let (live, restored) = (outcome(&live), outcome(&restored));
    assert_eq!(restored.arms, live.arms);
    assert_eq!((restored.blocks, restored.looked.clone()), (live.blocks, live.looked.clone()));
    let fast = metric(&restored, "fast", "rtt_ns_p50");
    assert_eq!((fast.verdict, fast.trials.len()), (Some(Verdict::Better), 9));
    assert!(metric(&restored, "nothing", "rtt_ns_p50").trials.len() > 20);
}

#[test]
fn stored_trials_that_no_run_had_end_what_is_restored() {
    let plan = plan(1, "fast");
    let (_, stored) = stored(&plan, 12);
    for change in [
        (|trial: &mut TrialRecord| trial.block = u32::MAX) as fn(&mut TrialRecord),
        |trial| trial.block = 0,
        |trial| trial.arm = "another".into(),
    ] {
        let mut changed = stored.clone();
        change(&mut changed[7]);
        let mut restored = Experiment::new(plan.clone());
        restored.restore(changed);
        assert_eq!(restored.trials().len(), 7);
        assert!(outcome(&restored).blocks < 3);
    }
}

#[test]
fn settled_run_has_an_uncounted_trial_of_the_same_arm_before_each_and_is_resumed() {
    let mut plan = plan(1, "fast");
    plan.schedule.settle = true;
    let mut experiment = Experiment::new(plan.clone());
    let mut stored = Vec::new();
    for ordinal in 0..30 {
        let now_ns = u64::from(ordinal) * 1_000_000;
        let ExperimentStep::Trial { block, arm, warmup } = experiment.next(now_ns) else {
            panic!("it ended")
        };
        let arm = experiment.arms()[arm].0.name.clone();
        let result = Ok(Measurement::default());
        experiment.record(result.clone());
        let (noisy, started_ms, wall_ns) = (false, u64::from(ordinal), 1_000_000);
        stored.push(TrialRecord {
            ordinal,
            block,
            arm,
            warmup,
            noisy,
            started_ms,
            wall_ns,
            result,
        });
    }
    let (warm_up, rest) = stored.split_at(3);
    assert!(warm_up.iter().all(|trial| trial.warmup && trial.block == 0));
    for pair in rest.chunks(2).filter(|pair| pair.len() == 2) {
        assert!(pair[0].warmup && !pair[1].warmup && pair[0].arm == pair[1].arm, "{pair:?}");
    }
    let mut again = Experiment::new(plan.clone());
    again.replay(stored.clone()).expect("the same order");
    assert_eq!(again.next(30_000_000), experiment.next(30_000_000));
    // Without settling trials, or in another order, it is another run.
    plan.schedule.settle = false;
    assert!(Experiment::new(plan).replay(stored).is_err());
}

#[test]
fn switch_without_effect_in_some_trials_keeps_its_verdict() {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early) = (12, false);
    let idle_until = |last: u32| {
        outcome(&run_changed(plan.clone(), world(), |arm, block, measurement| {
            if arm.name == "fast" && block <= last {
                let why = "0 frames".to_owned();
                measurement.not_effective.push(NotEffective { switch: "fast".into(), why });
            }
            Ok(())
        }))
    };
    let once = idle_until(1);
    let fast = metric(&once, "fast", "rtt_ns_p50");
    assert_eq!((fast.verdict, &fast.why), (Some(Verdict::Better), &None));
    assert_eq!(warned(&once, "fast was reported without effect in 1 of 12 trials: 0 frames"), 1);

    let always = idle_until(12);
    assert_eq!(metric(&always, "fast", "rtt_ns_p50").verdict, Some(Verdict::NotEffective));
    assert_eq!(warned(&always, "without effect"), 0);
}

#[test]
fn switch_without_effect_is_one_warning_however_its_evidence_reads() {
    let mut plan = plan(1, "fast+idle");
    (plan.max_blocks, plan.stop_early) = (12, false);
    let experiment = run_changed(plan, world(), |_, block, measurement| {
        for report in &mut measurement.not_effective {
            report.why = format!("0 of {block} frames");
        }
        Ok(())
    });
    assert_eq!(warned(&outcome(&experiment), "idle was on without effect"), 1);
}

#[test]
fn counts_that_do_not_balance_are_a_warning_that_names_the_arm() {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early) = (12, false);
    let outcome = outcome(&run_changed(plan, world(), |arm, block, measurement| {
        measurement.enter_balance("pool", arm.name != "fast" || !(3..5).contains(&block));
        Ok(())
    }));
    assert_eq!(warned(&outcome, "of fast were lost or counted twice"), 1);
    assert_eq!(warned(&outcome, "`pool` does not balance in 2 of 12 trials"), 1);
    assert_eq!(warned(&outcome, "does not balance"), 1);
}

#[test]
fn control_that_differs_is_a_warning_and_never_settled() {
    let mut plan = plan(1, "nothing");
    plan.arms[1].0.switches = [FakeSwitch::Harmful].into_iter().collect();
    let outcome = run(plan, world());
    assert_ne!(outcome.ended, Ended::Settled);
    assert_eq!(metric(&outcome, "baseline again", "rtt_ns_p50").verdict, Some(Verdict::Worse));
    assert_eq!(warned(&outcome, "the baseline differs from itself in rtt_ns_p50"), 1);
}

#[test]
fn peer_is_judged_by_its_reported_percentiles() {
    let mut plan = plan(1, "fast");
    plan.arms.push((Arm::peer("other"), Support::Yes));
    plan.arms.push((Arm::peer("missing"), Support::unsupported("no `missing`", "apt install it")));
    let peers = [("other".to_owned(), 1.5)].into();
    let outcome = run(plan, FakeWorld { peers, ..world() });
    let p50 = metric(&outcome, "other", "rtt_ns_p50");
    assert_eq!(p50.verdict, Some(Verdict::Worse));
    assert!((1.4..1.6).contains(&p50.ratio.unwrap()));
    assert_eq!(metric(&outcome, "missing", "rtt_ns_p50").verdict, Some(Verdict::Unsupported));
}

#[test]
fn interrupt_keeps_the_trial_under_way() {
    let mut experiment = Experiment::new(plan(1, "fast"));
    assert!(matches!(experiment.next(0), ExperimentStep::Trial { .. }));
    experiment.interrupt();
    experiment.record(Ok(Default::default()));
    assert_eq!(experiment.next(1), ExperimentStep::Done(Ended::Interrupted));
    assert_eq!(experiment.trials().len(), 1);
    assert_eq!(outcome(&experiment).ended, Ended::Interrupted);
}

#[test]
fn outcome_is_available_during_the_run() {
    let mut fake = FakeSource::new(world());
    let mut experiment = Experiment::new(plan(1, "ladder"));
    let mut before = 0.0;
    for _ in 0..40 {
        let step = experiment.next(fake.now_ns());
        assert_eq!(experiment.next(fake.now_ns()), step);
        let ExperimentStep::Trial { arm, .. } = step else { break };
        let measurement = fake.trial(&experiment.arms()[arm].0.clone());
        experiment.record(Ok(measurement));
        let live = outcome(&experiment);
        assert_eq!((live.ended, live.arms.len()), (Ended::Unfinished, 8));
        let progress = experiment.progress(fake.now_ns());
        let progress = progress.elapsed_ns as f64 / progress.end_ns as f64;
        assert!(progress >= before && progress < 1.0);
        before = progress;
    }
    assert!(before > 0.1);
}

#[test]
fn record_without_a_trial_is_ignored() {
    let mut experiment = Experiment::new(plan(1, "fast"));
    experiment.record(Err("no trial is pending".into()));
    assert_eq!(experiment.trials().len(), 0);
}

#[test]
fn latency_is_pooled_over_the_trials_that_count() {
    let mut plan = plan(1, "fast");
    (plan.max_blocks, plan.stop_early) = (8, false);
    let outcome = run(plan, world());
    let rtt = &arm(&outcome, "baseline").latency["rtt"];
    assert_eq!(rtt.count, 8 * 2_000);
    assert!(rtt.quantiles.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1));
    assert!(rtt.quantiles.iter().any(|(quantile, _)| *quantile == 0.999));
    assert!((50..70).contains(&rtt.quantiles.len()), "{}", rtt.quantiles.len());
}

#[test]
fn outcome_lists_arms_in_order_and_has_no_floor_for_counts() {
    let outcome = run(plan(1, "fast"), world());
    assert!(outcome.floor.contains_key("rtt_ns_p50"));
    assert!(!outcome.floor.contains_key("lost_count"));
    let names: Vec<&str> = outcome.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["baseline", "baseline again", "fast"]);
}

#[test]
fn unknown_metric_does_not_settle() {
    let mut plan = plan(1, "fast");
    (plan.judged, plan.budget_ns) = (vec!["no_such_ns".into()], 20 * SECOND_NS);
    assert_eq!(run(plan, world()).ended, Ended::TimeUp);
}

/// The outcome of an experiment with these arms that measures a set which a search found.
fn confirmed(arms: &str, set: &[&str]) -> Outcome {
    let mut plan = plan(5, arms);
    let metric = "rtt_ns_p50".to_owned();
    plan.members = Some(Members { set: plan.arms[2].0.name.clone(), metric });
    let mut outcome = run(plan, world());
    let set = set.iter().map(|id| (*id).to_owned()).collect();
    outcome.search = Some(Search { set, metric: "rtt_ns_p50".into(), ..Search::default() });
    outcome
}

fn idle(outcome: &Outcome) -> Option<String> {
    outcome.idle_member().map(|member| member.switch)
}

fn verdicts(outcome: &Outcome) -> Vec<Verdict> {
    outcome.members().iter().map(|member| member.verdict).collect()
}

#[test]
fn member_of_a_set_is_worth_what_the_set_loses_without_it() {
    let set = confirmed("fast+nothing,nothing,fast", &["fast", "nothing"]);
    let [fast, nothing] = &set.members()[..] else { panic!("{:?}", set.members()) };
    assert_eq!((&fast.switch[..], fast.verdict), ("fast", Verdict::Better));
    assert!((0.6..0.8).contains(&fast.ratio.unwrap()), "{fast:?}");
    assert!(fast.low < fast.ratio && fast.ratio < fast.high, "{fast:?}");
    assert_eq!((&nothing.switch[..], nothing.verdict), ("nothing", Verdict::NoDifferenceShown));
    // Of a set of one, the baseline is the set without it.
    assert_eq!(verdicts(&confirmed("fast", &["fast"])), [Verdict::Better]);
    assert!(run(plan(5, "fast"), world()).members().is_empty(), "without a search");
}

#[test]
fn least_useful_member_without_which_the_set_is_no_worse_is_to_be_dropped() {
    assert_eq!(idle(&confirmed("fast", &["fast"])), None);
    let set = ["fast", "nothing", "harmful"];
    let all = "fast+nothing+harmful,nothing+harmful,fast+harmful,fast+nothing";
    assert_eq!(idle(&confirmed(all, &set)).as_deref(), Some("harmful"));
    assert_eq!(
        idle(&confirmed("fast+nothing,nothing,fast", &set[..2])).as_deref(),
        Some("nothing")
    );
    assert_eq!(idle(&run(plan(5, "fast"), world())), None, "without a search");
}

#[test]
fn member_whose_set_cannot_run_without_it_is_needed_and_one_of_which_nothing_is_known_is_not_judged()
 {
    let mut set = confirmed("fast+nothing,nothing,fast", &["fast", "nothing"]);
    let without_fast = set.arms.iter().position(|arm| arm.name == "nothing").expect("it is listed");
    set.arms[without_fast].trials = 0;
    assert_eq!(verdicts(&set)[0], Verdict::Inconclusive);
    assert_eq!(idle(&set).as_deref(), Some("fast"));
    set.arms[without_fast].support = Support::unsupported("nothing alone", "another switch");
    assert_eq!(verdicts(&set)[0], Verdict::Unsupported);
    assert_eq!(idle(&set).as_deref(), Some("nothing"));
}
