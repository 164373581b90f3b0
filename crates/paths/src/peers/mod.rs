//! Other programs as arms: run in the same lab and the same blocks, their own output parsed
//! into the same measurement.

mod iperf3;
mod sockperf;

use std::collections::btree_map::{BTreeMap, Entry};
use std::process::Command;
use std::time::Duration;

use host::child::{Child, ChildUsage, Finished, Place};
use host::cpu::CpuClock;
use host::lab::Pair;
use model::{Cost, Measurement, Support};

use crate::lab::{Meter, Placement};
use crate::path::{LoadKind, PathError};

/// UDP (and control) port that other programs get in a lab.
const PORT: u16 = 9100;

/// Which datagrams another program is to send, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// The next when the answer to the last has come.
    PingPong,
    /// As many as it can.
    Flood,
    /// On a fixed schedule, so many at once.
    Open {
        /// Datagrams a second.
        rate_pps: u64,
        /// Datagrams that are due together.
        burst: u64,
    },
}

/// What another program is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its traffic.
    pub(crate) traffic: Traffic,
    /// UDP payload of each datagram, bytes.
    pub(crate) size_bytes: usize,
    /// Segment that its latency is reported as: `rtt` for whole round trips, any other for half
    /// of one, which is what such programs take for one way.
    pub(crate) segment: &'static str,
}

/// Another program that can carry a load.
trait Peer {
    /// One bounded run; with the CPU time that the programs took in all, nanoseconds.
    fn trial(
        &mut self,
        pair: &Pair,
        job: &Job,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError>;
}

/// The peers of a session, each opened for its first trial and kept until the last.
#[derive(Default)]
pub(crate) struct Peers {
    open: BTreeMap<String, Box<dyn Peer>>,
}

impl Peers {
    /// One trial of a peer, with what it and the kernel used.
    pub(crate) fn trial(
        &mut self,
        name: &str,
        job: &Job,
        pair: &Pair,
        places: &Placement,
        clock: &CpuClock,
    ) -> Result<Measurement, PathError> {
        let peer = match self.open.entry(name.to_owned()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(open(name, job)?),
        };
        let meter = Meter::start(clock)?;
        let (mut m, children_ns) = peer.trial(pair, job, places)?;
        meter.stop()?.with_children(children_ns).account(&mut m);
        Ok(m)
    }
}

/// A peer by name.
fn open(name: &str, job: &Job) -> Result<Box<dyn Peer>, PathError> {
    match name {
        "iperf3" => Ok(Box::new(iperf3::Iperf3)),
        "sockperf" => Ok(Box::<sockperf::Sockperf>::default()),
        _ => Err(PathError::Invalid {
            what: format!("no peer named {name} for {:?}", job.traffic),
            remedy: "known are iperf3 (floods) and sockperf (all others)".into(),
        }),
    }
}

/// Whether a peer is installed and can carry one of the loads.
pub(crate) fn support(name: &str, load: &str, loads: &[LoadKind]) -> Support {
    let known = loads.iter().find(|l| l.name == load).map_or(&[][..], |l| l.peers);
    if !known.contains(&name) {
        let carries = if known.is_empty() { "none does".into() } else { known.join(", ") };
        return Support::Refused {
            why: format!("{name} does not carry load {load}; of the known programs {carries}"),
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

fn failed(program: &str, why: impl Into<String>) -> PathError {
    PathError::End { end: program.to_owned(), why: why.into() }
}

/// The server of a peer, in the far namespace.
fn serve(pair: &Pair, places: &Placement, command: Command) -> Result<Child, PathError> {
    let place = Place { netns: Some(&pair.far.netns), cpus: &places.far };
    Child::spawn(command, &place).map_err(PathError::part)
}

/// The client of a peer, in the near namespace.
fn start_client(pair: &Pair, places: &Placement, command: Command) -> Result<Child, PathError> {
    let place = Place { netns: Some(&pair.near.netns), cpus: &places.near };
    Child::spawn(command, &place).map_err(PathError::part)
}

/// Waits for a client's end.
fn finish_client(
    program: &str,
    mut child: Child,
    timeout: Duration,
) -> Result<Finished, PathError> {
    let Some(finished) = child.wait(timeout).map_err(PathError::part)? else {
        return Err(failed(program, format!("did not end within {} s", timeout.as_secs())));
    };
    if !finished.status.success() {
        let text = [&finished.stdout[..], &finished.stderr[..]].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rev().find(|l| l.to_lowercase().contains("error"));
        let why = line.unwrap_or("no message").trim().to_owned();
        return Err(failed(program, format!("{}: {why}", finished.status)));
    }
    Ok(finished)
}

fn cost(usage: &ChildUsage) -> Cost {
    Cost {
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        softirq_ns: None,
        context_switch_count: usage.voluntary_switch_count + usage.involuntary_switch_count,
        syscall_count: None,
    }
}
