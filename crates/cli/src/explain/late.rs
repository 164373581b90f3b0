//! `wirepath explain --late`: what holds up a thread that wants to run, by cause.

use std::time::Duration;

use clap::Args;
use host::exclusive::{Activity, ExclusiveLock};
use host::interruptions::{
    Cause, CauseKind, InterruptionMeter, MeterError, RING_BYTES, Tallies, Tally, Trace, TraceError,
    watch_thread,
};
use house::args::parse_duration;
use house::context::{Context, DOCUMENT};
use house::next::{self, CommandLine};
use house::{console, privileges, signals};
use remote::Failure;
use report::screen::{Cell, Screen};
use schemars::JsonSchema;
use serde::Serialize;

use super::{DEFAULT_DURATION, ExplainArgs, open_netns};
use crate::process;

const OTHERS: [&str; 9] = [
    "interfaces",
    "duty",
    "timed_one_in",
    "samples",
    "functions",
    "live",
    "listen",
    "diff",
    "perfetto",
];

/// Causes that are printed.
const ROWS_MAX: usize = 12;

#[derive(Debug, Args)]
pub(super) struct LateArgs {
    /// Show what holds up the busiest thread of --pid, --port, --cgroup or --container, or one that never sleeps on --cpu
    #[arg(long, help_heading = "What", conflicts_with_all = OTHERS)]
    pub(super) late: bool,
    /// CPU to watch with --late: the one that a program will have
    #[arg(long, help_heading = "What", value_name = "N", requires = "late", conflicts_with_all = ["ServiceArgs", "netns"])]
    cpu: Option<usize>,
    /// Shortest interruption that counts with --late
    #[arg(long, help_heading = "What", value_name = "TIME", requires = "late", default_value = "1us", value_parser = parse_duration)]
    over: Duration,
}

/// Document of `explain --late --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LateDocument {
    schema: u32,
    command: &'static str,
    /// Thread, or CPU, that was watched.
    about: String,
    /// `None` of a CPU.
    thread: Option<u32>,
    over_ns: u64,
    watched_ns: u64,
    /// Interruptions of `over_ns` or more.
    count: u64,
    sum_ns: u64,
    max_ns: u64,
    /// Those that took most time first.
    causes: Vec<LateRow>,
    /// Remedy of the first cause.
    remedy: Option<String>,
    /// Taken from all CPUs by the hypervisor meanwhile, in steps of 10 ms; `None` of a CPU, which has it among its causes.
    stolen_ns: Option<u64>,
    /// Kernel events that came too fast to be traced.
    lost_count: u64,
    /// Reason why all causes are unknown.
    untraced: Option<String>,
}

