//! A fake path with known effects, known drift and known noise, in virtual time.
//!
//! A test instrument: it shows that the harness finds real effects and no others, and allows tests of
//! reports and kills without root. Its figures are meaningless.

use std::collections::BTreeMap;

use crate::{
    Arm, ArmKind, Cost, Delivery, Measurement, NotEffective, Random, Support, Throughput,
    latency_histogram,
};

crate::switches! {
    /// The fake path's switches; effects as in [`FakeWorld::default`].
    pub enum FakeSwitch {
        Fast {
            effect: "Takes 30 % off every time.",
            scope: Process,
            needs: "",
            source: "none: a test instrument",
        },
        Slight {
            effect: "Takes 3 % off every time.",
            scope: Process,
            needs: "",
            source: "none: a test instrument",
        },
        Nothing {
            effect: "Changes nothing.",
            scope: Process,
            needs: "",
            source: "none: a test instrument",
        },
        Harmful {
            effect: "Adds 30 % to every time.",
            scope: Process,
            needs: "",
            source: "none: a test instrument",
        },
        Idle {
            effect: "Reports that it had no effect.",
            scope: Process,
            needs: "",
            source: "none: a test instrument",
        },
        Absent {
            effect: "Cannot be used.",
            scope: Process,
            needs: "a path that is not fake",
            source: "none: a test instrument",
        },
    }
}

/// Change of the fake machine during a measurement. Factors multiply all times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FakeDrift {
    /// A multiplicative random walk: the standard deviation of its logarithm after one
    /// second.
    Walk(f64),
    /// A steady change: its logarithm per second.
    Ramp(f64),
    /// A CPU hog that comes and goes, each phase lasting around (exponentially
    /// distributed) the time given.
    Hog {
        /// Times are this much longer while it runs.
        factor: f64,
        /// Mean duration of a burst, nanoseconds.
        on_ns: u64,
        /// Mean duration of a pause, nanoseconds.
        off_ns: u64,
    },
}

#[derive(Debug, Clone)]
pub struct FakeWorld {
    pub seed: u64,
    /// Factor on every time, by switch; a switch that is not listed changes nothing.
    pub effects: BTreeMap<String, f64>,
    /// Factor on every time, by peer.
    pub peers: BTreeMap<String, f64>,
    /// Changes over time; they multiply.
    pub drift: Vec<FakeDrift>,
    /// Standard deviation of the logarithm of a trial's level.
    pub noise: f64,
    /// Median round trip of the baseline, nanoseconds.
    pub rtt_ns: f64,
    /// Round trips in a trial.
    pub samples: u64,
    /// Virtual time that a trial takes.
    pub trial_ns: u64,
    /// Share of datagrams lost in each direction, by switch; `""` loses in every arm.
    pub losses: BTreeMap<String, f64>,
}

impl Default for FakeWorld {
    fn default() -> Self {
        let effects = [("fast", 0.7), ("slight", 0.97), ("harmful", 1.3)];
        FakeWorld {
            seed: 1,
            effects: effects.map(|(id, factor)| (id.to_owned(), factor)).into(),
            peers: BTreeMap::new(),
            drift: vec![FakeDrift::Walk(0.02)],
            noise: 0.01,
            rtt_ns: 60_000.0,
            samples: 12_000,
            trial_ns: 250_000_000,
            losses: BTreeMap::new(),
        }
    }
}

/// Points that stand for a trial's latency distribution.
const SHAPE_POINTS: u64 = 200;

#[derive(Debug, Clone)]
pub struct FakeSource {
    world: FakeWorld,
    random: Random,
    now_ns: u64,
    /// Logarithm of the walk's level.
    walk: f64,
    /// By drift: whether a hog runs, and until when.
    hogs: Vec<(bool, u64)>,
    /// Standard normal at the middle of each of [`SHAPE_POINTS`] equal shares.
    shape: Vec<f64>,
}

