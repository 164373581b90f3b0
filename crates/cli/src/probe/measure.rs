//! `wirepath probe measure`: latency against load.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use host::text::chain;
use house::args::{parse_bytes, parse_duration};
use house::context::Context;
use house::{console, signals};
use lab::describe_machine;
use model::{Arm, ArmCurve, ArmKind, ArmPlan, CurveEnd, CurvePlan, Load, LoadCurve, Machine};
use model::{Path, Support};
use probe::{Probe, RateSession};
use remote::Failure;
use runner::check_support;
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::far_args::FarEndArgs;
use crate::shared_args::{IpVersion, parse_vlan};

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Arms beside the baseline: ladder, alone, leave-one-out, or a list such as spin,spin+batch
    #[arg(long, default_value = "spin,spin+bypass", hide_possible_values = true)]
    arms: String,
    /// Lowest rate, datagrams per second; it doubles from there
    #[arg(long, value_name = "PPS", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    start: u64,
    /// UDP payload of each datagram in bytes
    #[arg(long, default_value = "64", value_parser = parse_bytes)]
    size: usize,
    /// Length of the schedule of one trial
    #[arg(long, default_value = "300ms", value_parser = parse_duration)]
    trial: Duration,
    /// Trials of an arm at one rate
    #[arg(long, value_name = "COUNT", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,
    /// IP version; default: 4, or that of the far end's address
    #[arg(long, value_name = "4|6", hide_possible_values = true)]
    ip: Option<IpVersion>,
    /// VLAN of the load and its priority: AF_XDP writes the tags, a VLAN device those of sockets
    #[arg(long, value_name = "ID[:PRIORITY]", value_parser = parse_vlan)]
    vlan: Option<u16>,
    /// Seed of the order of arms; default: random
    #[arg(long)]
    seed: Option<u64>,
    /// Write a self-contained HTML page with the curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    far: FarEndArgs,
}

/// Document of `probe measure --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MeasureDocument<'a> {
    schema: u32,
    command: &'static str,
    #[serde(flatten)]
    curve: &'a LoadCurve,
}

pub(crate) fn run(context: &Context, args: &MeasureArgs) -> Result<(), Failure> {
    let load = Load {
        kind: probe::ProbeLoad::Paced.to_string(),
        size_bytes: args.size,
        rate_pps: args.start,
        trial: args.trial,
        ipv6: IpVersion::is_v6(args.ip),
        vlan_tag: args.vlan,
        wire: None,
        far: args.far.read()?,
    };
    let now = OffsetDateTime::now_utc();
    let plan = CurvePlan {
        arms: arms(&args.arms, &load)?,
        start_pps: args.start,
        trial: args.trial,
        trials: args.trials,
        seed: args.seed.unwrap_or(now.unix_timestamp_nanos() as u64),
    };
    let _lock = runner::lock()?;
    let mut session = RateSession::open(&load)?;
    let machine =
        Machine { far: session.far_machine().map(Box::new), ..describe_machine(session.nic()) };
    let measured = measure(&plan, &mut session);
    let curve = LoadCurve {
        started: now.format(&Rfc3339).map_err(Failure::usage)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        size_bytes: args.size,
        trial_ms: args.trial.as_millis() as u64,
        trials: args.trials,
        seed: plan.seed,
        arms: measured,
    };
    has_points(&curve.arms)?;
    if let Some(file) = &args.html {
        console::write_file(file, report::html::curve_page(&curve))?;
    }
    if context.json {
        let schema = house::context::DOCUMENT;
        return console::json(&MeasureDocument { schema, command: "probe measure", curve: &curve });
    }
    console::text(&report::text::curve(&curve, console::style()))
}

/// The baseline and the arms asked for, without the A/A control: no verdict is given.
fn arms(text: &str, load: &Load) -> Result<Vec<(Arm, Support)>, Failure> {
    let switches = model::ids(Probe.switches());
    let plan = ArmPlan::parse(text, &switches)
        .map_err(|error| Failure::Usage(error.message_for("probe")))?;
    let mut arms = model::arms(&plan, &switches, &[], &mut |arm| Probe.support(arm, load));
    arms.retain(|(arm, _)| arm.kind != ArmKind::Control);
    if let Some((_, support)) = arms.first() {
        check_support(support)?;
    }
    Ok(arms)
}

fn measure(plan: &CurvePlan, session: &mut RateSession) -> Vec<ArmCurve> {
    model::load_curve(
        plan,
        &mut |arm, rate_pps| {
            let count = plan.offered_count(rate_pps);
            session.trial(arm, rate_pps, count).map_err(|error| chain(&error))
        },
        &signals::stop_requested,
        &mut |arm, point| {
            if console::is_watched() {
                console::say(&format!("{arm}: {} datagrams/s done", point.offered_pps));
            }
        },
    )
}

/// Errors: no arm has a point.
fn has_points(curves: &[ArmCurve]) -> Result<(), Failure> {
    if curves.iter().any(|curve| !curve.points.is_empty()) {
        return Ok(());
    }
    let failure = curves.iter().find_map(|curve| match &curve.end {
        CurveEnd::Failed(why) => Some(why.as_str()),
        _ => None,
    });
    Err(Failure::failed(failure.unwrap_or("interrupted before all arms were measured at one rate")))
}
