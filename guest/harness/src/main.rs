//! `guest-harness`: boots the firmware and prints what it measures.
#![expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use harness::qemu::{Boot, Qemu};
use harness::{flood, ping, selftest};
use observe::{Counter, Event};

#[derive(Parser)]
#[command(about = "Boots the guest firmware in QEMU and talks to it")]
struct Arguments {
    /// The image; else WIREPATH_GUEST_IMAGE, else what `cargo xtask firmware` built.
    #[arg(long, global = true)]
    image: Option<PathBuf>,
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Back-to-back echoes, one line a set of switches.
    Ping {
        /// Sets of switches, each with commas between; `baseline` for none. Without any: a ladder.
        sets: Vec<String>,
        /// Echoes of each kind.
        #[arg(long, default_value_t = 2000)]
        count: u32,
        /// Bytes of payload.
        #[arg(long, default_value_t = 56)]
        bytes: usize,
        /// More words for the command line, such as wirepath.uart=115200.
        #[arg(long, default_value = "")]
        append: String,
        /// Look for answers without sleeping: the wake-up of this program is left out.
        #[arg(long)]
        spin: bool,
    },
    /// All echoes at once; then the firmware's books must agree with ours.
    Flood {
        /// Switches.
        #[arg(default_value = ALL)]
        switches: String,
        /// Frames.
        #[arg(long, default_value_t = 1_000_000)]
        frames: u32,
    },
    /// A few echoes, then counters and trace.
    Dump {
        /// Switches.
        #[arg(default_value = ALL)]
        switches: String,
        /// Echoes.
        #[arg(long, default_value_t = 10)]
        count: u32,
        /// Have time stamps count instructions: a nanosecond each.
        #[arg(long)]
        icount: bool,
    },
    /// Time from exec to ready.
    Boot {
        /// How many times.
        #[arg(long, default_value_t = 20)]
        count: usize,
    },
    /// The kernel's own tests.
    Selftest,
}

/// All that the source kept; the in-interrupt echo it rejected stays off.
const ALL: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx";

const LADDER: &[&str] = &[
    "baseline",
    "quiet",
    "quiet,async-tx",
    "quiet,async-tx,lazy-reap",
    "quiet,async-tx,lazy-reap,rx-task",
    "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt",
    ALL,
    "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx,icmp-in-irq",
    "async-tx",
    "lazy-reap",
    "rx-task",
    "no-tx-interrupt",
    "event-idx",
    "icmp-in-irq",
    "quiet,async-tx,no-tx-interrupt",
    "quiet,async-tx,rx-task,event-idx",
    "quiet,async-tx,lazy-reap,no-tx-interrupt,event-idx",
    "quiet,async-tx,lazy-reap,no-tx-interrupt,event-idx,icmp-in-irq",
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let image = arguments.image.map_or_else(harness::image, Ok)?;
    let boot = |switches: &str, more: &str| {
        let switches = if switches == "baseline" { "" } else { switches };
        Qemu::boot(&Boot { image: &image, switches, more, qemu: &[] })
    };
    let ip = std::net::Ipv4Addr::new(10, 0, 0, 2);
    match arguments.command {
        What::Ping { sets, count, bytes, append, spin } => {
            println!(
                "ready_ms icmp_p50_us icmp_p99_us udp_p50_us udp_p99_us main_wait_ms switches"
            );
            let ladder = LADDER.iter().map(|set| (*set).to_owned());
            for set in if sets.is_empty() { ladder.collect() } else { sets } {
                let (qemu, link, ready) = boot(&set, &append)?;
                let station = link.resolve(ip)?;
                link.set_spinning(spin)?;
                let icmp = ping::icmp(&link, &station, count, bytes)?;
                let udp = ping::udp(&link, &station, count, bytes)?;
                let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
                println!(
                    "{:8.1} {:11.1} {:11.1} {:10.1} {:10.1} {:12.2} {set}",
                    us(ready) / 1000.0,
                    us(icmp.percentile(0.5)),
                    us(icmp.percentile(0.99)),
                    us(udp.percentile(0.5)),
                    us(udp.percentile(0.99)),
                    us(qemu.main_thread_wait()?) / 1000.0,
                );
            }
        }
        What::Flood { switches, frames } => {
            let (_qemu, link, _) = boot(&switches, "")?;
            let station = link.resolve(ip)?;
            let flood = flood::run(&link, &station, frames, 18)?;
            println!(
                "{} sent, {} answered, {} refused in {:.2} s: {:.0} frames a second",
                flood.sent,
                flood.answered,
                flood.grown(Counter::TxRefused),
                flood.duration.as_secs_f64(),
                f64::from(flood.sent) / flood.duration.as_secs_f64(),
            );
            let found = flood.discrepancies();
            if !found.is_empty() {
                bail!("the books do not agree:\n{}", found.join("\n"));
            }
            println!("the firmware's books agree");
        }
        What::Dump { switches, count, icount } => {
            let qemu: &[&str] = if icount { &["-icount", "shift=0,sleep=off"] } else { &[] };
            let (_qemu, link, _) =
                Qemu::boot(&Boot { image: &image, switches: &switches, more: "", qemu })?;
            let station = link.resolve(ip)?;
            ping::icmp(&link, &station, count, 56)?;
            let counters = link.counters(&station, 1)?;
            for counter in Counter::ALL {
                println!("{:18} {}", counter.name(), counters.get(*counter));
            }
            for entry in link.trace(&station, 2)? {
                let event = Event::of(entry.event).map_or("?", Event::name);
                println!("{:12} ns {event} {}", entry.time_ns, entry.detail);
            }
        }
        What::Boot { count } => {
            let mut times = Vec::new();
            for _ in 0..count.max(1) {
                times.push(boot(ALL, "")?.2);
            }
            times.sort_unstable();
            println!(
                "exec to ready: min {:.1} ms, median {:.1} ms, max {:.1} ms of {}",
                times[0].as_secs_f64() * 1e3,
                times[times.len() / 2].as_secs_f64() * 1e3,
                times[times.len() - 1].as_secs_f64() * 1e3,
                times.len(),
            );
        }
        What::Selftest => {
            let lines = selftest::run(&image)?;
            for line in &lines {
                let verdict = if line.passed { "ok" } else { "FAILED" };
                println!("{} {verdict} {:?}", line.name, line.figures);
            }
            print!("{}", selftest::overflow(&image)?);
            if lines.iter().any(|line| !line.passed) {
                bail!("a selftest failed");
            }
        }
    }
    Ok(())
}
