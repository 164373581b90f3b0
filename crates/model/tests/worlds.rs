//! The rules of verdicts against simulated runs: how often they are wrong, and what they find.
//!
//! Each world is 2,000 runs of 12 arms in 3 metrics, judged together; the figures are in docs/method.md.
//! `cargo test -p wirepath-model --test worlds -- --nocapture` prints them.

use wirepath_model::pairs::Pairs;
use wirepath_model::statistics::LEVEL;
use wirepath_model::verdict::{self, Looks, Question};
use wirepath_model::{Better, MARGIN, Random, Verdict};

const RUNS: u64 = 2_000;
const ARMS: usize = 12;
const METRICS: usize = 3;

/// Correlation of the noise of one trial's metrics.
const CORRELATION: f64 = 0.3;

#[derive(Clone, Copy)]
enum Shape {
    Normal,
    /// Student's t with two degrees of freedom, whose variance is infinite.
    HeavyTails,
    /// Exponential, moved so that its median is 0.
    Skewed,
}

/// Change of the machine over a run.
#[derive(Clone, Copy)]
enum Machine {
    Steady,
    /// A random walk and a trend: logarithm per trial.
    Drift(f64),
    /// A CPU hog that comes and goes: factor on times, each phase 20 trials long on average.
    Hog(f64),
}

/// A world; all variants are like the baseline unless `effect` says otherwise.
#[derive(Clone, Copy)]
struct World {
    blocks: usize,
    shape: Shape,
    /// Noise of a baseline trial: standard deviation of its logarithm (for heavy tails, half the scale).
    noise: f64,
    /// The variants' noise over the baseline's.
    noisier: f64,
    machine: Machine,
    /// Share of trials of each variant that fail.
    variants_fail: f64,
    /// The same of baseline and control.
    baselines_fail: f64,
    /// Effect on the first variant, as a ratio.
    effect: f64,
    /// Figures are multiples of this, as those of a clock in whole microseconds; 0 for exact ones.
    step: f64,
    /// True if the user stops at the first verdict.
    stopped_at_first_verdict: bool,
}

const QUIET: World = World {
    blocks: 12,
    shape: Shape::Normal,
    noise: 0.03,
    noisier: 1.0,
    machine: Machine::Steady,
    variants_fail: 0.0,
    baselines_fail: 0.0,
    effect: 1.0,
    step: 0.0,
    stopped_at_first_verdict: false,
};

/// Values of a run: arm (baseline, control, variants), metric, block.
type Run = Vec<[Vec<Option<f64>>; METRICS]>;

fn draw(shape: Shape, random: &mut Random) -> f64 {
    match shape {
        Shape::Normal => random.normal(),
        Shape::HeavyTails => {
            let scale = -(1.0 - random.unit()).ln();
            random.normal() / scale.max(1e-12).sqrt() / 2.0
        }
        Shape::Skewed => -(1.0 - random.unit()).ln() - std::f64::consts::LN_2,
    }
}

fn simulate(world: &World, seed: u64) -> Run {
    let mut random = Random::new(seed, 1);
    let arms = ARMS + 2;
    let mut run: Run = vec![Default::default(); arms];
    let (mut level, mut hog) = (0.0, false);
    for _ in 0..world.blocks {
        let mut order: Vec<usize> = (0..arms).collect();
        for i in (1..arms).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        for arm in order {
            let machine = match world.machine {
                Machine::Steady => 0.0,
                Machine::Drift(step) => {
                    level += step * (random.normal() + 0.2);
                    level
                }
                Machine::Hog(factor) => {
                    hog ^= random.unit() < 0.05;
                    if hog { factor.ln() } else { 0.0 }
                }
            };
            let variant = arm >= 2;
            let (fail, noise) = match variant {
                true => (world.variants_fail, world.noise * world.noisier),
                false => (world.baselines_fail, world.noise),
            };
            let failed = random.unit() < fail;
            let common = draw(world.shape, &mut random);
            let effect = if arm == 2 { world.effect.ln() } else { 0.0 };
            for metric in &mut run[arm] {
                let own = draw(world.shape, &mut random);
                let mixed = match world.shape {
                    Shape::Normal => CORRELATION.sqrt() * common + (1.0 - CORRELATION).sqrt() * own,
                    // A mixture keeps the shape; it is fully dependent in some trials instead.
                    _ if random.unit() < CORRELATION => common,
                    _ => own,
                };
                let exact = (machine + effect + noise * mixed).exp();
                let figure = match world.step > 0.0 {
                    true => (exact / world.step).round() * world.step,
                    false => exact,
                };
                metric.push((!failed).then_some(figure));
            }
        }
    }
    run
}

fn verdicts(run: &Run, blocks: usize, looks: Looks) -> Vec<Verdict> {
    let questions: Vec<Question> = run[2..]
        .iter()
        .flat_map(|arm| (0..METRICS).map(move |metric| (arm, metric)))
        .map(|(arm, metric)| {
            let values = |arm: &'_ [Vec<Option<f64>>; METRICS]| arm[metric][..blocks].to_vec();
            let (base, again) = (values(&run[0]), values(&run[1]));
            let pairs = Pairs::new(&values(arm), &base, Some(&again), blocks, Better::Lower);
            Question { pairs, better: Better::Lower, level: 0.0, tail_high: None }
        })
        .collect();
    let (answers, _) = verdict::answers(&questions, &[], LEVEL, MARGIN, looks);
    answers.into_iter().map(|answer| answer.verdict).collect()
}

fn judged(world: &World, seed: u64) -> Vec<Verdict> {
    let run = simulate(world, seed);
    if !world.stopped_at_first_verdict {
        return verdicts(&run, world.blocks, Looks::Planned);
    }
    let mut last = Vec::new();
    for blocks in 1..=world.blocks {
        last = verdicts(&run, blocks, Looks::AtWill);
        if last.iter().any(is_difference) {
            break;
        }
    }
    last
}

