//! `wirepath feed replay`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use paths::feed::capture::Reader;
use paths::feed::replay::{Faults, Pace, Plan, Replay, ReplayError, Source};
use paths::feed::schedule::Schedule;
use paths::feed::synthetic::{MoldSession, MoldSpec, Session, Spec};

use super::groups::interface_named;
use crate::args::{Cli, parse_duration};
use crate::end::Failure;
use crate::{console, rights, stop};

/// Messages a second of a made-up session.
const RATE: u64 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// pcap, pcapng or a file of telegrams
    #[arg(required_unless_present = "synthetic", conflicts_with = "synthetic")]
    file: Option<PathBuf>,
    /// A made-up session of the Taiwan exchanges
    #[arg(long)]
    synthetic: bool,
    /// ITCH 5.0 in MoldUDP64 instead
    #[arg(long, requires = "synthetic")]
    mold: bool,
    /// Everything random in the session comes from it
    #[arg(long, default_value_t = 1, requires = "synthetic")]
    seed: u64,
    /// Instruments of the session
    #[arg(long, default_value_t = 3000, requires = "synthetic",
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    symbols: u32,
    /// Messages in a datagram, as far as they fit a frame
    #[arg(long, default_value_t = 1, requires = "synthetic",
          value_parser = clap::value_parser!(u16).range(1..=100))]
    per_datagram: u16,
    /// Messages a second, instead of the capture's own times; 10000 of a made-up session
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "speed")]
    rate: Option<u64>,
    /// Messages that are due at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    burst: u64,
    /// How many times as fast as captured, or `max`: as fast as possible
    #[arg(long, value_name = "N|max", value_parser = parse_speed)]
    speed: Option<Speed>,
    /// Group (or an address on the interface's own network) and port; line A of a pair
    #[arg(long, value_name = "GROUP:PORT")]
    to: SocketAddrV4,
    /// The same for line B, which carries the same
    #[arg(long, value_name = "GROUP:PORT")]
    to_b: Option<SocketAddrV4>,
    /// Replay only the capture's datagrams to this destination
    #[arg(long, value_name = "GROUP:PORT", conflicts_with = "synthetic")]
    from: Option<SocketAddrV4>,
    /// The capture's own line B, to be sent to --to-b
    #[arg(long, value_name = "GROUP:PORT", requires_all = ["from", "to_b"])]
    from_b: Option<SocketAddrV4>,
    /// Interface to send through
    #[arg(short = 'i', long, value_name = "IF")]
    interface: String,
    /// Routers that datagrams to groups may pass, plus one
    #[arg(long, default_value_t = 1)]
    ttl: u8,
    /// Write intended and actual send times of every datagram (CSV)
    #[arg(long, value_name = "FILE")]
    stamps: Option<PathBuf>,
    /// Session time to send
    #[arg(short = 'd', long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Datagrams to send
    #[arg(short = 'c', long)]
    count: Option<u64>,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Share of line A's datagrams to leave out: 10% or 0.1
    #[arg(long, default_value = "0", value_parser = parse_share)]
    drop_a: f64,
    /// Share of line B's datagrams to leave out
    #[arg(long, default_value = "0", value_parser = parse_share)]
    drop_b: f64,
    /// Share to send twice, on each line
    #[arg(long, default_value = "0", value_parser = parse_share)]
    duplicate: f64,
    /// Share to send behind the next, on each line
    #[arg(long, default_value = "0", value_parser = parse_share)]
    reorder: f64,
    /// Everything random in the faults comes from it
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
    let share: f64 =
        number.trim().parse().map_err(|_| format!("{text:?} is no share; try 10% or 0.1"))?;
    let share = share * scale;
    if !(0.0..=1.0).contains(&share) {
        return Err("give 0% to 100%".into());
    }
    Ok(share)
}

pub(crate) fn run(cli: &Cli, args: &ReplayArgs) -> Result<(), Failure> {
    let link = interface_named(&args.interface)?;
    let rate = args.rate.unwrap_or(RATE);
    let source = match &args.file {
        Some(file) => Source::File(Box::new(Reader::open(file).map_err(|e| Failure::of(&e))?)),
        None => made_up(args, rate),
    };
    let pace = match (args.speed, args.rate, &args.file) {
        (Some(Speed::Max), ..) => Pace::Max,
        (Some(Speed::Times(times)), _, Some(_)) => Pace::Own(times),
        (Some(Speed::Times(times)), _, None) => {
            Pace::Rate(Schedule::burst(args.burst, ((rate as f64 * times) as u64).max(1)))
        }
        (None, None, Some(_)) => Pace::Own(1.0),
        (None, ..) => Pace::Rate(Schedule::burst(args.burst, rate)),
    };
    let plan = Plan {
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
        duration: args.duration,
        count: args.count,
        pin: args.pin,
        stamps: args.stamps.clone(),
    };
    let failed = |error: ReplayError| match error {
        ReplayError::Destination { .. } | ReplayError::NoTimes | ReplayError::Lines { .. } => {
            Failure::Usage(error.to_string())
        }
        error => Failure::of(&error),
    };
    let replay = Replay::open(plan, source).map_err(failed)?;
    rights::give_up().map_err(Failure::failed)?;
    let report = replay.run(stop::flag_ref()).map_err(failed)?;
    if cli.json {
        return console::text(&format!("{:#}", report.json()));
    }
    console::text(&report.text())
}

fn made_up(args: &ReplayArgs, rate: u64) -> Source {
    let per_datagram = usize::from(args.per_datagram);
    if args.mold {
        let stocks = u16::try_from(args.symbols).unwrap_or(u16::MAX);
        let spec = MoldSpec { stocks, rate, ..MoldSpec::new(args.seed) };
        return Source::Mold(Box::new(MoldSession::new(&spec)), per_datagram);
    }
    let spec = Spec { symbols: args.symbols, rate, ..Spec::new(args.seed) };
    Source::Twse(Box::new(Session::new(&spec)), per_datagram)
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
