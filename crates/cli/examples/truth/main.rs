//! The method against the real machine: how often it is wrong, and whether it finds a known effect.
//!
//! `cargo run --release -p wirepath-probe --example truth -- null 100`: null experiments. Every arm is
//! `spin` under another name; half of them run beside a CPU hog that comes and goes, and in one of
//! four an arm fails a tenth of its trials.
//! `cargo run --release -p wirepath-probe --example truth -- effect 10`: a spinning UDP echo of its own,
//! which in one arm waits for 5 % of the round trip before it answers.
#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::convert::Infallible;
use std::error::Error;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Pair, PairSpec};
use model::{
    Arm, ArmKind, Clock, Delivery, ExperimentPlan, Measurement, Outcome, OutcomeHeader, Random,
    Sink, Support, TrialRecord, Trials, Verdict, latency_histogram,
};
use wirepath_probe::Switch;

const TRIAL: Duration = Duration::from_millis(50);

/// Long enough never to end a run.
const BUDGET_NS: u64 = 3_600_000_000_000;

struct Since(Instant);

impl Clock for Since {
    fn elapsed_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

struct Nowhere;

impl Sink for Nowhere {
    type Error = Infallible;

    fn begin(&mut self, _: &OutcomeHeader, _: &ExperimentPlan) -> Result<(), Infallible> {
        Ok(())
    }

    fn next(&mut self, _: u32, _: &Arm, _: f64) {}

    fn trial(&mut self, _: &str, _: &TrialRecord) -> Result<(), Infallible> {
        Ok(())
    }

    fn finish(&mut self, _: &Outcome) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Trials by a function.
struct By<F>(F);

impl<F: FnMut(&Arm) -> Result<Measurement, String>> Trials for By<F> {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
        (self.0)(arm)
    }
}

/// Runs an experiment of a fixed number of blocks.
fn experiment(
    seed: u64,
    blocks: u32,
    arms: Vec<Arm>,
    judged: &[&str],
    trial: impl FnMut(&Arm) -> Result<Measurement, String>,
) -> Outcome {
    let arms = arms.into_iter().map(|arm| (arm, Support::Yes)).collect();
    let judged = judged.iter().map(|&name| name.to_owned()).collect();
    let mut plan = ExperimentPlan::new(seed, arms, judged, BUDGET_NS, lab_cpus());
    (plan.min_blocks, plan.max_blocks, plan.stop_early) = (blocks, blocks, false);
    let (clock, stop) = (Since(Instant::now()), AtomicBool::new(false));
    let header = OutcomeHeader::default();
    match model::run(plan, header, &mut By(trial), &clock, &mut Nowhere, &stop) {
        Ok(finished) => finished.outcome,
    }
}

fn lab_cpus() -> u32 {
    thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

/// Verdicts that claim a difference: arm, metric, ratio.
fn differences(outcome: &Outcome) -> Vec<(String, String, f64, Verdict)> {
    let variants = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
    variants
        .flat_map(|arm| arm.metrics.iter().map(move |(name, metric)| (arm, name, metric)))
        .filter_map(|(arm, name, metric)| {
            let verdict = metric.verdict?;
            let claims = matches!(verdict, Verdict::Better | Verdict::Worse);
            claims.then(|| {
                (arm.name.clone(), name.clone(), metric.ratio.unwrap_or(f64::NAN), verdict)
            })
        })
        .collect()
}

/// 95 % interval of a share, by Wilson 1927.
fn wilson(count: u64, of: u64) -> (f64, f64) {
    let (n, z) = (of as f64, 1.96);
    let share = count as f64 / n;
    let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), middle + half)
}

/// A thread that takes a CPU for about 300 ms and leaves it for about as long, until dropped.
struct Hog {
    stop: &'static AtomicBool,
    thread: Option<thread::JoinHandle<()>>,
}

