//! Servers of peer programs at a far end on another host, or in another namespace, by calls of the near end.
//!
//! | near | far |
//! |---|---|
//! | `Serve` | starts iperf3 at an address, and waits until it listens: `Serving` |
//! | `Finish` | waits for its end, which follows the client's: `Ended` |
//! | `Stop` | ends it: `Stopped` |
//!
//! `Failed` takes the place of any answer. The command is the far end's own; no text of the near end becomes a part of it.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::cpu::CpuClock;
use lab::peers::hosts;
use lab::program::{FinishedProgram, Program, ProgramSpec, Ready};
use lab::{FarEnd, HostTime, Meter};
use model::{Cost, Measurement, PathError};
use remote::{Caller, Calls, FarOptions, NearEndGone, Service};
use serde::{Deserialize, Serialize};

/// Time for the server to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the server to end after its client; a busy host needs seconds.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for the server to end after SIGTERM.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// Interval of the checks on the server while the client runs.
const SERVER_INTERVAL: Duration = Duration::from_millis(20);
/// Largest report of a server.
const REPORT_BYTES_MAX: usize = 1 << 20;
/// Largest time that another host reports, so that sums do not overflow.
const NS_MAX: u64 = 1 << 53;

/// Servers of peer programs.
#[derive(Debug)]
pub enum FarPeers {}

impl Service for FarPeers {
    const NAME: &str = "peers";
    type Call = PeersCall;
    type Answer = PeersAnswer;
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PeersCall {
    Serve {
        address: IpAddr,
        /// Empty for all.
        cpus: Vec<usize>,
    },
    Finish,
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PeersAnswer {
    Serving,
    Ended(Box<ServerEnd>),
    Stopped,
    Failed { why: String },
}

/// A server that has ended after its client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerEnd {
    /// Its JSON report.
    pub report: String,
    pub cost: Cost,
    /// Of its host, from before its start.
    pub host: HostTime,
}

/// Answers the near end at standard input and output until it is gone.
///
/// Errors: the exchange is broken. A server that fails is an answer.
pub fn answer_peers(stop: &'static AtomicBool) -> Result<(), PathError> {
    let mut calls = Calls::<FarPeers>::start(stop).map_err(PathError::part)?;
    let clock = CpuClock::open().map_err(PathError::part)?;
    while let Some(call) = calls.next_call() {
        let answer = match call {
            PeersCall::Serve { address, cpus } => {
                serve(address, &cpus, &clock, &mut calls, stop).unwrap_or_else(failed)
            }
            // Of a server that has failed before.
            PeersCall::Finish | PeersCall::Stop => continue,
        };
        calls.answer(&answer).map_err(PathError::part)?;
    }
    calls.finish().map_err(PathError::part)
}

fn failed(why: PathError) -> PeersAnswer {
    PeersAnswer::Failed { why: host::text::one_line(&why) }
}

/// One server from its start to its end. Returns the answer to the last call.
fn serve(
    address: IpAddr,
    cpus: &[usize],
    clock: &CpuClock,
    calls: &mut Calls<FarPeers>,
    stop: &AtomicBool,
) -> Result<PeersAnswer, PathError> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        let text = "iperf3 is not installed at the far end; there: apt-get install iperf3";
        return Err(PathError::Part(text.into()));
    }
    let meter = Meter::start(clock, cpus)?;
    let command = hosts::server_command(address);
    let spec = ProgramSpec {
        command: &command,
        env: Vec::new(),
        netns: None,
        cpus,
        folder: Path::new("/"),
        name: "iperf3",
    };
    let mut server = Program::start(&spec).map_err(PathError::part)?;
    server.wait_ready(&Ready::Tcp(hosts::PORT), START_TIMEOUT, stop).map_err(PathError::part)?;
    calls.answer(&PeersAnswer::Serving).map_err(PathError::part)?;
    loop {
        match calls.within(SERVER_INTERVAL) {
            Ok(Some(PeersCall::Finish)) => break,
            Ok(Some(_)) | Err(NearEndGone) => {
                server.stop(STOP_GRACE).map_err(PathError::part)?;
                return Ok(PeersAnswer::Stopped);
            }
            Ok(None) => server.is_running().map(drop).map_err(PathError::part)?,
        }
    }
    let ended = server.wait(END_TIMEOUT, stop).map_err(PathError::part)?;
    let host = meter.stop()?.with_children(ended.usage.cpu_ns()).host_time();
    Ok(PeersAnswer::Ended(Box::new(ServerEnd {
        report: report(&ended)?,
        cost: ended.usage.cost(),
        host,
    })))
}

