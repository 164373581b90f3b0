//! A server and a client as the user's own programs, with known effects between the arms.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::host::tune::JournalStore;
use command::{CommandSession, Journals};
use model::statistics::median;
use model::{Session, Verdict, latency_histogram};

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
/// Median round trip, by the client's clock.
const ROUND_TRIP: &str = "p50_ns";
/// Median time of a request in the server, by its own clock. Not judged.
const SERVED: &str = "served_ns";
static STOP: AtomicBool = AtomicBool::new(false);

fn address(name: &str) -> Result<(String, u16)> {
    Ok((std::env::var(name)?, std::env::var("WIREPATH_PORT")?.parse()?))
}

/// Answers requests by UDP until it is killed, each with its number and the time that the request
/// before it took here, nanoseconds.
///
/// - `extra_us`: work beyond `WORK` at each request.
/// - `slow`: 0, or 1 for `SLOW` at every hundredth request.
pub(crate) fn serve(extra_us: u64, slow: u64) -> Result {
    let (ip, port) = address("WIREPATH_FAR")?;
    let socket = UdpSocket::bind((ip, port))?;
    socket.set_nonblocking(true)?;
    let work = WORK + Duration::from_micros(extra_us);
    let mut number = [0; 8];
    let mut served_ns = 0;
    loop {
        let Ok((_, from)) = socket.recv_from(&mut number) else { continue };
        let received = Instant::now();
        let is_slow = slow > 0 && u64::from_le_bytes(number).checked_rem(100) == Some(0);
        spin(if is_slow { work + SLOW } else { work });
        let answer = [number, u64::to_le_bytes(served_ns)].concat();
        socket.send_to(&answer, from)?;
        served_ns = received.elapsed().as_nanos() as u64;
    }
}

/// Sends requests, one after the other, and prints percentiles of their round trips and the median
/// of the server's own times.
pub(crate) fn ask(count: u64) -> Result {
    let socket = UdpSocket::bind((std::env::var("WIREPATH_NEAR")?, 0))?;
    let (ip, port) = address("WIREPATH_FAR")?;
    socket.connect((ip, port))?;
    socket.set_nonblocking(true)?;
    let (mut round_trips, mut served) = (latency_histogram(), latency_histogram());
    let request = |number: u64| -> Result<[u64; 2]> {
        let sent = Instant::now();
        socket.send(&number.to_le_bytes())?;
        let mut answer = [[0; 8]; 2];
        while socket.recv(answer.as_flattened_mut()).is_err() {
            if sent.elapsed() > Duration::from_secs(1) {
                return Err("no answer within a second".into());
            }
            std::hint::spin_loop();
        }
        Ok([sent.elapsed().as_nanos() as u64, u64::from_le_bytes(answer[1])])
    };
    for _ in 0..WARM_UP {
        request(NOT_A_HUNDREDTH)?;
    }
    for number in 0..count {
        let [round_trip_ns, served_ns] = request(number)?;
        round_trips.saturating_record(round_trip_ns);
        served.saturating_record(served_ns);
    }
    println!("p50 {}", round_trips.value_at_quantile(0.5));
    println!("p99 {}", round_trips.value_at_quantile(0.99));
    println!("served {}", served.value_at_quantile(0.5));
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
         metrics = ['p50_ns=re:p50 (\\d+) lower', 'p99_ns=re:p99 (\\d+) lower', \
         '{SERVED}=re:served (\\d+) lower']\n{}{}{extra}{}",
        arm("base", "0 0"),
        arm("same", "0 0"),
        arm("hundredth", "0 1")
    ))
}

/// An interval of one run beside ratios that are true in it.
struct Held {
    low: f64,
    high: f64,
    /// By the wait alone.
    nominal: f64,
    /// By the server's own clock.
    served: f64,
}

impl Held {
    fn holds(&self, ratio: f64) -> bool {
        self.low <= ratio && ratio <= self.high
    }
}

/// One figure of a run's trials, by arm, one for each block.
type Trials = BTreeMap<String, Vec<f64>>;

const BASELINES: [&str; 2] = ["base", "base again"];

/// Nanoseconds by which an arm's round trips are longer than those of both baselines.
fn longer_ns(run: &Trials, arm: &str) -> Option<f64> {
    let [one, other] = BASELINES.map(|name| run.get(name));
    let blocks = run.get(arm)?.iter().zip(one?).zip(other?);
    median(&blocks.map(|((&ns, &one), &other)| ns - (one + other) / 2.0).collect::<Vec<_>>())
}

