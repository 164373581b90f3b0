//! The near end of a trial: warm-up, client, and the measurement made of both ends.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use host::cpu::CpuClock;
use host::sampling::{SampledProgram, Sampler};
use lab::program::{self, FinishedProgram, Program, ProgramEnd, ProgramError, Usage};
use lab::{LossWatch, Meter, WireTrials, loss_traps};
use model::{Measurement, PathError, Trap};

use crate::accounting::{CLIENT, FEED, ObservedTrial, SocketCounts, add_stages, measurement};
use crate::figures::{Files, UnitsBeside, own_figures};
use crate::samples;
use crate::serve::{DRAIN_TIME, FarSeen, Watch, check_status, wait_until};
use crate::side::Side;
use crate::spec::Warmup;
use crate::turn::TrialTurn;
use crate::variables::{WireEnd, variables};
use crate::{At, CheckedPrograms};

/// Interval of the looks at a feed and its server.
const FEED_INTERVAL: Duration = Duration::from_millis(10);

/// Everything that the trials of an experiment share at the client's end.
pub(crate) struct Life {
    pub(crate) side: Side,
    pub(crate) far: WireEnd,
    /// Of the client; empty for any.
    pub(crate) cpus: Vec<usize>,
    /// Those of all ends on this host; empty for any.
    pub(crate) metered_cpus: Vec<usize>,
    pub(crate) clock: CpuClock,
    /// Working directory of all commands.
    pub(crate) folder: PathBuf,
    pub(crate) stop: &'static AtomicBool,
    pub(crate) units_beside: RefCell<UnitsBeside>,
    pub(crate) sampler: Arc<Sampler>,
}

/// The near end's program after its end.
struct Ran {
    program: FinishedProgram,
    /// Of a client; with a feed, from its start to the end of the server.
    wall_ns: u64,
}

impl Life {
    /// Runs the client of a trial.
    ///
    /// - `wire`: begins its losses anew with the client.
    pub(crate) fn measure(
        &self,
        spec: &CheckedPrograms,
        turn: &TrialTurn,
        wire: Option<&WireTrials>,
        far: &mut dyn Watch,
    ) -> Result<Measurement, PathError> {
        self.warm_up(spec, turn)?;
        wire.map_or(Ok(()), WireTrials::begin)?;
        let mut env = self.variables(turn);
        let of_arm = if spec.has_server() { &turn.near_env } else { &turn.env };
        env.extend(of_arm.iter().cloned());
        let near_losses = if self.side.is_shared { None } else { self.side.watch_losses() };
        far.begin()?;
        let near = SocketCounts::read_near(&self.side)?;
        let meter = Meter::start(&self.clock, &self.metered_cpus)?;
        let since = SystemTime::now();
        let name = if spec.feed.is_some() { FEED } else { CLIENT };
        let command = spec.feed.as_deref().or(spec.client()).unwrap_or(&turn.command);
        let mut program = self.start(name, command, env).map_err(PathError::part)?;
        if spec.counts_processor() {
            program.count_processor();
        }
        let no_cgroup = program.why_no_cgroup().map(str::to_owned);
        let sampled = samples::sample(&self.sampler, &program);
        let ran = match &spec.feed {
            Some(_) => self.await_fed(spec, program, sampled.as_ref(), far),
            None => self.await_client(spec, program, sampled.as_ref(), far),
        };
        let Ran { program: client, wall_ns } = match ran {
            Err(error @ ProgramError::TimedOut { .. }) => {
                return Err(self.beside_far(spec, PathError::part(error), &far.end()?));
            }
            ran => ran.map_err(PathError::part)?,
        };
        let used = meter.stop()?;
        let near = SocketCounts::read_near(&self.side)?.since(&near);
        let far_seen = far.end()?;
        // A feed that was stopped after the end of its server has no status of its own.
        if client.end == ProgramEnd::ByItself {
            check_status(name, &client).map_err(|error| self.beside_far(spec, error, &far_seen))?;
        }
        let files = Files { folder: &self.folder, since };
        let figures = own_figures(spec, &client, &files, &mut self.units_beside.borrow_mut())?;
        let is_unused = far_seen.counters.is_some_and(|counters| counters.packets == 0);
        if spec.has_server() && figures.is_empty() && is_unused {
            let why = "it ended with success, but no packet crossed the interface of the server";
            return Err(PathError::at(name, format!("{why}; {}", client.last_lines())));
        }
        let seen = ObservedTrial {
            near: name,
            client: &client.usage,
            wall_ns,
            server: far_seen.server.as_ref(),
            ready_ns: far.ready_ns(),
            counters: far_seen.counters.map(|far| far.with_near_sockets(&near)),
            figures,
        };
        let mut m = measurement(&seen);
        let server_ns = far_seen.server.as_ref().map_or(0, Usage::cpu_ns);
        match far_seen.host {
            None => used.with_children(client.usage.cpu_ns() + server_ns).account(&mut m),
            Some(host) => {
                used.with_children(client.usage.cpu_ns()).account(&mut m);
                host.account_far(&mut m);
            }
        }
        m.traps.extend(no_cgroup.map(|why| Trap {
            what: format!("the programs have no control group: {why}"),
            advice:
                "read their CPU time as without children of processes that ignore SIGCHLD".into(),
        }));
        m.traps.extend(self.mtus(&far_seen).map(|what| Trap {
            what,
            advice: "set one MTU at both ends: between them larger packets may be lost without an error".into(),
        }));
        m.traps.extend(loss_traps("far", &far_seen.losses));
        let near_losses = near_losses.map_or_else(Vec::new, LossWatch::end);
        m.traps.extend(loss_traps("near", &near_losses));
        if let Some(stages) = far_seen.stages {
            add_stages(stages, &mut m);
        }
        m.samples =
            samples::trial_samples(samples::ended(sampled, name), far_seen.samples, m.packet_count);
        Ok(m)
    }

