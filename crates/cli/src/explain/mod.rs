//! `wirepath explain`: where packets spend time on a live path, and where they are dropped.

mod diff;
mod late;
mod metrics;
mod perfetto;
mod text;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use host::exclusive::{Activity, ExclusiveLock};
use host::explain::{
    CounterRow, DropRow, ExplainSpec, ExplainSummary, FunctionRow, Observer, PlaceRow, StageRow,
    TraceScope, TracedService,
};
use host::net::{Link, LinkWatch, NetError};
use host::netns::Netns;
use host::observer::{self, Observed};
use host::tune::Place;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use sys::capability::Capability;

use diff::{Changes, Observation};
use house::args::parse_duration;
use house::context::Context;
use house::metrics::Shown;
use house::next::{self, CommandLine};
use house::{console, privileges, signals};
pub(crate) use late::LateDocument;
use perfetto::TraceFile;
pub(crate) use watch::WatchDocument;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Interfaces at which packets are first seen; default: any
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    late: late::LateArgs,
    /// Network namespace: a name of `ip netns`, a process id or a path; may be repeated. Default: that of
    /// the service's process, else the current one with an INTERFACE or --port, else all
    #[arg(long, value_name = "NETNS")]
    netns: Vec<String>,
    /// Time to trace; default: 5s, with --listen until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
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
    /// Print a line when a cause of loss or delay begins and when it ends, until Ctrl-C or --time
    #[arg(long, conflicts_with_all = ["live", "listen", "diff", "perfetto"])]
    watch: bool,
    /// Serve Prometheus metrics on this PORT of loopback, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = house::metrics::parse_address)]
    listen: Option<SocketAddr>,
    /// Compare with an earlier document of `explain --json`
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    diff: Option<PathBuf>,
    /// Also count what frames suffer: copies and clones by caller, flows and hashes, softirqs, hooks. All frames, in
    /// the whole time
    #[arg(long)]
    observe: bool,
    /// Write the call stacks of the samples as a flame graph to FILE.svg, and as folded text to FILE.folded
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
    /// Write a trace for Perfetto: a slice per timed packet and stage
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// Time in which the cost of `--observe` is counted.
const COST_WINDOW: Duration = Duration::from_millis(200);

impl ExplainArgs {
    /// `None` until it is interrupted.
    fn duration(&self) -> Option<Duration> {
        let is_endless = self.listen.is_some() || self.watch;
        self.time.or((!is_endless).then_some(DEFAULT_DURATION))
    }

    /// Time that is left of one that began then.
    fn left(&self, begun: Instant) -> Duration {
        self.duration().map_or(Duration::MAX, |duration| duration.saturating_sub(begun.elapsed()))
    }
}

/// One service, whose packets alone are traced.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct ServiceArgs {
    /// Only packets to sockets with this local port
    #[arg(long, help_heading = "What", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
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

    fn service(&self) -> Result<Option<TracedService>, Failure> {
        let service = match (self.port, self.pid, &self.cgroup, &self.container) {
            (Some(port), ..) => Ok(TracedService::Port(port)),
            (_, Some(pid), ..) => TracedService::process(pid),
            (_, _, Some(path), _) => TracedService::cgroup(path),
            (.., Some(id)) => TracedService::container(id),
            _ => return Ok(None),
        };
        service.map(Some).map_err(Failure::usage)
    }
}

