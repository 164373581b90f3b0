//! The four roles of an end: what it is told, the loops, and what it reports.
//!
//! The same code runs a thread of a lab, one side of `wirepath peer`, and the `probe` commands.

mod end;
mod one_way;
mod ping;
mod report;
mod schedule;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use io::{AnyEngine, Engine, EngineSpec, Role, Setup};
use serde::{Deserialize, Serialize};
use wire::probe::HEADER_BYTES;

pub use report::RoleReport;

use crate::text::chain;

use self::end::End;
use super::watch::Watch;

/// Silence at the receiver after which a run is over.
const GRACE: Duration = Duration::from_millis(5);
/// Longest that draining may take.
const GRACE_MAX: Duration = Duration::from_millis(500);

/// Smallest payload that carries the header.
pub const PAYLOAD_BYTES_MIN: usize = HEADER_BYTES;
/// Largest payload of a UDP datagram over IPv4.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;

/// When to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// As fast as the engine takes them.
    Flood,
    /// The next when the answer to the last has come (closed loop).
    PingPong,
    /// This many a second, on a fixed schedule (open loop).
    Rate(u64),
}

/// What one end is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its role.
    pub role: Role,
    /// Its engine.
    pub engine: EngineSpec,
    /// When it sends.
    pub pace: Pace,
    /// UDP payload of every datagram in bytes, at least [`HEADER_BYTES`].
    pub payload_bytes: usize,
    /// Source ports to send from.
    pub flows: usize,
    /// Number of the first flow, where several ends send to one.
    pub first_flow: u8,
    /// Marks this run's datagrams; others are strays. `None`: follow whoever sends.
    pub session: Option<u32>,
    /// Datagrams to send at most; `None` for no limit.
    pub count: Option<u64>,
    /// How long to send at most; `None` until told to stop.
    pub duration: Option<Duration>,
    /// Whether both ends share a clock, so that one-way latencies mean something.
    pub one_clock: bool,
}

impl Task {
    /// What its engine is opened with at `local`.
    pub fn setup<'a>(&'a self, local: &'a io::Local, remote: Option<&'a io::Remote>) -> Setup<'a> {
        let Task { engine: spec, role, flows, payload_bytes, .. } = self;
        Setup { spec, role: *role, local, remote, flows: *flows, payload_bytes: *payload_bytes }
    }

    /// Refuses sizes that no engine has, before anything is opened: tasks also come from near
    /// ends over the network.
    pub fn check(&self) -> Result<(), String> {
        let spec = &self.engine;
        let within = |what: &str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{what} {value} is out of range; give {low} to {high}"))
        };
        within("payload size", self.payload_bytes, PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX)?;
        within("flow count", self.flows, 1, 256)?;
        within("batch", spec.batch, 1, 1024)?;
        within("frame count", spec.frames as usize, 64, 262_144)?;
        within("frame size", spec.frame_bytes as usize, 2048, 4096)?;
        let buffer = spec.receive_buffer_bytes.unwrap_or(0);
        within("receive buffer", buffer, 0, 1 << 30)
    }
}

/// Counters that another thread may read while a role runs, for a live line.
#[derive(Debug, Default)]
pub struct Live {
    /// Datagrams sent.
    pub sent_count: AtomicU64,
    /// Datagrams received.
    pub received_count: AtomicU64,
    /// The last round trip in nanoseconds.
    pub rtt_ns: AtomicU64,
    /// Set once the engine is open: from then on nothing that arrives is missed.
    pub is_open: AtomicBool,
}

/// What a role is steered by.
pub struct Steering<'a> {
    /// Set by others to end the run.
    pub stop: &'a AtomicBool,
    /// Read by others during the run.
    pub live: Option<&'a Live>,
    /// Watches the interface.
    pub watch: Option<Watch>,
}

/// Runs a role to its end on an open engine.
pub fn run(
    engine: &mut AnyEngine,
    task: &Task,
    steering: Steering<'_>,
) -> Result<RoleReport, String> {
    if let Some(live) = steering.live {
        live.is_open.store(true, Ordering::Release);
    }
    match engine {
        AnyEngine::Udp(engine) => run_on(&mut **engine, task, steering),
        AnyEngine::Packet(engine) => run_on(&mut **engine, task, steering),
        AnyEngine::Xdp(engine) => run_on(&mut **engine, task, steering),
    }
}

/// Opens the engine that a task asks for and runs the task, in the calling thread's network
/// namespace.
pub fn open_and_run(
    task: &Task,
    local: &io::Local,
    remote: Option<&io::Remote>,
    stop: &AtomicBool,
    live: Option<&Live>,
) -> Result<RoleReport, String> {
    let (mut engine, watch) = open(task, local, remote)?;
    run(&mut engine, task, Steering { stop, live, watch })
}

/// Opens the engine that a task asks for, and what watches its interface, in the calling thread's
/// network namespace.
pub fn open(
    task: &Task,
    local: &io::Local,
    remote: Option<&io::Remote>,
) -> Result<(AnyEngine, Option<Watch>), String> {
    task.check()?;
    let mut spec = task.engine.clone();
    if matches!((task.role, task.pace), (Role::Ping, Pace::Rate(_))) {
        // The open loop naps itself, until the next datagram is due.
        spec.wait = io::Wait::Spin;
    }
    let setup = Setup { spec: &spec, ..task.setup(local, remote) };
    let engine = io::open(&setup).map_err(|e| chain(&e))?;
    let watch = (local.ifindex != 0).then(|| Watch::new(local.ifindex, &local.ifname)).flatten();
    Ok((engine, watch))
}

fn run_on<E: Engine>(
    engine: &mut E,
    task: &Task,
    steering: Steering<'_>,
) -> Result<RoleReport, String> {
    let mut end = End::new(task, steering);
    let ran = match (task.role, task.pace) {
        (Role::Send, _) => end.send(engine),
        (Role::Receive, _) => end.receive(engine),
        (Role::Echo, _) => end.echo(engine),
        (Role::Ping, Pace::Rate(rate_pps)) => end.ping_open_loop(engine, rate_pps),
        (Role::Ping, _) => end.ping_pong(engine),
    };
    // The engine is drained even after a failure, so that its books are closed.
    let engine = engine.finish();
    ran.map_err(|e| chain(&e))?;
    Ok(end.into_report(engine))
}

/// Waits until the receiver behind `live` has taken nothing for a while.
pub fn drain(live: &Live) {
    crate::lab::drain(&live.received_count, u64::MAX, GRACE, GRACE_MAX);
}