fn is_difference(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::Worse)
}

/// Share of runs of a world in which something holds, by two threads.
fn share(world: &World, of: impl Fn(&[Verdict]) -> bool + Sync) -> f64 {
    let count = |part: u64| {
        (0..RUNS).filter(|seed| seed % 2 == part).filter(|&seed| of(&judged(world, seed))).count()
    };
    let counted = std::thread::scope(|scope| {
        let other = scope.spawn(|| count(1));
        count(0) + other.join().expect("the other half")
    });
    counted as f64 / RUNS as f64
}

/// Highest share that 2,000 runs of a rate of 5 % show in 99 % of cases.
const FIVE_PERCENT: f64 = 0.05 + 2.326 * 0.00487;

#[test]
fn at_most_one_null_run_in_twenty_has_a_false_verdict_in_every_world() {
    let noisier = |noisier| World { noisier, ..QUIET };
    let blocks = |blocks| World { blocks, ..QUIET };
    let skewed = |noisier, blocks| World { noisier, blocks, shape: Shape::Skewed, ..QUIET };
    let fails = |share| World { variants_fail: share, baselines_fail: share, ..QUIET };
    let worlds = [
        ("arms as noisy as the baseline, 12 blocks", QUIET),
        ("arms 2 times noisier", noisier(2.0)),
        ("arms 3 times noisier", noisier(3.0)),
        ("arms 5 times noisier", noisier(5.0)),
        ("arms 10 times noisier", noisier(10.0)),
        ("arms 3 times noisier, 64 blocks", World { noisier: 3.0, ..blocks(64) }),
        ("heavy tails (t2)", World { shape: Shape::HeavyTails, ..QUIET }),
        ("skewed (exponential)", World { shape: Shape::Skewed, ..QUIET }),
        ("skewed, 64 blocks", World { shape: Shape::Skewed, ..blocks(64) }),
        ("skewed, arms 3 times noisier", skewed(3.0, 12)),
        ("skewed, arms 5 times noisier, 24 blocks", skewed(5.0, 24)),
        ("skewed, arms 10 times noisier, 24 blocks", skewed(10.0, 24)),
        ("skewed, arms 10 times noisier, 64 blocks", skewed(10.0, 64)),
        ("all arms fail 10 % of trials", fails(0.1)),
        ("all arms fail 30 % of trials", fails(0.3)),
        ("all arms fail 50 % of trials", fails(0.5)),
        ("drift and trend", World { machine: Machine::Drift(0.01), ..QUIET }),
        ("a CPU hog that comes and goes", World { machine: Machine::Hog(1.5), ..QUIET }),
        ("figures in steps of 5 %", World { step: 0.05, ..QUIET }),
        ("figures in steps of 20 %", World { step: 0.2, ..QUIET }),
        ("figures in steps of 5 %, 64 blocks", World { step: 0.05, ..blocks(64) }),
        ("8 blocks", blocks(8)),
        ("24 blocks", blocks(24)),
        ("64 blocks", blocks(64)),
        (
            "stopped at the first verdict, arms 3 times noisier, 40 blocks",
            World { stopped_at_first_verdict: true, noisier: 3.0, ..blocks(40) },
        ),
    ];
    for (name, world) in worlds {
        let fooled = share(&world, |verdicts| verdicts.iter().any(is_difference));
        eprintln!("| {name} | {:.1} % |", fooled * 100.0);
        assert!(fooled <= FIVE_PERCENT, "{name}: {fooled}");
    }
}

#[test]
fn arm_that_fails_and_is_faster_otherwise_is_seldom_better() {
    for fail in [0.1, 0.3, 0.5] {
        let world = World { variants_fail: fail, effect: 0.85, blocks: 20, ..QUIET };
        let better = share(&world, |verdicts| verdicts[0] == Verdict::Better);
        eprintln!(
            "| fails {:.0} %, 15 % faster otherwise | {:.1} % |",
            fail * 100.0,
            better * 100.0
        );
        // One failure in 20 leaves it better, and the page says how often it fails.
        let most = if fail < 0.2 { 0.7 } else { FIVE_PERCENT };
        assert!(better <= most, "{fail}: {better}");
    }
}

#[test]
fn differences_that_users_ask_for_are_found() {
    let worlds = [
        ("+5 % at 3 % noise, 24 blocks", World { effect: 1.05, blocks: 24, ..QUIET }),
        ("+10 % at 5 % noise, 24 blocks", World { effect: 1.1, noise: 0.05, blocks: 24, ..QUIET }),
        (
            "+30 % of arms 3 times noisier, 24 blocks",
            World { effect: 1.3, noisier: 3.0, blocks: 24, ..QUIET },
        ),
    ];
    for (name, world) in worlds {
        let found = share(&world, |verdicts| verdicts[0] == Verdict::Worse);
        eprintln!("| {name} | {:.1} % |", found * 100.0);
        assert!(found >= 0.95, "{name}: {found}");
    }
}

#[test]
fn difference_beyond_the_margin_is_seldom_excluded() {
    for (noise, blocks) in [(0.02, 8), (0.05, 12), (0.05, 64), (0.2, 24), (0.4, 64)] {
        let world = World { effect: 1.1001, noise, blocks, ..QUIET };
        let excluded = share(&world, |verdicts| verdicts[0] == Verdict::NoDifferenceShown);
        let percent = noise * 100.0;
        eprintln!("| +10 %, noise {percent:.0} %, {blocks} blocks | {:.1} % |", excluded * 100.0);
        assert!(excluded <= FIVE_PERCENT, "{noise}, {blocks}: {excluded}");
    }
}
