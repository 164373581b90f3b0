//! A server and a client as the user's own programs, with known effects between the arms.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::host::tune::Store;
use command::{CommandSession, Experiment, Journals};
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

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// An interval of one run beside ratios that are true in it.
struct Held {
    low: f64,
    high: f64,
    /// Median round trip of the baseline.
    base_ns: f64,
    /// By the wait alone.
    nominal: f64,
    /// By the server's own clock.
    served: f64,
}

impl Held {
    fn holds(&self, ratio: f64) -> bool {
        self.low <= ratio && ratio <= self.high
    }

    /// The difference to the baseline at the middle of the interval.
    fn longer_ns(&self) -> f64 {
        ((self.low + self.high) / 2.0 - 1.0) * self.base_ns
    }
}

/// The ratio of one run by the difference that the client saw in all others.
fn by_others(held: &[Held], one: usize) -> f64 {
    let others = held.iter().enumerate().filter(|(at, _)| *at != one);
    let longer_ns = median(others.map(|(_, other)| other.longer_ns()).collect());
    1.0 + longer_ns.unwrap_or(f64::NAN) / held[one].base_ns
}

/// Medians of one metric over an experiment's trials, by arm; both arms of the baseline count as `base`.
fn medians(trials: &[(String, f64)]) -> impl Fn(&str) -> Option<f64> {
    |arm: &str| {
        let is_of = |name: &str| name == arm || arm == "base" && name == "same";
        median(trials.iter().filter(|(name, _)| is_of(name)).map(|&(_, value)| value).collect())
    }
}

pub(crate) fn study(count: u64) -> Result {
    let spec = Experiment::parse(&text()?)?.resolve()?;
    let folder = std::env::temp_dir().join(format!("truth-{}", std::process::id()));
    let journals =
        Journals { far: Store::new(folder.join("far")), near: Store::new(folder.join("near")) };
    let mut session = CommandSession::open(spec.clone(), journals, 0, &STOP)?;
    let judged: Vec<&str> =
        spec.judged.iter().map(String::as_str).filter(|&name| name != SERVED).collect();
    let mut held: [Vec<Held>; 3] = Default::default();
    let (mut found, mut found_tail, mut fooled) = ([0; 3], 0, 0);
    for seed in 0..count {
        let arms = command::arms(&spec)?.into_iter().map(|(arm, _)| arm).collect();
        let (mut served, mut round_trips) = (Vec::new(), Vec::new());
        let outcome = experiment(seed, BLOCKS, arms, &judged, |arm| {
            let measured = session.trial(arm).map_err(|error| ::host::text::chain(&error))?;
            for (name, values) in [(SERVED, &mut served), (ROUND_TRIP, &mut round_trips)] {
                values.extend(measured.figures.get(name).map(|&value| (arm.name.clone(), value)));
            }
            Ok(measured)
        });
        let claims = differences(&outcome);
        let is_worse = |arm: &str, metric: &str| {
            claims.iter().any(|c| c.0 == arm && c.1 == metric && c.3 == Verdict::Worse)
        };
        let (served, round_trip) = (medians(&served), medians(&round_trips));
        let none = "no trial of the baseline has a figure";
        let (base_ns, base_served_ns) =
            (round_trip("base").ok_or(none)?, served("base").ok_or(none)?);
        let mut line = format!("{seed}: {base_ns:.0} ns");
        for (at, us) in EXTRA_US.into_iter().enumerate() {
            let name = format!("{us}us");
            let arm = outcome.arms.iter().find(|arm| arm.name == name).ok_or("no such arm")?;
            let p50 = &arm.metrics[ROUND_TRIP];
            let (low, high) = p50.low.zip(p50.high).unwrap_or((f64::NAN, f64::NAN));
            let longer_ns =
                served(&name).ok_or("no trial of the arm has a figure")? - base_served_ns;
            let nominal = 1.0 + us as f64 * 1000.0 / base_ns;
            let one = Held { low, high, base_ns, nominal, served: 1.0 + longer_ns / base_ns };
            line += &format!("; {nominal:.4}, served {:.4} in [{low:.4}, {high:.4}]", one.served);
            held[at].push(one);
            found[at] += u64::from(is_worse(&name, ROUND_TRIP));
        }
        found_tail += u64::from(is_worse("hundredth", "p99_ns"));
        let false_claims: Vec<_> = claims.iter().filter(|c| c.0 == "same").collect();
        fooled += u64::from(!false_claims.is_empty());
        println!("{line}; p99: {}; false: {false_claims:?}", is_worse("hundredth", "p99_ns"));
    }
    for ((us, held), found) in EXTRA_US.into_iter().zip(&held).zip(found) {
        let of = |truth: &dyn Fn(usize, &Held) -> f64| {
            let holds = |(at, one): &(usize, &Held)| one.holds(truth(*at, one));
            let times = held.iter().enumerate().filter(holds).count() as u64;
            let (low, high) = wilson(times, count);
            format!("{times} ({:.0} to {:.0} %)", 100.0 * low, 100.0 * high)
        };
        println!(
            "+{us} µs: found worse in {found} of {count}; the interval holds the wait alone in {}, the \
             server's own time in {}, the round trips of the other runs in {}",
            of(&|_, one| one.nominal),
            of(&|_, one| one.served),
            of(&|at, _| by_others(held, at)),
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
