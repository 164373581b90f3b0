//! `wirepath feed listen`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use host::exclusive::{Activity, ExclusiveLock};
use host::interruptions::{RING_BYTES, Trace};
use house::args::parse_duration;
use house::context::Context;
use house::metrics::MetricsServer;
use house::{console, metrics, privileges, receive_stamps, signals};
use io::multicast::{Group, GroupTuning};
use io::{IoError, Stamps, XdpMode};
use marketdata::arbiter::ArbiterLimits;
use marketdata::late::LateReport;
use marketdata::listen::{
    FeedListener, ListenError, ListenInterval, ListenPlan, ListenReport, ReceiveBy,
};
use marketdata::protocol::Protocol;
use remote::Failure;
use sys::hardware_stamps::HardwareStamps;
use sys::thread::{Started, start};

use super::books::BookArgs;
use super::groups::GroupArgs;
use super::report::PageFile;

/// Default of `--hold`, without and with recovery.
const HOLD_LIMIT: Duration = Duration::from_millis(5);
const RECOVERY_HOLD_LIMIT: Duration = Duration::from_millis(500);
/// Intervals in circulation between receiver and display.
const INTERVALS: usize = 2;

/// Kernel interface that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListenEngine {
    /// UDP sockets
    Udp,
    /// AF_XDP, past the stack
    Xdp,
}

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    #[command(flatten)]
    groups: GroupArgs,
    /// Engine
    #[arg(long, value_enum, default_value = "udp")]
    engine: ListenEngine,
    /// Where the XDP program runs; default: in the stack
    #[arg(long, value_enum)]
    mode: Option<XdpMode>,
    /// Receive through the XDP program that is attached already: its map of AF_XDP sockets, pinned in a bpffs
    #[arg(long, value_name = "PATH", conflicts_with = "mode")]
    xsk_map: Option<PathBuf>,
    /// Whose time stamps begin kernel→app (UDP sockets); AF_XDP has those of its XDP program
    #[arg(long, value_enum)]
    stamps: Option<Stamps>,
    /// Receive ITCH 5.0 in MoldUDP64 (default: detected, or telegrams of the Taiwan exchanges)
    #[arg(long)]
    mold: bool,
    /// Request missing messages from this server
    #[arg(long, value_name = "HOST:PORT", requires = "mold")]
    recover: Option<String>,
    /// Time to wait for missing messages (default: 5ms, with --recover 500ms)
    #[arg(long, value_parser = parse_duration)]
    hold: Option<Duration>,
    /// Sequences start at 1: messages missing before the first one are a gap
    #[arg(long)]
    from_start: bool,
    /// Time to listen (default: until Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Number of messages to deliver
    #[arg(short = 'c', long)]
    count: Option<u64>,
    /// Number of busiest instruments to show each second; costs the receiving thread about 0.1 ms
    /// per second and 10,000 books
    #[arg(long, default_value_t = 0)]
    top: usize,
    #[command(flatten)]
    books: BookArgs,
    /// Print a digest per domain of the delivered messages, comparable with that of `feed replay`
    #[arg(long)]
    digest: bool,
    /// Write a page at the end: leads, losses, bursts, latency by instrument
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Name the cause of each datagram that waits this long between kernel and application; needs CAP_BPF
    /// and CAP_PERFMON
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    late: Option<Duration>,
    /// Serve Prometheus metrics on this PORT of loopback, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics::parse_address)]
    listen: Option<SocketAddr>,
    /// Poll without sleeping; uses a whole CPU
    #[arg(long)]
    spin: bool,
    /// CPU to receive on
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Real-time priority of the receiving thread (SCHED_FIFO), 1 to 99
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(i32).range(1..=99))]
    fifo: Option<i32>,
    /// Receive buffer in bytes (default: that of the host)
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
    /// Datagrams per system call
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// Poll the device queue from the socket (SO_BUSY_POLL)
    #[arg(long)]
    busy_poll: bool,
    /// Report the likely cause when a line receives nothing for this long
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    silence: Duration,
}

