//! `wirepath probe`.

pub(crate) mod args;
mod engine;
mod generate;
mod held;
mod measure;
mod summary;

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use host::idle::NoIdle;
use host::text::chain;
use io::{AnyEngine, EngineKind, EngineSpec, Local, Receiving, Remote, Role, XdpEngine};
use model::{Arm, Measurement};
use probe::endpoint;
use probe::peer::{Far, PeerError, Settings};
use probe::role::{self, LiveCounts, Pace, RoleReport, Steering, Task};
use probe::{
    InterfaceWatch, Mtus, Switch, engine_spec, in_vlan, measurement, random_session, received_from,
};
use remote::Failure;
use sys::thread::start;

use crate::shared_args::IpVersion;

use args::{EngineArgs, FarArgs, NearArgs, ProbeCommand, ReceiveArgs};
use engine::{spec, with_sizes};
use held::HeldInterface;
use house::context::Context;
use house::{console, privileges, signals};
use summary::{Headers, summary};

pub(crate) use generate::GenerateDocument;
pub(crate) use measure::MeasureDocument;
pub(crate) use summary::{ProbeDocument, si};

pub(crate) fn run(context: &Context, command: &ProbeCommand) -> Result<(), Failure> {
    match command {
        ProbeCommand::Send(args) => send(context, args),
        ProbeCommand::Ping(args) => ping(context, args),
        ProbeCommand::Receive(args) => receive(context, args),
        ProbeCommand::Echo(args) => echo(context, args),
        ProbeCommand::Generate(args) => generate::run(context, args),
        ProbeCommand::Measure(args) => measure::run(context, args),
    }
}

fn send(context: &Context, args: &NearArgs) -> Result<(), Failure> {
    let pace = args.rate.map_or(Pace::Flood, Pace::Rate);
    near(context, args, Role::Send, Role::Receive, pace)
}

fn ping(context: &Context, args: &NearArgs) -> Result<(), Failure> {
    let pace = args.rate.map_or(Pace::PingPong, Pace::Rate);
    if args.flows > 1 || args.engine.queues > 1 {
        return Err(Failure::Usage("ping uses one flow and one queue; send has --flows".into()));
    }
    near(context, args, Role::Ping, Role::Echo, pace)
}

fn receive(context: &Context, args: &ReceiveArgs) -> Result<(), Failure> {
    match &args.from {
        Some(host) => receive_from(context, args, host),
        None => far(context, &args.far, Role::Receive),
    }
}

/// Receives datagrams that the peer at `host` is requested to send.
fn receive_from(context: &Context, args: &ReceiveArgs, host: &str) -> Result<(), Failure> {
    let options = &args.far;
    let asked_ipv6 = IpVersion::is_v6(options.ip);
    let spec = spec(&options.engine, options.size(asked_ipv6))?;
    if options.engine.queues > 1 {
        return Err(Failure::Usage("--from uses one queue".into()));
    }
    let _awake = settle(&options.engine)?;
    let secret = args.secret.read()?;
    let mut sender = Far::connect_by(host, asked_ipv6, secret.as_deref())?;
    let ip = sender.address().ip();
    if options.ip.is_some_and(|asked| (asked == IpVersion::V6) != ip.is_ipv6()) {
        return Err(Failure::Usage(format!("{host} is {ip}, which is not of the version of --ip")));
    }
    let size = options.size(ip.is_ipv6());
    let choice = options.engine.choice(options.port);
    let (local, _) = endpoint::towards(ip, SENDER_PORT, &choice)?;
    let local = in_vlan(local, &spec)?;
    let held = HeldInterface::hold(&options.engine, &local)?;
    let duration = options.time.unwrap_or(Duration::from_secs(10));
    let pace = args.rate.map_or(Pace::Flood, Pace::Rate);
    let session = Some(random_session()?);
    let task = Task { session, ..Task::new(Role::Receive, spec, pace, size) };
    task.check().map_err(|e| Failure::Usage(e.to_string()))?;
    // Before the peer's: its first datagram needs an open engine.
    let mut engine = io::open(&task.setup(&local, None))?;
    privileges::drop_all().map_err(Failure::failed)?;
    let mut sending = Task { role: Role::Send, duration: Some(duration), ..task.clone() };
    sending.engine.receiving = far_receiving(&task.engine);
    let stop = AtomicBool::new(false);
    let (own, sent) = with_live_line(context, |live| {
        thread::scope(|scope| {
            let running = start(scope, "receive", || {
                let watch = InterfaceWatch::new(local.ifindex, &local.ifname);
                let steering = Steering { stop: &stop, live: Some(live), watch };
                role::run(&mut engine, &task, steering).map_err(|e| chain(&e))
            });
            let sent = sender
                .prepare(&sending, &far_settings(&options.engine.arm), options.port, SENDER_PORT)
                .and_then(|_| {
                    let until = Instant::now() + duration;
                    let over = AtomicBool::new(false);
                    sender.watch(&over, signals::stop_requested, || {
                        while Instant::now() < until
                            && !running.is_finished()
                            && !over.load(Ordering::Relaxed)
                        {
                            thread::sleep(Duration::from_millis(5));
                        }
                    })?;
                    // Ends by itself only after an error; then the answer may never come.
                    if running.is_finished() { Ok(None) } else { sender.stop().map(Some) }
                });
            role::drain(live);
            stop.store(true, Ordering::Relaxed);
            (running.end(), sent)
        })
    });
    let own = own.map_err(|why| Failure::failed(format!("near end: {why}")));
    let Some(sent) = sent? else {
        return own.and(Err(Failure::failed("near end: ended before it was told to")));
    };
    let mut measurement = received_from(own?, sent.role);
    held.check(&mut measurement);
    let headers = Headers { ipv6: ip.is_ipv6(), is_tagged: task.engine.vlan_tag.is_some() };
    summary(context, Role::Receive, &measurement, (size, headers), true)
}

