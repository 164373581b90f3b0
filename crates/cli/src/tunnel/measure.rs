//! `wirepath tunnel measure`.

use std::time::Duration;

use clap::Args;
use model::Arm;
use paths::tunnel::SWITCHES;
use paths::tunnel::measure::search::SearchSpec;
use paths::tunnel::measure::{self, MeasureSpec, SIZES_BYTES, SizeReport};

use crate::args::{Cli, parse_duration};
use crate::end::Failure;
use crate::{console, stop};

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Switches of path tunnel joined by +, `baseline` for none, or `kernel` for the kernel's
    /// forwarder with nothing in its way
    #[arg(short = 'f', long, value_name = "FORWARDER", default_value = "bypass+batch+prepend",
          value_parser = parse_forwarder)]
    forwarder: Arm,
    /// Frame sizes in bytes, the frame check sequence counted; those of RFC 2544 unless given
    #[arg(short = 's', long, value_delimiter = ',', default_values_t = SIZES_BYTES)]
    sizes: Vec<usize>,
    /// How long a trial sends
    #[arg(short = 't', long, default_value = "300ms", value_parser = parse_duration)]
    trial: Duration,
    /// Loss that the partial drop rate allows, percent
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = parse_percent)]
    pdr_loss: f64,
    /// The search ends when its bounds are so close, percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = parse_percent)]
    resolution: f64,
    /// Shares of the rate without loss at which delays are measured, percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [50.0, 90.0],
          value_parser = parse_percent)]
    latency: Vec<f64>,
    /// Trials that decide on a rate, by majority; odd
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = parse_odd)]
    trials: usize,
    /// How often a disturbed trial is repeated at one rate
    #[arg(long, value_name = "COUNT", default_value = "3")]
    repeats: usize,
}

fn parse_forwarder(text: &str) -> Result<Arm, String> {
    match text {
        "kernel" => return Ok(Arm::peer("kernel")),
        "baseline" => return Ok(Arm::baseline()),
        _ => {}
    }
    let ids: Vec<&str> = text.split('+').collect();
    let unknown = ids.iter().find(|id| !SWITCHES.iter().any(|switch| switch.id == **id));
    match unknown {
        Some(id) => Err(format!("{id:?} is no switch of tunnel; see wirepath paths")),
        None => Ok(Arm::of(ids)),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    let fits = percent > 0.0 && percent <= 100.0;
    fits.then_some(percent).ok_or_else(|| format!("{text} percent; give more than 0, up to 100"))
}

fn parse_odd(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    let fits = count % 2 == 1;
    fits.then_some(count).ok_or_else(|| format!("{count} has no majority; give an odd number"))
}

pub(crate) fn run(cli: &Cli, args: &MeasureArgs) -> Result<(), Failure> {
    let spec = MeasureSpec {
        arm: args.forwarder.clone(),
        sizes_bytes: args.sizes.clone(),
        trial: args.trial,
        partial_loss: args.pdr_loss / 100.0,
        latency_shares: args.latency.iter().map(|percent| percent / 100.0).collect(),
        search: SearchSpec {
            resolution: args.resolution / 100.0,
            trials: args.trials,
            repeats: args.repeats,
            ..SearchSpec::default()
        },
    };
    let mut told = |size: &SizeReport| {
        if console::is_watched() {
            console::say(&format!(
                "{} bytes: done in {} trials",
                size.size_bytes, size.books.trial_count
            ));
        }
    };
    let sizes = measure::measure(&spec, &stop::asked, &mut told)?;
    if sizes.is_empty() && stop::asked() {
        return Err(Failure::failed("ended before the first size was done"));
    }
    match cli.json {
        true => console::text(&measure::json(&spec, &sizes).to_string()),
        false => console::text(&measure::text(&spec, &sizes)),
    }
}