pub(crate) fn run(context: &Context, args: &ListenArgs) -> Result<(), Failure> {
    let plan = plan(args)?;
    let groups = plan.groups.clone();
    let _stamping = hold_stamps(plan.tuning.stamps, &groups)?;
    let page = args.html.as_deref().map(PageFile::create).transpose()?;
    let metrics = args.listen.map(MetricsServer::open).transpose()?;
    let trace = args.late.map(|_| open_trace()).transpose()?;
    let trace = trace.as_ref().map(|(trace, _)| trace);
    let listener = FeedListener::open(plan).map_err(failed)?;
    for group in &groups {
        let from = group.source.map_or(String::new(), |source| format!(" from {source}"));
        console::say(&format!("listening to {}{from} on {}", group.address, group.ifname));
    }
    if let Some(metrics) = &metrics {
        console::say(&format!("metrics at http://{}/metrics", metrics.address()));
    }
    console::say("Ctrl-C ends with the summary");
    let mut report = ListenReport::new(&groups);
    report.late = args.late.map(|late| LateReport::new(late.as_nanos() as u64));
    let report = Arc::new(Mutex::new(report));
    let lock = || report.lock().unwrap_or_else(PoisonError::into_inner);
    let done = AtomicBool::new(false);
    let (full_in, full_out) = sync_channel(INTERVALS);
    let (empty_in, empty_out) = sync_channel(INTERVALS);
    for _ in 0..INTERVALS {
        // Cannot fail: the channel has this capacity.
        let _ = empty_in.try_send(Box::<ListenInterval>::default());
    }
    let ran = thread::scope(|scope| {
        // The receiver drops its privileges itself, after setting its priority.
        let receiving = thread::Builder::new().name("feed".into()).spawn_scoped(scope, move || {
            if let Some(trace) = trace {
                trace.follow_this_thread().map_err(ListenError::Trace)?;
            }
            listener.run(signals::stop_flag(), |interval| hand_over(interval, &full_in, &empty_out))
        });
        let given_up = privileges::drop_all().map_err(Failure::failed);
        let serve = metrics.as_ref().map(|metrics| {
            let (done, report) = (&done, report.clone());
            start(scope, "metrics", move || {
                metrics.serve(done, move || {
                    report.lock().unwrap_or_else(PoisonError::into_inner).metrics()
                });
                Ok::<_, String>(())
            })
        });
        let refused = serve.as_ref().and_then(Started::refused);
        let served = refused.map_or(Ok(()), |why| Err(Failure::failed(why.to_string())));
        let shown = watch(context, &full_out, &empty_in, &lock, trace);
        // The receiver has ended, with or without an error.
        done.store(true, Ordering::Relaxed);
        let ran = receiving.map_err(ListenError::Wait).and_then(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        given_up.and(served).and(shown).and(ran.map_err(failed))
    })?;
    let mut report = lock();
    let mut ran = ran;
    tell(&ran);
    report.end(&mut ran);
    explain_late(&mut report, &ran, trace);
    let text = if context.json {
        serde_json::to_string(&report.summary_document())?
    } else {
        report.summary_text()
    };
    console::text(&text)?;
    if let Some(page) = page {
        page.write(&report, &listed(&groups))?;
    }
    match &ran.gone {
        Some(ifname) => Err(Failure::from_chain(&IoError::Gone { ifname: ifname.clone() })),
        // A user who ends it has seen that nothing came; a script has only the exit code.
        None if report.is_silent() && !signals::stop_requested() => Err(Failure::failed(format!(
            "nothing arrived from {}; check the interface, the group and its port, and --source",
            listed(&groups)
        ))),
        None if report.counts().is_foreign() => Err(Failure::failed(format!(
            "nothing that arrived from {} can be read: neither telegrams of the Taiwan exchanges nor MoldUDP64",
            listed(&groups)
        ))),
        None => Ok(()),
    }
}

fn listed(groups: &[Group]) -> String {
    let named = groups.iter().map(|group| format!("{} on {}", group.address, group.ifname));
    named.collect::<Vec<_>>().join(" or ")
}

fn plan(args: &ListenArgs) -> Result<ListenPlan, Failure> {
    let recover = args.recover.as_deref().map(resolve).transpose()?;
    let hold = match (args.hold, recover) {
        (Some(hold), _) => hold,
        (None, Some(_)) => RECOVERY_HOLD_LIMIT,
        (None, None) => HOLD_LIMIT,
    };
    let limits = ArbiterLimits {
        hold_ns: hold.as_nanos() as u64,
        from_one: args.from_start,
        ..ArbiterLimits::default()
    };
    let groups = args.groups.groups()?;
    if args.xsk_map.is_some() && groups.iter().any(|group| group.ifindex != groups[0].ifindex) {
        let why = "--xsk-map is the map of one interface; give both groups the same -i";
        return Err(Failure::Usage(why.into()));
    }
    Ok(ListenPlan {
        groups,
        receive_by: receive_by(args)?,
        tuning: GroupTuning {
            receive_buffer_bytes: args.receive_buffer,
            batch: usize::from(args.batch),
            busy_poll: args.busy_poll,
            stamps: args.stamps.unwrap_or(Stamps::Software),
            ..GroupTuning::default()
        },
        protocol: args.mold.then_some(Protocol::Mold),
        limits,
        recover,
        spin: args.spin,
        pin: args.pin,
        fifo: args.fifo,
        books: args.books.capacity(args.top > 0),
        books_shown: args.books.shown(),
        top: args.top,
        digests: args.digest,
        measures_quality: args.html.is_some(),
        late: args.late,
        duration: args.time,
        count: args.count,
        silence: args.silence,
    })
}

/// Errors: an option of the other engine.
fn receive_by(args: &ListenArgs) -> Result<ReceiveBy, Failure> {
    if args.engine == ListenEngine::Udp {
        return match (args.mode, &args.xsk_map) {
            (Some(_), _) => Err(Failure::Usage("--mode needs --engine xdp".into())),
            (_, Some(_)) => Err(Failure::Usage("--xsk-map needs --engine xdp".into())),
            (None, None) => Ok(ReceiveBy::Sockets),
        };
    }
    let given = [
        (args.stamps.is_some(), "--stamps"),
        (args.receive_buffer.is_some(), "--receive-buffer"),
        (args.busy_poll, "--busy-poll"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(Failure::Usage(format!(
            "{option} is an option of UDP sockets; omit it, or --engine xdp"
        ))),
        None => Ok(ReceiveBy::Xdp {
            mode: args.mode.unwrap_or(XdpMode::Skb),
            xsk_map: args.xsk_map.clone(),
        }),
    }
}

/// Keeps the stamps of each interface on until the guards drop.
pub(super) fn hold_stamps(
    stamps: Stamps,
    groups: &[Group],
) -> Result<Vec<HardwareStamps>, Failure> {
    let mut held = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        if groups[..at].iter().all(|earlier| earlier.ifindex != group.ifindex) {
            held.extend(receive_stamps::hold(stamps, group.ifindex, &group.ifname)?);
        }
    }
    Ok(held)
}

fn resolve(server: &str) -> Result<SocketAddr, Failure> {
    let unknown = |why: String| Failure::Usage(format!("--recover {server}: {why}; HOST:PORT"));
    let mut found = server.to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
    found.next().ok_or_else(|| unknown("no such host".into()))
}

fn failed(error: ListenError) -> Failure {
    match error {
        ListenError::Groups { .. } | ListenError::NoRecovery => Failure::Usage(error.to_string()),
        ListenError::Pin { .. } | ListenError::Fifo { .. } => Failure::usage(error),
        ListenError::Io(error) => error.into(),
        ListenError::Net(error) => error.into(),
        error => Failure::from_chain(&error),
    }
}

/// Exchanges the interval for an empty one; keeps it if none is available or the channel is full.
fn hand_over(
    interval: &mut Box<ListenInterval>,
    full: &SyncSender<Box<ListenInterval>>,
    empty: &Receiver<Box<ListenInterval>>,
) {
    if let Ok(fresh) = empty.try_recv() {
        let filled = std::mem::replace(interval, fresh);
        // Cannot fail: the channel has space for all intervals.
        let _ = full.try_send(filled);
    }
}

/// Adds up and shows the intervals until the receiver ends.
fn watch<'a>(
    context: &Context,
    full: &Receiver<Box<ListenInterval>>,
    empty: &SyncSender<Box<ListenInterval>>,
    lock: &impl Fn() -> std::sync::MutexGuard<'a, ListenReport>,
    trace: Option<&Trace>,
) -> Result<(), Failure> {
    let mut shown = Ok(());
    let mut screen = Screen::default();
    while let Ok(mut interval) = full.recv() {
        screen.lines = if interval.notes.is_empty() { screen.lines } else { 0 };
        tell(&interval);
        let mut report = lock();
        report.absorb(&interval);
        explain_late(&mut report, &interval, trace);
        interval.clear();
        // Fails only after the receiver has ended.
        let _ = empty.try_send(interval);
        if shown.is_err() {
            continue;
        }
        if context.json {
            let line = serde_json::to_string(&report.live_document())?;
            drop(report);
            shown = console::text(&line);
        } else if console::is_watched() {
            let text = report.live_text();
            drop(report);
            screen.show(&text);
        }
    }
    shown
}