/// UDP port that a peer sends from.
const SENDER_PORT: u16 = 9001;

fn echo(context: &Context, args: &FarArgs) -> Result<(), Failure> {
    far(context, args, Role::Echo)
}

/// Calls by which a peer receives: those of this end, but for io_uring, which its system-call filter
/// forbids.
fn far_receiving(spec: &EngineSpec) -> Receiving {
    if spec.receiving == Receiving::IoUring { Receiving::Direct } else { spec.receiving }
}

/// Applies the settings of the whole command: idle states, CPU.
fn settle(args: &EngineArgs) -> Result<Option<NoIdle>, Failure> {
    if let Some(cpu) = args.pin {
        sys::affinity::pin_to(&[cpu])
            .map_err(|e| Failure::Usage(format!("cannot pin to CPU {cpu}: {e}")))?;
    }
    let stays_awake = args.arm.has(Switch::NoIdleStates);
    stays_awake.then(NoIdle::hold).transpose().map_err(|e| Failure::from_chain(&e))
}

/// Settings of the far end's host. Its CPUs have other numbers, so `--pin` is not one of them.
fn far_settings(arm: &Arm) -> Settings {
    Settings { stays_awake: arm.has(Switch::NoIdleStates), ..Settings::default() }
}

fn near(
    context: &Context,
    args: &NearArgs,
    role: Role,
    far_role: Role,
    pace: Pace,
) -> Result<(), Failure> {
    let spec = spec(&args.engine, args.size)?;
    let _awake = settle(&args.engine)?;
    let session = random_session()?;
    let choice = args.engine.choice(args.source_port);
    // First: for an unused address the search for a peer would have to time out.
    let (local, _) = endpoint::towards(args.to, args.port, &choice)?;
    in_vlan(local, &spec)?;
    let mut far = find_far(args)?;
    let far_arm = args.far_arm.as_ref().unwrap_or(&args.engine.arm);
    let mut far_spec = spec.clone();
    if args.far_arm.is_some() {
        far_spec = with_sizes(engine_spec(far_arm), &args.engine);
    }
    far_spec.receiving = far_receiving(&far_spec);
    let mut task = Task {
        flows: usize::from(args.flows),
        session: Some(session),
        ..Task::new(far_role, far_spec, pace, args.size)
    };
    let (mut to, mut port) = (args.to, args.port);
    if let Some(far) = far.as_mut() {
        let ready = far.prepare(&task, &far_settings(far_arm), args.source_port, args.port)?;
        (to, port) = (ready.ip, ready.port);
        console::say(&format!("peer at {}: {} on {}", far.address(), ready.mode, ready.ifname));
    }
    let (local, remote) = endpoint::towards(to, port, &choice)?;
    let local = in_vlan(local, &spec)?;
    let held = HeldInterface::hold(&args.engine, &local)?;
    task.role = role;
    task.engine = spec;
    task.count = args.count;
    task.duration = args.time.or(args.count.is_none().then_some(Duration::from_secs(10)));
    let queues = args.engine.queues;
    let stop = AtomicBool::new(false);
    let ran = with_live_line(context, |live| match far.as_ref() {
        Some(far) => far
            .watch(&stop, signals::stop_requested, || {
                run_queues(&task, &local, Some(&remote), queues, &stop, live)
            })
            .unwrap_or_else(|e| Err(chain(&e))),
        None => run_queues(&task, &local, Some(&remote), queues, signals::stop_flag(), live),
    });
    // Without the near end's counters those of the far end mean little, and if the interface is gone they
    // never arrive.
    let near_report = ran.map_err(|why| Failure::failed(format!("near end: {why}")))?;
    let far_report = far.as_mut().map(Far::stop).transpose()?.map(|report| report.role);
    let told = far_report.is_some();
    let mut measurement = measurement(role, near_report, far_report);
    held.check(&mut measurement);
    let headers = Headers { ipv6: args.to.is_ipv6(), is_tagged: args.engine.vlan.is_some() };
    let far_mtu_bytes = far.as_ref().and_then(Far::mtu_bytes);
    let mtus = Mtus::new(local.mtu_bytes, far_mtu_bytes, args.size, headers.ipv6);
    let trap = mtus.trap(&measurement);
    summary(context, role, &measurement, (args.size, headers), told)?;
    if let Some(trap) = trap {
        console::say(&format!("{}; {}", trap.what, trap.advice));
    }
    unanswered(&measurement, role, told, args.to, args.port)
}

