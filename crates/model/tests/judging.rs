//! Rules of judging that only a whole run shows: what is paired with what, and what is not compared.

mod support;

use support::{arm, fake_arms, metric, plan, run_changed};
use wirepath_model::{
    Arm, ArmKind, Better, Experiment, ExperimentPlan, FakeWorld, Measurement, Outcome,
    OutcomeHeader, Shape, Verdict, latency_histogram,
};

const FIGURE: &str = "wait_ns";

fn world() -> FakeWorld {
    FakeWorld { samples: 2_000, drift: vec![], ..FakeWorld::default() }
}

fn outcome(experiment: &Experiment) -> Outcome {
    experiment.outcome(OutcomeHeader::default())
}

/// Twelve blocks of `arms`, judged by `judged`.
fn twelve(arms: &str, judged: &str) -> ExperimentPlan {
    let mut plan = plan(1, arms);
    plan.judged = vec![judged.to_owned()];
    (plan.stop_early, plan.max_blocks) = (false, 12);
    plan
}

/// Outcome of twelve blocks in which each arm gives one figure, of a unit and a direction.
fn of_figures(
    unit: &str,
    better: Better,
    figure: impl Fn(&Arm, u32) -> Result<f64, String>,
) -> Outcome {
    let shape = Shape { unit: unit.into(), better };
    let experiment = run_changed(twelve("nothing", FIGURE), world(), |arm, block, measurement| {
        *measurement = Measurement::default();
        match figure(arm, block) {
            Ok(value) => {
                measurement.figures.insert(FIGURE.into(), value);
                measurement.shapes.insert(FIGURE.into(), shape.clone());
            }
            Err(why) => {
                measurement.refused.insert(FIGURE.into(), why);
            }
        }
        Ok(())
    });
    outcome(&experiment)
}

fn verdict(outcome: &Outcome) -> Option<Verdict> {
    metric(outcome, "nothing", FIGURE).verdict
}

/// Differs a little from block to block.
fn about(value: f64, block: u32) -> f64 {
    value * (1.0 + 0.01 * f64::from(block * 7 % 5))
}

#[test]
fn refused_baseline_is_compared_with_nothing() {
    let outcome = of_figures("ns", Better::Lower, |arm, block| match arm.kind {
        ArmKind::Baseline if block % 2 == 1 => Err("too few samples".into()),
        _ => Ok(about(100.0, block)),
    });
    let found = metric(&outcome, "nothing", FIGURE);
    assert_eq!((found.verdict, found.ratio, found.p), (Some(Verdict::Refused), None, None));
    assert_eq!(
        found.why.as_deref(),
        Some("nothing to compare with: the baseline's too few samples")
    );
}

/// Whole milliseconds of about 7.
fn of_step(step: f64) -> Outcome {
    of_figures("ms", Better::Lower, |_, block| {
        let exact = 7.0 + 0.3 * f64::from(block * 7 % 5) / 5.0;
        Ok((exact / step).round() * step)
    })
}

#[test]
fn figures_in_coarse_steps_say_so() {
    let coarse = of_step(1.0);
    let ticks = coarse.trust.ticks_of(FIGURE).expect("the steps are coarse");
    assert_eq!((ticks.step, ticks.share), (1.0, 1.0 / 7.0));
    assert_eq!(of_step(0.0625).trust.ticks, []);
}

#[test]
fn failing_baseline_is_reported_beside_an_arm_that_never_fails() {
    let experiment = run_changed(twelve("nothing", "rtt_ns_p50"), world(), |arm, block, _| {
        if arm.kind == ArmKind::Baseline && block % 3 == 1 { Err("broken".into()) } else { Ok(()) }
    });
    let outcome = outcome(&experiment);
    let seen = arm(&outcome, "nothing").reliability.as_ref().expect("the baseline failed");
    assert_eq!((seen.failed, seen.trials), (0, 12));
    assert_eq!((seen.baseline_failed, seen.baseline_trials), (4, 24), "of both baselines");
    assert!(!seen.fails_more);
}

#[test]
fn tail_is_judged_by_the_samples_of_all_trials_and_not_by_the_worst_of_them() {
    // One trial is ten times slower, and has a fortieth of the samples of the others.
    let slow = |arm: &Arm, block: u32| arm.name == "fast" && block == 4;
    let mut plan = twelve("fast", "rtt_ns_p99");
    plan.max_blocks = 16;
    let world = FakeWorld { samples: 40_000, ..world() };
    let experiment = run_changed(plan, world, |arm, block, measurement| {
        if slow(arm, block) {
            let mut few = latency_histogram();
            few.record_n(600_000, 1_000).expect("within the bounds");
            measurement.segments.insert("rtt".into(), few);
        }
        Ok(())
    });
    let outcome = outcome(&experiment);
    let found = metric(&outcome, "fast", "rtt_ns_p99");
    let tail = found.tail.expect("it is a tail");
    assert!(tail.worst_decile.unwrap().high >= 1.0, "{tail:?}");
    assert!(tail.pooled.unwrap().high < 1.0, "{tail:?}");
    assert_eq!(found.verdict, Some(Verdict::Better), "{found:?}");
}

