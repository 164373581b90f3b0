//! The far end of a trial: setup, server, its end, and cleanup.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use host::explain::{Narrow, StageTrace};
use host::sampling::{SampledProgram, Sampler};
use lab::adapters::Origin;
use lab::program::{
    self, FinishedProgram, PortUse, Program, ProgramEnd, ProgramError, Transport, Usage,
    port_holder,
};
use lab::{HostTime, LossWatch};
use model::{CpuSamples, PathError};
use serde::{Deserialize, Serialize};

use crate::accounting::{FarCounters, SERVER, Stages};
use crate::figures::{FigureValues, Files, UnitsBeside};
use crate::samples;
use crate::side::Side;
use crate::turn::TrialTurn;
use crate::variables::{WireEnd, variables};
use crate::{At, CheckedPrograms};

/// Figures of the far end, from the start of a client to its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FarSeen {
    /// `None` without a server.
    pub(crate) server: Option<Usage>,
    /// True if the server has ended with success, as one for a single client does.
    #[serde(default)]
    pub(crate) has_server_ended: bool,
    /// MTU of the interface under test.
    #[serde(default)]
    pub(crate) mtu_bytes: Option<u64>,
    /// `None` for this host itself.
    pub(crate) counters: Option<FarCounters>,
    /// Of another host.
    pub(crate) host: Option<HostTime>,
    pub(crate) stages: Option<Stages>,
    /// Causes of packets that its namespace lost.
    #[serde(default)]
    pub(crate) losses: Vec<String>,
    /// CPU time of the server by function.
    #[serde(default)]
    pub(crate) samples: Option<CpuSamples>,
}

/// The far end while a client runs, on this host or on another.
pub(crate) trait Watch {
    /// Time that the server took to get ready; `None` if it ran already, or there is none.
    fn ready_ns(&self) -> Option<u64>;
    /// Errors: the server has ended already.
    fn begin(&mut self) -> Result<(), PathError>;
    /// Time at which the server ended with success, CLOCK_MONOTONIC nanoseconds of this host: it may have served its only
    /// client. `None` while it runs, and without a server.
    ///
    /// Errors: the server has failed.
    fn server_ended_ns(&mut self) -> Result<Option<u64>, ProgramError>;
    /// Errors: the server has failed or has ended without a packet, or a count cannot be read.
    fn end(&mut self) -> Result<FarSeen, PathError>;
}

/// Everything that the trials of an experiment share at the server's end.
pub(crate) struct Serving {
    pub(crate) spec: CheckedPrograms,
    pub(crate) side: Side,
    pub(crate) near: WireEnd,
    /// Empty for any.
    pub(crate) cpus: Vec<usize>,
    /// Working directory of all commands.
    pub(crate) folder: PathBuf,
    pub(crate) stop: &'static AtomicBool,
    pub(crate) units_beside: RefCell<UnitsBeside>,
    pub(crate) sampler: Arc<Sampler>,
}

/// Running servers by arm, with `--keep-servers`.
pub(crate) type Kept = BTreeMap<String, Program>;

/// Time for a server to end by itself after its last client or feed: one that serves a single client prints then.
pub(crate) const DRAIN_TIME: Duration = Duration::from_millis(500);

/// Name of the program beside a trial in errors.
const BESIDE: &str = "program beside";

/// Interval of the looks at the output of a server that is kept.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(20);

/// Longest time that a closed connection holds a port, and margin.
///
/// Source: TCP_TIMEWAIT_LEN of include/net/tcp.h.
pub(crate) const CLOSED_TIMEOUT: Duration = Duration::from_secs(65);

