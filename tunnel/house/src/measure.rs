//! `wirepath tunnel measure`.

use std::time::Duration;

use clap::Args;
use house::args::parse_duration;
use house::context::Context;
use house::{console, signals};
use model::{Arm, PathSwitch};
use remote::Failure;
use tunnel::Switch;
use tunnel::measure::search::SearchSpec;
use tunnel::measure::{self, MeasureSpec, SIZES_BYTES, SizeReport};

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Switches of path tunnel joined by +, `baseline` for none, or `kernel` or `kernel-gretap` for the kernel's
    /// forwarder without obstacles
    #[arg(short = 'f', long, value_name = "FORWARDER", default_value = "bypass+batch+prepend",
          value_parser = parse_forwarder)]
    forwarder: Arm,
    /// Frame sizes in bytes with the frame check sequence; default: those of RFC 2544
    #[arg(short = 's', long, value_delimiter = ',', default_values_t = SIZES_BYTES)]
    sizes: Vec<usize>,
    /// Duration of a trial
    #[arg(short = 't', long, default_value = "300ms", value_parser = parse_duration)]
    trial: Duration,
    /// Loss allowed at the partial drop rate, percent
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = parse_percent)]
    pdr_loss: f64,
    /// Stop searching when the upper bound is within this of the lower bound, percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = parse_percent)]
    resolution: f64,
    /// Shares of the rate without loss at which delays are measured, percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [50.0, 90.0],
          value_parser = parse_percent)]
    latency: Vec<f64>,
    /// Number of trials per rate, decided by majority; odd
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = parse_odd)]
    trials: usize,
    /// Maximum number of repetitions of a disturbed trial at one rate
    #[arg(long, value_name = "COUNT", default_value = "3")]
    repeats: usize,
}

fn parse_forwarder(text: &str) -> Result<Arm, String> {
    match text {
        "kernel" | "kernel-gretap" => return Ok(Arm::peer(text)),
        "baseline" => return Ok(Arm::baseline()),
        _ => {}
    }
    let switches = text.split('+').map(|id| {
        let found = Switch::ALL.iter().copied().find(|switch| switch.id() == id);
        let known = Switch::ALL.iter().map(|switch| switch.id());
        let hint = model::did_you_mean(id, known);
        found.ok_or_else(|| {
            format!("'{id}' is not a switch of tunnel{hint}`wirepath paths tunnel` lists them")
        })
    });
    Ok(Arm::with(switches.collect::<Result<Vec<_>, _>>()?))
}

fn not_a_number(text: &str) -> String {
    format!("{text:?} is not a valid number; give one such as 3")
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| not_a_number(text))?;
    let fits = percent > 0.0 && percent <= 100.0;
    fits.then_some(percent).ok_or_else(|| format!("{text} percent; give more than 0, up to 100"))
}

fn parse_odd(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| not_a_number(text))?;
    let fits = count % 2 == 1;
    fits.then_some(count).ok_or_else(|| format!("{count} has no majority; give an odd number"))
}

fn report_progress(size: &SizeReport) {
    if console::is_watched() {
        let (bytes, trials) = (size.size_bytes, size.books.trial_count);
        console::say(&format!("{bytes} bytes: done in {trials} trials"));
    }
}

pub(crate) fn run(context: &Context, args: &MeasureArgs) -> Result<(), Failure> {
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
    let sizes = measure::measure(&spec, &signals::stop_requested, &mut report_progress)?;
    if sizes.is_empty() && signals::stop_requested() {
        return Err(Failure::failed("ended before the first size was done"));
    }
    if context.json {
        console::text(&measure::json(&spec, &sizes).to_string())
    } else {
        console::text(&measure::text(&spec, &sizes))
    }
}