/// The ratio that an arm has under the conditions of one run, by round trips of which its interval knows nothing:
/// those of the run's other arms, without the nanoseconds by which these are longer. How much longer an arm is, is the
/// median of the other runs. As for the interval, a block's ratio is that to the geometric mean of two.
fn within(runs: &[Trials], one: usize, arm: &str) -> Option<f64> {
    let usual_ns = |arm: &str| {
        let others = runs.iter().enumerate().filter(|(at, _)| *at != one);
        median(&others.filter_map(|(_, run)| longer_ns(run, arm)).collect::<Vec<_>>())
    };
    let own_ns = usual_ns(arm)?;
    let mut others: Vec<Vec<f64>> = Vec::new();
    for (name, ns) in &runs[one] {
        if name != arm && !BASELINES.contains(&name.as_str()) {
            let usual_ns = usual_ns(name)?;
            others.push(ns.iter().map(|ns| ns - usual_ns).collect());
        }
    }
    let mut log_ratios = Vec::new();
    for block in 0..others.iter().map(Vec::len).min()? {
        let plain_ns: Vec<f64> = others.iter().map(|ns| ns[block]).collect();
        let arms = 0..plain_ns.len();
        for (first, second) in arms.clone().flat_map(|a| (0..a).map(move |b| (a, b))) {
            let reference = (plain_ns[first] * plain_ns[second]).sqrt();
            let thirds = arms.clone().filter(|arm| ![first, second].contains(arm));
            log_ratios.extend(thirds.map(|arm| ((plain_ns[arm] + own_ns) / reference).ln()));
        }
    }
    Some(median(&log_ratios)?.exp())
}

/// Median over the trials of arms with the same server.
fn usual(trials: &Trials, arms: &[&str]) -> Option<f64> {
    let all = arms.iter().filter_map(|arm| trials.get(*arm)).flatten();
    median(&all.copied().collect::<Vec<_>>())
}

pub(crate) fn study(count: u64) -> Result {
    let spec = command::resolve(&model::Programs::parse(&text()?)?)?;
    let folder = std::env::temp_dir().join(format!("truth-{}", std::process::id()));
    let journals = Journals {
        far: JournalStore::new(folder.join("far")),
        near: JournalStore::new(folder.join("near")),
        places: std::collections::BTreeMap::new(),
    };
    let mut session = CommandSession::open(spec.clone(), journals, 0, &STOP)?;
    let judged: Vec<&str> =
        spec.judged.iter().map(String::as_str).filter(|&name| name != SERVED).collect();
    let mut held: [Vec<Held>; 3] = Default::default();
    let mut runs = Vec::new();
    let (mut found, mut found_tail, mut fooled) = ([0; 3], 0, 0);
    for seed in 0..count {
        let arms = command::arms(&spec)?.into_iter().map(|(arm, _)| arm).collect();
        let (mut served, mut round_trips) = (Trials::new(), Trials::new());
        let outcome = experiment(seed, BLOCKS, arms, &judged, |arm| {
            let measured = session.trial(arm).map_err(|error| ::host::text::chain(&error))?;
            for (name, values) in [(SERVED, &mut served), (ROUND_TRIP, &mut round_trips)] {
                let of_arm = values.entry(arm.name.clone()).or_default();
                of_arm.extend(measured.figures.get(name));
            }
            Ok(measured)
        });
        let claims = differences(&outcome);
        let is_worse = |arm: &str, metric: &str| {
            claims.iter().any(|c| c.0 == arm && c.1 == metric && c.3 == Verdict::Worse)
        };
        println!("{seed}: round trips of the trials, ns: {round_trips:?}");
        let none = "no trial of the baseline has a figure";
        let base = ["base", "same"];
        let base_ns = usual(&round_trips, &base).ok_or(none)?;
        let base_served_ns = usual(&served, &base).ok_or(none)?;
        let mut line = format!("{seed}: {base_ns:.0} ns");
        for (at, us) in EXTRA_US.into_iter().enumerate() {
            let name = format!("{us}us");
            let arm = outcome.arms.iter().find(|arm| arm.name == name).ok_or("no such arm")?;
            let p50 = &arm.metrics[ROUND_TRIP];
            let (low, high) = p50.low.zip(p50.high).unwrap_or((f64::NAN, f64::NAN));
            let longer_ns = usual(&served, &[&name]).ok_or("no trial of the arm has a figure")?
                - base_served_ns;
            let nominal = 1.0 + us as f64 * 1000.0 / base_ns;
            let one = Held { low, high, nominal, served: 1.0 + longer_ns / base_ns };
            line += &format!("; {nominal:.4}, served {:.4} in [{low:.4}, {high:.4}]", one.served);
            held[at].push(one);
            found[at] += u64::from(is_worse(&name, ROUND_TRIP));
        }
        runs.push(round_trips);
        found_tail += u64::from(is_worse("hundredth", "p99_ns"));
        let false_claims: Vec<_> = claims.iter().filter(|c| c.0 == "same").collect();
        fooled += u64::from(!false_claims.is_empty());
        println!("{line}; p99: {}; false: {false_claims:?}", is_worse("hundredth", "p99_ns"));
    }
    for ((us, held), found) in EXTRA_US.into_iter().zip(&held).zip(found) {
        let held_figure = |truth: &dyn Fn(usize, &Held) -> f64| {
            let times =
                held.iter().enumerate().filter(|(at, one)| one.holds(truth(*at, one))).count()
                    as u64;
            let (low, high) = wilson(times, count);
            format!("{times} ({:.0} to {:.0} %)", 100.0 * low, 100.0 * high)
        };
        println!(
            "+{us} µs: found worse in {found} of {count}; the interval holds the wait alone in {}, the \
             server's own time in {}, the round trips of the run's other arms in {}",
            held_figure(&|_, one| one.nominal),
            held_figure(&|_, one| one.served),
            held_figure(&|at, _| within(&runs, at, &format!("{us}us")).unwrap_or(f64::NAN)),
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
