//! The near end's view of a far end on another host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::text::printable;
use lab::SshHost;
use lab::program::ProgramError;
use model::{Machine, NotEffective, PathError};
use remote::{Caller, FarOptions, RemoteError};

use crate::CheckedPrograms;
use crate::exchange::{FarPrograms, Opening, Reply, Request};
use crate::figures::FigureValues;
use crate::problem::Problem;
use crate::samples;
use crate::serve::{CLOSED_TIMEOUT, FarSeen, Watch};
use crate::turn::TrialTurn;
use crate::variables::WireEnd;

/// Time that an answer may take beyond that of the commands which it waits for.
const ANSWER_GRACE: Duration = Duration::from_secs(30);
/// Interval of the checks on the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(20);
/// Largest count that another host reports, so that sums do not overflow.
const COUNT_MAX: u64 = 1 << 53;

/// Part of another host in an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    /// Place between the ends, by its name.
    Place(String),
}

/// A far end on another host, started for this experiment.
pub(crate) struct Remote {
    caller: Caller<FarPrograms>,
    role: Role,
    address: IpAddr,
    /// Interface under test; empty until it is open.
    interface: String,
    machine: Option<Machine>,
    /// Longest time of one step.
    limit: Duration,
    stop: &'static AtomicBool,
    is_interrupted: bool,
    /// Time at which the server of this trial was reported to have ended, CLOCK_MONOTONIC nanoseconds.
    server_ended_ns: Option<u64>,
    /// Reason why no trial is possible any more.
    broken: Option<String>,
}

impl Remote {
    /// Connects to the host and starts the far end; it knows no experiment yet.
    pub(crate) fn start(
        spec: &CheckedPrograms,
        host: &SshHost,
        role: Role,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        let options = FarOptions {
            address: spec.far_address.filter(|_| role == Role::Server),
            ssh_options: &spec.ssh_options,
            ..FarOptions::default()
        };
        let limits = &spec.limits;
        let grace = limits.grace + limits.step + Duration::from_secs(10);
        let mut caller = Caller::ssh(host, &options).map_err(PathError::part)?;
        caller.set_grace(grace);
        let Some(address) = caller.address() else {
            return Err(PathError::Part(format!("{host} has no address").into()));
        };
        Ok(Remote {
            caller,
            role,
            address,
            interface: String::new(),
            machine: None,
            limit: spec.limit() + CLOSED_TIMEOUT + ANSWER_GRACE,
            stop,
            is_interrupted: false,
            server_ended_ns: None,
            broken: None,
        })
    }

    /// Its address for the load.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// It for the variables of commands.
    pub(crate) fn wire_end(&self) -> WireEnd {
        WireEnd::reported(self.address, self.interface.clone())
    }