impl Serving {
    /// Runs the far end's part of one trial around `measure`, and takes its figures. The cleanup runs after a failed
    /// trial, too.
    pub(crate) fn trial<R>(
        &self,
        turn: &TrialTurn,
        kept: &mut Kept,
        measure: impl FnOnce(&mut LocalWatch<'_>) -> Result<R, PathError>,
    ) -> Result<(R, FigureValues), PathError> {
        let measured = self.with_setup(turn, kept, measure);
        let cleaned = match &self.spec.cleanup {
            // It runs after an interruption, too.
            Some(command) => self.step("cleanup", command, turn, &AtomicBool::new(false)),
            None => Ok(()),
        };
        let measured = measured?;
        cleaned.map(|()| measured)
    }

    fn with_setup<R>(
        &self,
        turn: &TrialTurn,
        kept: &mut Kept,
        measure: impl FnOnce(&mut LocalWatch<'_>) -> Result<R, PathError>,
    ) -> Result<(R, FigureValues), PathError> {
        if let Some(command) = &self.spec.setup {
            self.step("setup", command, turn, self.stop)?;
        }
        let Some((command, ready)) = &self.spec.beside else {
            return self.with_server(turn, kept, measure);
        };
        let mut beside = self.start(BESIDE, command, self.env(turn)).map_err(PathError::part)?;
        beside.wait_ready(ready, self.spec.limits.ready, self.stop).map_err(PathError::part)?;
        let measured = self.with_server(turn, kept, measure);
        let ended = beside.interrupt(self.spec.limits.grace).map_err(PathError::part);
        let (measured, mut values) = measured?;
        self.take(Origin::Beside, &check_beside(ended?)?, &mut values)?;
        Ok((measured, values))
    }

    fn with_server<R>(
        &self,
        turn: &TrialTurn,
        kept: &mut Kept,
        measure: impl FnOnce(&mut LocalWatch<'_>) -> Result<R, PathError>,
    ) -> Result<(R, FigureValues), PathError> {
        let watch = |server, ready| LocalWatch { serving: self, server, ready, begun: None };
        if !self.spec.has_server() {
            return Ok((measure(&mut watch(None, None))?, FigureValues::new()));
        }
        let files = Files { folder: &self.folder, since: SystemTime::now() };
        if self.spec.keep {
            if turn.is_fresh
                && let Some(server) = kept.remove(&turn.name)
            {
                server.stop(self.spec.limits.grace).map_err(PathError::part)?;
            }
            let server = self.kept_server(turn, kept)?;
            let mark_bytes = server.output_len_bytes();
            let measured = measure(&mut watch(Some(&server), None))
                .and_then(|of| Ok((of, self.kept_values(&server, mark_bytes, &files)?)));
            let is_running = server.is_running().map_err(PathError::part);
            if matches!(is_running, Ok(true)) {
                kept.insert(turn.name.clone(), server);
            }
            let measured = measured?;
            return is_running.map(|_| measured);
        }
        let (server, ready) = self.serve(turn)?;
        let measured = measure(&mut watch(Some(&server), Some(ready)));
        if measured.is_ok() && self.spec.feed.is_none() && self.has_figures_of_server() {
            wait_until(DRAIN_TIME, self.stop, || !server.is_running().unwrap_or(false))?;
        }
        let stopped = server.stop(self.spec.limits.grace).map_err(PathError::part);
        let (measured, stopped) = (measured?, stopped?);
        if stopped.end == ProgramEnd::ByItself {
            check_status("server", &stopped)?;
        }
        let mut values = FigureValues::new();
        self.take(Origin::Server, &stopped, &mut values)?;
        self.take_files(&files, &mut values)
            .map_err(|why| PathError::at("server", format!("{why}; {}", stopped.last_lines())))?;
        Ok((measured, values))
    }

    /// Adds the figures of a program's output, which is complete. A missing one fails the trial.
    fn take(
        &self,
        origin: Origin,
        program: &FinishedProgram,
        values: &mut FigureValues,
    ) -> Result<(), PathError> {
        let name = if origin == Origin::Beside { BESIDE } else { "server" };
        self.take_output(&origin, program.stdout.bytes(), values)
            .map_err(|why| PathError::at(name, format!("{why}; {}", program.last_lines())))
    }

    fn take_output(
        &self,
        origin: &Origin,
        output: &[u8],
        values: &mut FigureValues,
    ) -> Result<(), String> {
        for figure in self.spec.figures_of_far().filter(|figure| figure.origin == *origin) {
            let mut units = self.units_beside.borrow_mut();
            let beside = units.entry(figure.name.clone()).or_default();
            let value = figure.take_beside(output, beside);
            values.insert(figure.name.clone(), value.map_err(|error| host::text::chain(&error))?);
        }
        Ok(())
    }

    fn take_files(&self, files: &Files<'_>, values: &mut FigureValues) -> Result<(), String> {
        for figure in self.spec.figures_of_far() {
            let Origin::File(path) = &figure.origin else { continue };
            let value =
                figure.take(&files.read(path)?).map_err(|error| host::text::chain(&error))?;
            values.insert(figure.name.clone(), value);
        }
        Ok(())
    }

    /// Figures of a server that goes on running. Those that it has not printed yet are waited for, at most for the grace
    /// time.
    fn kept_values(
        &self,
        server: &Program,
        mark_bytes: u64,
        files: &Files<'_>,
    ) -> Result<FigureValues, PathError> {
        let until = Instant::now() + self.spec.limits.grace;
        loop {
            let mut values = FigureValues::new();
            let output = server.output_since(mark_bytes);
            let taken = self.take_output(&Origin::Server, output.bytes(), &mut values);
            match taken.and_then(|()| self.take_files(files, &mut values)) {
                Ok(()) => return Ok(values),
                Err(why) if Instant::now() > until => {
                    let last = output.last_lines();
                    let why = format!("{why}; last lines of its output in the trial:\n{last}");
                    return Err(PathError::at("server", why));
                }
                Err(_) => wait_until(OUTPUT_INTERVAL, self.stop, || false)?,
            }
        }
    }

    fn has_figures_of_server(&self) -> bool {
        self.spec.figures_of_far().any(|figure| figure.origin != Origin::Beside)
    }

    /// The running server of an arm, started if there is none or if it ended with success after the last trial, as a
    /// server of one client does.
    fn kept_server(&self, turn: &TrialTurn, kept: &mut Kept) -> Result<Program, PathError> {
        if let Some(server) = kept.remove(&turn.name)
            && server.is_running().map_err(PathError::part)?
        {
            return Ok(server);
        }
        Ok(self.serve(turn)?.0)
    }

    /// Starts the server of an arm and waits until it is ready. Returns the time that it took.
    ///
    /// A server that cannot bind its port because closed connections hold it is started again once they
    /// are gone; labs have none.
    fn serve(&self, turn: &TrialTurn) -> Result<(Program, Duration), PathError> {
        match self.try_serve(turn) {
            Err(ProgramError::EndedEarly { .. }) if self.is_in_time_wait(turn) => {
                wait_until(CLOSED_TIMEOUT, self.stop, || !self.is_in_time_wait(turn))?;
                self.try_serve(turn).map_err(PathError::part)
            }
            served => served.map_err(PathError::part),
        }
    }

    fn try_serve(&self, turn: &TrialTurn) -> Result<(Program, Duration), ProgramError> {
        let mut env = self.env(turn);
        env.extend(turn.env.iter().cloned());
        let mut server = self.start("server", &turn.command, env)?;
        if self.spec.counts_processor() {
            server.count_processor();
        }
        let ready = self.spec.ready(turn.port);
        let ready = ready.map_err(|error| ProgramError::Elsewhere { why: error.to_string() })?;
        let took = server.wait_ready(&ready, self.spec.limits.ready, self.stop)?;
        Ok((server, took))
    }

    /// True if closed connections hold the server's port.
    fn is_in_time_wait(&self, turn: &TrialTurn) -> bool {
        let holder = port_holder(Some(&self.side.netns), Transport::Tcp, turn.port);
        matches!(holder, Ok(Some(holder)) if holder.use_ == PortUse::TimeWait)
    }

    /// Runs a command to its end.
    fn step(
        &self,
        name: &str,
        command: &str,
        turn: &TrialTurn,
        stop: &AtomicBool,
    ) -> Result<(), PathError> {
        let mut env = self.env(turn);
        env.extend(turn.env.iter().cloned());
        let program = self.start(name, command, env).map_err(PathError::part)?;
        let finished = program.wait(self.spec.limits.step, stop);
        check_status(name, &finished.map_err(PathError::part)?)
    }

    fn start(
        &self,
        name: &str,
        command: &str,
        env: Vec<(String, String)>,
    ) -> Result<Program, ProgramError> {
        let (netns, cpus, folder) = (self.side.program_netns(), &self.cpus[..], &self.folder);
        Program::start(&program::ProgramSpec { command, env, netns, cpus, folder, name })
    }

    fn env(&self, turn: &TrialTurn) -> Vec<(String, String)> {
        variables(At::Far, &self.near, &self.side.wire_end(), turn)
    }

    /// Ends kept servers. They are killed after the grace time; there is no trial left to fail.
    pub(crate) fn end(&self, kept: &mut Kept) {
        for server in std::mem::take(kept).into_values() {
            let _stopped = server.stop(self.spec.limits.grace);
        }
    }
}

/// The far end on this host, or that of a far end's own process.
pub(crate) struct LocalWatch<'a> {
    serving: &'a Serving,
    server: Option<&'a Program>,
    ready: Option<Duration>,
    begun: Option<Begun>,
}

/// State at the start of a client.
struct Begun {
    trace: Option<StageTrace>,
    usage: Option<Usage>,
    counters: Option<FarCounters>,
    losses: Option<LossWatch>,
    samples: Option<SampledProgram>,
}

impl LocalWatch<'_> {
    fn usage(&self) -> Result<Option<Usage>, PathError> {
        self.server.map(Program::usage).transpose().map_err(PathError::part)
    }

    /// Starts to time the packets that a server receives.
    fn trace(&self, server: &Program) -> Result<StageTrace, PathError> {
        let of_group = server.cgroup().map(|cgroup| Narrow::Cgroup(cgroup.id()));
        let narrow = of_group.unwrap_or_else(|| Narrow::Processes(server.processes()));
        StageTrace::start(&self.serving.side.netns, narrow).map_err(PathError::part)
    }
}

impl Watch for LocalWatch<'_> {
    fn ready_ns(&self) -> Option<u64> {
        self.ready.map(|time| time.as_nanos() as u64)
    }

