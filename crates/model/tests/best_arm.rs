//! The best of several arms: how often its interval holds the truth of the arm that was chosen.
//!
//! `cargo test -p wirepath-model --test best_arm -- --nocapture` prints a table; `RUNS=1000` in the environment asks for
//! more runs.

use wirepath_model::{
    Arm, ArmKind, Better, Experiment, ExperimentPlan, ExperimentStep, Floor, Measurement, Outcome,
    OutcomeHeader, Random, Shape, Support,
};

/// Runs of a world.
const RUNS: u64 = 200;

const FIGURE: &str = "figure";

#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    arms: usize,
    /// Mean of the arms' log-ratios, and their standard deviation.
    effect: (f64, f64),
    /// Standard deviation of the logarithm of a trial.
    noise: f64,
    blocks: u32,
}

const SAME: World =
    World { name: "12 arms of 0.95, 3 %", arms: 12, effect: (0.95, 0.0), noise: 0.03, blocks: 12 };

/// Runs a world once: the outcome, and the true ratio of each arm, the baseline first.
fn run(world: World, seed: u64) -> (Outcome, Vec<f64>) {
    let mut random = Random::new(seed, 1);
    let fixed = [("base".to_owned(), ArmKind::Baseline), ("again".to_owned(), ArmKind::Control)];
    let arms: Vec<(Arm, Support)> = fixed
        .into_iter()
        .chain((0..world.arms).map(|number| (format!("arm{number}"), ArmKind::Variant)))
        .map(|(name, kind)| (Arm { name, kind, switches: Default::default() }, Support::Yes))
        .collect();
    let (mean, spread) = world.effect;
    let truth: Vec<f64> = (0..arms.len())
        .map(|arm| if arm < 2 { 1.0 } else { mean * (spread * random.normal()).exp() })
        .collect();
    let mut plan = ExperimentPlan::new(seed, arms, vec![FIGURE.to_owned()], u64::MAX, 2);
    (plan.stop_early, plan.min_blocks, plan.max_blocks) = (false, world.blocks, world.blocks);
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 0;
    while let ExperimentStep::Trial { arm, .. } = experiment.next(now_ns) {
        now_ns += 1_000_000;
        let value = 1e4 * truth[arm] * (world.noise * random.normal()).exp();
        let shape = Shape { unit: "ns".into(), better: Better::Lower };
        experiment.record(Ok(Measurement {
            figures: [(FIGURE.to_owned(), value)].into(),
            shapes: [(FIGURE.to_owned(), shape)].into(),
            ..Measurement::default()
        }));
    }
    (experiment.outcome(OutcomeHeader::default()), truth)
}

fn runs() -> u64 {
    std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS)
}

#[test]
fn interval_of_the_best_arm_holds_its_truth() {
    let worlds = [
        SAME,
        World { name: "12 arms of 0.98, 3 %", effect: (0.98, 0.0), ..SAME },
        World { name: "12 arms of 0.98, 3 %", effect: (0.98, 0.0), blocks: 24, ..SAME },
        World { name: "12 arms of N(-5 %, 3 %), 3 %", effect: (0.95, 0.03), ..SAME },
        World { name: "12 arms of 0.95, 10 %", noise: 0.1, blocks: 24, ..SAME },
    ];
    eprintln!("| truth | blocks | runs with a best arm | alone | of all | gain |");
    for world in worlds {
        let (mut chosen, mut alone, mut held, mut gain) = (0, 0, 0, 0.0);
        for seed in 0..runs() {
            let (outcome, truth) = run(world, seed);
            let Some(best) = outcome.best.first() else { continue };
            assert_eq!((best.metric.as_str(), best.of), (FIGURE, 12));
            let place = outcome.arms.iter().position(|arm| arm.name == best.arm).expect("an arm");
            let holds = |low: Option<f64>, high: Option<f64>| {
                let within = Floor { low: low.expect("an end"), high: high.expect("an end") };
                (within.low..=within.high).contains(&truth[place])
            };
            let own = &outcome.arms[place].metrics[FIGURE];
            assert!(best.low <= own.low && best.high >= own.high, "wider: {best:?}");
            assert_eq!(best.ratio, own.ratio);
            chosen += 1;
            alone += u32::from(holds(own.low, own.high));
            held += u32::from(holds(best.low, best.high));
            gain += best.ratio.expect("a ratio").ln() / truth[place].ln();
        }
        let share = |count: u32| f64::from(count) / f64::from(chosen.max(1));
        eprintln!(
            "| {} | {} | {:.0} % | {:.1} % | {:.1} % | {:.2} |",
            world.name,
            world.blocks,
            100.0 * f64::from(chosen) / runs() as f64,
            100.0 * share(alone),
            100.0 * share(held),
            gain / f64::from(chosen.max(1)),
        );
        // Of all runs at most 5 % may be wrong; three standard deviations of that many runs are allowed.
        let wrong = f64::from(chosen - held) / runs() as f64;
        let tolerance = 3.0 * (0.05 * 0.95 / runs() as f64).sqrt();
        assert!(wrong <= 0.05 + tolerance, "{}: {wrong}", world.name);
    }
}

#[test]
fn one_arm_has_its_own_interval() {
    let (outcome, _) = run(World { arms: 1, ..SAME }, 1);
    let (best, own) = (&outcome.best[0], &outcome.arms[2].metrics[FIGURE]);
    assert_eq!((best.of, best.low, best.high), (1, own.low, own.high));
    let (outcome, _) = run(World { effect: (1.0, 0.0), ..SAME }, 1);
    assert_eq!(outcome.best, [], "no arm is better");
}
