//! The four roles of an end: task, loops and report.
//!
//! The same code runs a thread of a lab, one side of `wirepath peer`, and the `probe` commands.

mod end;
mod one_way;
mod ping;
mod report;
mod schedule;
mod window;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use io::{AnyEngine, Engine, EngineSpec, RING_ENTRIES_MAX, Role, Setup};
use model::VLANS;
use serde::{Deserialize, Serialize};
use wire::ethernet::VLAN_MASK;
use wire::probe::HEADER_BYTES;

pub(crate) use ping::PING_TIMEOUT_NS;
pub use report::RoleReport;
pub use window::WINDOW;

use self::end::End;
use super::watch::InterfaceWatch;

/// A run is over when nothing arrives for this long.
pub(crate) const ARRIVAL_GRACE: Duration = Duration::from_millis(5);
/// Maximum time of draining.
pub(crate) const ARRIVAL_GRACE_MAX: Duration = Duration::from_millis(500);

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
    /// The next after the answer to the last (closed loop).
    PingPong,
    /// Datagrams a second, on a fixed schedule (open loop).
    Rate(u64),
    /// As fast as the engine takes them, with at most this many unanswered.
    Window(u32),
}

/// Work of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub role: Role,
    pub engine: EngineSpec,
    pub pace: Pace,
    /// UDP payload of every datagram in bytes, at least [`HEADER_BYTES`].
    pub payload_bytes: usize,
    /// Source ports to send from.
    pub flows: usize,
    /// Number of the first flow, if several ends send to one.
    pub first_flow: u8,
    /// Identifies the datagrams of this run; others are strays. `None`: follow any sender.
    pub session: Option<u32>,
    /// Maximum number of datagrams; `None` for no limit.
    pub count: Option<u64>,
    /// Maximum time of sending; `None` until stopped.
    pub duration: Option<Duration>,
    /// True if both ends share a clock, so that one-way latencies are valid.
    pub one_clock: bool,
}

impl Task {
    /// A task of one flow without limits; it follows any sender.
    pub fn new(role: Role, engine: EngineSpec, pace: Pace, payload_bytes: usize) -> Task {
        Task {
            role,
            engine,
            pace,
            payload_bytes,
            flows: 1,
            first_flow: 0,
            session: None,
            count: None,
            duration: None,
            one_clock: false,
        }
    }

    /// Set-up of its engine at `local`.
    pub fn setup<'a>(&'a self, local: &'a io::Local, remote: Option<&'a io::Remote>) -> Setup<'a> {
        let Task { engine: spec, role, flows, payload_bytes, .. } = self;
        Setup { spec, role: *role, local, remote, flows: *flows, payload_bytes: *payload_bytes }
    }

    /// Checks sizes before anything is opened: tasks also come from near ends over the network.
    pub fn check(&self) -> Result<(), RoleError> {
        let spec = &self.engine;
        check_range("payload size", self.payload_bytes, PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX)?;
        check_range("flow count", self.flows, 1, 256)?;
        check_range("batch", spec.batch, 1, 1024)?;
        check_range("frame count", spec.frames as usize, 64, 262_144)?;
        check_range("frame size", spec.frame_bytes as usize, 2048, 4096)?;
        let rings = spec.ring_entries();
        check_range("ring entries", rings as usize, 64, RING_ENTRIES_MAX as usize)?;
        if !rings.is_power_of_two() {
            return Err(RoleError::RingEntries { entries: rings });
        }
        if let Some(tag) = spec.vlan_tag
            && !VLANS.contains(&(tag & VLAN_MASK))
        {
            return Err(RoleError::Vlan { tag });
        }
        if let Pace::Window(window) = self.pace {
            check_range("window", window as usize, 1, 1 << 20)?;
        }
        let buffer = spec.receive_buffer_bytes.unwrap_or(0);
        check_range("receive buffer", buffer, 0, 1 << 30)
    }
}

fn check_range(what: &'static str, value: usize, low: usize, high: usize) -> Result<(), RoleError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(RoleError::OutOfRange { what, value, low, high })
}

