//! `wirepath guest bench`: one machine after another, a line each.

use std::time::Duration;

use clap::{Args, Subcommand};
use paths::guest::echo::Kind;
use paths::guest::link::{GUEST_IP, Link, Station};
use paths::guest::observe::Counter;
use paths::guest::ping::{self, Pinged, Until};
use paths::guest::qemu::Machine;
use paths::guest::tap::{Report, TapMachine};
use paths::guest::{SWITCHES, flood, selftest};
use serde_json::{Value, json};

use super::ImageArgs;
use super::run::{counters_document, dump_text, entry_document};
use super::table::Table;
use crate::args::Cli;
use crate::end::Failure;
use crate::{console, stop};

/// All that the source kept on; the echo in the interrupt, which it rejected, stays off.
const ALL: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx";
/// Of them: what the source's optimised driver did, which knew no event index.
const FIRE_AND_FORGET: &str = "quiet,async-tx,lazy-reap,rx-task";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Back-to-back echoes by ICMP and UDP, a line a set of switches
    #[command(after_help = "Example:\n  wirepath guest bench ping baseline quiet,async-tx")]
    Ping(PingArgs),
    /// The system's own ping through a TAP interface, sets of switches in turn
    #[command(after_help = "Example:\n  wirepath guest bench tap --count 100 --rounds 3")]
    Tap(TapArgs),
    /// As many UDP echoes as the card takes; then the firmware's books must agree with ours
    #[command(after_help = "Example:\n  wirepath guest bench flood --frames 1000000")]
    Flood(FloodArgs),
    /// Time from exec to ready
    #[command(after_help = "Example:\n  wirepath guest bench boot --count 20")]
    Boot(BootArgs),
    /// A few echoes, then counters and trace
    #[command(after_help = "Example:\n  wirepath guest bench dump --icount")]
    Dump(DumpArgs),
    /// The kernel's own tests on the machine, and a stack overflow that must be caught
    #[command(after_help = "Example:\n  wirepath guest bench selftest")]
    Selftest(SelftestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Sets of switches, each with commas between; a ladder unless given
    sets: Vec<String>,
    /// Echoes of each kind
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 56)]
    size: usize,
    #[command(flatten)]
    image: ImageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// Sets of switches; the baseline and two optimised ones unless given
    sets: Vec<String>,
    /// Echoes of a run, 50 ms apart
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: u64,
    /// Runs of each set, in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 56)]
    size: usize,
    #[command(flatten)]
    image: ImageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FloodArgs {
    /// Switches
    #[arg(default_value = ALL)]
    switches: String,
    /// Frames
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    frames: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 18)]
    size: usize,
    #[command(flatten)]
    image: ImageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BootArgs {
    /// How many times
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    image: ImageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Switches
    #[arg(default_value = ALL)]
    switches: String,
    /// Echoes
    #[arg(long, default_value_t = 10)]
    count: u32,
    /// Have time stamps count instructions: a nanosecond each
    #[arg(long)]
    icount: bool,
    #[command(flatten)]
    image: ImageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    #[command(flatten)]
    image: ImageArgs,
}

pub(super) fn run(cli: &Cli, command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Ping(args) => ping(cli, args),
        BenchCommand::Tap(args) => tap(cli, args),
        BenchCommand::Flood(args) => flood(cli, args),
        BenchCommand::Boot(args) => boot(cli, args),
        BenchCommand::Dump(args) => dump(cli, args),
        BenchCommand::Selftest(args) => selftest(cli, args),
    }
}

fn booted(image: &ImageArgs, switches: &str) -> Result<(Machine, Link, Station), Failure> {
    let (machine, link) = Machine::boot(&image.boot(switches)?)?;
    let station = link.resolve(GUEST_IP)?;
    Ok((machine, link, station))
}

fn us(ns: f64) -> Value {
    json!(ns / 1e3)
}

/// The baseline, and each switch of the firmware on top of those before it.
fn ladder() -> Vec<String> {
    let guests = SWITCHES.iter().filter(|switch| switch.scope == model::Scope::Guest);
    let mut on: Vec<&str> = Vec::new();
    let rungs = guests.map(|switch| {
        on.push(switch.id);
        on.join(",")
    });
    std::iter::once("baseline".to_owned()).chain(rungs).collect()
}

