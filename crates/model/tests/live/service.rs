//! A simulated service under changing load, in slots of half a second.
//!
//! Effects multiply; latencies are log-normal with a deviation of 0.6 at 300 requests a second, and quantiles of a period have
//! their normal error. Model and worlds: a trial before this judge was written, of which docs/method.md has the figures.

use wirepath_model::live::{
    LiveArm, LiveExperiment, LiveFigure, LiveForecast, LiveOutcome, LivePeriod, LivePlan,
    LiveScale, LiveStep, WASHOUT_NS,
};
use wirepath_model::{Better, Random};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
pub(crate) const HOUR_NS: u64 = 3_600 * SECOND_NS;

const SLOT_NS: u64 = SECOND_NS / 2;
const SLOTS_PER_SECOND: f64 = 2.0;

/// Requests in a slot at the usual load.
const SLOT_REQUESTS: f64 = 150.0;

/// Error of the logarithm of a quantile of one request: 0.6 sqrt(p (1 - p)) / density(z_p).
const P50_ERROR: f64 = 0.752;
const P99_ERROR: f64 = 2.24;

/// Share of requests that fail.
const ERROR_SHARE: f64 = 0.002;

/// Effect that begins with a switch to on and decays while it stays on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transient {
    /// Logarithm of the effect on times at its begin.
    pub(crate) height: f64,
    pub(crate) decay_s: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    /// Noise of the level: its deviation, and the time in which its correlation decays.
    pub(crate) noise: f64,
    pub(crate) tau_s: f64,
    /// A job of 8 s slows the service by a fifth each so many seconds; 0 for none.
    pub(crate) job_s: f64,
    /// Load rises and falls threefold in an hour, and clients stop for seconds.
    pub(crate) has_wave: bool,
    /// Threefold load and 1.6 to many times the time for up to 3 s, in a tenth of the periods of 5 s.
    pub(crate) has_bursts: bool,
    /// Each 200 to 400 s: 3 s without an answer, and then times that fall from 2.7 times in 20 s.
    pub(crate) has_restarts: bool,
    /// Cauchy noise of each period, with a scale of 2 %.
    pub(crate) has_cauchy: bool,
    /// Effects of the setting, as ratios.
    pub(crate) p99: f64,
    pub(crate) p50: f64,
    pub(crate) errors: f64,
    pub(crate) transient: Option<Transient>,
}

pub(crate) const WHITE: World = World {
    noise: 0.15,
    tau_s: 0.0,
    job_s: 0.0,
    has_wave: false,
    has_bursts: false,
    has_restarts: false,
    has_cauchy: false,
    p99: 1.0,
    p50: 1.0,
    errors: 1.0,
    transient: None,
};

const fn correlated(tau_s: f64) -> World {
    World { tau_s, ..WHITE }
}

/// Worlds in which the setting does nothing.
pub(crate) fn null_worlds() -> Vec<(&'static str, World)> {
    vec![
        ("white", WHITE),
        ("correlated, 5 s", correlated(5.0)),
        ("correlated, 60 s", correlated(60.0)),
        ("correlated, 600 s", correlated(600.0)),
        ("a job each 40 s", World { job_s: 40.0, ..correlated(5.0) }),
        ("a job each 60 s", World { job_s: 60.0, ..correlated(5.0) }),
        ("daily wave and stops", World { has_wave: true, ..correlated(5.0) }),
        ("bursts", World { has_bursts: true, ..correlated(5.0) }),
        ("restarts", World { has_restarts: true, ..correlated(5.0) }),
        ("Cauchy", World { has_cauchy: true, ..correlated(5.0) }),
        (
            "all together",
            World {
                noise: 0.1,
                tau_s: 60.0,
                job_s: 40.0,
                has_wave: true,
                has_bursts: true,
                has_restarts: true,
                has_cauchy: true,
                ..WHITE
            },
        ),
    ]
}

/// One slot, without the setting.
#[derive(Debug, Clone, Copy)]
struct Slot {
    level: f64,
    request_count: f64,
}

/// p99, p50, errors, and further ratios with an error of their own.
pub(crate) fn figures(count: usize) -> Vec<LiveFigure> {
    (0..count)
        .map(|index| LiveFigure {
            name: match index {
                0 => "p99".into(),
                1 => "p50".into(),
                2 => "errors".into(),
                _ => format!("figure{index}"),
            },
            unit: "ms".into(),
            better: Better::Lower,
            scale: if index == 2 { LiveScale::Count } else { LiveScale::Ratio },
        })
        .collect()
}

