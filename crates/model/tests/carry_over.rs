//! Trials that change the machine for the next one: how often they fool a run with default settings, how often it says so,
//! and what settling trials do.
//!
//! `cargo test -p wirepath-model --test carry_over -- --nocapture` prints the tables. `RUNS=400` in the environment runs more.

#![allow(clippy::print_stderr, reason = "tables of a test")]

use wirepath_model::{
    Arm, ArmKind, Better, BlockOrder, Experiment, ExperimentPlan, ExperimentStep, Measurement,
    Outcome, OutcomeHeader, Random, Shape, Support, Undecided, Verdict,
};

const FIGURE: &str = "figure";
const TRIAL_NS: u64 = 250_000_000;
const NOISE: f64 = 0.03;

/// Effect of earlier trials on a trial, as a ratio above 1; all programs are alike otherwise.
#[derive(Clone, Copy)]
enum Effect {
    Nothing,
    /// The first variant leaves this for the next trial.
    Leaves(f64),
    /// Any trial after another program: cold caches.
    Cold(f64),
    /// The first variant heats by this, of which a share stays after each trial.
    Heats(f64, f64),
}

/// Change of the machine over a run.
#[derive(Clone, Copy)]
enum Machine {
    Steady,
    /// AR(1) noise beside that of each trial: coefficient and standard deviation.
    Auto(f64, f64),
    /// Logarithm per trial.
    Trend(f64),
    /// Sine of the length of a block.
    Periodic(f64),
    /// A CPU hog that comes and goes: factor on times, each phase 20 trials long on average.
    Hog(f64),
    /// Times are this much longer in the second half of 240 trials.
    Throttled(f64),
}

#[derive(Clone, Copy)]
struct World {
    effect: Effect,
    machine: Machine,
    variants: usize,
    order: BlockOrder,
    settle: bool,
}

const CLEAN: World = World {
    effect: Effect::Nothing,
    machine: Machine::Steady,
    variants: 1,
    order: BlockOrder::Balanced,
    settle: false,
};

fn arms(variants: usize) -> Vec<(Arm, Support)> {
    let named =
        |name: String, kind| (Arm { name, kind, switches: Default::default() }, Support::Yes);
    let mut arms = vec![
        named("baseline".into(), ArmKind::Baseline),
        named("baseline again".into(), ArmKind::Control),
    ];
    arms.extend((0..variants).map(|at| named(format!("arm {at}"), ArmKind::Variant)));
    arms
}

fn measured(value: f64) -> Measurement {
    let shape = Shape { unit: "ms".into(), better: Better::Lower };
    Measurement {
        figures: [(FIGURE.to_owned(), value)].into(),
        shapes: [(FIGURE.to_owned(), shape)].into(),
        ..Measurement::default()
    }
}

/// Program of an arm: both baselines are one.
fn program(arm: usize) -> usize {
    arm.max(1)
}

/// Runs one experiment; `blocks` fixes their number, and default settings otherwise.
fn run(world: &World, seed: u64, blocks: Option<u32>) -> Outcome {
    run_gated(world, seed, blocks, false)
}

/// - `gate`: true for one with a resolution of 2 %.
fn run_gated(world: &World, seed: u64, blocks: Option<u32>, gate: bool) -> Outcome {
    let judged = vec![FIGURE.to_owned()];
    let mut plan = ExperimentPlan::new(seed, arms(world.variants), judged, 60_000_000_000, 2);
    (plan.schedule.order, plan.schedule.settle) = (world.order, world.settle);
    (plan.gate, plan.resolve) = (gate, if gate { 1.02 } else { plan.resolve });
    if let Some(blocks) = blocks {
        (plan.min_blocks, plan.max_blocks, plan.stop_early) = (blocks, blocks, false);
        plan.budget_ns = u64::MAX;
    }
    let arm_count = plan.arms.len();
    let mut experiment = Experiment::new(plan);
    let mut random = Random::new(seed, 77);
    let mut is_hogged = false;
    let (mut now_ns, mut before, mut heat, mut level, mut at) = (0, None, 0.0, 0.0, 0);
    while let ExperimentStep::Trial { arm, .. } = experiment.next(now_ns) {
        now_ns += TRIAL_NS;
        let after = match world.effect {
            Effect::Nothing => 0.0,
            Effect::Leaves(ratio) if before == Some(2) => ratio.ln(),
            Effect::Cold(ratio) if before.is_some_and(|before| program(before) != program(arm)) => {
                ratio.ln()
            }
            Effect::Heats(ratio, stays) => {
                let now = heat;
                heat = stays * (heat + if arm == 2 { ratio.ln() / stays } else { 0.0 });
                now
            }
            _ => 0.0,
        };
        let machine = match world.machine {
            Machine::Steady => 0.0,
            Machine::Auto(stays, noise) => {
                let fresh: f64 = (1.0 - stays * stays).sqrt();
                level = stays * level + fresh * noise * random.normal();
                level
            }
            Machine::Trend(step) => step * f64::from(at),
            Machine::Periodic(height) => {
                height * (std::f64::consts::TAU * f64::from(at) / arm_count as f64).sin()
            }
            Machine::Hog(factor) => {
                is_hogged ^= random.unit() < 0.05;
                if is_hogged { factor.ln() } else { 0.0 }
            }
            Machine::Throttled(ratio) => {
                if at >= 120 {
                    ratio.ln()
                } else {
                    0.0
                }
            }
        };
        let noise = NOISE * random.normal();
        experiment.record(Ok(measured(10.0 * (after + machine + noise).exp())));
        (before, at) = (Some(arm), at + 1);
    }
    experiment.outcome(OutcomeHeader::default())
}

