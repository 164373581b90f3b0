//! Loads between ordinary sockets, each end a program of its own: what lies between them is under proof.
//!
//! Datagrams use the roles and the control connection of `wirepath peer`, so that the client has the server's counts.

mod tcp;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use host::net::NetError;
use io::{EngineKind, EngineSpec, Role};
use lab::{BuiltInLoad, LOAD_DATAGRAM_BYTES_MIN, LoadTraffic};
use model::{Delivery, Throughput};

use crate::endpoint::{self, Choice};
use crate::peer::{self, Far, PeerError, PeerOptions, SessionLimits, Settings};
use crate::role::{self, PING_TIMEOUT_NS, Pace, RoleError, RoleReport, Steering, Task};

const _: () = assert!(LOAD_DATAGRAM_BYTES_MIN == role::PAYLOAD_BYTES_MIN);

/// Datagrams of a system call.
const BATCH: usize = 64;
/// Of the receiver's socket, so that it loses nothing itself while its thread waits for a CPU.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// UDP ports of the server: a second socket marks a run of several flows, whose first is open to all senders.
const FAR_PORTS: u16 = 2;
/// Share of the due datagrams that may be unsent before the sender counts as too slow.
const UNSENT_SHARE_MAX: f64 = 0.02;

/// Figures of a load.
#[derive(Debug, Clone, Default)]
pub struct LoadFigures {
    /// Time of the sender.
    pub wall_ns: u64,
    /// Datagrams: those that the server received, or answers of pings. `None` for TCP.
    pub delivery: Option<Delivery>,
    /// Arrivals at the receiver, of payload.
    pub arrived: Throughput,
    /// Payload that the sender passed on.
    pub sent_bytes: u64,
    /// Datagrams that were due and not sent; 0 without a rate.
    pub unsent_count: u64,
    /// Jitter of arrivals (RFC 3550).
    pub jitter_ns: Option<u64>,
    /// Round trips of the pings that were answered.
    pub rtt: Option<Histogram<u64>>,
    /// Segments of TCP that were sent again.
    pub retransmit_count: Option<u64>,
}

impl LoadFigures {
    /// Sentence on a sender that did not reach its rate; `None` if it did.
    pub fn missed_rate(&self, load: &BuiltInLoad) -> Option<String> {
        let LoadTraffic::Udp { rate_pps: Some(rate_pps), .. } = load.traffic else { return None };
        let sent_count = self.delivery?.sent_count;
        let due_count = sent_count + self.unsent_count;
        (self.unsent_count as f64 > due_count as f64 * UNSENT_SHARE_MAX).then(|| {
            format!(
                "the sender did not reach its rate of {rate_pps} datagrams a second: it sent {sent_count} of {due_count}; \
                 lower the rate, or use max in its place"
            )
        })
    }

    /// Quantile of the round trips, in which a lost ping counts as the time that was waited for it.
    ///
    /// - `quantile`: 0 to 1.
    pub fn rtt_quantile_ns(&self, quantile: f64) -> Option<u64> {
        let mut rtt = self.rtt.clone()?;
        rtt.saturating_record_n(PING_TIMEOUT_NS, self.delivery?.lost_count());
        (!rtt.is_empty()).then(|| rtt.value_at_quantile(quantile))
    }
}