/// Error if no datagram of the run came through, as far as that is known.
fn unanswered(
    m: &Measurement,
    role: Role,
    told: bool,
    to: IpAddr,
    port: u16,
) -> Result<(), Failure> {
    let end = if role == Role::Ping { "answered" } else { "received" };
    let sent = m.counters.get("forward_sent_count").copied().unwrap_or(0);
    let arrived = m.deliveries.values().map(|d| d.received_count).min();
    if sent == 0 || arrived != Some(0) {
        return Ok(());
    }
    let remedy = if told {
        "look for a firewall or a full socket between the ends"
    } else if to.is_ipv6() {
        "start `wirepath probe echo --ip 6` or `wirepath peer` there, or look for a firewall"
    } else {
        "start `wirepath probe echo` or `wirepath peer` there, or look for a firewall"
    };
    let to = SocketAddr::new(to, port);
    Err(Failure::failed(format!("none of {sent} datagrams to {to} was {end}; {remedy}")))
}

fn find_far(args: &NearArgs) -> Result<Option<Far>, Failure> {
    if args.no_peer {
        return Ok(None);
    }
    let at = SocketAddr::from((args.to, args.peer_port));
    let secret = args.secret.read()?;
    match Far::connect(&at.to_string(), secret.as_deref()) {
        Ok(far) => Ok(Some(far)),
        Err(PeerError::NotThere { .. }) => {
            console::say(&format!(
                "no wirepath peer at {at}: the far end's books and CPU time stay unknown \
                 (`wirepath peer` there tells them)"
            ));
            Ok(None)
        }
        Err(e) => Err(Failure::from_chain(&e)),
    }
}