fn sized(size: usize) -> Result<usize, Failure> {
    let most = paths::guest::echo::BYTES_MAX;
    match size <= most {
        true => Ok(size),
        false => Err(Failure::Usage(format!("a frame holds {most} bytes of payload at most"))),
    }
}

fn ping(cli: &Cli, args: &PingArgs) -> Result<(), Failure> {
    let sets = if args.sets.is_empty() { ladder() } else { args.sets.clone() };
    let size = sized(args.size)?;
    let mut table = Table::new(
        "guest bench ping",
        &[
            "switches",
            "icmp_p50_us",
            "icmp_p99_us",
            "udp_p50_us",
            "udp_p99_us",
            "lost_count",
            "main_wait_ms",
            "ready_ms",
        ],
    );
    for set in sets.iter().take_while(|_| !stop::asked()) {
        let (machine, link, station) = booted(&args.image, set)?;
        let before = machine.times()?;
        let until = Until::Count(args.count);
        let icmp = ping::run(&link, &station, Kind::Icmp, size, until)?;
        let udp = ping::run(&link, &station, Kind::Udp, size, until)?;
        let waited_ns = machine.times()?.since(&before).main.scheduled.wait_ns;
        let at = |pinged: &Pinged, share| us(pinged.rtt.value_at_quantile(share) as f64);
        let lost = icmp.sent_count + udp.sent_count - icmp.answered_count - udp.answered_count;
        table.row(vec![
            json!(set),
            at(&icmp, 0.5),
            at(&icmp, 0.99),
            at(&udp, 0.5),
            at(&udp, 0.99),
            json!(lost),
            json!(waited_ns as f64 / 1e6),
            json!(machine.ready_after.as_secs_f64() * 1e3),
        ]);
    }
    table.print(cli, &[])
}

fn tap(cli: &Cli, args: &TapArgs) -> Result<(), Failure> {
    let sets = match args.sets.is_empty() {
        true => ["baseline", FIRE_AND_FORGET, ALL].map(str::to_owned).to_vec(),
        false => args.sets.clone(),
    };
    let size = sized(args.size)?;
    let mut reports: Vec<Vec<(Report, u64)>> = vec![Vec::new(); sets.len()];
    for _ in 0..args.rounds {
        for (set, reports) in sets.iter().zip(&mut reports) {
            if stop::asked() {
                break;
            }
            let tap = TapMachine::boot(&args.image.boot(set)?)?;
            let before = tap.machine.times()?;
            let report = tap.ping(args.count, size)?;
            let waited_ns = tap.machine.times()?.since(&before).main.scheduled.wait_ns;
            reports.push((report, waited_ns));
        }
    }
    let mut table = Table::new(
        "guest bench tap",
        &[
            "switches",
            "min_us",
            "avg_us",
            "max_us",
            "mdev_us",
            "sent_count",
            "lost_count",
            "main_wait_ms",
        ],
    );
    let mut means = Vec::new();
    for (set, reports) in sets.iter().zip(&reports) {
        for (report, waited_ns) in reports {
            let figure = |of: fn(&paths::guest::tap::Summary) -> f64| {
                report.summary.as_ref().map_or(Value::Null, |summary| us(of(summary)))
            };
            table.row(vec![
                json!(set),
                figure(|summary| summary.min_ns),
                figure(|summary| summary.mean_ns),
                figure(|summary| summary.max_ns),
                figure(|summary| summary.mdev_ns),
                json!(report.sent_count),
                json!(report.lost_count()),
                json!(*waited_ns as f64 / 1e6),
            ]);
        }
        let of_set: Vec<f64> = reports
            .iter()
            .filter_map(|(report, _)| report.summary.map(|summary| summary.mean_ns))
            .collect();
        means.push(of_set.iter().sum::<f64>() / of_set.len() as f64);
    }
    let ratio = match (means.first(), means.last()) {
        (Some(first), Some(last)) if means.len() > 1 && last.is_finite() => json!(first / last),
        _ => Value::Null,
    };
    table.print(cli, &[("avg of the first set over that of the last", ratio)])
}

