//! A simulated machine and program, trial by trial.

use wirepath_model::{
    Arm, ArmKind, Better, Experiment, ExperimentPlan, ExperimentStep, Measurement, Outcome,
    OutcomeHeader, Random, Shape, Support, TrialRecord,
};

const TRIAL_NS: u64 = 250_000_000;

/// Correlation of the noise of one trial's metrics.
const CORRELATION: f64 = 0.3;

/// Arms, metrics and time of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) arms: usize,
    pub(crate) metrics: usize,
    /// Trials that fit into the time.
    pub(crate) trials: usize,
}

impl Size {
    /// 60 blocks.
    pub(crate) const ONE: Size = Size { arms: 1, metrics: 1, trials: 183 };
    /// 24 blocks.
    pub(crate) const TWELVE: Size = Size { arms: 12, metrics: 3, trials: 350 };
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    Normal,
    /// Student's t with two degrees of freedom, whose variance is infinite.
    HeavyTails,
    Cauchy,
    /// Two levels, each in half of the trials: their ratio.
    Modes(f64),
    /// Exponential, moved so that its median is 0.
    Skewed,
    /// Skewed in the variants, normal in the baselines.
    SkewedArms,
}

/// Change of the machine over a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Machine {
    Steady,
    /// A random walk and a trend: logarithm per trial.
    Drift(f64),
    /// AR(1): correlation of neighbouring trials, standard deviation.
    Correlated(f64, f64),
    /// Other work that comes and goes: factor on times, each phase 20 trials long on average.
    Hog(f64),
    /// A wave with the period of a block: its height.
    Wave(f64),
    /// Slower by this share at first, and less by and by.
    WarmUp(f64),
    /// Slower by this factor from the middle of the time on.
    Throttled(f64),
    /// Noise louder by this factor from the middle of the time on.
    Louder(f64),
}

/// A world; all variants are like the baseline unless `effect` says otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    pub(crate) noise: Noise,
    /// Noise of a baseline trial: standard deviation of its logarithm (for heavy tails, half the scale).
    pub(crate) scale: f64,
    /// The variants' noise over the baseline's.
    pub(crate) noisier: f64,
    pub(crate) machine: Machine,
    /// Share of trials that fail.
    pub(crate) fails: f64,
    /// Share of the variants' trials that fail beside those.
    pub(crate) variants_fail: f64,
    /// The same while other work runs.
    pub(crate) fails_under_load: f64,
    /// Effect on the first variant, as a ratio.
    pub(crate) effect: f64,
    /// True if every variant has the effect.
    pub(crate) all_differ: bool,
    /// Figures are multiples of this share of the baseline's level; 0 for exact ones.
    pub(crate) step: f64,
}

impl World {
    /// True if the announced difference needs no reserve for skew or steps.
    pub(crate) fn is_even(&self) -> bool {
        matches!(self.noise, Noise::Normal | Noise::HeavyTails) && self.step == 0.0
    }
}

pub(crate) const QUIET: World = World {
    noise: Noise::Normal,
    scale: 0.03,
    noisier: 1.0,
    machine: Machine::Steady,
    fails: 0.0,
    variants_fail: 0.0,
    fails_under_load: 0.0,
    effect: 1.0,
    all_differ: false,
    step: 0.0,
};

fn metric(index: usize) -> String {
    format!("figure{index}")
}

pub(crate) fn plan(size: Size, seed: u64) -> ExperimentPlan {
    let arm = |name: String, kind| (Arm { name, kind, switches: Default::default() }, Support::Yes);
    let mut arms = vec![
        arm("baseline".into(), ArmKind::Baseline),
        arm("baseline again".into(), ArmKind::Control),
    ];
    arms.extend((0..size.arms).map(|index| arm(format!("arm{index}"), ArmKind::Variant)));
    let judged = (0..size.metrics).map(metric).collect();
    ExperimentPlan::new(seed, arms, judged, size.trials as u64 * TRIAL_NS, 2)
}

pub(crate) fn run(world: &World, size: Size, plan: ExperimentPlan, seed: u64) -> Outcome {
    let mut simulation = Simulation::new(world, size, seed);
    let mut experiment = Experiment::new(plan);
    let mut now_ns = 0;
    while let ExperimentStep::Trial { arm, .. } = experiment.next(now_ns) {
        now_ns += TRIAL_NS;
        experiment.record(simulation.trial(arm));
    }
    experiment.outcome(OutcomeHeader::default())
}