impl Hog {
    fn start(seed: u64) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::default());
        let thread = thread::spawn(move || {
            let mut random = Random::new(seed, 9);
            while !stop.load(Ordering::Relaxed) {
                let phase = |random: &mut Random| Duration::from_secs_f64(0.6 * random.unit());
                let until = Instant::now() + phase(&mut random);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                thread::sleep(phase(&mut random));
            }
        });
        Hog { stop, thread: Some(thread) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn null(count: u64) -> Result<(), Box<dyn Error>> {
    let path: &dyn model::Path = &wirepath_probe::Probe;
    let kind = path.loads().first().ok_or("no load")?;
    let load = model::Load {
        kind: kind.name.into(),
        size_bytes: kind.size_bytes,
        rate_pps: kind.rate_pps,
        trial: TRIAL,
        far: None,
        secret: None,
    };
    let spin = Arm::with([Switch::Spin]).switches;
    let arm = |name: &str, kind| Arm { name: name.into(), kind, switches: spin.clone() };
    let mut session = path.open(&load)?;
    let (mut fooled, mut fooled_beside_hog) = (0, 0);
    for seed in 0..count {
        let hog = (seed % 2 == 1).then(|| Hog::start(seed));
        let fails = seed / 2 % 4 == 0;
        let mut random = Random::new(seed, 3);
        let arms = vec![
            arm("spin", ArmKind::Baseline),
            arm("spin again", ArmKind::Control),
            arm("first", ArmKind::Variant),
            arm("second", ArmKind::Variant),
        ];
        let judged = ["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"];
        let outcome = experiment(seed, 12, arms, &judged, |arm| {
            if fails && arm.name == "second" && random.unit() < 0.1 {
                return Err("left out on purpose".into());
            }
            session.trial(arm).map_err(|error| host::text::chain(&error))
        });
        let wrong = differences(&outcome);
        fooled += u64::from(!wrong.is_empty());
        fooled_beside_hog += u64::from(!wrong.is_empty() && hog.is_some());
        println!(
            "{seed}: {}{}{} blocks, {wrong:?}",
            if hog.is_some() { "hog, " } else { "" },
            if fails { "fails, " } else { "" },
            outcome.blocks
        );
    }
    let (low, high) = wilson(fooled, count);
    println!(
        "{fooled} of {count} null experiments with a false verdict ({:.1} %, 95 % interval {:.1} % to \
         {:.1} %), {fooled_beside_hog} of them beside the hog",
        100.0 * fooled as f64 / count as f64,
        100.0 * low,
        100.0 * high
    );
    Ok(())
}

/// One trial of round trips by two spinning threads; the far one waits `delay_ns` before it answers.
fn echoed(near: &UdpSocket, delay: &AtomicU64, delay_ns: u64) -> Result<Measurement, String> {
    delay.store(delay_ns, Ordering::Relaxed);
    let mut histogram = latency_histogram();
    let (begun, mut sent_count) = (Instant::now(), 0u64);
    let mut buffer = [0; 64];
    while begun.elapsed() < TRIAL {
        let sent = Instant::now();
        near.send(&sent_count.to_le_bytes()).map_err(|error| error.to_string())?;
        sent_count += 1;
        while near.recv(&mut buffer).is_err() {
            if sent.elapsed() > Duration::from_secs(1) {
                return Err("no answer within a second".into());
            }
            std::hint::spin_loop();
        }
        histogram.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    let books = Delivery { sent_count, received_count: sent_count, ..Delivery::default() };
    Ok(Measurement {
        wall_ns: begun.elapsed().as_nanos() as u64,
        deliveries: [("round-trip".to_owned(), books)].into(),
        segments: [("rtt".to_owned(), histogram)].into(),
        ..Measurement::default()
    })
}

fn effect(count: u64) -> Result<(), Box<dyn Error>> {
    let pair = Pair::new(&PairSpec::default())?;
    let far = pair.far.run(|| UdpSocket::bind((pair.far.ip, 9000)))??;
    let near = pair.near.run(|| UdpSocket::bind((pair.near.ip, 9001)))??;
    near.connect((pair.far.ip, 9000))?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let (delay, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            let _ = sys::affinity::pin_to(&[1]);
            let mut buffer = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                let Ok((size, from)) = far.recv_from(&mut buffer) else { continue };
                let taken = Instant::now();
                let wait = Duration::from_nanos(delay.load(Ordering::Relaxed));
                while taken.elapsed() < wait {
                    std::hint::spin_loop();
                }
                let _ = far.send_to(&buffer[..size], from);
            }
        });
        let run = || -> Result<(), Box<dyn Error>> {
            sys::affinity::pin_to(&[0])?;
            let base = echoed(&near, &delay, 0)?;
            let median_ns = base.segments["rtt"].value_at_quantile(0.5);
            let extra_ns = median_ns / 20;
            println!("round trip {median_ns} ns, the slower arm waits {extra_ns} ns more");
            let mut found = 0;
            for seed in 0..count {
                let variant = |name: &str| Arm::variant(name, Default::default());
                let arms =
                    vec![Arm::baseline(), Arm::control(), variant("the same"), variant("slower")];
                let outcome = experiment(seed, 24, arms, &["rtt_ns_p50"], |arm| {
                    let is_slower = arm.name == "slower";
                    echoed(&near, &delay, if is_slower { extra_ns } else { 0 })
                });
                let claims = differences(&outcome);
                let is_found =
                    |c: &&(String, String, f64, Verdict)| c.0 == "slower" && c.3 == Verdict::Worse;
                found += u64::from(claims.iter().any(|c| is_found(&c)));
                let slower = &outcome.arms[3].metrics["rtt_ns_p50"];
                println!(
                    "{seed}: {:?} [{:?}, {:?}], {claims:?}",
                    slower.ratio, slower.low, slower.high
                );
            }
            println!("found in {found} of {count} runs of 24 blocks");
            Ok(())
        };
        let ran = run();
        stop.store(true, Ordering::Relaxed);
        ran
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (mode, count) = (args.next(), args.next());
    let count = count.map_or(Ok(10), |count| count.parse())?;
    match mode.as_deref() {
        Some("null") => null(count),
        Some("effect") => effect(count),
        _ => Err("give `null COUNT` or `effect COUNT`".into()),
    }
}
