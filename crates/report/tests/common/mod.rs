//! Outcomes like those of a run on two shared CPUs over veth.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeMap;

use model::{
    ArmKind, ArmOutcome, Better, CarryOver, CodeKind, CpuSamples, Distribution, Ended, Floor,
    FunctionSamples, Machine, MetricOutcome, Outcome, Phrases, RESOLVE, SCHEMA, Support, Verdict,
    Warning,
};

pub(crate) const BLOCKS: usize = 24;

const LADDER: [&str; 11] = [
    "spin",
    "batch",
    "gso",
    "bypass",
    "native",
    "zero-copy",
    "busy-poll",
    "need-wakeup",
    "no-idle-states",
    "pin",
    "rps",
];

/// Small and seeded: the goldens depend on every value.
struct Dice(u64);

impl Dice {
    fn share(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    /// About normal, mean 0, deviation 1.
    fn noise(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

struct Plan {
    metric: &'static str,
    unit: &'static str,
    better: Better,
    base: f64,
    spread: f64,
    /// True ratio of: control, eleven rungs, peer.
    ratios: [f64; 13],
}

/// `--load ping --arms ladder --peers sockperf`.
pub(crate) fn ping() -> Outcome {
    let plans = [
        Plan {
            metric: "rtt_ns_p50",
            unit: "ns",
            better: Better::Lower,
            base: 62_800.0,
            spread: 0.02,
            ratios: [
                1.0, 0.061, 0.0611, 0.0609, 0.0365, 0.0486, 0.0, 0.0487, 0.052, 0.0461, 0.0452,
                1.31, 0.968,
            ],
        },
        Plan {
            metric: "rtt_ns_p99",
            unit: "ns",
            better: Better::Lower,
            base: 88_000.0,
            spread: 0.05,
            ratios: [
                1.0, 0.051, 0.0502, 0.0511, 0.0312, 0.0398, 0.0, 0.0402, 0.0431, 0.038, 0.0365,
                1.22, 0.99,
            ],
        },
        Plan {
            metric: "cpu_ns_per_packet",
            unit: "ns",
            better: Better::Lower,
            base: 5_120.0,
            spread: 0.015,
            ratios: [1.0, 0.94, 0.945, 0.94, 0.52, 0.61, 0.0, 0.62, 0.64, 0.60, 0.60, 1.04, 1.10],
        },
    ];
    let mut outcome = experiment("ping", &plans);
    outcome.floor = BTreeMap::from([
        ("rtt_ns_p50".into(), Floor { low: 0.987, high: 1.012 }),
        ("rtt_ns_p99".into(), Floor { low: 0.958, high: 1.041 }),
        ("cpu_ns_per_packet".into(), Floor { low: 0.991, high: 1.008 }),
    ]);
    outcome.trust.carry_over = [("rtt_ns_p50", 12, 1.004, 0.61), ("rtt_ns_p99", 5, 0.98, 0.25)]
        .map(|(metric, blocks, ratio, p)| CarryOver {
            metric: metric.into(),
            after: None,
            blocks,
            ratio: Some(ratio),
            p,
            flagged: false,
        })
        .into();
    for (i, arm) in outcome.arms.iter_mut().enumerate().filter(|(_, arm)| arm.trials > 0) {
        let p50 = arm.metrics["rtt_ns_p50"].median.unwrap_or(60_000.0);
        arm.latency.insert("rtt".into(), curve(p50, 1.3 + 0.02 * i as f64));
        arm.counters = BTreeMap::from([
            ("sent_count".to_string(), 480_000),
            ("machine_wall_ns".into(), 6_000_000_000),
            ("machine_cpu0_unused_ns".into(), 4_500_000_000 - 300_000_000 * i as u64),
            ("machine_cpu1_unused_ns".into(), 5_980_000_000),
        ]);
    }
    outcome
}

/// `--load flood --arms ladder --peers sockperf`, with losses.
pub(crate) fn flood() -> Outcome {
    let plans = [
        Plan {
            metric: "received_pps",
            unit: "pps",
            better: Better::Higher,
            base: 570_000.0,
            spread: 0.03,
            ratios: [1.0, 1.04, 1.13, 3.02, 2.31, 2.07, 0.0, 2.06, 2.18, 2.2, 2.26, 1.92, 1.07],
        },
        Plan {
            metric: "cpu_ns_per_packet",
            unit: "ns",
            better: Better::Lower,
            base: 3_350.0,
            spread: 0.01,
            ratios: [1.0, 0.99, 0.83, 0.31, 0.38, 0.44, 0.0, 0.44, 0.41, 0.41, 0.4, 0.6, 1.02],
        },
    ];
    let mut outcome = experiment("flood", &plans);
    outcome.floor = BTreeMap::from([
        ("received_pps".into(), Floor { low: 0.971, high: 1.024 }),
        ("cpu_ns_per_packet".into(), Floor { low: 0.993, high: 1.006 }),
    ]);
    for (i, arm) in outcome.arms.iter_mut().enumerate().filter(|(_, arm)| arm.trials > 0) {
        let lost = if i % 4 == 1 { 1_204 * i as u64 } else { 0 };
        let tally = |total: u64| {
            let of_block = Some((total / BLOCKS as u64) as f64);
            let trials = vec![of_block; BLOCKS];
            MetricOutcome {
                median: of_block,
                ..MetricOutcome::unjudged("count", Better::Lower, trials)
            }
        };
        arm.metrics.insert("lost_count".into(), tally(lost));
        arm.metrics.insert("duplicated_count".into(), tally(0));
        arm.metrics.insert("reordered_count".into(), tally(if i == 11 { 96 } else { 0 }));
    }
    outcome
}

fn experiment(kind: &str, plans: &[Plan]) -> Outcome {
    let mut dice = Dice(0x5eed);
    let blank = |name: &str, kind, switches: &[&str]| ArmOutcome {
        name: name.into(),
        kind,
        switches: switches.iter().map(|s| s.to_string()).collect(),
        support: Support::Yes,
        trials: BLOCKS as u32,
        metrics: BTreeMap::new(),
        latency: BTreeMap::new(),
        mode: BTreeMap::new(),
        counters: BTreeMap::new(),
        samples: None,
        reliability: None,
        failures: Vec::new(),
    };
    let mut arms = vec![
        blank("baseline", ArmKind::Baseline, &[]),
        blank("baseline again", ArmKind::Control, &[]),
    ];
    for (i, switch) in LADDER.iter().enumerate() {
        // What cannot run is left out of later rungs.
        let on: Vec<&str> =
            LADDER[..=i].iter().copied().filter(|on| on == switch || *on != "zero-copy").collect();
        arms.push(blank(&format!("+{switch}"), ArmKind::Variant, &on));
    }
    arms.push(blank("sockperf", ArmKind::Peer, &[]));

    for (i, arm) in arms.iter_mut().enumerate() {
        let rung = i as i32 - 2;
        arm.mode = match rung {
            3 => BTreeMap::from([("xdp".into(), "skb, copy".into())]),
            4..=10 => BTreeMap::from([("xdp".into(), "native, copy".into())]),
            _ => BTreeMap::from([("engine".into(), "udp".into())]),
        };
        if arm.name == "+zero-copy" {
            arm.support = Support::unsupported(
                "zero-copy AF_XDP on veth",
                "a NIC whose driver has it, such as ice, i40e or mlx5",
            );
            arm.trials = 0;
            arm.mode.clear();
            continue;
        }
        for plan in plans {
            let ratio = if i == 0 { 1.0 } else { plan.ratios[i - 1] };
            arm.metrics.insert(plan.metric.into(), figure(plan, i, ratio, &mut dice));
        }
        if arm.name == "+busy-poll" {
            for metric in arm.metrics.values_mut() {
                metric.verdict = Some(Verdict::NotEffective);
                metric.why = Some(
                    "busy-poll did nothing: NAPI id is 0 in copy mode; it needs a driver with \
                     zero-copy"
                        .into(),
                );
            }
        }
    }
    arms[11].failures = vec!["trial 151: poll on the ring timed out after 1 s".into()];
    let mut outcome = Outcome {
        schema: SCHEMA,
        id: format!("20261121-083000-probe-{}", if kind == "ping" { "1f3a" } else { "77c0" }),
        started: "2026-11-21T08:30:00Z".into(),
        version: "0.1.0".into(),
        machine: Machine {
            id: "m-4c1d9e02".into(),
            kernel: "6.18.5 #1 SMP PREEMPT_DYNAMIC".into(),
            cpu: "AMD EPYC 7B13".into(),
            cpus: 2,
            memory_bytes: 8_342_872_064,
            hypervisor: Some("KVM".into()),
            governor: None,
            nic: "veth pair in two namespaces".into(),
            load_x100: 34,
            notes: BTreeMap::from([("clock source".into(), "tsc".into())]),
            far: None,
        },
        path: "probe".into(),
        load: BTreeMap::from([
            ("kind".into(), kind.into()),
            ("size_bytes".into(), "64".into()),
            ("trial_ms".into(), "200".into()),
        ]),
        name: None,
        note: None,
        phrases: phrases(),
        seed: 7,
        blocks: BLOCKS as u32,
        wall_ms: 88_412,
        ended: Ended::Settled,
        looks: 3,
        resolve: RESOLVE,
        judged: plans.iter().map(|plan| plan.metric.to_string()).collect(),
        search: None,
        best: Vec::new(),
        trust: Default::default(),
        looked: Vec::new(),
        forecast: None,
        schedule: Default::default(),
        gate: None,
        arms,
        floor: BTreeMap::new(),
        warnings: vec![
            Warning {
                what: "other programs used 7 % of the CPUs during 3 trials".into(),
                advice: "those blocks were repeated once; stop other work, or give more --time"
                    .into(),
            },
            Warning {
                what: "the CPUs change their frequency".into(),
                advice: "set the governor to performance, see `wirepath tune plan`".into(),
            },
        ],
    };
    outcome.best = outcome.best_arms();
    outcome
}

fn phrases() -> Phrases {
    let by = [("spin", "polling"), ("bypass", "passing the stack")];
    Phrases {
        noun: "ping".into(),
        baseline: "plain socket".into(),
        by: by.map(|(id, by)| (id.to_owned(), by.to_owned())).into(),
    }
}

fn figure(plan: &Plan, arm: usize, ratio: f64, dice: &mut Dice) -> MetricOutcome {
    let trials: Vec<Option<f64>> = (0..BLOCKS)
        .map(|block| {
            let drift = 1.0 + 0.1 * (block as f64 / 6.0).sin();
            let value = plan.base * ratio * drift * (1.0 + plan.spread * dice.noise());
            (!(arm == 11 && block == 9)).then_some(value)
        })
        .collect();
    let mut sorted: Vec<f64> = trials.iter().flatten().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let half = plan.spread * 0.6;
    let (low, high) = (ratio * (1.0 - half), ratio * (1.0 + half));
    let lower = plan.better == Better::Lower;
    let verdict = match ratio {
        r if (r - 1.0).abs() < 0.015 => Verdict::NoDifferenceShown,
        r if (r - 1.0).abs() < 0.035 => Verdict::Inconclusive,
        r if (r < 1.0) == lower => Verdict::Better,
        _ => Verdict::Worse,
    };
    MetricOutcome {
        difference: None,
        unit: plan.unit.into(),
        better: plan.better,
        median: Some(median),
        ratio: (arm > 0).then_some(ratio),
        low: (arm > 0).then_some(low),
        high: (arm > 0).then_some(high),
        p: (arm > 0).then_some(match verdict {
            Verdict::NoDifferenceShown => 0.62,
            Verdict::Inconclusive => 0.071,
            _ => 0.0002,
        }),
        p_adjusted: None,
        finds: (arm > 1).then_some(1.0 + half),
        tail: None,
        verdict: (arm > 0).then_some(verdict),
        why: None,
        trials,
    }
}

/// A latency curve with a tail, 480,000 samples.
pub(crate) fn curve(p50_ns: f64, tail: f64) -> Distribution {
    let quantiles = (0..60)
        .map(|i| {
            let beyond = (10.0_f64 / 480_000.0).powf(f64::from(i) / 59.0);
            let decades = -beyond.log10() - 0.301;
            let slow = if decades > 2.5 { (decades - 2.5) * 1.5 } else { 0.0 };
            (1.0 - beyond, (p50_ns * tail.powf(decades + slow)) as u64)
        })
        .collect();
    Distribution {
        count: 480_000,
        min_ns: (p50_ns * 0.7) as u64,
        mean_ns: Some((p50_ns * 1.1) as u64),
        max_ns: (p50_ns * 40.0) as u64,
        quantiles,
    }
}

/// Names that try to leave their place in every format.
pub(crate) fn hostile() -> Outcome {
    let mut outcome = ping();
    let evil = "</title></svg><script>alert(1)</script>\"'&<!--";
    outcome.arms[2].name = evil.into();
    outcome.arms[2].switches = vec![evil.into()];
    outcome.arms[3].name = "\x1b[31m\u{202e}a,b\r\n\"c\"".into();
    outcome.arms[13].name = "名前".repeat(40);
    outcome.id = evil.into();
    outcome.path = evil.into();
    outcome.version = evil.into();
    outcome.started = evil.into();
    outcome.machine.cpu = evil.into();
    outcome.machine.notes.insert(evil.into(), evil.into());
    outcome.load.insert(evil.into(), evil.into());
    outcome.warnings[0].what = evil.into();
    outcome.arms[4].failures = vec![evil.into()];
    outcome.arms[5].mode.insert(evil.into(), evil.into());
    outcome.arms[6].support = Support::unsupported(evil, evil);
    for metric in outcome.arms[8].metrics.values_mut() {
        metric.why = Some(evil.into());
        metric.unit = evil.into();
        metric.median = None;
        metric.verdict = Some(Verdict::Refused);
    }
    let latency = outcome.arms[2].latency["rtt"].clone();
    outcome.arms[2].latency.insert(evil.into(), latency);
    let metric = outcome.arms[2].metrics["rtt_ns_p50"].clone();
    outcome.arms[2].metrics.insert(evil.into(), metric);
    outcome.judged.insert(0, evil.into());
    outcome
}

/// Compares with `tests/goldens/<name>`; writes it when `UPDATE=1`.
pub(crate) fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; make it with UPDATE=1", path.display()));
    assert!(
        wanted == text,
        "{} differs; if that is meant, run with UPDATE=1. Now:\n{text}",
        path.display()
    );
}

fn function(function: String, kind: CodeKind, sample_count: u64) -> FunctionSamples {
    FunctionSamples { program: "server".into(), function, kind, sample_count }
}

/// Samples of an arm with this many in one function of its server, and many functions with hostile names.
pub(crate) fn samples(count: u64) -> CpuSamples {
    let mut functions: Vec<FunctionSamples> = (0..250)
        .map(|n| {
            function(
                format!("hostile::<\u{202e}\x1b[31m\"&'日本{}>{n}", "x".repeat(90)),
                CodeKind::File,
                300 - n,
            )
        })
        .collect();
    functions.push(function("handle_request".into(), CodeKind::Function, count));
    functions.push(function("tcp_sendmsg".into(), CodeKind::Kernel, 40));
    CpuSamples::of_trial(10_101_010, Some(1_000_000), 3, functions)
}