/// Interruptions of one cause.
#[derive(Debug, Serialize, JsonSchema)]
struct LateRow {
    cause: CauseKind,
    /// Interrupt, softirq or task; empty if it has none.
    detail: String,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

pub(super) fn run(context: &Context, args: &ExplainArgs) -> Result<(), Failure> {
    let process = if args.late.cpu.is_some() { None } else { Some(process_of(args)?) };
    let _alone = ExclusiveLock::acquire(Activity::Tracing)
        .map_err(|conflict| Failure::failed(conflict.to_string()))?;
    let document = match (process, args.late.cpu) {
        (Some(pid), _) => of_process(args, pid)?,
        (None, cpu) => of_cpu(args, cpu.unwrap_or_default())?,
    };
    if context.json {
        return console::json(&document);
    }
    console::text(&text(&document))?;
    if let Some(pid) = process {
        next::say(context, &CommandLine::new("doctor").option("--pid", Some(&pid.to_string())));
    }
    Ok(())
}

fn process_of(args: &ExplainArgs) -> Result<u32, Failure> {
    let missing =
        "--late needs a program (--pid, --port, --cgroup or --container) or a CPU (--cpu)";
    match (args.service.pid, args.service.port, args.netns.as_slice()) {
        (Some(pid), ..) => Ok(pid),
        (_, Some(port), []) => process::of_port(None, port),
        (_, Some(port), [name]) => process::of_port(Some(&open_netns(name)?), port),
        (_, Some(_), _) => {
            Err(Failure::Usage("give one --netns: a port has one owner there".into()))
        }
        (None, None, _) => {
            let service = args.service.service()?;
            let service = service.ok_or_else(|| Failure::Usage(missing.into()))?;
            service.member().map_err(Failure::usage)?.ok_or_else(|| Failure::Usage(missing.into()))
        }
    }
}

fn of_process(args: &ExplainArgs, pid: u32) -> Result<LateDocument, Failure> {
    let (thread, title) = host::program::busiest_thread(pid).map_err(process::failure)?;
    console::say(&format!("watching {title}"));
    let time = args.time.unwrap_or(DEFAULT_DURATION);
    let held = watch_thread(thread, time, args.late.over, signals::stop_flag());
    let held = held.map_err(|why| match why {
        TraceError::NoThread { .. } => {
            Failure::failed(format!("{title} ended before it was watched"))
        }
        why => Failure::from_chain(&why),
    })?;
    for missing in &held.missing {
        console::say(&format!("not traced: {missing}"));
    }
    let document = LateDocument::new(args, title, Some(thread), held.watched_ns, &held.causes);
    Ok(LateDocument { stolen_ns: Some(held.stolen_ns), lost_count: held.lost_count, ..document })
}

fn of_cpu(args: &ExplainArgs, cpu: usize) -> Result<LateDocument, Failure> {
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
    let meter = InterruptionMeter { cpu, over: args.late.over };
    let time = args.time.unwrap_or(DEFAULT_DURATION);
    let noise = meter.watch(time, trace.as_ref(), signals::stop_flag(), || {});
    let noise = noise.map_err(|why| match why {
        MeterError::Pin { .. } => Failure::usage(why),
        why => Failure::from_chain(&why),
    })?;
    let document =
        LateDocument::new(args, format!("CPU {cpu}"), None, noise.watched_ns, &noise.gaps);
    Ok(LateDocument { lost_count: noise.lost_count, untraced, ..document })
}

impl LateDocument {
    fn new(
        args: &ExplainArgs,
        about: String,
        thread: Option<u32>,
        watched_ns: u64,
        tallies: &Tallies,
    ) -> LateDocument {
        let all = tallies.total();
        let mut rows = tallies.rows();
        rows.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.sum_ns));
        LateDocument {
            schema: DOCUMENT,
            command: "explain",
            about,
            thread,
            over_ns: args.late.over.as_nanos() as u64,
            watched_ns,
            count: all.count,
            sum_ns: all.sum_ns,
            max_ns: all.max_ns,
            remedy: rows.first().and_then(|(cause, _)| remedy(cause, thread)),
            causes: rows.into_iter().map(LateRow::new).collect(),
            stolen_ns: None,
            lost_count: 0,
            untraced: None,
        }
    }

    /// A count or time of the whole as one of a second.
    fn per_second(&self, value: u64) -> f64 {
        value as f64 * 1e9 / self.watched_ns.max(1) as f64
    }
}

impl LateRow {
    fn new((cause, tally): (&Cause, Tally)) -> Self {
        LateRow {
            cause: cause.kind,
            detail: cause.detail.clone(),
            count: tally.count,
            sum_ns: tally.sum_ns,
            max_ns: tally.max_ns,
        }
    }

    /// `another task (ksoftirqd/1)`.
    fn title(&self) -> String {
        let kind = match self.cause {
            CauseKind::Interrupt => "interrupt",
            CauseKind::Softirq => "softirq",
            CauseKind::Preemption => "another task",
            CauseKind::Throttling => "quota of the control group",
            CauseKind::Steal => "hypervisor",
            CauseKind::PageFault => "page faults",
            CauseKind::WakeUp => "late wake-up of an idle CPU",
            CauseKind::Queue => "earlier work",
            CauseKind::Unknown => "unknown",
        };
        if self.detail.is_empty() { kind.to_owned() } else { format!("{kind} ({})", self.detail) }
    }
}

