//! Other programs as arms: run in the same lab and the same blocks, their own output parsed
//! into the same measurement.

mod iperf3;
mod sockperf;

use std::process::Command;
use std::time::Duration;

use host::lab::Pair;
use model::{Cost, Measurement, Support};
use sys_child::{Child, ChildUsage, Finished, Place};

use super::session::Placement;
use crate::path::{Load, PathError};

/// Children of this process, placed in a lab.
use host::child as sys_child;

/// UDP (and control) port that other programs get in a lab.
const PORT: u16 = 9100;

/// Another program that can carry a load.
pub(super) trait Peer {
    /// One bounded run; with the CPU time that the programs took in all, nanoseconds.
    fn trial(
        &mut self,
        pair: &Pair,
        load: &Load,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError>;
}

/// A peer by name.
pub(super) fn open(name: &str, load: &Load) -> Result<Box<dyn Peer>, PathError> {
    match name {
        "iperf3" => Ok(Box::new(iperf3::Iperf3)),
        "sockperf" => Ok(Box::<sockperf::Sockperf>::default()),
        _ => Err(PathError::Invalid {
            what: format!("no peer named {name} for load {}", load.kind),
            remedy: "known are iperf3 (flood) and sockperf (ping, paced)".into(),
        }),
    }
}

/// Whether a peer is installed and can carry the load.
pub(super) fn support(name: &str, load: &Load, known: &[&str]) -> Support {
    if !known.contains(&name) {
        let carries = if known.is_empty() { "none does".into() } else { known.join(", ") };
        return Support::Refused {
            why: format!(
                "{name} does not carry load {}; of the known programs {carries}",
                load.kind
            ),
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