    fn begin(&mut self) -> Result<(), PathError> {
        if let Some(server) = self.server
            && !server.is_running().map_err(PathError::part)?
        {
            return Err(PathError::part(server.ended_unused()));
        }
        let traced = self.server.filter(|_| self.serving.spec.stages);
        let trace = traced.map(|server| self.trace(server)).transpose()?;
        let losses = self.serving.side.watch_losses();
        let samples = self.server.and_then(|server| samples::sample(&self.serving.sampler, server));
        let (usage, counters) = (self.usage()?, FarCounters::now(&self.serving.side)?);
        self.begun = Some(Begun { trace, usage, counters, losses, samples });
        Ok(())
    }

    fn server_ended_ns(&mut self) -> Result<Option<u64>, ProgramError> {
        self.begun.iter().flat_map(|begun| &begun.samples).for_each(SampledProgram::poll);
        self.server.map_or(Ok(None), Program::ended_ns)
    }

    fn end(&mut self) -> Result<FarSeen, PathError> {
        let counters = FarCounters::now(&self.serving.side)?;
        let now = self.usage()?;
        let Some(begun) = self.begun.take() else {
            return Err(PathError::Part("the trial has not begun".into()));
        };
        let stages = begun.trace.map(StageTrace::stop).transpose().map_err(PathError::part)?;
        let counters = counters.zip(begun.counters).map(|(now, before)| now.since(&before));
        let ended = match self.server {
            Some(server) => (!server.is_running().map_err(PathError::part)?).then_some(server),
            None => None,
        };
        let is_unused = counters.is_some_and(|counters| counters.packets == 0);
        if let Some(server) = ended.filter(|_| is_unused) {
            return Err(PathError::part(server.ended_unused()));
        }
        Ok(FarSeen {
            server: now.zip(begun.usage).map(|(now, before)| now.since(&before)),
            has_server_ended: ended.is_some(),
            mtu_bytes: self.serving.side.mtu_bytes(),
            counters,
            host: None,
            stages: stages.map(Stages::from),
            losses: begun.losses.map_or_else(Vec::new, LossWatch::end),
            samples: samples::ended(begun.samples, SERVER),
        })
    }
}

