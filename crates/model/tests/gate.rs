//! The gate of a whole run with default settings: how often it is wrong, and what it leaves open.
//!
//! `cargo test -p wirepath-model --test gate -- --nocapture` prints a table of the answers by world.

use wirepath_model::{
    Arm, ArmKind, Better, Ended, Experiment, ExperimentPlan, ExperimentStep, GateAnswer,
    Measurement, Outcome, OutcomeHeader, Random, Shape, Support, Undecided,
};

/// Runs of a world.
const RUNS: u64 = 40;

const THRESHOLD: f64 = 1.05;
const FIGURE: &str = "figure";
/// Three trials a block: 80 blocks in a minute.
const TRIAL_NS: u64 = 250_000_000;

#[derive(Clone, Copy)]
enum Kind {
    /// Milliseconds with noise: the logarithm's standard deviation.
    Time(f64),
    /// Events: uniform from 0 up to twice the mean.
    Count,
    /// Whole milliseconds, cut off below.
    Ticks,
}

struct World {
    name: &'static str,
    kind: Kind,
    old: f64,
    new: f64,
}

fn value(kind: Kind, level: f64, random: &mut Random) -> f64 {
    match kind {
        Kind::Time(noise) => level * (noise * random.normal()).exp(),
        Kind::Count => (random.unit() * (2.0 * level + 1.0)).floor().min(2.0 * level),
        Kind::Ticks => (level + 0.3 * random.unit()).floor(),
    }
}

fn arms() -> Vec<(Arm, Support)> {
    [("old", ArmKind::Baseline), ("old again", ArmKind::Control), ("new", ArmKind::Variant)]
        .map(|(name, kind)| {
            (Arm { name: name.into(), kind, switches: Default::default() }, Support::Yes)
        })
        .into()
}

fn plan(seed: u64) -> ExperimentPlan {
    let judged = vec![FIGURE.to_owned()];
    let mut plan = ExperimentPlan::new(seed, arms(), judged, 60_000_000_000, 2);
    (plan.gate, plan.resolve) = (true, THRESHOLD);
    plan
}

fn measured(value: f64, unit: &str, better: Better) -> Measurement {
    let shape = Shape { unit: unit.into(), better };
    Measurement {
        figures: [(FIGURE.to_owned(), value)].into(),
        shapes: [(FIGURE.to_owned(), shape)].into(),
        ..Measurement::default()
    }
}

/// Runs an experiment whose trials are those of `trial`, by arm and block.
fn conduct(
    plan: ExperimentPlan,
    mut trial: impl FnMut(&Arm, u32) -> Result<Measurement, String>,
) -> Experiment {
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 0;
    while let ExperimentStep::Trial { arm, block, .. } = experiment.next(now_ns) {
        now_ns += TRIAL_NS;
        let arm = experiment.arms()[arm].0.clone();
        experiment.record(trial(&arm, block));
    }
    experiment
}

fn outcome(experiment: &Experiment) -> Outcome {
    experiment.outcome(OutcomeHeader::default())
}

fn run(world: &World, seed: u64) -> Outcome {
    let mut random = Random::new(seed, 3);
    let unit = if matches!(world.kind, Kind::Count) { "" } else { "ms" };
    outcome(&conduct(plan(seed), |arm, _| {
        let level = if arm.kind == ArmKind::Variant { world.new } else { world.old };
        Ok(measured(value(world.kind, level, &mut random), unit, Better::Lower))
    }))
}

#[test]
fn no_run_that_decided_nothing_passes_and_null_runs_do_not_fail() {
    use Kind::{Count, Ticks, Time};
    let world = |name, kind, old, new| World { name, kind, old, new };
    let worlds = [
        world("null, 3 % noise", Time(0.03), 10.0, 10.0),
        world("null, 40 % noise", Time(0.4), 10.0, 10.0),
        world("+3 %, 3 % noise", Time(0.03), 10.0, 10.3),
        world("+20 %, 3 % noise", Time(0.03), 10.0, 12.0),
        world("+20 %, 40 % noise", Time(0.4), 10.0, 12.0),
        world("counts, null", Count, 3.0, 3.0),
        world("counts, 0 in both", Count, 0.0, 0.0),
        world("counts, 0 to 45", Count, 0.0, 45.0),
        world("counts, 1 to 45", Count, 1.0, 45.0),
        world("whole ms, 0.8 to 7", Ticks, 0.8, 7.0),
        world("whole ms, 7 to 0.8", Ticks, 7.0, 0.8),
        world("whole ms, 0.8 against 0.8", Ticks, 0.8, 0.8),
    ];
    eprintln!("| world | exit 0 | exit 4 | exit 5 |");
    for world in worlds {
        let answers: Vec<Outcome> = (0..RUNS).map(|seed| run(&world, seed)).collect();
        let [passed, worse, open] =
            [GateAnswer::NoWorse, GateAnswer::Worse, GateAnswer::NotDecided].map(|answer| {
                answers.iter().filter(|run| run.gate.as_ref().unwrap().answer == answer).count()
            });
        eprintln!("| {} | {passed} | {worse} | {open} |", world.name);
        let is_worse = world.new > world.old * THRESHOLD;
        let most_wrong = (RUNS / 20) as usize;
        if is_worse {
            assert_eq!(passed, 0, "{}", world.name)
        } else {
            assert!(worse <= most_wrong, "{}: {worse}", world.name)
        }
        for run in &answers {
            check_pass(world.name, run);
        }
        match world.name {
            "null, 3 % noise" | "+3 %, 3 % noise" | "counts, 0 in both" | "whole ms, 7 to 0.8" => {
                assert!(passed >= RUNS as usize * 9 / 10, "{}: {passed}", world.name);
            }
            "+20 %, 3 % noise" | "counts, 0 to 45" | "counts, 1 to 45" | "whole ms, 0.8 to 7" => {
                assert!(worse >= RUNS as usize * 9 / 10, "{}: {worse}", world.name);
            }
            "whole ms, 0.8 against 0.8" => {
                assert!(open >= RUNS as usize * 9 / 10, "{}: {open}", world.name);
            }
            _ => {}
        }
    }
}

