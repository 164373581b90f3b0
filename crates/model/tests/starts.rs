//! Starts that differ, through whole experiments.

use std::collections::BTreeMap;

use wirepath_model::{
    Arm, ArmKind, Experiment, ExperimentPlan, ExperimentStep, GateAnswer, Measurement, Outcome,
    OutcomeHeader, Random, Support, SwitchSet, Undecided, Verdict, Warning,
};

/// Noise of a trial, as standard deviation of the logarithm.
const NOISE: f64 = 0.03;

/// Same build in every arm; the programs are started anew every `every` blocks, and each start has an offset of its own.
struct World {
    metrics: usize,
    blocks: u32,
    every: u32,
    start_sd: f64,
    /// Factor of the variant.
    effect: f64,
}

fn arms() -> Vec<(Arm, Support)> {
    [("old", ArmKind::Baseline), ("old again", ArmKind::Control), ("new", ArmKind::Variant)]
        .map(|(name, kind)| {
            (Arm { name: name.into(), kind, switches: SwitchSet::default() }, Support::Yes)
        })
        .into()
}

fn run(world: &World, seed: u64) -> Outcome {
    run_gated(world, seed, false)
}

fn run_gated(world: &World, seed: u64, gate: bool) -> Outcome {
    let mut random = Random::new(seed, 77);
    let judged: Vec<String> = (0..world.metrics).map(|n| format!("m{n}_ns")).collect();
    let mut plan = ExperimentPlan::new(seed, arms(), judged.clone(), u64::MAX, 2);
    plan.gate = gate;
    (plan.min_blocks, plan.max_blocks, plan.stop_early) = (world.blocks, world.blocks, false);
    let mut experiment = Experiment::new(plan);
    let mut starts: BTreeMap<usize, (u32, Vec<f64>)> = BTreeMap::new();
    while let ExperimentStep::Trial { block, arm, .. } = experiment.next(0) {
        let start = block / world.every;
        let offsets = match starts.get(&arm) {
            Some((of, offsets)) if *of == start => offsets.clone(),
            _ => {
                let offsets: Vec<f64> =
                    (0..world.metrics).map(|_| random.normal() * world.start_sd).collect();
                starts.insert(arm, (start, offsets.clone()));
                offsets
            }
        };
        let effect = if arm == 2 { world.effect } else { 1.0 };
        let figures = judged.iter().zip(offsets).map(|(name, offset)| {
            (name.clone(), 1e4 * effect * (offset + NOISE * random.normal()).exp())
        });
        let figures = figures.collect();
        experiment.record(Ok(Measurement {
            figures,
            start: Some(start),
            ..Measurement::default()
        }));
    }
    experiment.outcome(OutcomeHeader::default())
}

/// Share of runs with a verdict better or worse in a metric that is not distrusted.
fn found(world: &World, runs: u64) -> f64 {
    (0..runs)
        .filter(|seed| {
            let outcome = run(world, *seed);
            let distrusted = outcome.distrusted();
            outcome.judged.iter().any(|name| {
                let verdict = outcome.arms[2].metrics[name].verdict;
                verdict.is_some_and(Verdict::differs) && !distrusted.contains(&name.as_str())
            })
        })
        .count() as f64
        / runs as f64
}

/// Bound of 5 % with the tolerance of so many runs.
fn run_count() -> u64 {
    std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(250)
}

const BOUND: f64 = 0.073;

#[test]
fn starts_that_differ_give_no_false_verdicts_and_cost_little_where_they_do_not() {
    println!("| figures, blocks | starts differ by | 1 block a start | 2 | 4 |");
    for (metrics, blocks) in [(1, 24), (3, 40)] {
        for start_sd in [0.0, 0.01, 0.06] {
            let cells = [1, 2, 4].map(|every| {
                let world = World { metrics, blocks, every, start_sd, effect: 1.0 };
                let wrong = found(&world, run_count());
                assert!(wrong <= BOUND, "{metrics} {blocks} {every} {start_sd}: {wrong}");
                let power = found(&World { effect: 1.05, ..world }, 50);
                assert!(start_sd > 0.01 || power > 0.88, "{metrics} {every} {start_sd}: {power}");
                format!("false {:.1} %, +5 % found {:.0} %", wrong * 100.0, power * 100.0)
            });
            println!("| {metrics}, {blocks} | {:.0} % | {} |", start_sd * 100.0, cells.join(" | "));
        }
    }
}

#[test]
fn spread_between_starts_is_reported() {
    let world = |every, start_sd| World { metrics: 1, blocks: 80, every, start_sd, effect: 1.0 };
    let spread = |world: &World| run(world, 5).trust.starts[0].clone();
    let shared = spread(&world(4, 0.06));
    // 6 % between starts and 3 % within: 36 of 45.
    assert!((shared.share.unwrap() - 0.8).abs() < 0.15, "{shared:?}");
    assert_eq!(shared.starts, 21, "block 0 is the warm-up");
    assert!(spread(&world(4, 0.0)).share.unwrap() < 0.15);
    assert_eq!(spread(&world(1, 0.06)).share, None);
    let worlds = [world(4, 0.06), world(4, 0.0), world(1, 0.06)];
    assert_eq!(
        worlds.map(|world| {
            run(&world, 5)
                .warnings
                .iter()
                .any(|warning| warning.what.contains("blocks of one start count as"))
        }),
        [true, false, false]
    );
}

#[test]
fn verdict_that_rests_on_one_start_says_so_and_decides_no_gate() {
    let world = World { metrics: 1, blocks: 24, every: 100, start_sd: 0.0, effect: 1.5 };
    let outcome = run_gated(&world, 1, true);
    let of_start = |warning: &&Warning| warning.what.starts_with("one start of the program");
    let warning = outcome.warnings.iter().find(of_start).expect("a warning");
    assert!(warning.what.contains("old, old again, new"), "{warning:?}");
    let gate = outcome.gate.expect("a gate");
    assert_eq!(gate.decisions[0].reason, Some(Undecided::OneStart));
    let often = run_gated(&World { every: 2, ..world }, 1, true);
    assert!(!often.warnings.iter().any(|warning| of_start(&warning)));
    assert_eq!(often.gate.expect("a gate").answer, GateAnswer::Worse);
}
