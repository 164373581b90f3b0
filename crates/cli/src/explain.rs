//! `wirepath explain`: where packets spend time on a live path, and where they are dropped.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use host::exclusive::{Activity, ExclusiveLock};
use host::explain::{
    DropRow, FunctionRow, Observer, PlaceRow, Scope, Service, Spec, StageRow, Summary,
};
use host::net::LinkWatch;
use host::netns::Netns;
use host::tune::Place;
use schemars::JsonSchema;
use serde::Serialize;
use sys::capability::Capability;

use crate::context::Context;
use crate::exit::Failure;
use crate::shared_args::parse_duration;
use crate::{console, privileges, signals};

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Interface at which packets are first seen; may be repeated; default: any
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Vec<String>,
    /// Network namespace: a name of `ip netns`, a process id or a path; may be repeated. Default: the
    /// current one with --interface, else all
    #[arg(long, value_name = "NETNS")]
    netns: Vec<String>,
    #[command(flatten)]
    service: ServiceArgs,
    /// Duration
    #[arg(short = 'd', long, default_value = "5s", value_parser = parse_duration)]
    duration: Duration,
    /// Share of each second in which packets are traced, in per cent
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    duty: u8,
    /// Time one packet in N; all are counted
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    timed_one_in: u32,
    /// Samples of each CPU per second; 0 for none
    #[arg(long, default_value_t = 997, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    samples: u32,
    /// Number of kernel functions to list
    #[arg(long, default_value_t = 12)]
    functions: usize,
    /// Print the tables after each second
    #[arg(long)]
    live: bool,
}

/// One service, whose packets alone are traced.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct ServiceArgs {
    /// Only packets to sockets with this local port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only packets to the sockets of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only packets to sockets that this control group's processes created
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Only packets to the sockets of this container: 12 or more digits of its id
    #[arg(long, value_name = "ID")]
    container: Option<String>,
}

impl ServiceArgs {
    fn is_given(&self) -> bool {
        let by_process = self.port.is_some() || self.pid.is_some();
        by_process || self.cgroup.is_some() || self.container.is_some()
    }

    fn service(&self) -> Result<Option<Service>, Failure> {
        let service = match (self.port, self.pid, &self.cgroup, &self.container) {
            (Some(port), ..) => Ok(Service::Port(port)),
            (_, Some(pid), ..) => Service::process(pid),
            (_, _, Some(path), _) => Service::cgroup(path),
            (.., Some(id)) => Service::container(id),
            _ => return Ok(None),
        };
        service.map(Some).map_err(Failure::usage)
    }
}

pub(crate) fn run(context: &Context, args: &ExplainArgs) -> Result<(), Failure> {
    if args.live && context.json {
        return Err(Failure::Usage("--live prints tables; remove --json".into()));
    }
    let service = args.service.service()?;
    let (scopes, mut links) = scopes(args, service.as_ref())?;
    let mut kept = vec![Capability::Bpf, Capability::Perfmon, Capability::SysAdmin];
    if matches!(service, Some(Service::Process(_))) {
        // Its new sockets are looked up in each period.
        kept.extend([Capability::SysPtrace, Capability::DacReadSearch]);
    }
    let spec = Spec {
        scopes,
        service,
        duty: f64::from(args.duty) / 100.0,
        timed_one_in: args.timed_one_in,
        samples_per_second: args.samples,
    };
    let _lock = ExclusiveLock::acquire(Activity::Tracing)
        .map_err(|conflict| Failure::failed(conflict.to_string()))?;
    let mut observer = Observer::new(&spec)?;
    observer.start()?;
    // Programs are attached again in each period, and the kernel counts their CPU time.
    privileges::keep_only(&kept).map_err(Failure::failed)?;
    console::say(&format!("tracing packets for {:.1} s", args.duration.as_secs_f64()));
    let begun = Instant::now();
    let mut nothing_left = Ok(());
    loop {
        let left = args.duration.saturating_sub(begun.elapsed());
        if left.is_zero() || signals::stop_requested() {
            break;
        }
        observer.period(left, signals::stop_requested)?;
        let mut gone = Vec::new();
        links.retain_mut(|link| match link.gone() {
            Some(name) => {
                gone.push(format!("interface {name} no longer exists"));
                false
            }
            None => true,
        });
        if links.is_empty() && !args.interface.is_empty() {
            nothing_left = Err(Failure::failed(gone.join("; ")));
            break;
        }
        gone.iter().for_each(|what| console::say(what));
        if args.live {
            let summary = observer.summary()?;
            console::screen(&text(&summary, args))?;
        }
    }
    let summary = observer.summary()?;
    drop(observer);
    match (context.json, args.live) {
        (true, _) => console::json(&Document::from(summary))?,
        (false, true) => {}
        (false, false) => console::text(&text(&summary, args))?,
    }
    nothing_left
}