/// A pass rests on an interval that ends before the threshold, and an early end on a decision.
fn check_pass(world: &str, run: &Outcome) {
    let gate = run.gate.as_ref().expect("a gate was asked for");
    if run.ended == Ended::Settled {
        assert_ne!(gate.answer, GateAnswer::NotDecided, "{world}: settled, and not decided");
    }
    if gate.answer != GateAnswer::NoWorse {
        return;
    }
    let metric = &run.arms[2].metrics[FIGURE];
    match metric.difference {
        Some(difference) => {
            let old: Vec<f64> = run.arms[..2]
                .iter()
                .flat_map(|arm| arm.metrics[FIGURE].trials.iter().flatten().copied())
                .collect();
            let allowed = 0.05 * old.iter().sum::<f64>() / old.len() as f64;
            // The threshold is taken of the baseline of each block.
            assert!(difference.high.unwrap() <= allowed + 0.05, "{world}: {difference:?}");
        }
        None => assert!(metric.high.unwrap() <= THRESHOLD, "{world}: {:?}", metric.high),
    }
}

#[test]
fn run_with_a_gate_goes_on_until_it_is_decided_or_the_time_is_up() {
    let world = World { name: "", kind: Kind::Time(0.2), old: 10.0, new: 10.0 };
    let with_gate = run(&world, 1);
    assert_eq!(with_gate.ended, Ended::TimeUp);
    let decision = &with_gate.gate.as_ref().unwrap().decisions[0];
    assert_eq!(decision.reason, Some(Undecided::Wide));
    assert!(decision.more_blocks.unwrap() > 10, "{decision:?}");
    let block_ms = 3 * TRIAL_NS / 1_000_000;
    assert_eq!(decision.more_ms, decision.more_blocks.map(|more| u64::from(more) * block_ms));
    // 3 % noise and a margin of 10 %: without a gate the run ends before 5 % is decided.
    let slight = World { name: "", kind: Kind::Time(0.03), old: 10.0, new: 10.2 };
    let decided = (0..20).filter(|&seed| {
        let outcome = run(&slight, seed);
        assert!(matches!(outcome.ended, Ended::Settled | Ended::TimeUp));
        outcome.gate.unwrap().answer == GateAnswer::NoWorse
    });
    assert!(decided.count() >= 18);
}

fn answer_of(
    change: impl Fn(&mut ExperimentPlan),
    trial: impl FnMut(&Arm, u32) -> Result<Measurement, String>,
) -> (GateAnswer, Vec<Option<Undecided>>, Outcome) {
    let mut plan = plan(1);
    change(&mut plan);
    let outcome = outcome(&conduct(plan, trial));
    let gate = outcome.gate.clone().expect("a gate was asked for");
    let reasons = gate.decisions.iter().map(|decision| decision.reason.clone()).collect();
    (gate.answer, reasons, outcome)
}

fn lower(value: f64) -> Measurement {
    measured(value, "ms", Better::Lower)
}

/// About 10 ms.
fn ten(random: &mut Random) -> f64 {
    10.0 * (0.01 * random.normal()).exp()
}