pub(crate) fn run(context: &Context, args: &ExplainArgs) -> Result<(), Failure> {
    if args.live && context.json {
        return Err(Failure::Usage("--live prints tables; remove --json".into()));
    }
    if args.late.late {
        return late::run(context, args);
    }
    let service = args.service.service()?;
    let (scopes, mut links) = scopes(args, service.as_ref())?;
    // Rules of the firewall are read with CAP_NET_ADMIN, and owners of sockets with the last two.
    let kept = [
        Capability::Bpf,
        Capability::Perfmon,
        Capability::SysAdmin,
        Capability::NetAdmin,
        Capability::SysPtrace,
        Capability::DacReadSearch,
    ];
    let spec = ExplainSpec {
        scopes,
        service,
        duty: f64::from(args.duty) / 100.0,
        timed_one_in: args.timed_one_in,
        samples_per_second: args.samples,
        slices: args.perfetto.is_some(),
    };
    let earlier = args.diff.as_deref().map(Observation::read).transpose()?;
    let _lock = ExclusiveLock::acquire(Activity::Tracing)
        .map_err(|conflict| Failure::failed(conflict.to_string()))?;
    let server = house::metrics::open(args.listen)?;
    let trace = args.perfetto.as_deref().map(TraceFile::create).transpose()?;
    let mut observer = Observer::new(&spec)?;
    observer.start()?;
    let mut observation = args.observe.then(|| observation(args, &spec)).transpose()?;
    // Programs are attached again in each period, and the kernel counts their CPU time.
    privileges::keep_only(&kept).map_err(Failure::failed)?;
    console::say(&match args.duration() {
        Some(duration) => format!("tracing packets for {:.1} s", duration.as_secs_f64()),
        None => "tracing packets; Ctrl-C ends".to_owned(),
    });
    if args.watch {
        return watch::run(context, args, observer, spec.service.as_ref());
    }
    if let Some(observation) = &mut observation {
        observation.count_cost(COST_WINDOW, &signals::stop_requested)?;
    }
    let shown = Shown::default();
    shown.replace(metrics::metrics(&observer.summary()?));
    let observed = house::metrics::serving(server.as_ref(), &shown, || {
        observe(&mut observer, args, &mut links, &shown)
    });
    if let Some(file) = &args.flame {
        crate::doctor::write_flame(file, &observer.stacks()?, "wirepath explain")?;
    }
    let (summary, slices) = observer.finish()?;
    let counted =
        observation.map(observer::Observation::finish).transpose()?.map(|(counted, _)| counted);
    if let Some(trace) = trace {
        console::say(&trace.write(&slices)?);
    }
    let changes = earlier.map(|earlier| Changes::since(&earlier, &summary));
    match (context.json, args.live) {
        (true, _) => console::json(&ExplainDocument::new(summary, changes, counted))?,
        (false, true) => {}
        (false, false) => {
            let changes = changes.map_or(String::new(), |changes| changes.text());
            let counted = counted.map_or(String::new(), |counted| text::counted(&counted));
            console::text(&(text::text(&summary, args) + &counted + &changes))?;
            say_next(context, args);
        }
    }
    observed
}

/// An observation of the namespace of the scopes, or of all if there are several.
fn observation(args: &ExplainArgs, spec: &ExplainSpec) -> Result<observer::Observation, Failure> {
    let scopes = &spec.scopes;
    let is_one =
        scopes.first().is_some_and(|first| scopes.iter().all(|scope| scope.netns == first.netns));
    let process = spec.service.as_ref().and_then(|service| service.member().ok().flatten());
    let name = args.netns.first().cloned().or(process.map(|pid| pid.to_string()));
    let netns = match (is_one, name) {
        (false, _) => None,
        (true, Some(name)) => Some(open_netns(&name)?),
        (true, None) => Some(Netns::current()?),
    };
    // The samples are those of the trace.
    Ok(observer::Observation::start(netns, 0)?)
}

/// Says how to look for settings that slow these packets, if they are of one place.
fn say_next(context: &Context, args: &ExplainArgs) {
    if let ([] | [_], [] | [_]) = (&args.interfaces[..], &args.netns[..]) {
        let line = CommandLine::new("doctor");
        let line = line.argument(args.interfaces.first().map(String::as_str));
        next::say(context, &line.option("--netns", args.netns.first().map(String::as_str)));
    }
}

/// Observes until the time is over, a signal comes, or all named interfaces are gone.
///
/// Errors: they are gone.
fn observe(
    observer: &mut Observer,
    args: &ExplainArgs,
    links: &mut Vec<LinkWatch>,
    shown: &Shown,
) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let left = args.left(begun);
        if left.is_zero() || signals::stop_requested() {
            return Ok(());
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
        if links.is_empty() && !args.interfaces.is_empty() {
            return Err(Failure::failed(gone.join("; ")));
        }
        gone.iter().for_each(|what| console::say(what));
        if args.live || args.listen.is_some() {
            let summary =
                if args.live { observer.located_summary()? } else { observer.summary()? };
            shown.replace(metrics::metrics(&summary));
            if args.live {
                console::screen(&text::text(&summary, args))?;
            }
        }
    }
}