    /// Tells it the experiment, and both ends.
    pub(crate) fn open(
        &mut self,
        spec: &CheckedPrograms,
        near: WireEnd,
        far: WireEnd,
    ) -> Result<(), PathError> {
        let place = match &self.role {
            Role::Server => None,
            Role::Place(name) => Some(name.clone()),
        };
        let opening = Opening { experiment: spec.source.clone(), place, far: far.ip, near };
        self.ask(&Request::Open(Box::new(opening)))?;
        match self.reply()? {
            Reply::Opened { machine, interface } => {
                self.interface = interface;
                self.machine = Some(plain(*machine));
                Ok(())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn machine(&self) -> Option<Machine> {
        self.machine.clone()
    }

    /// Reason why no trial is possible any more.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Mistakes that would fail trials there.
    pub(crate) fn check(&mut self) -> Result<Vec<Problem>, PathError> {
        self.ask(&Request::Check)?;
        match self.reply()? {
            Reply::Checked(problems) => Ok(problems),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs the far end's part of one trial around `measure`.
    pub(crate) fn trial<R>(
        &mut self,
        turn: &TrialTurn,
        measure: impl FnOnce(&mut dyn Watch) -> Result<R, PathError>,
    ) -> Result<((R, FigureValues), Vec<NotEffective>), PathError> {
        if let Some(why) = &self.broken {
            return Err(PathError::at("far", why.clone()));
        }
        self.server_ended_ns = None;
        self.ask(&Request::Trial(turn.clone()))?;
        let ready_ns = match self.reply()? {
            Reply::Ready { ready_ns } => ready_ns,
            other => return Err(self.unexpected(&other)),
        };
        let mut watch = RemoteWatch { remote: self, ready_ns, is_over: false };
        let measured = measure(&mut watch);
        if watch.is_over {
            return measured.map(|measured| ((measured, FigureValues::new()), Vec::new()));
        }
        self.ask(&Request::Stop)?;
        let done = match self.reply() {
            Ok(Reply::Done { not_effective, figures }) => Ok((not_effective, figures)),
            Ok(other) => Err(self.unexpected(&other)),
            Err(error) => Err(error),
        };
        let measured = measured?;
        done.map(|(not_effective, figures)| ((measured, figures), not_effective))
    }

    fn ask(&mut self, request: &Request) -> Result<(), PathError> {
        self.caller.call(request).map_err(PathError::part)
    }

    /// Its next answer. Errors: it reports a failure, has ended, or takes too long.
    fn reply(&mut self) -> Result<Reply, PathError> {
        let until = Instant::now() + self.limit;
        loop {
            if self.stop.load(Ordering::Relaxed) && !self.is_interrupted {
                self.is_interrupted = true;
                self.ask(&Request::Interrupt)?;
            }
            if let Some(reply) = self.reply_within(STOP_INTERVAL)? {
                return Ok(reply);
            }
            if Instant::now() > until {
                let error = self.caller.silent(self.limit);
                return Err(self.lost(&error));
            }
        }
    }

    fn reply_within(&mut self, limit: Duration) -> Result<Option<Reply>, PathError> {
        match self.caller.answer(limit) {
            Ok(Some(Reply::Failed { why, is_broken })) => {
                let why = printable(&why, 4000);
                if is_broken {
                    self.broken = Some(why.clone());
                }
                Err(PathError::Part(why.into()))
            }
            Ok(Some(Reply::Ended)) => {
                self.server_ended_ns = Some(sys::clock::monotonic_ns());
                Ok(None)
            }
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// The error, after which no trial is possible.
    fn lost(&mut self, error: &RemoteError) -> PathError {
        let why = host::text::chain(error);
        self.broken = Some(why.clone());
        PathError::Part(why.into())
    }

    fn unexpected(&mut self, reply: &Reply) -> PathError {
        let error = self.caller.unexpected(reply);
        self.lost(&error)
    }
}

/// The far end of a trial while its client runs.
struct RemoteWatch<'a> {
    remote: &'a mut Remote,
    ready_ns: Option<u64>,
    /// True if the far end has ended the trial.
    is_over: bool,
}

impl RemoteWatch<'_> {
    fn expect<T>(
        &mut self,
        request: &Request,
        take: impl FnOnce(Reply) -> Result<T, Reply>,
    ) -> Result<T, PathError> {
        let reply = self.remote.ask(request).and_then(|()| self.remote.reply());
        let taken =
            reply.and_then(|reply| take(reply).map_err(|other| self.remote.unexpected(&other)));
        self.is_over |= taken.is_err();
        taken
    }
}

impl Watch for RemoteWatch<'_> {
    fn ready_ns(&self) -> Option<u64> {
        self.ready_ns
    }

    fn begin(&mut self) -> Result<(), PathError> {
        self.expect(&Request::Begin, |reply| match reply {
            Reply::Begun => Ok(()),
            other => Err(other),
        })
    }

    fn server_ended_ns(&mut self) -> Result<Option<u64>, ProgramError> {
        let checked = match self.remote.reply_within(Duration::ZERO) {
            Ok(None) => return Ok(self.remote.server_ended_ns),
            Ok(Some(other)) => Err(self.remote.unexpected(&other)),
            Err(error) => Err(error),
        };
        self.is_over = true;
        checked.map_err(|error: PathError| ProgramError::Elsewhere { why: error.to_string() })
    }

    fn end(&mut self) -> Result<FarSeen, PathError> {
        self.expect(&Request::End, |reply| match reply {
            Reply::Seen(seen) => Ok(sane(*seen)),
            other => Err(other),
        })
    }
}

/// Figures whose sums do not overflow.
fn sane(mut seen: FarSeen) -> FarSeen {
    let counts = seen
        .counters
        .iter_mut()
        .flat_map(|counters| [&mut counters.packets, &mut counters.bytes, &mut counters.drops]);
    let of_server = seen.server.iter_mut().flat_map(|usage| {
        [&mut usage.user_ns, &mut usage.system_ns, &mut usage.context_switch_count]
    });
    counts.chain(of_server).for_each(|count| *count = (*count).min(COUNT_MAX));
    seen.samples = seen.samples.map(samples::sane);
    seen
}

/// A far machine, without its notes.
fn plain(machine: Machine) -> Machine {
    Machine { notes: BTreeMap::new(), ..lab::machine_of_far_end(machine) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::FarCounters;

    #[test]
    fn counts_of_another_host_are_bounded_and_its_texts_printable() {
        let counters = FarCounters { packets: u64::MAX, bytes: u64::MAX, ..FarCounters::default() };
        let functions = (0..300).map(|number| model::FunctionSamples {
            program: "client\x1b".into(),
            function: format!("{number}\x1b[31m{}", "x".repeat(400)),
            kind: model::CodeKind::Function,
            sample_count: u64::MAX,
        });
        let samples = model::CpuSamples {
            interval_ns: 1,
            functions: functions.collect(),
            other_count: u64::MAX,
            ..model::CpuSamples::default()
        };
        let seen = sane(FarSeen {
            server: None,
            has_server_ended: false,
            mtu_bytes: None,
            counters: Some(counters),
            host: None,
            stages: None,
            losses: Vec::new(),
            samples: Some(samples),
        });
        let samples = seen.samples.unwrap();
        assert_eq!(samples.functions.len(), model::FUNCTIONS_MAX);
        assert_eq!((samples.trial_count, samples.other_count), (1, 1 << 40));
        let is_plain = |of: &model::FunctionSamples| {
            of.program == "server" && of.function.len() == 200 && !of.function.contains('\x1b')
        };
        assert!(samples.functions.iter().all(is_plain), "{:?}", samples.functions);
        let counters = seen.counters.unwrap();
        assert_eq!((counters.packets, counters.drops), (COUNT_MAX, 0));
        let machine = Machine { cpu: "a\x1b[31m\n".into(), ..Machine::default() };
        assert_eq!(plain(machine).cpu, "a[31m");
    }
}
