//! The life of one trial: setup, server, warm-up, client, stop, cleanup.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::explain::{Narrow, StageTrace};
use host::netns::Netns;
use lab::adapters::{Figure, FigureError};
use lab::program::{
    self, Finished, PortUse, Program, ProgramError, Ready, Transport, Usage, port_holder,
};
use lab::{Meter, Placement};
use model::{Measurement, PathError, Trap};

use crate::accounting::{Counters, Observed, add_stages, measurement};
use crate::place::Place;
use crate::spec::Warmup;
use crate::{ArmSpec, Spec};

/// Everything that the trials of an experiment share.
pub(crate) struct Life<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) place: &'a Place,
    pub(crate) cpus: &'a Placement,
    pub(crate) clock: &'a CpuClock,
    /// Working directory of all commands.
    pub(crate) folder: &'a Path,
    pub(crate) stop: &'a AtomicBool,
}

/// One trial of an arm.
pub(crate) struct Turn<'a> {
    /// Name of the arm in the result.
    pub(crate) name: &'a str,
    pub(crate) arm: &'a ArmSpec,
    /// Environment of the arm, that of its switches included.
    pub(crate) env: Vec<(String, String)>,
    /// Number of the trial, from 1.
    pub(crate) number: u32,
    pub(crate) port: u16,
    pub(crate) ready: Ready,
}

/// Longest time that a closed connection holds a port, and margin.
///
/// Source: TCP_TIMEWAIT_LEN of include/net/tcp.h.
const CLOSED_FOR: Duration = Duration::from_secs(65);