fn flood(cli: &Cli, args: &FloodArgs) -> Result<(), Failure> {
    let (_machine, link, station) = booted(&args.image, &args.switches)?;
    let flood = flood::run(&link, &station, sized(args.size)?, Until::Count(args.frames))?;
    let mut table = Table::new(
        "guest bench flood",
        &["switches", "sent_count", "answered_count", "refused_count", "seconds", "received_pps"],
    );
    let seconds = flood.duration.as_secs_f64();
    table.row(vec![
        json!(args.switches),
        json!(flood.sent_count),
        json!(flood.answered_count),
        json!(flood.grown(Counter::TxRefused)),
        json!(seconds),
        json!(flood.answered_count as f64 / seconds),
    ]);
    let found = flood.discrepancies();
    table
        .print(cli, &[("books", json!(if found.is_empty() { "agree" } else { "do not agree" }))])?;
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format!("the books do not agree: {}", found.join("; ")))),
    }
}

fn boot(cli: &Cli, args: &BootArgs) -> Result<(), Failure> {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..args.count {
        if stop::asked() {
            break;
        }
        times.push(booted(&args.image, ALL)?.0.ready_after);
    }
    times.sort_unstable();
    let [first, .., last] = times[..] else {
        let only = times.first().copied().unwrap_or_default();
        return print_boot(cli, only, only, only, times.len());
    };
    print_boot(cli, first, times[times.len() / 2], last, times.len())
}

fn print_boot(
    cli: &Cli,
    first: Duration,
    median: Duration,
    last: Duration,
    count: usize,
) -> Result<(), Failure> {
    let ms = |time: Duration| json!(time.as_secs_f64() * 1e3);
    let mut table =
        Table::new("guest bench boot", &["exec to ready", "min_ms", "median_ms", "max_ms"]);
    table.row(vec![json!(format!("{count} boots")), ms(first), ms(median), ms(last)]);
    table.print(cli, &[])
}

fn dump(cli: &Cli, args: &DumpArgs) -> Result<(), Failure> {
    let mut boot = args.image.boot(&args.switches)?;
    if args.icount {
        boot.arguments.extend(["-icount", "shift=0,sleep=off"].map(str::to_owned));
    }
    let (_machine, link) = Machine::boot(&boot)?;
    let station = link.resolve(GUEST_IP)?;
    ping::run(&link, &station, Kind::Icmp, 56, Until::Count(args.count))?;
    let (counters, entries) = (link.counters(&station, 1)?, link.trace(&station, 2)?);
    if !cli.json {
        return console::text(&dump_text(&counters, &entries));
    }
    let document = json!({
        "schema": model::SCHEMA,
        "command": "guest bench dump",
        "switches": args.switches,
        "counters": counters_document(&counters),
        "trace": entries.iter().map(entry_document).collect::<Vec<_>>(),
    });
    console::text(&format!("{document:#}"))
}

fn selftest(cli: &Cli, args: &SelftestArgs) -> Result<(), Failure> {
    let boot = args.image.boot("")?;
    let paths::guest::qemu::System::Firmware { image, .. } = boot.system else {
        return Err(Failure::failed("the selftest is the firmware's"));
    };
    let lines = selftest::run(&image)?;
    let overflow = selftest::overflow(&image)?;
    let caught = overflow.contains("stack overflow: ") && !overflow.contains("FAILED");
    let mut table = Table::new("guest bench selftest", &["test", "passed", "figures"]);
    for line in &lines {
        let figures: Vec<String> =
            line.figures.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row(vec![json!(line.name), json!(line.passed), json!(figures.join(" "))]);
    }
    table.row(vec![json!("stack-overflow"), json!(caught), json!("")]);
    table.print(cli, &[])?;
    match caught && lines.iter().all(|line| line.passed) {
        true => Ok(()),
        false => Err(Failure::failed("a test of the kernel failed")),
    }
}
