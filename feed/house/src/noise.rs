//! `wirepath feed noise`: the time that a CPU takes from a thread, by cause.

use std::time::Duration;

use clap::Args;
use host::exclusive::{Activity, ExclusiveLock};
use host::interruptions::{
    Cause, CauseKind, InterruptionMeter, MeterError, Noise, RING_BYTES, Tally, Trace, TraceError,
};
use house::args::parse_duration;
use house::context::Context;
use house::{console, privileges, signals};
use remote::Failure;
use report::screen::{Cell, Screen};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct NoiseArgs {
    /// CPU to watch: the one that the receiver will have
    #[arg(long)]
    cpu: usize,
    /// Time to watch
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    time: Duration,
    /// Shortest interruption that counts
    #[arg(long, default_value = "1us", value_parser = parse_duration)]
    over: Duration,
}

/// Document of `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NoiseDocument {
    command: &'static str,
    cpu: usize,
    over_ns: u64,
    watched_ns: u64,
    /// Interruptions longer than `over_ns`.
    count: u64,
    sum_ns: u64,
    max_ns: u64,
    /// Most frequent first.
    causes: Vec<NoiseRow>,
    /// Kernel events that came too fast to be traced.
    lost_count: u64,
    /// Reason why all causes are unknown.
    untraced: Option<String>,
}

/// Interruptions of one cause.
#[derive(Debug, Serialize, JsonSchema)]
struct NoiseRow {
    cause: CauseKind,
    /// Interrupt, softirq or task; empty if it has none.
    detail: String,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

pub(crate) fn run(context: &Context, args: &NoiseArgs) -> Result<(), Failure> {
    let _alone = ExclusiveLock::acquire(Activity::Tracing)
        .map_err(|conflict| Failure::failed(conflict.to_string()))?;
    let (trace, untraced) = match Trace::open(RING_BYTES) {
        Ok(trace) => (Some(trace), None),
        Err(TraceError::Bpf(why)) => (None, Some(host::text::chain(&why))),
        Err(why) => return Err(Failure::from_chain(&why)),
    };
    if let Some(why) = &untraced {
        console::say(&format!("causes are unknown: {why}"));
    }
    for missing in trace.iter().flat_map(Trace::missing) {
        console::say(&format!("not traced: {missing}"));
    }
    privileges::drop_all().map_err(Failure::failed)?;
    let meter = InterruptionMeter { cpu: args.cpu, over: args.over };
    let noise = meter.watch(args.time, trace.as_ref(), signals::stop_flag(), || {});
    let noise = noise.map_err(|why| match why {
        MeterError::Pin { .. } => Failure::usage(why),
        why => Failure::from_chain(&why),
    })?;
    let document = document(args, &noise, untraced);
    if context.json { console::json(&document) } else { console::text(&text(&document)) }
}

impl NoiseRow {
    fn new((cause, tally): (&Cause, Tally)) -> Self {
        NoiseRow {
            cause: cause.kind,
            detail: cause.detail.clone(),
            count: tally.count,
            sum_ns: tally.sum_ns,
            max_ns: tally.max_ns,
        }
    }
}

fn document(args: &NoiseArgs, noise: &Noise, untraced: Option<String>) -> NoiseDocument {
    let all = noise.gaps.total();
    NoiseDocument {
        command: "feed noise",
        cpu: args.cpu,
        over_ns: args.over.as_nanos() as u64,
        watched_ns: noise.watched_ns,
        count: all.count,
        sum_ns: all.sum_ns,
        max_ns: all.max_ns,
        causes: noise.gaps.rows().into_iter().map(NoiseRow::new).collect(),
        lost_count: noise.lost_count,
        untraced,
    }
}

fn text(document: &NoiseDocument) -> String {
    let mut screen = Screen::plain();
    let watched_s = document.watched_ns as f64 / 1e9;
    let share = document.sum_ns as f64 / document.watched_ns.max(1) as f64 * 100.0;
    screen.line(format!(
        "CPU {}: {} interruptions of {} or more in {watched_s:.1} s, {share:.2} % of the time, longest {}",
        document.cpu,
        document.count,
        time(document.over_ns),
        time(document.max_ns)
    ));
    if !document.causes.is_empty() {
        screen.blank();
        let rows = document.causes.iter().map(|row| {
            let name = match row.detail.as_str() {
                "" => row.cause.name().to_owned(),
                detail => format!("{} ({detail})", row.cause.name()),
            };
            [name, row.count.to_string(), time(row.sum_ns), time(row.max_ns)]
                .map(Cell::plain)
                .into()
        });
        screen.table(&["cause", ">count", ">sum", ">longest"], rows);
    }
    if document.lost_count > 0 {
        screen.blank();
        let lost = document.lost_count;
        screen.line(format!("{lost} kernel events came too fast to be traced"));
    }
    screen.finish()
}

fn time(ns: u64) -> String {
    report::units::value(ns as f64, "ns")
}