/// Failure of a load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("no load server answers at {at}; start one there: wirepath load serve {load} {ip} --port {port}", ip = at.ip(), port = at.port())]
    NoServer {
        at: SocketAddr,
        load: BuiltInLoad,
        #[source]
        source: Option<std::io::Error>,
    },
    #[error(
        "none of {sent_count} datagrams to {at} {what}; look for a firewall, a smaller MTU or a missing route back"
    )]
    NothingArrived { at: SocketAddr, sent_count: u64, what: &'static str },
    #[error(
        "{flows} flows need the source ports from {first} to 65535 at most; choose a lower port"
    )]
    Ports { first: u16, flows: u16 },
    #[error("the connection to {at} failed: {what}")]
    Tcp {
        at: SocketAddr,
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "the server at {at} counted {received_bytes} bytes of {sent_bytes}; does another server listen there?"
    )]
    Counts { at: SocketAddr, sent_bytes: u64, received_bytes: u64 },
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Route(#[from] NetError),
    #[error(transparent)]
    Role(#[from] RoleError),
    #[error("no random number for the run")]
    Random(#[source] std::io::Error),
    #[error(transparent)]
    Thread(#[from] sys::thread::ThreadError),
}

/// Answers clients of a load until `stop` is set. `tell` receives one line per event.
///
/// - `at`: TCP port for clients; datagrams use the UDP port of the same number.
pub fn serve(
    load: &BuiltInLoad,
    at: SocketAddr,
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), LoadError> {
    match load.traffic {
        LoadTraffic::Tcp { .. } => tcp::serve(at, stop, tell),
        LoadTraffic::Udp { .. } | LoadTraffic::Ping { .. } => {
            let options = PeerOptions {
                listen: at,
                secret: None,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ports: at.port()..=at.port().saturating_add(FAR_PORTS - 1),
                limits: SessionLimits::default(),
            };
            Ok(peer::serve(&options, stop, tell)?)
        }
    }
}

/// Sends a load for a time to the server at an address. Source ports follow the server's ports.
pub fn run(
    load: &BuiltInLoad,
    at: SocketAddr,
    time: Duration,
    stop: &AtomicBool,
) -> Result<LoadFigures, LoadError> {
    let (role, pace, size_bytes, flows) = match load.traffic {
        LoadTraffic::Tcp { flows } => return tcp::run(load, flows, at, time, stop),
        LoadTraffic::Udp { size_bytes, rate_pps, flows } => {
            (Role::Send, rate_pps.map_or(Pace::Flood, Pace::Rate), size_bytes, flows)
        }
        LoadTraffic::Ping { size_bytes } => (Role::Ping, Pace::PingPong, size_bytes, 1),
    };
    let first = at.port().saturating_add(FAR_PORTS);
    if u32::from(first) + u32::from(flows) > 1 << 16 {
        return Err(LoadError::Ports { first, flows });
    }
    let (near, far) = datagrams(load, (role, pace), (size_bytes, flows, first), at, time, stop)?;
    let figures = figures(role, size_bytes, near, far, pace, time);
    let Some(delivery) = figures.delivery.filter(|delivery| delivery.received_count == 0) else {
        return Ok(figures);
    };
    let what = if role == Role::Ping { "was answered" } else { "arrived" };
    Err(LoadError::NothingArrived { at, sent_count: delivery.sent_count, what })
}

/// Runs both ends. Returns the reports of this end and of the server.
///
/// - `sizes`: payload of a datagram, flows, and the first source port.
fn datagrams(
    load: &BuiltInLoad,
    (role, pace): (Role, Pace),
    (size_bytes, flows, first): (usize, u16, u16),
    at: SocketAddr,
    time: Duration,
    stop: &AtomicBool,
) -> Result<(RoleReport, RoleReport), LoadError> {
    let mut far = match Far::connect(&at.to_string(), None) {
        Err(PeerError::NotThere { at, source }) => {
            return Err(LoadError::NoServer { at, load: *load, source: Some(source) });
        }
        connected => connected?,
    };
    let batch = if role == Role::Ping { 1 } else { BATCH };
    let engine = EngineSpec {
        batch,
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        fragments: true,
        ..EngineSpec::plain(EngineKind::Udp)
    };
    let session = Some(crate::random_session().map_err(LoadError::Random)?);
    let far_role = if role == Role::Ping { Role::Echo } else { Role::Receive };
    let mut task = Task {
        session,
        flows: flows.min(FAR_PORTS).into(),
        ..Task::new(far_role, engine, pace, size_bytes)
    };
    task.check()?;
    let ready = far.prepare(&task, &Settings::default(), first, at.port())?;
    (task.role, task.duration, task.flows) = (role, Some(time), flows.into());
    let choice = Choice { ifname: None, queue: 0, port: first };
    let (local, remote) = endpoint::towards(at.ip(), ready.port, &choice)?;
    let (mut engine, watch) = role::open(&task, &local, Some(&remote))?;
    let is_over = AtomicBool::new(false);
    let is_stopped = || stop.load(Ordering::Relaxed);
    let near = far.watch(&is_over, is_stopped, || {
        role::run(&mut engine, &task, Steering { stop: &is_over, live: None, watch })
    })??;
    Ok((near, far.stop()?.role))
}

fn figures(
    role: Role,
    size_bytes: usize,
    near: RoleReport,
    far: RoleReport,
    pace: Pace,
    time: Duration,
) -> LoadFigures {
    let sent_count = near.sent_count;
    let receiver = if role == Role::Ping { &near } else { &far };
    let unsent_count = match pace {
        Pace::Rate(rate_pps) => {
            let due_count = time.as_nanos() * u128::from(rate_pps) / 1_000_000_000;
            u64::try_from(due_count).unwrap_or(u64::MAX).saturating_sub(sent_count)
        }
        _ => 0,
    };
    LoadFigures {
        wall_ns: near.wall_ns,
        delivery: Some(Delivery { sent_count, ..receiver.arrived }),
        arrived: receiver.throughput,
        sent_bytes: sent_count.saturating_mul(size_bytes as u64),
        unsent_count,
        jitter_ns: receiver.jitter_ns,
        rtt: near.segments.get("rtt").cloned(),
        retransmit_count: None,
    }
}