/// Events in the runs of a world, each a share of them.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Better or worse in any variant.
    wrong: f64,
    /// The same in a run that is trusted.
    unwarned: f64,
    flagged: f64,
    /// Blocks of a run, in the mean.
    blocks: f64,
    /// Mean of the first variant's log-ratio.
    bias: f64,
}

fn seen(world: &World, runs: u64, blocks: Option<u32>) -> Seen {
    let mut seen = Seen::default();
    for seed in 0..runs {
        let outcome = run(world, seed, blocks);
        let variants = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
        let is_wrong =
            variants.clone().any(|arm| arm.metrics[FIGURE].verdict.is_some_and(Verdict::differs));
        let is_trusted = outcome.distrusted().is_empty();
        let ratio = variants.clone().next().and_then(|arm| arm.metrics[FIGURE].ratio);
        let share = 1.0 / runs as f64;
        let add = |to: &mut f64, is: bool| *to += if is { share } else { 0.0 };
        add(&mut seen.wrong, is_wrong);
        add(&mut seen.unwarned, is_wrong && is_trusted);
        add(&mut seen.flagged, outcome.trust.carry_over.iter().any(|check| check.flagged));
        seen.blocks += share * f64::from(outcome.blocks);
        seen.bias += share * ratio.unwrap_or(1.0).ln();
    }
    seen
}

fn print(name: &str, seen: &Seen) {
    eprintln!(
        "| {name} | {:.1} % | {:.1} % | {:.1} % | {:.0} | {:+.2} % |",
        seen.wrong * 100.0,
        seen.unwarned * 100.0,
        seen.flagged * 100.0,
        seen.blocks,
        seen.bias * 100.0
    );
}

fn heading() {
    eprintln!("| world | false verdict | and not warned | flagged | blocks | bias |");
}

/// Runs of a world, of a test that must be quick.
fn run_count(usual: u64) -> u64 {
    std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(usual)
}

/// Highest share that this number of runs shows in 99 % of cases, if the true one is `rate`.
fn most(rate: f64, runs: u64) -> f64 {
    rate + 2.326 * (rate * (1.0 - rate) / runs as f64).sqrt()
}

const EFFECTS: [(&str, Effect); 6] = [
    ("leaves +2 %", Effect::Leaves(1.02)),
    ("leaves +5 %", Effect::Leaves(1.05)),
    ("leaves +20 %", Effect::Leaves(1.2)),
    ("cold +1 %", Effect::Cold(1.01)),
    ("cold +3 %", Effect::Cold(1.03)),
    ("cold +10 %", Effect::Cold(1.1)),
];

#[test]
fn trial_that_changes_the_next_fools_few_runs_that_do_not_say_so() {
    let runs = run_count(40);
    heading();
    for variants in [1, 2] {
        for (name, effect) in EFFECTS {
            let seen = seen(&World { effect, variants, ..CLEAN }, runs, None);
            print(&format!("{variants} arms, {name}"), &seen);
            assert!(seen.unwarned <= most(0.05, runs), "{name}: {seen:?}");
        }
        // The documented limit: an effect of several trials is not balanced, and a weak one is seldom shown in a few blocks.
        let effect = Effect::Heats(1.05, 0.7);
        let heat = seen(&World { effect, variants, ..CLEAN }, runs, None);
        print(&format!("{variants} arms, heats +5 %, .7 stays"), &heat);
        assert!(heat.unwarned <= 0.4, "{heat:?}");
    }
}

