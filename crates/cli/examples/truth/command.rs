//! A server and a client as the user's own programs, with known effects between the arms.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::host::tune::Store;
use command::{CommandSession, Experiment, Journals};
use model::{Outcome, Session, Verdict, latency_histogram};

use crate::experiment::{differences, experiment, wilson};
use crate::{Result, spin};

/// Work of the server at each request.
const WORK: Duration = Duration::from_micros(50);
/// Extra work of the slow requests, every hundredth from the first.
const SLOW: Duration = Duration::from_millis(1);
/// Just enough for eleven slow requests, of which the 99th percentile is one.
const REQUESTS: u64 = 1001;
/// Requests before the first that counts.
const WARM_UP: u64 = 20;
const NOT_A_HUNDREDTH: u64 = 1;
const BLOCKS: u32 = 12;
const EXTRA_US: [u64; 3] = [5, 20, 100];
static STOP: AtomicBool = AtomicBool::new(false);

fn address(name: &str) -> Result<(String, u16)> {
    Ok((std::env::var(name)?, std::env::var("WIREPATH_PORT")?.parse()?))
}

/// Answers requests by UDP until it is killed.
///
/// - `extra_us`: work beyond `WORK` at each request.
/// - `slow`: 0, or 1 for `SLOW` at every hundredth request.
pub(crate) fn serve(extra_us: u64, slow: u64) -> Result {
    let (ip, port) = address("WIREPATH_FAR")?;
    let socket = UdpSocket::bind((ip, port))?;
    socket.set_nonblocking(true)?;
    let work = WORK + Duration::from_micros(extra_us);
    let mut buffer = [0; 8];
    loop {
        let Ok((_, from)) = socket.recv_from(&mut buffer) else { continue };
        let is_slow = slow > 0 && u64::from_le_bytes(buffer).checked_rem(100) == Some(0);
        spin(if is_slow { work + SLOW } else { work });
        socket.send_to(&buffer, from)?;
    }
}

/// Sends requests, one after the other, and prints percentiles of their round trips.
pub(crate) fn ask(count: u64) -> Result {
    let socket = UdpSocket::bind((std::env::var("WIREPATH_NEAR")?, 0))?;
    let (ip, port) = address("WIREPATH_FAR")?;
    socket.connect((ip, port))?;
    socket.set_nonblocking(true)?;
    let mut histogram = latency_histogram();
    let request = |number: u64| -> Result<u64> {
        let sent = Instant::now();
        socket.send(&number.to_le_bytes())?;
        while socket.recv(&mut [0; 8]).is_err() {
            if sent.elapsed() > Duration::from_secs(1) {
                return Err("no answer within a second".into());
            }
            std::hint::spin_loop();
        }
        Ok(sent.elapsed().as_nanos() as u64)
    };
    for _ in 0..WARM_UP {
        request(NOT_A_HUNDREDTH)?;
    }
    for number in 0..count {
        histogram.saturating_record(request(number)?);
    }
    println!("p50 {}", histogram.value_at_quantile(0.5));
    println!("p99 {}", histogram.value_at_quantile(0.99));
    Ok(())
}

fn text() -> Result<String> {
    let own = std::env::current_exe()?;
    let own = own.display();
    let arm = |name: &str, args: &str| {
        format!("[[arm]]\nname = \"{name}\"\ncommand = \"exec {own} serve {args}\"\n")
    };
    let extra: String = EXTRA_US.map(|us| arm(&format!("{us}us"), &format!("{us} 0"))).concat();
    Ok(format!(
        "client = \"exec {own} ask {REQUESTS}\"\nready = \"udp\"\n\
         metrics = ['p50_ns=re:p50 (\\d+) lower', 'p99_ns=re:p99 (\\d+) lower']\n{}{}{extra}{}",
        arm("base", "0 0"),
        arm("same", "0 0"),
        arm("hundredth", "0 1")
    ))
}

/// Median of the baseline's trials, both arms of it.
fn base_ns(outcome: &Outcome) -> Option<f64> {
    let trials = outcome.arms.iter().take(2).map(|arm| &arm.metrics["p50_ns"].trials);
    let mut values: Vec<f64> = trials.flatten().flatten().copied().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

pub(crate) fn study(count: u64) -> Result {
    let spec = Experiment::parse(&text()?)?.resolve()?;
    let folder = std::env::temp_dir().join(format!("truth-{}", std::process::id()));
    let journals =
        Journals { far: Store::new(folder.join("far")), near: Store::new(folder.join("near")) };
    let mut session = CommandSession::open(spec.clone(), journals, 0, &STOP)?;
    let judged: Vec<&str> = spec.judged.iter().map(String::as_str).collect();
    let (mut held, mut found, mut found_tail, mut fooled) = ([0; 3], [0; 3], 0, 0);
    for seed in 0..count {
        let arms = command::arms(&spec)?.into_iter().map(|(arm, _)| arm).collect();
        let outcome = experiment(seed, BLOCKS, arms, &judged, |arm| {
            session.trial(arm).map_err(|error| ::host::text::chain(&error))
        });
        let claims = differences(&outcome);
        let is_worse = |arm: &str, metric: &str| {
            claims.iter().any(|c| c.0 == arm && c.1 == metric && c.3 == Verdict::Worse)
        };
        let base_ns = base_ns(&outcome).ok_or("no trial of the baseline has a figure")?;
        let mut line = format!("{seed}: {base_ns:.0} ns");
        for (at, us) in EXTRA_US.into_iter().enumerate() {
            let name = format!("{us}us");
            let arm = outcome.arms.iter().find(|arm| arm.name == name).ok_or("no such arm")?;
            let p50 = &arm.metrics["p50_ns"];
            let (low, high) = p50.low.zip(p50.high).unwrap_or((f64::NAN, f64::NAN));
            let truth = 1.0 + us as f64 * 1000.0 / base_ns;
            let holds = low <= truth && truth <= high;
            held[at] += u64::from(holds);
            found[at] += u64::from(is_worse(&name, "p50_ns"));
            line += &format!("; {truth:.3} in [{low:.3}, {high:.3}]: {holds}");
        }
        found_tail += u64::from(is_worse("hundredth", "p99_ns"));
        let false_claims: Vec<_> = claims.iter().filter(|c| c.0 == "same").collect();
        fooled += u64::from(!false_claims.is_empty());
        println!("{line}; p99: {}; false: {false_claims:?}", is_worse("hundredth", "p99_ns"));
    }
    for (at, us) in EXTRA_US.into_iter().enumerate() {
        let (low, high) = wilson(held[at], count);
        println!(
            "+{us} µs: the interval holds the truth in {} of {count} ({:.0} to {:.0} %), found worse in {}",
            held[at],
            100.0 * low,
            100.0 * high,
            found[at]
        );
    }
    let (low, high) = wilson(fooled, count);
    println!("1 in 100 slower by 1 ms: p99 found worse in {found_tail} of {count}");
    println!(
        "the same server: a false verdict in {fooled} of {count} ({:.1} to {:.1} %)",
        100.0 * low,
        100.0 * high
    );
    Ok(())
}
