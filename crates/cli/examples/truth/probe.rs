//! Null experiments of path `probe`, and an echo with a known delay.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Pair, PairSpec};
use model::{Arm, ArmKind, Delivery, Measurement, Random, Verdict, latency_histogram};
use probe::Switch;

use crate::experiment::{differences, experiment, wilson};
use crate::hog::Hog;
use crate::{Result, spin};

const TRIAL: Duration = Duration::from_millis(50);

pub(crate) fn null(count: u64) -> Result {
    let path: &dyn model::Path = &probe::Probe;
    let kind = path.loads().first().ok_or("no load")?;
    let load = model::Load {
        kind: kind.name.into(),
        size_bytes: kind.size_bytes,
        rate_pps: kind.rate_pps,
        trial: TRIAL,
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
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
            session.trial(arm).map_err(|error| ::host::text::chain(&error))
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
fn echoed(
    near: &UdpSocket,
    delay: &AtomicU64,
    delay_ns: u64,
) -> std::result::Result<Measurement, String> {
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

pub(crate) fn effect(count: u64) -> Result {
    let pair = Pair::new(&PairSpec::default())?;
    let far = pair.far.run(|| UdpSocket::bind((pair.far.ip, 9000)))??;
    let near = pair.near.run(|| UdpSocket::bind((pair.near.ip, 9001)))??;
    near.connect((pair.far.ip, 9000))?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let (delay, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| -> Result {
        scope.spawn(|| {
            let _ = sys::affinity::pin_to(&[1]);
            let mut buffer = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                let Ok((size, from)) = far.recv_from(&mut buffer) else { continue };
                spin(Duration::from_nanos(delay.load(Ordering::Relaxed)));
                let _ = far.send_to(&buffer[..size], from);
            }
        });
        let run = || -> Result {
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
                found += u64::from(claims.iter().any(|c| c.0 == "slower" && c.3 == Verdict::Worse));
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
