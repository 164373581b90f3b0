//! `wirepath feed replay`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use house::args::parse_duration;
use house::context::Context;
use house::{console, privileges, signals};
use marketdata::capture::Reader;
use marketdata::replay::{Faults, Replay, ReplayError, ReplayPace, ReplayPlan, ReplaySource};
use marketdata::schedule::SendSchedule;
use marketdata::synthetic::{MoldSession, MoldSpec, SyntheticSession, SyntheticSpec};
use remote::Failure;

use super::groups::interface_named;

/// Default messages per second of a synthetic session.
const DEFAULT_RATE: u64 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// pcap, pcapng or a file of telegrams, also compressed (gzip)
    #[arg(required_unless_present = "synthetic", conflicts_with = "synthetic")]
    file: Option<PathBuf>,
    /// Send a synthetic session of the Taiwan exchanges
    #[arg(long)]
    synthetic: bool,
    /// Send ITCH 5.0 in MoldUDP64 instead
    #[arg(long, requires = "synthetic")]
    mold: bool,
    /// Seed of the session
    #[arg(long, default_value_t = 1, requires = "synthetic")]
    seed: u64,
    /// Instruments of the session
    #[arg(long, default_value_t = 3000, requires = "synthetic",
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    symbols: u32,
    /// Messages per datagram, limited by the size of a frame
    #[arg(long, default_value_t = 1, requires = "synthetic",
          value_parser = clap::value_parser!(u16).range(1..=100))]
    per_datagram: u16,
    /// Messages per second (default: the capture's timing, or 10000 for a synthetic session)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "speed")]
    rate: Option<u64>,
    /// Messages per burst
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    burst: u64,
    /// Speed factor relative to the capture, or `max` for as fast as possible
    #[arg(long, value_name = "N|max", value_parser = parse_speed)]
    speed: Option<Speed>,
    /// Group (or an address on the interface's own network) and port; line A of a pair
    #[arg(long, value_name = "GROUP:PORT")]
    to: SocketAddrV4,
    /// Destination of line B, a copy of line A
    #[arg(long, value_name = "GROUP:PORT")]
    to_b: Option<SocketAddrV4>,
    /// Replay only the capture's datagrams to this destination
    #[arg(long, value_name = "GROUP:PORT", conflicts_with = "synthetic")]
    from: Option<SocketAddrV4>,
    /// Destination in the capture to replay as line B, to --to-b
    #[arg(long, value_name = "GROUP:PORT", requires_all = ["from", "to_b"])]
    from_b: Option<SocketAddrV4>,
    /// Interface to send through
    #[arg(short = 'i', long, value_name = "IF")]
    interface: String,
    /// Time to live of datagrams to groups
    #[arg(long, default_value_t = 1)]
    ttl: u8,
    /// Write intended and actual send times of every datagram (CSV)
    #[arg(long, value_name = "FILE")]
    stamps: Option<PathBuf>,
    /// Answer requests for missing messages of MoldUDP64 here, until Ctrl-C
    #[arg(long, value_name = "IP:PORT")]
    serve: Option<SocketAddrV4>,
    /// Session time to send
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Datagrams to send
    #[arg(short = 'c', long)]
    count: Option<u64>,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Share of line A's datagrams to drop: 10% or 0.1
    #[arg(long, default_value = "0", value_parser = parse_share)]
    drop_a: f64,
    /// Share of line B's datagrams to drop
    #[arg(long, default_value = "0", value_parser = parse_share)]
    drop_b: f64,
    /// Share of datagrams to duplicate, on each line
    #[arg(long, default_value = "0", value_parser = parse_share)]
    duplicate: f64,
    /// Share of datagrams to send after the next, on each line
    #[arg(long, default_value = "0", value_parser = parse_share)]
    reorder: f64,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    fault_seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    Times(f64),
    Max,
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let times: f64 = text.parse().map_err(|_| format!("{text:?} is neither a factor nor max"))?;
    if !(times.is_finite() && times >= 1e-6) {
        return Err("give a factor above 0, or max".into());
    }
    Ok(Speed::Times(times))
}

fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share: f64 = number
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a share; give, for example, 10% or 0.1"))?;
    let share = share * scale;
    if !(0.0..=1.0).contains(&share) {
        return Err("give 0% to 100%".into());
    }
    Ok(share)
}

pub(crate) fn run(context: &Context, args: &ReplayArgs) -> Result<(), Failure> {
    let link = interface_named(&args.interface)?;
    let schedule = schedule(args);
    let source = match &args.file {
        Some(file) => {
            let reader = Reader::open(file).map_err(super::capture_failure)?;
            ReplaySource::File(Box::new(reader))
        }
        None => made_up(args, schedule),
    };
    let pace = match (args.speed, args.rate, &args.file) {
        (Some(Speed::Max), ..) => ReplayPace::Max,
        (Some(Speed::Times(times)), _, Some(_)) => ReplayPace::Own(times),
        (None, None, Some(_)) => ReplayPace::Own(1.0),
        _ => ReplayPace::Rate(schedule),
    };
    let plan = ReplayPlan {
        to: [Some(args.to), args.to_b].into_iter().flatten().collect(),
        from: [args.from, args.from_b].into_iter().flatten().collect(),
        ifindex: link.index,
        ifname: link.name,
        ttl: args.ttl,
        pace,
        faults: Faults {
            drop: [args.drop_a, args.drop_b],
            duplicate: args.duplicate,
            reorder: args.reorder,
            seed: args.fault_seed,
        },
        duration: args.time,
        count: args.count,
        pin: args.pin,
        stamps: args.stamps.clone(),
        serve: args.serve,
    };
    let replay = Replay::open(plan, source).map_err(failed)?;
    privileges::drop_all().map_err(Failure::failed)?;
    let report = replay.run(signals::stop_flag()).map_err(failed)?;
    if context.json {
        return console::json(&report.document());
    }
    console::text(&report.text())
}

fn failed(error: ReplayError) -> Failure {
    match error {
        ReplayError::Serve { .. } => Failure::usage(error),
        ReplayError::Destination { .. } | ReplayError::NoTimes | ReplayError::Lines { .. } => {
            Failure::Usage(error.to_string())
        }
        error => Failure::from_chain(&error),
    }
}

/// Due times of messages, also the match times of a synthetic session: a receiver that compares both measures
/// its own delay.
fn schedule(args: &ReplayArgs) -> SendSchedule {
    let rate = args.rate.unwrap_or(DEFAULT_RATE);
    let rate = match args.speed {
        Some(Speed::Times(times)) => ((rate as f64 * times) as u64).max(1),
        Some(Speed::Max) | None => rate,
    };
    SendSchedule::burst(args.burst, rate)
}

fn made_up(args: &ReplayArgs, schedule: SendSchedule) -> ReplaySource {
    let per_datagram = usize::from(args.per_datagram);
    if args.mold {
        let stocks = u16::try_from(args.symbols).unwrap_or(u16::MAX);
        let spec = MoldSpec { stocks, schedule, ..MoldSpec::new(args.seed) };
        return ReplaySource::Mold(Box::new(MoldSession::new(&spec)), per_datagram);
    }
    let spec = SyntheticSpec { symbols: args.symbols, schedule, ..SyntheticSpec::new(args.seed) };
    ReplaySource::Twse(Box::new(SyntheticSession::new(&spec)), per_datagram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_speeds_are_read_and_nonsense_is_refused() {
        assert_eq!((parse_share("10%"), parse_share("0.25")), (Ok(0.1), Ok(0.25)));
        for bad in ["", "%", "-1%", "101%", "1.5", "nan"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_speed("2.5"), Ok(Speed::Times(2.5)));
        assert_eq!(parse_speed("max"), Ok(Speed::Max));
        for bad in ["0", "-1", "inf", "nan", "fast"] {
            assert!(parse_speed(bad).is_err(), "{bad}");
        }
    }
}