/// Runs until the p-value looks good, interrupts, and resumes the run with six more blocks as its limit.
pub(crate) fn run_resumed(world: &World, size: Size, plan: ExperimentPlan, seed: u64) -> Outcome {
    let mut simulation = Simulation::new(world, size, seed);
    let mut experiment = Experiment::new(plan.clone());
    let mut records: Vec<TrialRecord> = Vec::new();
    let mut now_ns = 0;
    let mut seen = 0;
    while let ExperimentStep::Trial { arm, block, warmup } = experiment.next(now_ns) {
        if experiment.blocks() > seen {
            seen = experiment.blocks();
            let outcome = experiment.outcome(OutcomeHeader::default());
            let p = outcome.arms[2].metrics.values().next().and_then(|metric| metric.p);
            if seen >= 8 && p.is_some_and(|p| p < 0.05) {
                break;
            }
        }
        let result = simulation.trial(arm);
        records.push(TrialRecord {
            ordinal: records.len() as u32,
            block,
            arm: experiment.arms()[arm].0.name.clone(),
            warmup,
            noisy: false,
            started_ms: now_ns / 1_000_000,
            wall_ns: TRIAL_NS,
            result: result.clone(),
        });
        now_ns += TRIAL_NS;
        experiment.record(result);
    }
    let plan = ExperimentPlan { max_blocks: seen + 6, ..plan };
    let mut resumed = Experiment::new(plan);
    resumed.replay(records).expect("the same trials");
    while let ExperimentStep::Trial { arm, .. } = resumed.next(now_ns) {
        now_ns += TRIAL_NS;
        resumed.record(simulation.trial(arm));
    }
    resumed.outcome(OutcomeHeader::default())
}

struct Simulation {
    world: World,
    size: Size,
    random: Random,
    trial: usize,
    /// Logarithm of the machine's level.
    level: f64,
    has_hog: bool,
}

impl Simulation {
    fn new(world: &World, size: Size, seed: u64) -> Self {
        let random = Random::new(seed, 1);
        Simulation { world: *world, size, random, trial: 0, level: 0.0, has_hog: false }
    }

    fn trial(&mut self, arm: usize) -> Result<Measurement, String> {
        let world = self.world;
        let machine = self.machine();
        let is_late = 2 * self.trial > self.size.trials;
        self.trial += 1;
        let is_variant = arm >= 2;
        let mut scale = if is_variant { world.scale * world.noisier } else { world.scale };
        if let Machine::Louder(factor) = world.machine
            && is_late
        {
            scale *= factor;
        }
        let fails =
            if self.has_hog { world.fails_under_load.max(world.fails) } else { world.fails };
        let own_fails = if is_variant { world.variants_fail } else { 0.0 };
        let has_failed = self.random.unit() < fails.max(own_fails);
        let has_effect = arm == 2 || (is_variant && world.all_differ);
        let effect = if has_effect { world.effect.ln() } else { 0.0 };
        let common = self.draw(is_variant);
        let mut measurement = Measurement::default();
        for index in 0..self.size.metrics {
            let own = self.draw(is_variant);
            let mixed = match world.noise {
                _ if self.size.metrics == 1 => own,
                Noise::Normal => CORRELATION.sqrt() * common + (1.0 - CORRELATION).sqrt() * own,
                // A mixture keeps the shape; it is fully dependent in some trials instead.
                _ if self.random.unit() < CORRELATION => common,
                _ => own,
            };
            let exact = 100.0 * (machine + effect + scale * mixed).exp();
            let step = 100.0 * world.step;
            let figure = if step > 0.0 { (exact / step).round() * step } else { exact };
            measurement.figures.insert(metric(index), figure);
            let shape = Shape { unit: "us".into(), better: Better::Lower };
            measurement.shapes.insert(metric(index), shape);
        }
        if has_failed { Err("failed".into()) } else { Ok(measurement) }
    }

    /// Logarithm of the machine's level during a trial.
    fn machine(&mut self) -> f64 {
        let progress = self.trial as f64 / self.size.trials as f64;
        match self.world.machine {
            Machine::Steady | Machine::Louder(_) => 0.0,
            Machine::Drift(step) => {
                self.level += step * (self.random.normal() + 0.2);
                self.level
            }
            Machine::Correlated(rho, deviation) => {
                let fresh = deviation * (1.0 - rho * rho).sqrt() * self.random.normal();
                self.level = rho * self.level + fresh;
                self.level
            }
            Machine::Hog(factor) => {
                self.has_hog ^= self.random.unit() < 0.05;
                if self.has_hog { factor.ln() } else { 0.0 }
            }
            Machine::Wave(height) => {
                let phase = self.trial as f64 / (self.size.arms + 2) as f64;
                height * (phase * std::f64::consts::TAU).sin()
            }
            Machine::WarmUp(share) => share.ln_1p() * (-8.0 * progress).exp(),
            Machine::Throttled(factor) => {
                if progress > 0.5 {
                    factor.ln()
                } else {
                    0.0
                }
            }
        }
    }

    fn draw(&mut self, is_variant: bool) -> f64 {
        let random = &mut self.random;
        match self.world.noise {
            Noise::HeavyTails => {
                let scale = -(1.0 - random.unit()).ln();
                random.normal() / scale.max(1e-12).sqrt() / 2.0
            }
            // Bounded so that a figure stays finite.
            Noise::Cauchy => (random.normal() / random.normal()).clamp(-1e3, 1e3),
            Noise::Modes(apart) => {
                let mode = if random.unit() < 0.5 { apart.ln() / self.world.scale } else { 0.0 };
                mode + random.normal()
            }
            Noise::Skewed => -(1.0 - random.unit()).ln() - std::f64::consts::LN_2,
            Noise::SkewedArms if is_variant => -(1.0 - random.unit()).ln() - std::f64::consts::LN_2,
            Noise::Normal | Noise::SkewedArms => random.normal(),
        }
    }
}