/// Namespaces that are named, else that of the service's process.
fn namespaces(args: &ExplainArgs, service: Option<&TracedService>) -> Result<Vec<String>, Failure> {
    let mut names = args.netns.clone();
    if let (true, Some(service)) = (names.is_empty(), service) {
        names.extend(service.member().map_err(Failure::usage)?.map(|pid| pid.to_string()));
    }
    Ok(names)
}

/// Each named interface in each named namespace, with a watch for its removal.
///
/// A service is in the namespaces that are named, else in that of its process.
fn scopes(
    args: &ExplainArgs,
    service: Option<&TracedService>,
) -> Result<(Vec<TraceScope>, Vec<LinkWatch>), Failure> {
    let names = namespaces(args, service)?;
    let mut spaces = Vec::new();
    for name in &names {
        spaces.push((name.as_str(), open_netns(name)?));
    }
    if spaces.is_empty() {
        if args.interfaces.is_empty() && service.is_none() {
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
        if args.interfaces.is_empty() {
            scopes.push(TraceScope { netns, ifindex: 0 });
        }
        for interface in &args.interfaces {
            // The current namespace is not entered: that would require CAP_SYS_ADMIN.
            let opened = if names.is_empty() {
                watched_link(interface)
            } else {
                space.run(|| watched_link(interface))?
            };
            let (watch, link) = opened.map_err(|e| match e {
                NetError::NoInterface { .. } => Failure::Usage(format!(
                    "no interface {interface} in {name}; `ip link` lists its interfaces"
                )),
                other => Failure::from_chain(&other),
            })?;
            scopes.push(TraceScope { netns, ifindex: link.index });
            links.push(watch);
        }
    }
    Ok((scopes, links))
}

fn watched_link(interface: &str) -> Result<(LinkWatch, Link), NetError> {
    let link = host::net::link_named(interface)?;
    Ok((LinkWatch::new(link.index)?, link))
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

/// Document of `explain --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExplainDocument {
    schema: u32,
    command: &'static str,
    /// Where packets are lost or wait, in one sentence.
    headline: String,
    followed_ns: u64,
    packets_count: u64,
    read_unseen_count: u64,
    evicted_count: u64,
    unread_count: u64,
    stages: Vec<StageRow>,
    drops: Vec<DropRow>,
    /// Counters of the traced namespaces that grew by more packets than were seen to be dropped.
    counters: Vec<CounterRow>,
    places: Vec<PlaceRow>,
    functions: Vec<FunctionRow>,
    cost: CostDocument,
    missing: Vec<String>,
    /// Comparison with the document of `--diff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
    /// Counts of `--observe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Observed>,
}

#[derive(Serialize, JsonSchema)]
struct CostDocument {
    ns: u64,
    runs_count: u64,
    packets_count: u64,
    ns_per_packet: Option<f64>,
}

impl ExplainDocument {
    fn new(
        summary: ExplainSummary,
        changes: Option<Changes>,
        observed: Option<Observed>,
    ) -> ExplainDocument {
        let cost = summary.cost;
        ExplainDocument {
            schema: house::context::DOCUMENT,
            command: "explain",
            headline: summary.headline,
            followed_ns: summary.followed.as_nanos() as u64,
            packets_count: summary.packets_count,
            read_unseen_count: summary.read_unseen_count,
            evicted_count: summary.evicted_count,
            unread_count: summary.unread_count,
            stages: summary.stages,
            drops: summary.drops,
            counters: summary.counters,
            places: summary.places,
            functions: summary.functions,
            cost: CostDocument {
                ns: cost.ns,
                runs_count: cost.runs_count,
                packets_count: cost.packets_count,
                ns_per_packet: cost.ns_per_packet(),
            },
            missing: summary.missing,
            changes,
            observed,
        }
    }
}
