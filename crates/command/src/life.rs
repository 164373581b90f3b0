//! The near end of a trial: warm-up, client, and the measurement made of both ends.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use host::cpu::CpuClock;
use lab::adapters::{Figure, FigureError};
use lab::program::{self, FinishedProgram, Program, ProgramError, Usage};
use lab::{LossWatch, Meter, loss_traps};
use model::{Measurement, PathError, Trap};

use crate::CheckedPrograms;
use crate::accounting::{ObservedTrial, SocketCounts, add_stages, measurement};
use crate::serve::{FarSeen, TrialTurn, Watch, check_status, variables, wait_until};
use crate::side::Side;
use crate::spec::Warmup;

/// Everything that the trials of an experiment share at the client's end.
pub(crate) struct Life {
    pub(crate) side: Side,
    /// Address of the server.
    pub(crate) far_ip: IpAddr,
    /// Of the client; empty for any.
    pub(crate) cpus: Vec<usize>,
    /// Those of all ends on this host; empty for any.
    pub(crate) metered_cpus: Vec<usize>,
    pub(crate) clock: CpuClock,
    /// Working directory of all commands.
    pub(crate) folder: PathBuf,
    pub(crate) stop: &'static AtomicBool,
    /// Units that followed bare numbers in the outputs so far, by figure.
    pub(crate) units_beside: RefCell<BTreeMap<String, Option<String>>>,
}

impl Life {
    /// Runs the client of a trial.
    pub(crate) fn measure(
        &self,
        spec: &CheckedPrograms,
        turn: &TrialTurn,
        far: &mut dyn Watch,
    ) -> Result<Measurement, PathError> {
        self.warm_up(spec, turn)?;
        let mut env = variables(self.side.ip, self.far_ip, turn);
        let of_arm = if spec.has_server() { &turn.near_env } else { &turn.env };
        env.extend(of_arm.iter().cloned());
        let near_losses = if self.side.is_shared { None } else { self.side.watch_losses() };
        far.begin()?;
        let near = SocketCounts::read_near(&self.side)?;
        let meter = Meter::start(&self.clock, &self.metered_cpus)?;
        let client = self.start("client", spec.client().unwrap_or(&turn.command), env);
        let client = client.map_err(PathError::part)?;
        let no_cgroup = client.why_no_cgroup().map(str::to_owned);
        let client = client.wait_beside(&mut || far.check(), spec.limits.step, self.stop);
        let client = match client {
            Err(error @ ProgramError::TimedOut { .. }) => {
                return Err(self.beside_far(spec, PathError::part(error), &far.end()?));
            }
            client => client.map_err(PathError::part)?,
        };
        let used = meter.stop()?;
        let near = SocketCounts::read_near(&self.side)?.since(&near);
        let far_seen = far.end()?;
        check_status("client", &client).map_err(|error| self.beside_far(spec, error, &far_seen))?;
        let figures = figures(spec, &client, &mut self.units_beside.borrow_mut())?;
        let is_unused = far_seen.counters.is_some_and(|counters| counters.packets == 0);
        if spec.has_server() && figures.is_empty() && is_unused {
            let why = "it ended with success, but no packet crossed the interface of the server";
            return Err(PathError::at("client", format!("{why}; {}", client.last_lines())));
        }
        let seen = ObservedTrial {
            client: &client.usage,
            client_wall_ns: client.wall.as_nanos() as u64,
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
        Ok(m)
    }

    /// The failure of a client, after what was seen at the far end and may be the cause.
    fn beside_far(&self, spec: &CheckedPrograms, error: PathError, seen: &FarSeen) -> PathError {
        let ended = "the server ended with success before its client".to_owned();
        let ended = seen.has_server_ended.then_some(ended);
        let far = self.far_ip.to_string();
        let client = spec.client().filter(|_| !self.side.is_shared);
        let unnamed =
            client.is_some_and(|client| !client.contains("WIREPATH_") && !client.contains(&far));
        let unnamed = unnamed.then(|| {
            "the client's command has no $WIREPATH_FAR: quote it with ' so that your shell does not expand it"
                .to_owned()
        });
        let is_unreached = seen.counters.is_some_and(|counters| counters.packets == 0);
        let unreached = is_unreached.then(|| {
            "no packet reached the server: check the address and the port of the client".to_owned()
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
                let env = variables(self.side.ip, self.far_ip, turn);
                let program = self.start("warmup", command, env).map_err(PathError::part)?;
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

/// Figures of the client's output; a missing one fails the trial.
fn figures<'a>(
    spec: &'a CheckedPrograms,
    client: &FinishedProgram,
    units_beside: &mut BTreeMap<String, Option<String>>,
) -> Result<Vec<(&'a Figure, f64)>, PathError> {
    take_figures(spec, client.stdout.bytes(), units_beside).map_err(|error| {
        let why = host::text::chain(&error);
        PathError::at("client", format!("{why}; {}", client.last_lines()))
    })
}

fn take_figures<'a>(
    spec: &'a CheckedPrograms,
    output: &[u8],
    units_beside: &mut BTreeMap<String, Option<String>>,
) -> Result<Vec<(&'a Figure, f64)>, FigureError> {
    let mut taken = Vec::new();
    if let Some(adapter) = &spec.adapter {
        let values = adapter.take(output)?.into_iter().map(|(_, value)| value);
        taken.extend(adapter.figures.iter().zip(values));
    }
    for figure in &spec.figures {
        let beside = units_beside.entry(figure.name.clone()).or_default();
        taken.push((figure, figure.take_beside(output, beside)?));
    }
    Ok(taken)
}