/// Each named interface in each named namespace, with a watch for its removal.
///
/// A service is in the namespaces that are named, else in that of its process.
fn scopes(
    args: &ExplainArgs,
    service: Option<&Service>,
) -> Result<(Vec<Scope>, Vec<LinkWatch>), Failure> {
    let mut names = args.netns.clone();
    if let (true, Some(service)) = (names.is_empty(), service) {
        names.extend(service.member().map_err(Failure::usage)?.map(|pid| pid.to_string()));
    }
    let mut spaces = Vec::new();
    for name in &names {
        spaces.push((name.as_str(), open_netns(name)?));
    }
    if spaces.is_empty() {
        if args.interface.is_empty() && service.is_none() {
            return Ok((Vec::new(), Vec::new()));
        }
        spaces.push(("this namespace", Netns::current()?));
    }
    let (mut scopes, mut links) = (Vec::new(), Vec::new());
    for (name, space) in &spaces {
        let inode = space.inode()?;
        let netns = u32::try_from(inode).map_err(|_| {
            Failure::failed(format!("{name}: inode number {inode} is too large for a namespace"))
        })?;
        if args.interface.is_empty() {
            scopes.push(Scope { netns, ifindex: 0 });
        }
        for interface in &args.interface {
            let open = || {
                let link = host::net::link_named(interface)?;
                Ok((LinkWatch::new(link.index)?, link))
            };
            // The current namespace is not entered: that would require CAP_SYS_ADMIN.
            let opened = match names.is_empty() {
                true => open(),
                false => space.run(open)?,
            };
            let (watch, link) = opened.map_err(|e| match e {
                host::net::NetError::NoInterface { .. } => Failure::Usage(format!(
                    "no interface {interface} in {name}; `ip link` lists its interfaces"
                )),
                other => Failure::from_chain(&other),
            })?;
            scopes.push(Scope { netns, ifindex: link.index });
            links.push(watch);
        }
    }
    Ok((scopes, links))
}

fn open_netns(name: &str) -> Result<Netns, Failure> {
    let place = Place { netns: Some(name.to_owned()), root: None };
    Netns::open(place.netns_file()).map_err(|error| {
        Failure::Usage(format!(
            "no network namespace {name}: {}; give a name of `ip netns`, a process id or a path",
            Failure::from_chain(&error).text()
        ))
    })
}

/// A time with its unit.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