impl FakeSource {
    /// A fake path in the given world, at time 0.
    pub fn new(world: FakeWorld) -> Self {
        FakeSource {
            random: Random::new(world.seed, u64::MAX),
            now_ns: 0,
            walk: 0.0,
            hogs: vec![(true, 0); world.drift.len()],
            shape: (0..SHAPE_POINTS)
                .map(|point| normal_quantile((point as f64 + 0.5) / SHAPE_POINTS as f64))
                .collect(),
            world,
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Support of the fake host: every switch but `absent`.
    pub fn support(arm: &Arm) -> Support {
        if arm.has(FakeSwitch::Absent) {
            Support::unsupported("the switch `absent`", "a path that is not fake")
        } else {
            Support::Yes
        }
    }

    /// Runs one trial and moves virtual time on.
    pub fn trial(&mut self, arm: &Arm) -> Measurement {
        let effect: f64 = match arm.kind {
            ArmKind::Peer => self.world.peers.get(&arm.name).copied().unwrap_or(1.0),
            _ => arm.switches.iter().filter_map(|id| self.world.effects.get(id.as_str())).product(),
        };
        let (drift, hogged_ns) = self.pass(self.world.trial_ns);
        let level = effect * drift * (self.world.noise * self.random.normal()).exp();
        let world = &self.world;
        let lost: f64 = (world.losses.iter())
            .filter(|(id, _)| id.is_empty() || arm.switches.iter().any(|on| on.as_str() == *id))
            .map(|(_, share)| share)
            .sum();
        let lost_count = (world.samples as f64 * lost.clamp(0.0, 1.0)).round() as u64;
        let forward = books(world.samples, lost_count);
        let back = books(forward.received_count, 0);
        let received = back.received_count;
        let cpu_ns = (received as f64 * 3_000.0 * level) as u64;
        let mut measurement = Measurement {
            wall_ns: world.trial_ns,
            deliveries: [("forward".to_owned(), forward), ("return".to_owned(), back)].into(),
            throughput: Some(Throughput {
                interval_ns: (world.trial_ns as f64 * level) as u64,
                received_count: received,
                payload_bytes: received * 64,
            }),
            jitter_ns: Some((world.rtt_ns * 0.05 * level) as u64),
            others_cpu_ns: hogged_ns,
            ..Measurement::default()
        };
        for end in ["near", "far"] {
            let cost = Cost {
                user_ns: cpu_ns / 4,
                system_ns: cpu_ns / 4,
                context_switch_count: received / 2,
                syscall_count: Some(received),
                ..Cost::default()
            };
            measurement.costs.insert(end.into(), cost);
        }
        self.fill_latency(arm, level, received, &mut measurement);
        if arm.has(FakeSwitch::Idle) {
            let why = "the fake path has nothing that it could change".to_owned();
            measurement.not_effective.push(NotEffective::new(FakeSwitch::Idle, why));
        }
        measurement.mode.insert("fake".into(), "virtual time".into());
        measurement
    }

    /// A peer arm reports percentiles, like other programs; other arms fill a histogram.
    fn fill_latency(&mut self, arm: &Arm, level: f64, received: u64, into: &mut Measurement) {
        // The body is narrow and the tail moves more than the median from trial to trial.
        let spread = 0.15 * (2.0 * self.world.noise * self.random.normal()).exp();
        let value_ns = |z: f64| self.world.rtt_ns * level * (spread * z).exp();
        if arm.kind == ArmKind::Peer {
            let reported = [(0.5, 0.0), (0.9, 1.2816), (0.99, 2.3263), (1.0, 4.0)];
            let reported = reported.map(|(quantile, z)| (quantile, value_ns(z)));
            into.reported.insert("rtt".into(), reported.into());
            return;
        }
        let mut histogram = latency_histogram();
        for (point, z) in (0u64..).zip(&self.shape) {
            let upto = |point: u64| received * point / SHAPE_POINTS;
            let count = upto(point + 1) - upto(point);
            histogram.saturating_record_n(value_ns(*z).max(1.0) as u64, count);
        }
        into.segments.insert("rtt".into(), histogram);
    }

    /// Advances time; returns the mean factor of the drift, and the CPU time of hogs.
    fn pass(&mut self, duration_ns: u64) -> (f64, u64) {
        let seconds = duration_ns as f64 / 1e9;
        let (start_ns, end_ns) = (self.now_ns, self.now_ns + duration_ns);
        let (mut factor, mut hogged_ns) = (1.0, 0);
        for (drift, hog) in self.world.drift.iter().zip(&mut self.hogs) {
            match *drift {
                FakeDrift::Walk(step) => {
                    self.walk += step * seconds.sqrt() * self.random.normal();
                    factor *= self.walk.exp();
                }
                FakeDrift::Ramp(slope) => {
                    factor *= (slope * (start_ns as f64 / 1e9 + seconds / 2.0)).exp();
                }
                FakeDrift::Hog { factor: slower, on_ns, off_ns } => {
                    let mut taken_ns = 0;
                    let mut at_ns = start_ns;
                    while at_ns < end_ns {
                        if hog.1 <= at_ns {
                            let mean_ns = if hog.0 { off_ns } else { on_ns };
                            let phase_ns = -(1.0 - self.random.unit()).ln() * mean_ns as f64;
                            *hog = (!hog.0, at_ns + phase_ns as u64 + 1);
                        }
                        let until_ns = hog.1.min(end_ns);
                        taken_ns += if hog.0 { until_ns - at_ns } else { 0 };
                        at_ns = until_ns;
                    }
                    let share = taken_ns as f64 / duration_ns.max(1) as f64;
                    factor *= 1.0 + (slower - 1.0) * share;
                    hogged_ns += taken_ns;
                }
            }
        }
        self.now_ns = end_ns;
        (factor, hogged_ns)
    }
}

fn books(sent_count: u64, lost_count: u64) -> Delivery {
    Delivery { sent_count, received_count: sent_count - lost_count, ..Delivery::default() }
}

/// Standard normal quantile, to about 5e-4: enough for a shape.
/// Source: Abramowitz and Stegun 26.2.23.
fn normal_quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share).max(1e-12);
    let t = (-2.0 * tail.ln()).sqrt();
    let z = t
        - (2.515_517 + t * (0.802_853 + t * 0.010_328))
            / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if share < 0.5 { -z } else { z }
}
