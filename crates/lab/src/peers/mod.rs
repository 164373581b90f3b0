//! Other programs as arms: run in the same lab and in the same blocks, with their output parsed
//! into a [`Measurement`].

pub mod hosts;
mod iperf3;
mod irtt;
mod qperf;
mod sockperf;
mod starts;
mod version;

pub use starts::LabStarts;

use std::collections::btree_map::{BTreeMap, Entry};
use std::process::Command;
use std::time::Duration;

use crate::Pair;
use host::child::{Child, ChildPlace, ChildUsage, Finished};
use host::cpu::CpuClock;
use model::{Cost, Measurement, Support};

use crate::{Meter, Placement, RunCause};
use model::{LoadKind, PathError, VERSION_MODE};

pub use version::{version_in, version_of};

/// UDP and control port of peer programs in a lab.
const PORT: u16 = 9100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Each datagram is sent when the previous one is answered.
    PingPong,
    /// As fast as possible, one way.
    Flood,
    /// The same from the far end.
    FloodBack,
    /// As fast as possible, in both directions at once.
    BothWays,
    /// Bytes over one TCP connection, as fast as possible.
    TcpFlood,
    /// On a fixed schedule.
    Open {
        /// Datagrams a second.
        rate_pps: u64,
        /// Datagrams that are due together.
        burst: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerJob {
    pub traffic: Traffic,
    /// UDP payload of each datagram, or length of each write to TCP, bytes.
    pub size_bytes: usize,
    /// Segment under which its latency is reported: `rtt` for whole round trips, any other for half
    /// of one, which peer programs use as one-way latency.
    pub segment: &'static str,
}

/// A peer program that can carry a load.
trait Peer {
    /// One bounded run. Returns the measurement and the total CPU time of the programs in
    /// nanoseconds.
    fn trial(
        &mut self,
        pair: &Pair,
        job: &PeerJob,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError>;

    /// Options that change what its figures compare with, for the record.
    fn options(&self, _job: &PeerJob) -> &'static str {
        ""
    }
}

/// A peer that is kept from its first trial to the last.
struct Opened {
    peer: Box<dyn Peer>,
    version: Option<String>,
}

/// The peers of a session.
#[derive(Default)]
pub struct Peers {
    open: BTreeMap<String, Opened>,
}

impl Peers {
    /// True until the first trial of a peer.
    fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Runs one trial of a peer and accounts for the CPU time of its programs and of the kernel.
    pub fn trial(
        &mut self,
        name: &str,
        job: &PeerJob,
        pair: &Pair,
        places: &Placement,
        clock: &CpuClock,
    ) -> Result<Measurement, PathError> {
        let Opened { peer, version } = match self.open.entry(name.to_owned()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(vacant) => {
                let peer = open(name, job)?;
                let argument = if name == "irtt" { "version" } else { "--version" };
                vacant.insert(Opened { peer, version: version_of(name, &[argument]) })
            }
        };
        let meter = Meter::start(clock, &places.both())?;
        let (mut m, children_ns) = peer.trial(pair, job, places)?;
        meter.stop()?.with_children(children_ns).account(&mut m);
        m.mode.extend(version.clone().map(|version| (VERSION_MODE.to_owned(), version)));
        let options = Some(peer.options(job)).filter(|options| !options.is_empty());
        m.mode.extend(options.map(|options| ("options".to_owned(), options.to_owned())));
        Ok(m)
    }
}

fn open(name: &str, job: &PeerJob) -> Result<Box<dyn Peer>, PathError> {
    match name {
        "iperf3" => Ok(Box::new(iperf3::Iperf3::installed())),
        "irtt" => Ok(Box::new(irtt::Irtt)),
        "qperf" => Ok(Box::new(qperf::Qperf)),
        "sockperf" => Ok(Box::<sockperf::Sockperf>::default()),
        _ => Err(PathError::Invalid {
            what: format!("no peer named {name} for {:?}", job.traffic),
            remedy: "use iperf3 or qperf (floods), irtt (schedules) or sockperf (all but floods)"
                .into(),
        }),
    }
}

/// Checks that a peer is installed and can carry a load.
pub fn support(name: &str, load: &LoadKind) -> Support {
    let known = load.peers;
    if !known.contains(&name) {
        let carries = if known.is_empty() { "none".into() } else { known.join(", ") };
        return Support::Refused {
            why: format!("{name} does not support load {}; programs that do: {carries}", load.name),
        };
    }
    match Command::new(name).arg("--version").output() {
        Ok(_) => Support::Yes,
        Err(_) => Support::unsupported(
            format!("{name} is not installed"),
            format!("apt-get install {name}"),
        ),
    }
}

fn failed(program: &str, why: impl Into<RunCause>) -> PathError {
    PathError::at(program, why)
}

/// Starts the server of a peer in the far namespace.
fn serve(pair: &Pair, places: &Placement, command: Command) -> Result<Child, PathError> {
    let place = ChildPlace { netns: Some(&pair.far.netns), cpus: &places.far };
    Child::spawn(command, &place).map_err(PathError::part)
}

/// Starts the client of a peer in the near namespace.
fn start_client(pair: &Pair, places: &Placement, command: Command) -> Result<Child, PathError> {
    let place = ChildPlace { netns: Some(&pair.near.netns), cpus: &places.near };
    Child::spawn(command, &place).map_err(PathError::part)
}

/// Waits for the end of a client, with whatever status.
fn wait_client(program: &str, mut child: Child, timeout: Duration) -> Result<Finished, PathError> {
    let ended = child.wait(timeout).map_err(PathError::part)?;
    ended.ok_or_else(|| failed(program, format!("no exit within {} s", timeout.as_secs())))
}

fn finish_client(program: &str, child: Child, timeout: Duration) -> Result<Finished, PathError> {
    let finished = wait_client(program, child, timeout)?;
    match why_failed(&finished) {
        Some(why) => Err(failed(program, why)),
        None => Ok(finished),
    }
}

/// Exit status and error of a program that ended without success.
fn why_failed(finished: &Finished) -> Option<String> {
    if finished.status.success() {
        return None;
    }
    let text = [&finished.stdout[..], &finished.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|l| l.to_lowercase().contains("error"));
    Some(format!("{}: {}", finished.status, line.unwrap_or("no message").trim()))
}

fn cost(usage: &ChildUsage) -> Cost {
    Cost {
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        context_switch_count: usage.voluntary_switch_count + usage.involuntary_switch_count,
        ..Cost::default()
    }
}