    fn await_client(
        &self,
        spec: &CheckedPrograms,
        client: Program,
        sampled: Option<&SampledProgram>,
        far: &mut dyn Watch,
    ) -> Result<Ran, ProgramError> {
        let mut check = || {
            sampled.into_iter().for_each(SampledProgram::poll);
            far.server_ended_ns().map(drop)
        };
        let program = client.wait_beside(&mut check, spec.limits.step, self.stop)?;
        let wall_ns = program.wall.as_nanos() as u64;
        Ok(Ran { program, wall_ns })
    }

    /// Waits for the end of the server, and stops the feed then. After the end of the feed the server has
    /// [`DRAIN_TIME`] to end by itself.
    ///
    /// Errors: one of them failed, or neither ended in time.
    fn await_fed(
        &self,
        spec: &CheckedPrograms,
        feed: Program,
        sampled: Option<&SampledProgram>,
        far: &mut dyn Watch,
    ) -> Result<Ran, ProgramError> {
        let (begun, begun_ns) = (Instant::now(), feed.started_ns());
        let mut drained_at: Option<Instant> = None;
        loop {
            sampled.into_iter().for_each(SampledProgram::poll);
            let server_ended_ns = far.server_ended_ns()?;
            let is_over = drained_at.is_some_and(|at| Instant::now() >= at);
            if server_ended_ns.is_some() || is_over {
                let ended_ns = server_ended_ns.unwrap_or_else(sys::clock::monotonic_ns);
                let program = feed.stop(spec.limits.grace)?;
                return Ok(Ran { program, wall_ns: ended_ns.saturating_sub(begun_ns) });
            }
            if drained_at.is_none() && !feed.is_running()? {
                drained_at = Some(Instant::now() + DRAIN_TIME);
            }
            if begun.elapsed() >= spec.limits.step {
                return Err(feed.timed_out(spec.limits.step));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(ProgramError::Interrupted { name: FEED.into() });
            }
            std::thread::sleep(FEED_INTERVAL);
        }
    }

    fn variables(&self, turn: &TrialTurn) -> Vec<(String, String)> {
        variables(At::Near, &self.side.wire_end(), &self.far, turn)
    }

    /// The failure of a client, after what was seen at the far end and may be the cause.
    fn beside_far(&self, spec: &CheckedPrograms, error: PathError, seen: &FarSeen) -> PathError {
        let ended = "the server ended with success before its client".to_owned();
        let ended = seen.has_server_ended.then_some(ended);
        let far = self.far.ip.to_string();
        let client = spec.client().filter(|_| !self.side.is_shared);
        let unnamed =
            client.is_some_and(|client| !client.contains("WIREPATH_") && !client.contains(&far));
        let unnamed = unnamed.then(|| {
            "the client's command has no $WIREPATH_FAR: quote it with ' so that your shell does not expand it"
                .to_owned()
        });
        let is_unreached = seen.counters.is_some_and(|counters| counters.packets == 0);
        let unreached = is_unreached.then(|| {
            let name = if spec.feed.is_some() { FEED } else { CLIENT };
            format!("no packet reached the server: check the address and the port of the {name}")
        });
        let causes: Vec<String> =
            ended.into_iter().chain(self.mtus(seen)).chain(unnamed).chain(unreached).collect();
        if causes.is_empty() {
            return error;
        }
        let why = host::text::chain(&error);
        PathError::Part(format!("{}; {why}", causes.join("; ")).into())
    }

    /// The MTUs of both ends, if they differ.
    fn mtus(&self, seen: &FarSeen) -> Option<String> {
        let (near, far) = self.side.mtu_bytes().zip(seen.mtu_bytes)?;
        (near != far).then(|| {
            format!(
                "the ends' MTUs differ: {near} bytes at the client's end, {far} at the server's"
            )
        })
    }

    fn warm_up(&self, spec: &CheckedPrograms, turn: &TrialTurn) -> Result<(), PathError> {
        match &spec.warmup {
            None => Ok(()),
            Some(Warmup::Wait(time)) => wait_until(*time, self.stop, || false),
            Some(Warmup::Command(command)) => {
                let program =
                    self.start("warmup", command, self.variables(turn)).map_err(PathError::part)?;
                let finished = program.wait(spec.limits.step, self.stop);
                check_status("warmup", &finished.map_err(PathError::part)?)
            }
        }
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
}