#[test]
fn reference_of_a_block_is_the_mean_of_both_baselines() {
    let outcome = of_figures("ns", Better::Lower, |arm, block| {
        let level = match arm.kind {
            ArmKind::Baseline => 100.0,
            ArmKind::Control => 400.0,
            _ => 200.0,
        };
        Ok(about(level, block))
    });
    let ratio = metric(&outcome, "nothing", FIGURE).ratio.unwrap();
    assert!((ratio - 1.0).abs() < 1e-9, "{ratio}: over one baseline it is 2, or one half");
}

#[test]
fn time_of_zero_is_the_best_of_its_block_and_never_the_worst() {
    // Whole milliseconds of 0.8 to 1.1, and of 7.
    let slow = |_: u32| 7.0;
    let fast = |block: u32| f64::from(u8::from(block.is_multiple_of(3)));
    for (old, new, expected) in [
        (slow as fn(u32) -> f64, fast as fn(u32) -> f64, Verdict::Better),
        (fast, slow, Verdict::Worse),
    ] {
        let outcome = of_figures("ms", Better::Lower, |arm, block| {
            Ok(if arm.kind == ArmKind::Variant { new(block) } else { old(block) })
        });
        assert_eq!(verdict(&outcome), Some(expected));
        let noted = outcome.warnings.iter().filter(|w| w.what.contains("below the resolution"));
        assert!(noted.count() > 0, "{:?}", outcome.warnings);
        let failing = arm(&outcome, "nothing").reliability.as_ref();
        assert!(failing.is_none(), "{failing:?}");
    }
}

#[test]
fn rate_of_zero_is_the_worst_of_its_block() {
    let outcome = of_figures("rps", Better::Higher, |arm, block| {
        Ok(if arm.kind == ArmKind::Variant { 0.0 } else { about(100.0, block) })
    });
    assert_eq!(verdict(&outcome), Some(Verdict::Worse));
}

#[test]
fn negative_values_have_no_ratio_and_are_refused_with_the_reason() {
    for place in [ArmKind::Variant, ArmKind::Baseline, ArmKind::Control] {
        let outcome = of_figures("", Better::Lower, |arm, block| {
            let is_below = arm.kind == place && block == 3;
            Ok(if is_below { -1.0 } else { about(100.0, block) })
        });
        let found = metric(&outcome, "nothing", FIGURE);
        assert_eq!((found.verdict, found.ratio), (Some(Verdict::Refused), None), "{place:?}");
        assert!(found.why.as_ref().unwrap().contains("below 0"), "{:?}", found.why);
    }
}

#[test]
fn counts_are_judged_by_their_differences_also_from_zero() {
    let outcome = of_figures("", Better::Lower, |arm, block| {
        let lost = f64::from(40 + block * 7 % 10);
        Ok(if arm.kind == ArmKind::Variant { lost } else { 0.0 })
    });
    let found = metric(&outcome, "nothing", FIGURE);
    assert_eq!((found.verdict, found.ratio), (Some(Verdict::Worse), None));
    let difference = found.difference.unwrap();
    assert!((44.0..46.0).contains(&difference.mean), "{difference:?}");
    assert!(difference.low.unwrap() > 40.0 && difference.high.unwrap() < 50.0, "{difference:?}");
    // The same numbers the other way round, and the same in both.
    let fewer = of_figures("", Better::Lower, |arm, block| {
        let lost = f64::from(40 + block * 7 % 10);
        Ok(if arm.kind == ArmKind::Variant { 0.0 } else { lost })
    });
    assert_eq!(verdict(&fewer), Some(Verdict::Better));
    let none = of_figures("", Better::Lower, |_, _| Ok(0.0));
    assert_eq!(verdict(&none), Some(Verdict::Inconclusive));
    let why = metric(&none, "nothing", FIGURE).why.clone().unwrap();
    assert_eq!(why, "no event in 12 blocks; 14 exclude rare ones");
}

#[test]
fn counts_that_a_path_declares_are_differences_without_a_zero_too() {
    let mut plan = twelve("nothing", "lost_count");
    plan.arms = fake_arms("nothing");
    let lossy = FakeWorld { losses: [(String::new(), 0.01)].into(), ..world() };
    let outcome = outcome(&run_changed(plan, lossy, |_, _, _| Ok(())));
    let found = metric(&outcome, "nothing", "lost_count");
    assert_eq!(found.verdict, Some(Verdict::NoDifferenceShown), "{found:?}");
    assert!(found.difference.is_some() && found.ratio.is_none());
}

#[test]
fn figure_without_a_verdict_does_not_end_a_run_as_settled() {
    let mut plan = twelve("nothing", FIGURE);
    (plan.stop_early, plan.max_blocks) = (true, 40);
    let experiment = run_changed(plan, world(), |arm, block, measurement| {
        *measurement = Measurement::default();
        if arm.kind != ArmKind::Baseline {
            measurement.figures.insert(FIGURE.into(), about(100.0, block));
        }
        Ok(())
    });
    assert_eq!(outcome(&experiment).blocks, 40);
}