#[test]
fn large_effect_of_the_trial_before_is_flagged() {
    let runs = run_count(30);
    heading();
    for (name, effect) in [EFFECTS[1], EFFECTS[2], EFFECTS[4], EFFECTS[5]] {
        for order in [BlockOrder::Random, BlockOrder::Balanced] {
            let seen = seen(&World { effect, order, ..CLEAN }, runs, Some(60));
            print(&format!("{order:?}, 60 blocks, {name}"), &seen);
            assert!(seen.flagged >= 0.8, "{name}: {seen:?}");
        }
    }
}

#[test]
fn balanced_order_removes_the_bias_of_an_arm_that_changes_the_next_trial() {
    let runs = run_count(40);
    heading();
    for (name, effect) in [EFFECTS[1], EFFECTS[2]] {
        let of_order = |order| {
            let seen = seen(&World { effect, order, ..CLEAN }, runs, Some(24));
            print(&format!("{order:?}, 24 blocks, {name}"), &seen);
            seen
        };
        let (random, balanced) = (of_order(BlockOrder::Random), of_order(BlockOrder::Balanced));
        assert!(random.wrong >= 0.12 && random.bias < -0.01, "{name}: {random:?}");
        assert!(balanced.wrong <= most(0.05, runs), "{name}: {balanced:?}");
        assert!(balanced.bias.abs() < 0.005, "{name}: {balanced:?}");
    }
}

#[test]
fn gate_decides_nothing_about_a_figure_that_the_trial_before_moves() {
    let world = World { effect: Effect::Cold(1.1), ..CLEAN };
    let reasons = (0..10).filter_map(|seed| {
        let outcome = run_gated(&world, seed, Some(40), true);
        assert!(outcome.warnings.iter().any(|warning| warning.advice.contains("--settle")));
        assert_eq!(outcome.distrusted(), [FIGURE]);
        outcome.gate.unwrap().decisions.remove(0).reason
    });
    assert_eq!(reasons.collect::<Vec<_>>(), vec![Undecided::CarryOver; 10]);
}

#[test]
fn settling_trials_measure_each_program_after_itself() {
    let runs = run_count(40);
    heading();
    let of_effect = |name: &str, effect| {
        let seen = seen(&World { effect, settle: true, ..CLEAN }, runs, None);
        print(&format!("settled, {name}"), &seen);
        seen
    };
    for (name, effect) in [EFFECTS[4], EFFECTS[5]] {
        let cold = of_effect(name, effect);
        assert!(cold.wrong <= most(0.05, runs) && cold.flagged == 0.0, "{cold:?}");
        assert!(cold.bias.abs() < 0.006, "{cold:?}");
    }
    // That is its figure: a program that leaves the machine slower is slower when it runs again.
    let (name, effect) = EFFECTS[2];
    let leaves = of_effect(name, effect);
    assert!((leaves.bias - 1.2f64.ln()).abs() < 0.01, "{leaves:?}");
}

#[test]
fn clean_runs_are_seldom_flagged_or_wrong_in_any_machine() {
    let runs = run_count(20);
    heading();
    let machines = [
        ("steady", Machine::Steady),
        ("AR(1) .9, 5 %", Machine::Auto(0.9, 0.05)),
        ("AR(1) .99, 20 %", Machine::Auto(0.99, 0.2)),
        ("trend of 1 % a trial", Machine::Trend(0.01)),
        ("a hog that comes and goes, x1.5", Machine::Hog(1.5)),
        ("throttled x1.4", Machine::Throttled(1.4)),
        // Which place of a block a trial has then matters more than its program, and that is flagged often.
        ("period of a block, 10 %", Machine::Periodic(0.1)),
    ];
    // Many runs are for the table, of all orders and lengths.
    let (orders, lengths): (&[BlockOrder], &[Option<u32>]) = if runs > 100 {
        (&[BlockOrder::Random, BlockOrder::Balanced], &[None, Some(12), Some(24), Some(60)])
    } else {
        (&[BlockOrder::Balanced], &[None, Some(24)])
    };
    for variants in [1, 2] {
        for (&order, &blocks) in orders.iter().flat_map(|o| lengths.iter().map(move |l| (o, l))) {
            for (name, machine) in machines {
                let seen = seen(&World { machine, variants, order, ..CLEAN }, runs, blocks);
                print(&format!("{order:?}, {variants} arms, {blocks:?}, {name}"), &seen);
                assert!(runs > 100 || seen.wrong <= most(0.05, runs), "{name}: {seen:?}");
                let is_periodic = matches!(machine, Machine::Periodic(_));
                assert!(
                    runs > 100 || is_periodic || seen.flagged <= most(0.02, runs),
                    "{name}: {seen:?}"
                );
            }
        }
    }
}