impl Life<'_> {
    /// Starts the server of an arm and waits until it is ready. Returns the time that it took.
    ///
    /// A server that cannot bind its port because closed connections hold it is started again once they
    /// are gone; labs have none.
    pub(crate) fn serve(&self, turn: &Turn<'_>) -> Result<(Program, Duration), PathError> {
        match self.try_serve(turn) {
            Err(ProgramError::EndedEarly { .. }) if self.is_in_time_wait(turn) => {
                self.until(CLOSED_FOR, || !self.is_in_time_wait(turn))?;
                self.try_serve(turn).map_err(PathError::part)
            }
            served => served.map_err(PathError::part),
        }
    }

    fn try_serve(&self, turn: &Turn<'_>) -> Result<(Program, Duration), ProgramError> {
        let far = (&self.place.far.netns, self.cpus.far.as_slice());
        let mut env = self.env(turn);
        env.extend(turn.env.iter().cloned());
        let mut server = self.start("server", &turn.arm.command, far, env)?;
        let took = server.wait_ready(&turn.ready, self.spec.limits.ready, self.stop)?;
        Ok((server, took))
    }

    /// True if closed connections hold the server's port.
    fn is_in_time_wait(&self, turn: &Turn<'_>) -> bool {
        let far = Some(&self.place.far.netns);
        let holder = port_holder(far, Transport::Tcp, turn.port);
        matches!(holder, Ok(Some(holder)) if holder.use_ == PortUse::TimeWait)
    }

    /// Runs one trial.
    ///
    /// - `kept`: the running server of the arm, with `--keep`.
    ///
    /// The cleanup runs after a failed trial, too.
    pub(crate) fn trial(
        &self,
        turn: &Turn<'_>,
        kept: Option<&Program>,
    ) -> Result<Measurement, PathError> {
        let measured = self.with_setup(turn, kept);
        let cleaned = match &self.spec.cleanup {
            // It runs after an interruption, too.
            Some(command) => self.step("cleanup", command, turn, &AtomicBool::new(false)),
            None => Ok(()),
        };
        let measured = measured?;
        cleaned.map(|()| measured)
    }

    fn with_setup(
        &self,
        turn: &Turn<'_>,
        kept: Option<&Program>,
    ) -> Result<Measurement, PathError> {
        if let Some(command) = &self.spec.setup {
            self.step("setup", command, turn, self.stop)?;
        }
        if !self.spec.has_server() {
            return self.measure(turn, None, None);
        }
        if let Some(server) = kept {
            server.check().map_err(PathError::part)?;
            return self.measure(turn, Some(server), None);
        }
        let (server, ready) = self.serve(turn)?;
        let measured = self.measure(turn, Some(&server), Some(ready));
        let stopped = server.stop(self.spec.limits.grace).map_err(PathError::part);
        let measured = measured?;
        stopped.map(|_| measured)
    }

    fn measure(
        &self,
        turn: &Turn<'_>,
        server: Option<&Program>,
        ready: Option<Duration>,
    ) -> Result<Measurement, PathError> {
        self.warm_up(turn)?;
        let usage = || server.map(Program::usage).transpose().map_err(PathError::part);
        let near = (&self.place.near.netns, self.cpus.near.as_slice());
        let mut env = self.env(turn);
        if server.is_none() {
            env.extend(turn.env.iter().cloned());
        }
        let before = usage()?;
        let counters = Counters::now(self.place)?;
        let meter = Meter::start(self.clock, &self.cpus.both())?;
        let trace = server.filter(|_| self.spec.stages).map(|server| self.trace(server));
        let trace = trace.transpose()?;
        let client = self.start("client", self.spec.client_of(turn.arm), near, env);
        let client = client.map_err(PathError::part)?;
        let no_cgroup = client.why_no_cgroup().map(str::to_owned);
        let servers: Vec<&Program> = server.into_iter().collect();
        let client = client.wait_beside(&servers, self.spec.limits.step, self.stop);
        let client = client.map_err(PathError::part)?;
        let used = meter.stop()?;
        let stages = trace.map(StageTrace::stop).transpose().map_err(PathError::part)?;
        let counters = Counters::now(self.place)?.since(&counters);
        let served = usage()?.zip(before).map(|(after, before)| after.since(&before));
        if let Some(server) = server {
            server.check().map_err(PathError::part)?;
        }
        check_status("client", &client)?;
        let figures = self.figures(&client)?;
        if server.is_some() && figures.is_empty() && counters.packets() == 0 {
            let why = "it ended with success, but no packet crossed the interface of the server";
            return Err(PathError::at("client", format!("{why}; {}", last_lines(&client))));
        }
        let seen = Observed {
            client: &client.usage,
            client_wall_ns: client.wall.as_nanos() as u64,
            server: served.as_ref(),
            ready_ns: ready.map(|time| time.as_nanos() as u64),
            counters,
            figures,
        };
        let mut m = measurement(&seen);
        let programs_ns = client.usage.cpu_ns() + served.as_ref().map_or(0, Usage::cpu_ns);
        used.with_children(programs_ns).account(&mut m);
        m.traps.extend(no_cgroup.map(|why| Trap {
            what: format!("the programs have no control group: {why}"),
            advice:
                "read their CPU time as without children of processes that ignore SIGCHLD".into(),
        }));
        if let Some(stages) = stages {
            add_stages(stages, &mut m);
        }
        Ok(m)
    }

    /// Starts to time the packets that a server receives.
    fn trace(&self, server: &Program) -> Result<StageTrace, PathError> {
        let of_group = server.cgroup().map(|cgroup| Narrow::Cgroup(cgroup.id()));
        let narrow = of_group.unwrap_or_else(|| Narrow::Processes(server.processes()));
        StageTrace::start(&self.place.far.netns, narrow).map_err(PathError::part)
    }

    fn warm_up(&self, turn: &Turn<'_>) -> Result<(), PathError> {
        match &self.spec.warmup {
            None => Ok(()),
            Some(Warmup::Wait(time)) => self.until(*time, || false),
            Some(Warmup::Command(command)) => {
                let near = (&self.place.near.netns, self.cpus.near.as_slice());
                let program = self.start("warmup", command, near, self.env(turn));
                let program = program.map_err(PathError::part)?;
                let finished = program.wait(self.spec.limits.step, self.stop);
                check_status("warmup", &finished.map_err(PathError::part)?)
            }
        }
    }

    /// Waits until a condition holds, at most so long. Errors: interrupted.
    fn until(&self, limit: Duration, is_over: impl Fn() -> bool) -> Result<(), PathError> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over() {
                return Ok(());
            }
            if self.stop.load(Ordering::Relaxed) {
                let name = "server".to_owned();
                return Err(PathError::part(ProgramError::Interrupted { name }));
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Runs a command of the far end to its end.
    fn step(
        &self,
        name: &str,
        command: &str,
        turn: &Turn<'_>,
        stop: &AtomicBool,
    ) -> Result<(), PathError> {
        let far = (&self.place.far.netns, self.cpus.far.as_slice());
        let program = self.start(name, command, far, self.env(turn)).map_err(PathError::part)?;
        let finished = program.wait(self.spec.limits.step, stop);
        check_status(name, &finished.map_err(PathError::part)?)
    }

    fn start(
        &self,
        name: &str,
        command: &str,
        (netns, cpus): (&Netns, &[usize]),
        env: Vec<(String, String)>,
    ) -> Result<Program, ProgramError> {
        let netns = Some(netns);
        Program::start(&program::Spec { command, env, netns, cpus, folder: self.folder, name })
    }

    /// Variables that all commands get.
    fn env(&self, turn: &Turn<'_>) -> Vec<(String, String)> {
        [
            ("WIREPATH_NEAR", self.place.near.ip.to_string()),
            ("WIREPATH_FAR", self.place.far.ip.to_string()),
            ("WIREPATH_PORT", turn.port.to_string()),
            ("WIREPATH_ARM", turn.name.to_owned()),
            ("WIREPATH_TRIAL", turn.number.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Figures of the client's output; a missing one fails the trial.
    fn figures(&self, client: &Finished) -> Result<Vec<(&Figure, f64)>, PathError> {
        let output = client.stdout.bytes();
        let take = || {
            let mut taken = Vec::new();
            if let Some(adapter) = &self.spec.adapter {
                let values = adapter.take(output)?.into_iter().map(|(_, value)| value);
                taken.extend(adapter.figures.iter().zip(values));
            }
            for figure in &self.spec.figures {
                taken.push((figure, figure.take(output)?));
            }
            Ok::<_, FigureError>(taken)
        };
        take().map_err(|error| {
            let why = host::text::chain(&error);
            PathError::at("client", format!("{why}; {}", last_lines(client)))
        })
    }
}

fn check_status(name: &str, finished: &Finished) -> Result<(), PathError> {
    match finished.status.success() {
        true => Ok(()),
        false => Err(PathError::at(name, format!("{}; {}", finished.status, last_lines(finished)))),
    }
}

/// Last lines that a program printed, for an error.
fn last_lines(finished: &Finished) -> String {
    let (stdout, stderr) = (finished.stdout.last_lines(), finished.stderr.last_lines());
    match (stdout.trim(), stderr.trim()) {
        ("", "") => "it printed nothing".into(),
        ("", stderr) => format!("last lines of its standard error:\n{stderr}"),
        (stdout, "") => format!("last lines of its output:\n{stdout}"),
        (stdout, stderr) => {
            format!("last lines of its output:\n{stdout}\nand of its standard error:\n{stderr}")
        }
    }
}
