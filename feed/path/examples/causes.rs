//! Are late quotes named right? `cargo run --release -p wirepath-feed --example causes -- [SECONDS]`, as root on a quiet
//! machine. For each planted cause: the delays of a meter beside it, and how many have its name. Then a feed without
//! any: how many of its quotes are late. Exit code 1 if fewer than 95 of 100 delays have their name, or more than 5 of
//! 100 quotes are late.
#![allow(clippy::print_stdout, reason = "its output is its result")]

#[path = "../../../crates/host/tests/planted/mod.rs"]
mod planted;

use std::error::Error;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use host::interruptions::{InterruptionMeter, RING_BYTES, Trace};
use io::multicast::{Group, GroupTuning, sender};
use lab::{Pair, PairSpec};
use marketdata::arbiter::ArbiterLimits;
use marketdata::books::BooksCapacity;
use marketdata::late::LateReport;
use marketdata::listen::{FeedListener, ListenPlan, ListenReport, ReceiveBy};
use marketdata::protocol::Protocol;
use marketdata::schedule::{SendSchedule, wait_until};
use marketdata::synthetic::{SyntheticSession, SyntheticSpec, TELEGRAM_BYTES_MAX};
use planted::{PLANTS, Plant, cpus};
use sys::clock;

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Delays of each planted cause, at least.
const OUTLIERS: u64 = 100;
/// Least share of the delays beside a planted cause that have its name.
const NAMED_SHARE_MIN: f64 = 0.95;
const RATE: u64 = 2_000;
/// Time from which a quote is late.
const LATE: Duration = Duration::from_micros(50);
/// Largest share of late quotes without a planted cause.
const LATE_SHARE_MAX: f64 = 0.05;

fn main() -> Result {
    let time = Duration::from_secs(std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?);
    println!(
        "{:<36}{:>10}{:>10}{:>8}{:>9}{:>10}",
        "planted", "over", "delays", "named", "share", "else"
    );
    let mut failed = Vec::new();
    for plant in &PLANTS {
        if !is_named(plant, time)? {
            failed.push(plant.planted);
        }
    }
    let (quotes, late) = clean(time)?;
    let share = late["count"].as_u64().unwrap_or(0) as f64 / quotes.max(1) as f64;
    println!(
        "\nwithout any: {:.2} % of {quotes} quotes waited {LATE:?} or longer: {late}",
        100.0 * share
    );
    if quotes == 0 || share > LATE_SHARE_MAX {
        failed.push("the feed without any");
    }
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(format!("not as it must be: {}", failed.join(", ")).into()),
    }
}

/// Prints what the delays beside a planted cause are called. True if enough have its name, or this machine cannot have
/// the cause.
///
/// - `else`: delays of the same length in the same time without the planted cause.
fn is_named(plant: &Plant, time: Duration) -> Result<bool> {
    let idle = {
        let (cpu, _, _turn) = cpus();
        let meter = InterruptionMeter { cpu, over: plant.over };
        thread::scope(|scope| {
            let watching = scope.spawn(|| meter.watch(time, None, &AtomicBool::new(false), || {}));
            watching.join().expect("no panic")
        })?
    };
    let noise = match plant.watch(OUTLIERS, time) {
        Ok(noise) => noise,
        Err(why) => {
            println!("{:<36}not on this machine: {why}", plant.planted);
            return Ok(true);
        }
    };
    let (named, all) = (plant.named(&noise), noise.gaps.total().count);
    let share = named as f64 / all.max(1) as f64;
    let without = idle.gaps.total().count as f64 * noise.watched_ns as f64;
    println!(
        "{:<36}{:>10}{all:>10}{named:>8}{:>7.1} %{:>10.0}",
        plant.planted,
        format!("{:?}", plant.over),
        100.0 * share,
        without / idle.watched_ns.max(1) as f64,
    );
    for (cause, tally) in noise.gaps.rows() {
        println!(
            "    {:<40}{:>6}{:>12.1} µs",
            cause.to_string(),
            tally.count,
            tally.max_ns as f64 / 1e3
        );
    }
    if noise.lost_count > 0 {
        println!("    kernel events that were not traced: {}", noise.lost_count);
    }
    Ok(named >= OUTLIERS && share >= NAMED_SHARE_MIN)
}

/// Quotes that a spinning receiver received, and the late ones, in a lab without a planted cause.
fn clean(time: Duration) -> Result<(u64, serde_json::Value)> {
    let (cpu, other, _turn) = cpus();
    let Pair { near, far } = &Pair::new(&PairSpec::default())?;
    let group = Group {
        address: "239.255.100.100:10000".parse()?,
        source: None,
        ifindex: far.ifindex,
        ifname: far.ifname.clone(),
    };
    let plan = plan(&group, cpu, time);
    let trace = Trace::open(RING_BYTES)?;
    let listener = far.run(|| FeedListener::open(plan))??;
    let socket = near.run(|| sender(group.address, near.ifindex, &near.ifname, 1))??;
    let stop = AtomicBool::new(false);
    let mut report = ListenReport::new(std::slice::from_ref(&group));
    report.late = Some(LateReport::new(LATE.as_nanos() as u64));
    let (late_in, late_out) = std::sync::mpsc::channel();
    let (trace, stop) = (&trace, &stop);
    thread::scope(|scope| -> Result {
        let receiving = scope.spawn(move || -> Result {
            trace.follow_this_thread()?;
            let last = listener.run(stop, |interval| {
                let _ = late_in.send(std::mem::take(interval));
            })?;
            let _ = late_in.send(last);
            Ok(())
        });
        scope.spawn(move || publish(&socket, other, time));
        for mut interval in late_out.iter() {
            report.end(&mut interval);
            if let Some(late) = &mut report.late {
                late.add(&interval.late, trace.lost_count(), |late| trace.cause(&late.delay));
            }
        }
        receiving.join().expect("no panic")
    })?;
    let document = serde_json::to_value(report.summary_document())?;
    let quotes = document["lines"][0]["datagram_count"].as_u64().unwrap_or(0);
    Ok((quotes, document["late"].clone()))
}

fn plan(group: &Group, cpu: usize, time: Duration) -> ListenPlan {
    ListenPlan {
        groups: vec![group.clone()],
        receive_by: ReceiveBy::Sockets,
        tuning: GroupTuning::default(),
        protocol: Some(Protocol::Twse),
        limits: ArbiterLimits::default(),
        recover: None,
        spin: true,
        pin: Some(cpu),
        fifo: None,
        books: BooksCapacity::SNAPSHOTS,
        books_shown: None,
        top: 0,
        digests: false,
        measures_quality: false,
        late: Some(LATE),
        duration: Some(time),
        count: None,
        silence: time,
    }
}

fn publish(socket: &UdpSocket, cpu: usize, time: Duration) {
    sys::affinity::pin_to(&[cpu]).expect("it is allowed");
    let mut session = SyntheticSession::new(&SyntheticSpec::new(1));
    let mut buffer = [0; TELEGRAM_BYTES_MAX];
    let schedule = SendSchedule::burst(1, RATE);
    let begun_ns = clock::monotonic_ns();
    for n in 0..RATE * time.as_secs() {
        wait_until(begun_ns + schedule.due_ns(n), clock::monotonic_ns, || false);
        let Some(bytes) = session.telegram(&mut buffer) else { return };
        // A full queue is a loss, which the receiver counts.
        let _ = socket.send(&buffer[..bytes]);
    }
}