/// Waits until a condition holds, at most so long. Errors: interrupted.
pub(crate) fn wait_until(
    limit: Duration,
    stop: &AtomicBool,
    is_over: impl Fn() -> bool,
) -> Result<(), PathError> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over() {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(PathError::part(ProgramError::Interrupted { name: "server".into() }));
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// The program beside a trial, after its end. Errors: it ended before the trial, was killed, or failed.
fn check_beside(ended: FinishedProgram) -> Result<FinishedProgram, PathError> {
    let why = match ended.end {
        ProgramEnd::ByItself => "ended before the trial".to_owned(),
        ProgramEnd::Killed => {
            "did not end after SIGINT and was killed; raise --grace, or start it with exec"
                .to_owned()
        }
        // A shell ends by the signal.
        ProgramEnd::Terminated
            if ended.status.code().is_none_or(|code| code == 0 || code == 130) =>
        {
            return Ok(ended);
        }
        ProgramEnd::Terminated => ended.status.to_string(),
    };
    Err(PathError::at(BESIDE, format!("{why}; {}", ended.last_lines())))
}

pub(crate) fn check_status(name: &str, finished: &FinishedProgram) -> Result<(), PathError> {
    if finished.status.success() {
        Ok(())
    } else {
        Err(PathError::at(name, format!("{}; {}", finished.status, finished.last_lines())))
    }
}