/// Traces the CPUs. While that runs, no experiment can.
pub(super) fn open_trace() -> Result<(Trace, ExclusiveLock), Failure> {
    let alone = ExclusiveLock::acquire(Activity::Tracing)
        .map_err(|conflict| Failure::failed(conflict.to_string()))?;
    let trace = Trace::open(RING_BYTES).map_err(|why| Failure::from_chain(&why))?;
    Ok((trace, alone))
}

/// Adds the late datagrams of an interval with their causes.
fn explain_late(report: &mut ListenReport, interval: &ListenInterval, trace: Option<&Trace>) {
    if let (Some(late), Some(trace)) = (&mut report.late, trace) {
        late.add(&interval.late, trace.lost_count(), |late| trace.cause(&late.delay));
    }
}

/// Number of terminal lines of the last second, for overwriting.
#[derive(Default)]
struct Screen {
    lines: usize,
}

impl Screen {
    fn show(&mut self, text: &str) {
        let count = text.lines().count();
        // Single lines scroll as a log; a table is redrawn in place.
        let up = match self.lines.min(count) {
            0 | 1 => 0,
            _ => self.lines,
        };
        console::say_over(up, text);
        self.lines = count;
    }
}

pub(super) fn tell(interval: &ListenInterval) {
    for note in &interval.notes {
        console::say(&format!("note: {note}"));
    }
}