pub(crate) fn plan(figures: Vec<LiveFigure>, seed: u64) -> LivePlan {
    LivePlan {
        figures,
        resolve: 1.05,
        time_ns: HOUR_NS,
        seed,
        washout_ns: WASHOUT_NS,
        act_ns: 0,
        confirm: false,
        rules: Vec::new(),
    }
}

/// Runs with periods of 5 s.
pub(crate) fn run(world: &World, plan: LivePlan) -> LiveOutcome {
    run_changed(world, plan, 5, |_, _| {})
}

/// Runs to the end; `change` may change each period, given its number.
pub(crate) fn run_changed(
    world: &World,
    plan: LivePlan,
    period_s: u64,
    mut change: impl FnMut(u32, &mut LivePeriod),
) -> LiveOutcome {
    let mut service = Service::new(world, &plan);
    let forecast = LiveForecast {
        period_ns: period_s * SECOND_NS,
        pairs: 0,
        time_ns: 0,
        figures: vec![None; plan.figures.len()],
    };
    // A guard that ends the run is not what these worlds are about.
    let mut experiment = LiveExperiment::new(plan, forecast);
    let mut number = 0;
    while let LiveStep::Period { arm, period_ns, washout_ns, .. } = experiment.next(service.now_ns)
    {
        let mut period = service.period(arm, period_ns, washout_ns);
        change(number, &mut period);
        number += 1;
        experiment.record(period);
    }
    experiment.outcome()
}

/// Slots of a baseline without any switch: requests, and the p50.
pub(crate) fn baseline(world: &World, seconds: u64, seed: u64) -> Vec<(f64, f64)> {
    let mut service = Service::new(world, &plan(figures(2), seed));
    (0..seconds * SECOND_NS / SLOT_NS)
        .map(|_| {
            let slot = service.slot();
            let error = P50_ERROR * service.random.normal() / slot.request_count.max(1.0).sqrt();
            (slot.request_count, (slot.level + error).exp())
        })
        .collect()
}

struct Service {
    world: World,
    figures: Vec<LiveFigure>,
    random: Random,
    now_ns: u64,
    correlated: f64,
    /// Slots that a burst, a stop, and the silence of a restart still last.
    burst: u32,
    burst_height: f64,
    stop: u32,
    restart_ns: u64,
    /// Since the last switch to on; `None` while off.
    on_since_ns: Option<u64>,
}

impl Service {
    fn new(world: &World, plan: &LivePlan) -> Self {
        let mut random = Random::new(plan.seed, u64::MAX);
        let correlated = random.normal();
        Service {
            world: *world,
            figures: plan.figures.clone(),
            random,
            now_ns: 0,
            correlated,
            burst: 0,
            burst_height: 0.0,
            stop: 0,
            restart_ns: 150 * SECOND_NS,
            on_since_ns: None,
        }
    }

    /// Slots come with probability `per_second / 2`.
    fn happens(&mut self, per_second: f64) -> bool {
        self.random.unit() < per_second / SLOTS_PER_SECOND
    }

    fn slot(&mut self) -> Slot {
        let world = self.world;
        let now_s = self.now_ns as f64 / SECOND_NS as f64;
        self.now_ns += SLOT_NS;
        let rho = if world.tau_s > 0.0 { (-0.5 / world.tau_s).exp() } else { 0.0 };
        self.correlated = rho * self.correlated + (1.0 - rho * rho).sqrt() * self.random.normal();
        let mut slot = Slot { level: world.noise * self.correlated, request_count: SLOT_REQUESTS };
        if world.job_s > 0.0 && now_s % world.job_s < 8.0 {
            slot.level += 0.2;
        }
        if world.has_wave {
            // Once up and down in an hour, between 0.5 and 1.5 times the load.
            let wave = (now_s / 3_600.0 * std::f64::consts::TAU).sin();
            slot.request_count *= 1.0 + 0.5 * wave;
            slot.level += 0.3 * wave;
            if self.stop == 0 && self.happens(1.0 / 60.0) {
                self.stop = 4 + self.random.below(9) as u32;
            }
        }
        if world.has_bursts {
            if self.burst == 0 && self.happens(1.0 / 60.0) {
                self.burst = 1 + self.random.below(6) as u32;
                self.burst_height = 0.5 - (1.0 - self.random.unit()).ln();
            }
            if self.burst > 0 {
                self.burst -= 1;
                slot.level += self.burst_height;
                slot.request_count *= 3.0;
            }
        }
        if world.has_restarts {
            let since_s = self.now_ns.saturating_sub(self.restart_ns) as f64 / SECOND_NS as f64;
            if self.now_ns > self.restart_ns {
                slot.level += (-since_s / 20.0).exp();
            }
            if since_s > 200.0 {
                self.restart_ns = self.now_ns + self.random.below(200 * SECOND_NS);
                self.stop = 6;
            }
        }
        if self.stop > 0 {
            self.stop -= 1;
            slot.request_count = 0.0;
        }
        slot
    }