fn far(context: &Context, args: &FarArgs, role: Role) -> Result<(), Failure> {
    let ipv6 = IpVersion::is_v6(args.ip);
    let size = args.size(ipv6);
    let spec = spec(&args.engine, size)?;
    let _awake = settle(&args.engine)?;
    if spec.kind != EngineKind::Udp && args.engine.interface.is_none() {
        return Err(Failure::Usage("this engine needs an interface: give one with -i".into()));
    }
    let choice = args.engine.choice(args.port);
    let local = in_vlan(endpoint::listening(&choice, ipv6)?, &spec)?;
    let held = HeldInterface::hold(&args.engine, &local)?;
    let task = Task::new(role, spec, Pace::Flood, size);
    let stop = AtomicBool::new(false);
    let until = args.time.map(|d| Instant::now() + d);
    let queues = args.engine.queues;
    let ran = with_live_line(context, |live| {
        thread::scope(|scope| {
            let running =
                start(scope, "far", || run_queues(&task, &local, None, queues, &stop, live));
            // The engine is opened by the thread above.
            let given_up = privileges::drop_all();
            let mut said = false;
            while !running.is_finished()
                && given_up.is_ok()
                && !signals::stop_requested()
                && until.is_none_or(|until| Instant::now() < until)
            {
                // Printed once it is true: scripts wait for this line.
                if !said && live.is_open.load(Ordering::Acquire) {
                    said = true;
                    let port = args.port;
                    console::say(&format!(
                        "listening on UDP port {port}; Ctrl-C ends and prints the books"
                    ));
                }
                thread::sleep(Duration::from_millis(if said { 20 } else { 1 }));
            }
            stop.store(true, Ordering::Relaxed);
            let ran = running.end();
            given_up.and(ran)
        })
    });
    let report = ran.map_err(Failure::failed)?;
    let mut measurement = measurement(role, RoleReport { sent_count: 0, ..report.clone() }, None);
    held.check(&mut measurement);
    if role == Role::Echo {
        measurement.counters.insert("near_returned_count".into(), report.sent_count);
    }
    let headers = Headers { ipv6, is_tagged: args.engine.vlan.is_some() };
    summary(context, role, &measurement, (size, headers), false)
}

/// Runs a task on one queue, or on several with a thread each.
fn run_queues(
    task: &Task,
    local: &Local,
    remote: Option<&Remote>,
    queues: u32,
    stop: &AtomicBool,
    live: &LiveCounts,
) -> Result<RoleReport, String> {
    if queues <= 1 {
        let (mut engine, watch) = role::open(task, local, remote).map_err(|e| chain(&e))?;
        privileges::drop_all()?;
        let steering = Steering { stop, live: Some(live), watch };
        return role::run(&mut engine, task, steering).map_err(|e| chain(&e));
    }
    let range = local.queue..local.queue + queues;
    let engines = XdpEngine::open_port(&task.setup(local, remote), range).map_err(|e| chain(&e))?;
    privileges::drop_all()?;
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (n, engine) in engines.into_iter().enumerate() {
            let task = Task { first_flow: (n * task.flows) as u8, ..task.clone() };
            running.push(start(scope, "queue", move || {
                let watch = InterfaceWatch::new(local.ifindex, &local.ifname);
                let mut engine = AnyEngine::Xdp(Box::new(engine));
                let steering = Steering { stop, live: Some(live), watch };
                role::run(&mut engine, &task, steering).map_err(|e| chain(&e))
            }));
        }
        let mut sum: Option<RoleReport> = None;
        for thread in running {
            let report = thread.end()?;
            match sum.as_mut() {
                Some(sum) => sum.merge(report),
                None => sum = Some(report),
            }
        }
        sum.ok_or_else(|| "no queue was run".to_owned())
    })
}

/// Runs `body`; on a terminal, prints a progress line per second.
fn with_live_line<R: Send>(context: &Context, body: impl FnOnce(&LiveCounts) -> R + Send) -> R {
    let live = LiveCounts::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        if console::is_watched() && !context.json {
            // Without the thread there is no progress line; the rest works.
            start(scope, "line", || privileges::drop_all().map(|()| live_lines(&live, &done)));
        }
        let result = body(&live);
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn live_lines(live: &LiveCounts, done: &AtomicBool) {
    let begun = Instant::now();
    let mut last = (0, 0);
    let mut next = Duration::from_secs(1);
    while !done.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        if begun.elapsed() < next {
            continue;
        }
        let now =
            (live.sent_count.load(Ordering::Relaxed), live.received_count.load(Ordering::Relaxed));
        let mut line = format!("{:>4} s", next.as_secs());
        for (what, now, last) in [("sent", now.0, last.0), ("received", now.1, last.1)] {
            if now > 0 {
                let _ = write!(line, "  {what} {}/s", si(now.saturating_sub(last) as f64));
            }
        }
        let rtt_ns = live.rtt_ns.load(Ordering::Relaxed);
        if rtt_ns > 0 {
            let _ = write!(line, "  last rtt {:.1} µs", rtt_ns as f64 / 1000.0);
        }
        console::say(&line);
        last = now;
        next += Duration::from_secs(1);
    }
}