/// Remedy of a cause, with its undo where that is a command; `None` if there is none.
fn remedy(cause: &Cause, thread: Option<u32>) -> Option<String> {
    let thread = thread.map_or("TID".to_owned(), |id| id.to_string());
    Some(match (cause.kind, cause.detail.as_str()) {
        (CauseKind::Interrupt, "rps_trigger_softirq") => {
            "RPS steers packets to this CPU: leave it out of rps_cpus of the interface's queues".into()
        }
        (CauseKind::Interrupt, "timer" | "reschedule" | "irq work" | "function call") => {
            "a CPU of its own: boot with isolcpus=CPU nohz_full=CPU, and pin the program to it".into()
        }
        (CauseKind::Interrupt, name) => format!(
            "move the interrupt {name} to another CPU: its line in /proc/interrupts has the number N, and the CPUs \
             go to /proc/irq/N/smp_affinity_list (undo: the earlier list)"
        ),
        (CauseKind::Softirq, "NET_RX" | "NET_TX") => {
            "packets are handled on this CPU: move the card's interrupts (/proc/irq/N/smp_affinity_list) and \
             rps_cpus to another one"
                .into()
        }
        (CauseKind::Softirq, _) => "a CPU of its own: isolcpus=CPU rcu_nocbs=CPU, and pin the program to it".into(),
        (CauseKind::Preemption, name) if name.starts_with("ksoftirqd/") => {
            "more packets than one round of the softirq on this CPU: move the card's interrupts or rps_cpus to \
             another one, or pin the program elsewhere (taskset)"
                .into()
        }
        (CauseKind::Preemption, _) => format!(
            "chrt -f -p 50 {thread} (undo: chrt -o -p 0 {thread}), or pin the other task elsewhere (taskset)"
        ),
        (CauseKind::Throttling, _) => {
            "a larger quota of its control group: cpu.max, or cpu.cfs_quota_us (`wirepath doctor --pid` names the \
             group); undo: the earlier one"
                .into()
        }
        (CauseKind::PageFault, _) => {
            "the program touches its memory before the work begins and locks it (mlockall(2))".into()
        }
        (CauseKind::WakeUp, _) => {
            "keep CPUs out of deep idle states: a process that holds /dev/cpu_dma_latency open with 0, or the \
             program polls"
                .into()
        }
        (CauseKind::Steal, _) => "a virtual CPU of its own on the hypervisor".into(),
        (CauseKind::Queue | CauseKind::Unknown, _) => return None,
    })
}

fn text(document: &LateDocument) -> String {
    let mut screen = Screen::plain();
    let (about, over) = (&document.about, time(document.over_ns as f64));
    let watched_s = document.watched_ns as f64 / 1e9;
    let longest = document.causes.iter().max_by_key(|row| row.max_ns);
    match longest {
        None => screen.line(format!("{about}: not held up for {over} or more in {watched_s:.1} s")),
        Some(row) => screen.line(format!(
            "{about}: interrupted {:.0} times a second for {over} or more, {:.2} % of the time, longest {}: {}",
            document.per_second(document.count),
            document.per_second(document.sum_ns) / 1e7,
            time(document.max_ns as f64),
            row.title()
        )),
    }
    if !document.causes.is_empty() {
        screen.blank();
        let rows = document.causes.iter().take(ROWS_MAX).map(|row| {
            let count = format!("{:.1}", document.per_second(row.count));
            let sum = time(document.per_second(row.sum_ns));
            [row.title(), count, sum, time(row.max_ns as f64)].map(Cell::plain).into()
        });
        screen.table(&["cause", ">times a second", ">time a second", ">longest"], rows);
        if let Some(rest @ [_, ..]) = document.causes.get(ROWS_MAX..) {
            let sum_ns = rest.iter().map(|row| row.sum_ns).sum();
            let sum = time(document.per_second(sum_ns));
            screen.line(format!("{} more causes took {sum} a second (--json has all)", rest.len()));
        }
    }
    if let Some((row, remedy)) = document.causes.first().zip(document.remedy.as_ref()) {
        screen.blank();
        screen.entry("remedy for ", format!("{}: {remedy}", row.title()));
    }
    if let Some(stolen_ns) = document.stolen_ns.filter(|ns| *ns > 0) {
        screen.blank();
        let stolen = time(document.per_second(stolen_ns));
        screen
            .line(format!("the hypervisor took {stolen} a second of all CPUs, in steps of 10 ms"));
    }
    if document.lost_count > 0 {
        screen.blank();
        let lost = document.lost_count;
        screen.line(format!("{lost} kernel events came too fast to be traced"));
    }
    screen.finish()
}

fn time(ns: f64) -> String {
    report::units::value(ns, "ns")
}