    /// Effect of the setting on times that both quantiles have, at this moment.
    fn transient(&self) -> f64 {
        match (self.world.transient, self.on_since_ns) {
            (Some(transient), Some(since_ns)) => {
                let on_s = (self.now_ns - since_ns) as f64 / SECOND_NS as f64;
                transient.height * (-on_s / transient.decay_s).exp()
            }
            _ => 0.0,
        }
    }

    fn period(&mut self, arm: LiveArm, period_ns: u64, washout_ns: u64) -> LivePeriod {
        let start_ns = self.now_ns;
        self.on_since_ns = match arm {
            LiveArm::On => self.on_since_ns.or(Some(start_ns)),
            LiveArm::Off => None,
        };
        for _ in 0..washout_ns / SLOT_NS {
            self.slot();
        }
        let slots = (period_ns - washout_ns) / SLOT_NS;
        let shock = self.random.normal() / self.random.normal();
        let shock = if self.world.has_cauchy { 0.02 * shock.clamp(-100.0, 100.0) } else { 0.0 };
        let first = self.half(arm, slots / 2, shock);
        let second = self.half(arm, slots - slots / 2, shock);
        LivePeriod {
            arm,
            values: first.1.iter().zip(&second.1).map(whole).collect(),
            request_count: (first.0 + second.0) as u64,
            halves: [first.1, second.1],
            trip: None,
            start_ns,
            act_ns: 0,
            end_ns: self.now_ns,
        }
    }

    /// Requests and figures of half a period.
    fn half(&mut self, arm: LiveArm, slots: u64, shock: f64) -> (f64, Vec<Option<f64>>) {
        let (mut requests, mut middle, mut tail) = (0.0, 0.0, 0.0);
        for _ in 0..slots {
            let transient = self.transient();
            let slot = self.slot();
            let level = slot.level + transient;
            requests += slot.request_count;
            middle += slot.request_count * level;
            // The slow slots of a period have its slowest requests.
            tail += slot.request_count * (2.0 * level).exp();
        }
        if requests < 1.0 {
            return (0.0, vec![None; self.figures.len()]);
        }
        let (middle, tail) = (middle / requests + shock, (tail / requests).ln() / 2.0 + shock);
        let is_on = arm == LiveArm::On;
        let off = World { p99: 1.0, p50: 1.0, errors: 1.0, ..self.world };
        let world = if is_on { self.world } else { off };
        let values = (0..self.figures.len())
            .map(|index| {
                let normal = self.random.normal();
                let error = normal / requests.sqrt();
                Some(match index {
                    0 => (tail + world.p99.ln() + P99_ERROR * error).exp(),
                    1 => (middle + world.p50.ln() + P50_ERROR * error).exp(),
                    2 => {
                        let share = ERROR_SHARE * tail.exp().min(20.0) * world.errors;
                        let mean = share * requests;
                        (mean + mean.sqrt() * normal).round().max(0.0) / requests
                    }
                    _ => (middle / 2.0 + P50_ERROR * error).exp(),
                })
            })
            .collect();
        (requests, values)
    }
}

/// Figure of a period from those of its halves.
fn whole((first, second): (&Option<f64>, &Option<f64>)) -> Option<f64> {
    match (*first, *second) {
        (Some(first), Some(second)) => Some((first + second) / 2.0),
        (one, None) | (None, one) => one,
    }
}