/// Failure of a role.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    #[error("{what} {value} is out of range; give {low} to {high}")]
    OutOfRange { what: &'static str, value: usize, low: usize, high: usize },
    #[error("a ring of {entries} entries is not possible; give a power of two, such as 8192")]
    RingEntries { entries: u32 },
    #[error("VLAN tag {tag:#06x} has no VLAN of 1 to 4094")]
    Vlan { tag: u16 },
    /// The engine could not be opened, or failed.
    #[error(transparent)]
    Io(#[from] io::IoError),
    /// A thread was not started, or not on its CPUs.
    #[error("{0}")]
    Thread(String),
}

impl From<sys::thread::ThreadError> for RoleError {
    fn from(error: sys::thread::ThreadError) -> Self {
        RoleError::Thread(error.to_string())
    }
}

/// Counters that another thread may read while a role runs.
#[derive(Debug, Default)]
pub struct LiveCounts {
    /// Datagrams sent.
    pub sent_count: AtomicU64,
    /// Datagrams received.
    pub received_count: AtomicU64,
    /// The last round trip in nanoseconds.
    pub rtt_ns: AtomicU64,
    /// Set once the engine is open: from then on, no arrival is missed.
    pub is_open: AtomicBool,
}

/// Control of a running role.
pub struct Steering<'a> {
    /// Ends the run when set.
    pub stop: &'a AtomicBool,
    /// Counters for other threads.
    pub live: Option<&'a LiveCounts>,
    pub watch: Option<InterfaceWatch>,
}

/// Runs a role on an open engine.
pub fn run(
    engine: &mut AnyEngine,
    task: &Task,
    steering: Steering<'_>,
) -> Result<RoleReport, RoleError> {
    if let Some(live) = steering.live {
        live.is_open.store(true, Ordering::Release);
    }
    io::on_engine!(engine, engine => run_on(engine, task, steering))
}

/// Opens the engine of a task and runs the task, in the calling thread's network namespace.
pub fn open_and_run(
    task: &Task,
    local: &io::Local,
    remote: Option<&io::Remote>,
    stop: &AtomicBool,
    live: Option<&LiveCounts>,
) -> Result<RoleReport, RoleError> {
    let (mut engine, watch) = open(task, local, remote)?;
    run(&mut engine, task, Steering { stop, live, watch })
}

/// As [`open_and_run`] for a near end that has CPUs of its own.
///
/// - `cpus`: with two or more, a task with a window sends on a thread on the first half of them and
///   receives on another on the rest. An AF_XDP end with several queues keeps to one thread.
pub fn open_and_run_on(
    cpus: &[usize],
    task: &Task,
    local: &io::Local,
    remote: &io::Remote,
    stop: &AtomicBool,
) -> Result<RoleReport, RoleError> {
    match task.pace {
        Pace::Window(window) if cpus.len() > 1 && !task.engine.takes_queues(local) => {
            task.check()?;
            let halves = io::open_halves(&task.setup(local, Some(remote)))?;
            let watch = InterfaceWatch::new(local.ifindex, &local.ifname);
            window::run_halves(halves, window, cpus, task, watch, stop)
        }
        _ => open_and_run(task, local, Some(remote), stop, None),
    }
}

/// Opens the engine of a task and a watch of its interface, in the calling thread's network
/// namespace.
pub fn open(
    task: &Task,
    local: &io::Local,
    remote: Option<&io::Remote>,
) -> Result<(AnyEngine, Option<InterfaceWatch>), RoleError> {
    task.check()?;
    let mut spec = task.engine.clone();
    if matches!((task.role, task.pace), (Role::Ping, Pace::Rate(_) | Pace::Window(_))) {
        // These loops also send, and sleep themselves when there is nothing to do.
        spec.wait = io::Wait::Spin;
    }
    let setup = Setup { spec: &spec, ..task.setup(local, remote) };
    let engine = io::open(&setup)?;
    let watch =
        (local.ifindex != 0).then(|| InterfaceWatch::new(local.ifindex, &local.ifname)).flatten();
    Ok((engine, watch))
}

fn run_on<E: Engine>(
    engine: &mut E,
    task: &Task,
    steering: Steering<'_>,
) -> Result<RoleReport, RoleError> {
    let mut end = End::new(task, steering);
    let ran = match (task.role, task.pace) {
        (Role::Send, _) => end.send(engine),
        (Role::Receive, _) => end.receive(engine),
        (Role::Echo, _) => end.echo(engine),
        (Role::Ping, Pace::Rate(rate_pps)) => end.ping_open_loop(engine, rate_pps),
        (Role::Ping, Pace::Window(window)) => end.ping_window(engine, window),
        (Role::Ping, _) => end.ping_pong(engine),
    };
    // The engine is drained even after a failure, so that its counters are complete.
    let engine = engine.finish();
    ran?;
    Ok(end.into_report(engine))
}

/// Waits until the receiver of `live` has received nothing for a while.
pub fn drain(live: &LiveCounts) {
    lab::drain(&live.received_count, u64::MAX, ARRIVAL_GRACE, ARRIVAL_GRACE_MAX);
}