fn text(summary: &Summary, args: &ExplainArgs) -> String {
    let mut out = String::new();
    let seconds = summary.followed.as_secs_f64();
    let is_service = args.service.is_given();
    let of = if is_service { " of the service" } else { "" };
    let _ = writeln!(
        out,
        "{} packets{of} traced in {seconds:.2} s ({} % of the time), one in {} timed\n",
        summary.packets_count, args.duty, args.timed_one_in
    );
    if !summary.stages.is_empty() {
        let _ =
            writeln!(out, "{:<40}{:>9}{:>9}{:>9}{:>9}", "stage", "packets", "p50", "p99", "max");
        for StageRow { name, count, timed_count, p50_ns, p99_ns, max_ns, .. } in &summary.stages {
            let of_timed = |ns: f64| if *timed_count > 0 { time(ns) } else { "-".to_owned() };
            let [p50, p99, max] = [*p50_ns, *p99_ns, *max_ns as f64].map(of_timed);
            let _ = writeln!(out, "{name:<40}{count:>9}{p50:>9}{p99:>9}{max:>9}");
        }
    }
    let _ = writeln!(out, "\n{:<30}{:<36}{:>10}", "drop reason", "by", "packets");
    for row in &summary.drops {
        let _ = writeln!(out, "{:<30}{:<36}{:>10}", row.reason, row.function, row.count);
    }
    if summary.drops.is_empty() {
        out.push_str("nothing\n");
    }
    if !summary.places.is_empty() {
        let _ = writeln!(out, "\n{:<60}{:>16}", "CPUs were", "of the time");
        for row in &summary.places {
            let _ = writeln!(out, "{:<60}{:>14.1} %", row.name, row.share * 100.0);
        }
        let _ = writeln!(out, "\n{:<60}{:>16}", "busy in function", "of busy time");
        for row in summary.functions.iter().take(args.functions) {
            let _ = writeln!(out, "{:<60}{:>14.1} %", row.name, row.share * 100.0);
        }
    }
    out.push('\n');
    match summary.cost.ns_per_packet() {
        Some(ns) => {
            let _ = writeln!(
                out,
                "Tracing took {ns:.0} ns of CPU time per packet ({:.1} program runs, without their entry \
                 and\nexit; mean of {} packets).",
                summary.cost.runs_count as f64 / summary.cost.packets_count as f64,
                summary.cost.packets_count
            );
        }
        None => out.push_str("The cost of tracing a packet was not counted.\n"),
    }
    if summary.read_unseen_count > 0 {
        let _ = writeln!(
            out,
            "{} datagrams that were read had arrived before tracing began.",
            summary.read_unseen_count
        );
    }
    if is_service && summary.unread_count > 0 {
        let _ = writeln!(
            out,
            "{} datagrams wait in the sockets: they were not read while packets were traced.",
            summary.unread_count
        );
    }
    if summary.evicted_count > 0 {
        let why = match is_service {
            true => "their way to the socket was not seen",
            false => "the table of packets in flight was full",
        };
        let _ =
            writeln!(out, "{} packets were not traced to their end: {why}.", summary.evicted_count);
    }
    for what in &summary.missing {
        let _ = writeln!(out, "not available here: {what}");
    }
    out
}

/// Document of `explain --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    schema: u32,
    command: &'static str,
    followed_ns: u64,
    packets_count: u64,
    read_unseen_count: u64,
    evicted_count: u64,
    unread_count: u64,
    stages: Vec<StageRow>,
    drops: Vec<DropRow>,
    places: Vec<PlaceRow>,
    functions: Vec<FunctionRow>,
    cost: CostDocument,
    missing: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct CostDocument {
    ns: u64,
    runs_count: u64,
    packets_count: u64,
    ns_per_packet: Option<f64>,
}

impl From<Summary> for Document {
    fn from(summary: Summary) -> Document {
        let cost = summary.cost;
        Document {
            schema: crate::context::DOCUMENT,
            command: "explain",
            followed_ns: summary.followed.as_nanos() as u64,
            packets_count: summary.packets_count,
            read_unseen_count: summary.read_unseen_count,
            evicted_count: summary.evicted_count,
            unread_count: summary.unread_count,
            stages: summary.stages,
            drops: summary.drops,
            places: summary.places,
            functions: summary.functions,
            cost: CostDocument {
                ns: cost.ns,
                runs_count: cost.runs_count,
                packets_count: cost.packets_count,
                ns_per_packet: cost.ns_per_packet(),
            },
            missing: summary.missing,
        }
    }
}