fn report(ended: &FinishedProgram) -> Result<String, PathError> {
    let bytes = ended.stdout.bytes();
    if let Some(why) = hosts::server_error(bytes) {
        return Err(PathError::Part(format!("the server reports: {why}").into()));
    }
    if !ended.status.success() {
        return Err(PathError::Part(format!("{}; {}", ended.status, ended.last_lines()).into()));
    }
    if bytes.len() > REPORT_BYTES_MAX {
        return Err(PathError::Part(format!("a report of {} bytes", bytes.len()).into()));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The near end's view of a far end that starts servers.
pub(crate) struct Servers {
    caller: Caller<FarPeers>,
}

impl Servers {
    /// Starts the far end.
    ///
    /// Errors: it is a peer, which starts no programs, or it does not start.
    pub(crate) fn open(end: &FarEnd, options: &FarOptions<'_>) -> Result<Self, PathError> {
        let caller = match end {
            FarEnd::Ssh(host) => Caller::ssh(host, options),
            FarEnd::Netns(name) => Caller::netns(name, options),
            FarEnd::Peer(_) => return Err(PathError::Part(NO_PEER.into())),
        };
        let mut caller = caller.map_err(PathError::part)?;
        caller.set_grace(STOP_GRACE * 3);
        Ok(Servers { caller })
    }

    /// Runs `client` beside a server. Returns its result and the server's end.
    pub(crate) fn around<R>(
        &mut self,
        address: IpAddr,
        cpus: &[usize],
        client: impl FnOnce() -> Result<R, PathError>,
    ) -> Result<(R, ServerEnd), PathError> {
        let cpus = cpus.to_vec();
        match self.ask(&PeersCall::Serve { address, cpus }, START_TIMEOUT * 2)? {
            PeersAnswer::Serving => {}
            other => return Err(self.unexpected(other)),
        }
        let ran = client();
        let call = if ran.is_ok() { PeersCall::Finish } else { PeersCall::Stop };
        let answer = self.ask(&call, END_TIMEOUT * 2);
        // A server that failed explains its client's failure better.
        if let (Err(_), Ok(PeersAnswer::Failed { .. })) = (&ran, &answer) {
            return Err(self.unexpected(answer?));
        }
        let ran = ran?;
        match answer? {
            PeersAnswer::Ended(end) => Ok((ran, bounded(*end))),
            other => Err(self.unexpected(other)),
        }
    }

    fn ask(&mut self, call: &PeersCall, limit: Duration) -> Result<PeersAnswer, PathError> {
        self.caller.call(call).map_err(PathError::part)?;
        self.caller.expect_answer(limit).map_err(PathError::part)
    }

    fn unexpected(&self, answer: PeersAnswer) -> PathError {
        match answer {
            PeersAnswer::Failed { why } => {
                PathError::at("iperf3", format!("far end: {}", host::text::printable(&why, 4000)))
            }
            other => PathError::part(self.caller.unexpected(&other)),
        }
    }
}

/// Reason why a peer serves no other programs, and the remedy.
pub(crate) const NO_PEER: &str = "a peer starts no other programs; use --far ssh:HOST or netns:NAME, or leave iperf3 out of --peers";

/// Times whose sums do not overflow.
fn bounded(mut end: ServerEnd) -> ServerEnd {
    for ns in [&mut end.cost.user_ns, &mut end.cost.system_ns, &mut end.host.own_ns] {
        *ns = (*ns).min(NS_MAX);
    }
    end.cost.context_switch_count = end.cost.context_switch_count.min(NS_MAX);
    end
}

/// Adds the far end's part to a measurement.
///
/// - `used`: of this end, with its client.
/// - `is_here`: both ends are on this machine, whose time `used` has whole.
pub(crate) fn account(m: &mut Measurement, end: &ServerEnd, used: lab::Used, is_here: bool) {
    m.costs.insert("far".into(), end.cost);
    if is_here {
        used.with_children(end.host.own_ns).account(m);
    } else {
        used.account(m);
        end.host.account_far(m);
    }
    m.traps.push(lab::softirqs_missing());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_with_a_word_that_this_end_does_not_know_is_refused() {
        let known = r#"{"serve":{"address":"10.0.0.2","cpus":[]}}"#;
        assert!(serde_json::from_str::<PeersCall>(known).is_ok());
        let newer = r#"{"serve":{"address":"10.0.0.2","cpus":[],"command":"id"}}"#;
        assert!(serde_json::from_str::<PeersCall>(newer).is_err());
    }

    #[test]
    fn times_of_another_host_are_bounded() {
        let cost = Cost { user_ns: u64::MAX, system_ns: u64::MAX, ..Cost::default() };
        let host = HostTime { own_ns: u64::MAX, ..HostTime::default() };
        let end = bounded(ServerEnd { report: String::new(), cost, host });
        assert_eq!((end.cost.cpu_ns(), end.host.own_ns), (NS_MAX * 2, NS_MAX));
    }
}