#[test]
fn figure_that_was_never_read_or_refused_is_not_decided() {
    let mut random = Random::new(1, 0);
    let (answer, reasons, outcome) = answer_of(
        |_| {},
        |arm, _| match arm.kind {
            ArmKind::Variant => Ok(Measurement::default()),
            _ => Ok(lower(ten(&mut random))),
        },
    );
    assert_eq!(answer, GateAnswer::NotDecided);
    assert_eq!(reasons, [Some(Undecided::Unread { why: "no trial gave it".into() })]);
    assert_eq!(outcome.ended, Ended::TimeUp, "it was not settled");
    for refused in [ArmKind::Variant, ArmKind::Baseline] {
        let mut random = Random::new(1, 0);
        let (answer, reasons, _) = answer_of(
            |_| {},
            |arm, _| {
                let mut measured = lower(ten(&mut random));
                if arm.kind == refused {
                    measured.figures.clear();
                    measured.refused.insert(FIGURE.into(), "too few samples".into());
                }
                Ok(measured)
            },
        );
        assert_eq!(answer, GateAnswer::NotDecided, "{refused:?}");
        let Some(Undecided::Unread { why }) = &reasons[0] else { panic!("{reasons:?}") };
        assert!(why.ends_with("too few samples"), "{why}");
    }
}

#[test]
fn untrusted_or_missing_control_and_missing_arm_are_not_decided() {
    let mut random = Random::new(1, 0);
    let (answer, reasons, _) = answer_of(
        |_| {},
        |arm, _| {
            let factor = if arm.kind == ArmKind::Control { 1.5 } else { 1.0 };
            Ok(lower(factor * ten(&mut random)))
        },
    );
    assert_eq!((answer, &reasons[0]), (GateAnswer::NotDecided, &Some(Undecided::Distrusted)));
    let (answer, reasons, _) = answer_of(
        |_| {},
        |arm, _| match arm.kind {
            ArmKind::Control => Err("gone".into()),
            _ => Ok(lower(ten(&mut random))),
        },
    );
    assert_eq!((answer, &reasons[0]), (GateAnswer::NotDecided, &Some(Undecided::NoControl)));
    let (answer, reasons, _) = answer_of(
        |plan: &mut ExperimentPlan| {
            plan.arms[2].1 = Support::unsupported("the switch", "another host");
        },
        |_, _| Ok(lower(ten(&mut random))),
    );
    assert_eq!(answer, GateAnswer::NotDecided);
    assert_eq!(
        reasons,
        [Some(Undecided::Missing { why: "the switch; needs another host".into() })]
    );
    let (answer, reasons, _) = answer_of(
        |plan: &mut ExperimentPlan| plan.arms.truncate(2),
        |_, _| Ok(lower(ten(&mut random))),
    );
    assert_eq!((answer, reasons), (GateAnswer::NotDecided, vec![]));
}

#[test]
fn interrupted_run_passes_nothing() {
    let mut random = Random::new(1, 0);
    let mut experiment = Experiment::new(plan(1));
    for trial in 0..90 {
        let ExperimentStep::Trial { .. } = experiment.next(trial * TRIAL_NS) else { break };
        experiment.record(Ok(lower(ten(&mut random))));
        if trial == 15 {
            experiment.interrupt();
        }
    }
    let gate = outcome(&experiment).gate.unwrap();
    assert_eq!(gate.answer, GateAnswer::NotDecided);
    assert_eq!(gate.decisions[0].reason, Some(Undecided::Interrupted));
}

#[test]
fn arm_that_fails_trials_does_not_pass_unless_the_baseline_fails_as_many() {
    let answer = |fails: fn(&Arm, u32) -> bool| {
        let mut random = Random::new(1, 0);
        answer_of(
            |_| {},
            |arm, block| {
                if fails(arm, block) { Err("broken".into()) } else { Ok(lower(ten(&mut random))) }
            },
        )
        .0
    };
    assert_eq!(
        answer(|arm, block| arm.kind == ArmKind::Variant && block % 2 == 1),
        GateAnswer::Worse
    );
    assert_eq!(answer(|arm, _| arm.kind == ArmKind::Variant), GateAnswer::Worse);
    assert_eq!(
        answer(|arm, block| arm.kind == ArmKind::Variant && block == 5),
        GateAnswer::NoWorse,
        "one of many trials: less than the threshold"
    );
    let mut random = Random::new(1, 0);
    let (answer, reasons, _) = answer_of(
        |plan: &mut ExperimentPlan| plan.max_blocks = 12,
        |arm, block| match block {
            3 | 7 if arm.kind == ArmKind::Variant => Err("broken".into()),
            _ => Ok(lower(ten(&mut random))),
        },
    );
    assert_eq!(answer, GateAnswer::NotDecided, "two of twelve trials");
    assert_eq!(reasons[1], Some(Undecided::Failures));
}

#[test]
fn rare_losses_of_an_arm_do_not_pass_though_the_median_has_none() {
    let answers = (0..10).map(|seed| {
        let mut random = Random::new(seed, 0);
        let mut plan = plan(seed);
        plan.max_blocks = 30;
        let experiment = conduct(plan, |arm, _| {
            let is_lost = arm.kind == ArmKind::Variant && random.unit() < 0.2;
            Ok(measured(if is_lost { 40.0 } else { 0.0 }, "count", Better::Lower))
        });
        outcome(&experiment).gate.unwrap().answer
    });
    assert_eq!(answers.filter(|answer| *answer == GateAnswer::NoWorse).count(), 0);
}
