//! A far end on another host: `wirepath answer programs`, which the near end starts by ssh.
//!
//! It lives as long as its near end (see [`remote::Calls`]). Its servers end with it (see [`lab::program`]), and a guard
//! of the caller restores settings if it is killed.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::cpu::CpuClock;
use host::netns::Netns;
use host::sampling::Sampler;
use host::tune::JournalStore;
use lab::program::Usage;
use lab::{Meter, describe_machine};
use model::PathError;
use remote::{Calls, NearEndGone};

use crate::CheckedPrograms;
use crate::check;
use crate::exchange::{FarPrograms, Opening, Reply, Request};
use crate::figures::FigureValues;
use crate::middle::Namespace;
use crate::problem::Problem;
use crate::serve::{FarSeen, Kept, LocalWatch, Serving, Watch};
use crate::settings::{ArmSettings, Spot};
use crate::side::Side;
use crate::switches::{At, Switch};
use crate::turn::TrialTurn;

/// Interval of the checks on the server while a client runs.
const SERVER_INTERVAL: Duration = Duration::from_millis(20);

/// Means of a far end that its process provides.
pub struct FarMeans<'a> {
    /// Journal of the settings that arms change.
    pub journal: JournalStore,
    /// Starts a process that restores them if this one is killed.
    pub start_guard: &'a mut dyn FnMut() -> Result<(), String>,
    /// Ends whatever is under way.
    pub stop: &'static AtomicBool,
}

/// Serves the near end at standard input and output until it is gone.
///
/// Errors: the exchange is broken. Failures of trials are answers.
pub fn serve_near(mut means: FarMeans<'_>) -> Result<(), PathError> {
    let mut calls = Calls::<FarPrograms>::start(means.stop).map_err(PathError::part)?;
    let opening = match calls.next_call() {
        Some(Request::Open(opening)) => *opening,
        Some(_) => return Err(PathError::Part("the first request is not to open".into())),
        None => return calls.finish().map_err(PathError::part),
    };
    let mut agent = match Agent::open(opening, &mut means) {
        Ok(agent) => agent,
        Err(error) => {
            return answer(
                &calls,
                &Reply::Failed { why: host::text::one_line(&error), is_broken: true },
            );
        }
    };
    let machine = Box::new(describe_machine(agent.nic.clone()));
    let interface = agent.interface();
    answer(&calls, &Reply::Opened { machine, interface })?;
    while let Some(request) = calls.next_call() {
        match request {
            Request::Check => answer(&calls, &Reply::Checked(agent.check()))?,
            Request::Trial(turn) => {
                let reply = match agent.trial(&turn, &mut calls) {
                    Ok((figures, not_effective)) => Reply::Done { not_effective, figures },
                    Err(error) => {
                        let is_broken = agent.settings.broken().is_some();
                        Reply::Failed { why: host::text::one_line(&error), is_broken }
                    }
                };
                answer(&calls, &reply)?;
            }
            // Of a trial that failed before they came.
            _ => {}
        }
    }
    calls.finish().map_err(PathError::part)
}

fn answer(calls: &Calls<FarPrograms>, reply: &Reply) -> Result<(), PathError> {
    calls.answer(reply).map_err(PathError::part)
}

struct Agent {
    spec: CheckedPrograms,
    role: Role,
    settings: ArmSettings,
    clock: CpuClock,
    nic: String,
}

/// Part of this host in the experiment.
enum Role {
    /// The server's end.
    Server { serving: Box<Serving>, kept: Kept },
    /// A place between the ends.
    Place { name: String, namespace: Namespace },
}

impl Role {
    fn at(&self) -> At {
        match self {
            Role::Server { .. } => At::Far,
            Role::Place { name, .. } => At::Place(name.clone()),
        }
    }

    fn spot(&self) -> Result<Spot<'_>, PathError> {
        match self {
            Role::Server { serving, .. } => Ok(serving.side.spot(At::Far)),
            Role::Place { namespace, .. } => namespace.spot(self.at()),
        }
    }
}

impl Agent {
    fn open(opening: Opening, means: &mut FarMeans<'_>) -> Result<Self, PathError> {
        let spec = crate::resolve_programs(&opening.experiment).map_err(PathError::part)?;
        let role = match opening.place {
            Some(name) => Role::Place { name, namespace: Namespace::open(None)? },
            None => {
                let netns = Netns::current().map_err(PathError::part)?;
                let side = Side::with_address(netns, opening.far)?;
                let cpus = spec.far_cpus.clone().unwrap_or_default();
                crate::session::check_cpus(&cpus)?;
                // The login folder of the user.
                let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
                let (spec, near, stop) = (spec.clone(), opening.near, means.stop);
                let units_beside = RefCell::default();
                let sampler = Sampler::open(&lab::usable_cpus(&cpus)?);
                let serving =
                    Serving { spec, side, near, cpus, folder, stop, units_beside, sampler };
                Role::Server { serving: Box::new(serving), kept: Kept::new() }
            }
        };
        let nic = match &role {
            Role::Server { serving, .. } => serving.side.describe()?,
            Role::Place { name, .. } => name.clone(),
        };
        if spec.has_settings_at(&role.at()) {
            (means.start_guard)().map_err(|why| PathError::Part(why.into()))?;
        }
        let journals = [(role.spot()?, means.journal.clone())];
        let settings = ArmSettings::journaled(&spec, journals, means.stop)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        Ok(Agent { spec, role, settings, clock, nic })
    }

    /// Interface under test; empty for a place between the ends.
    fn interface(&self) -> String {
        match &self.role {
            Role::Server { serving, .. } => serving.side.ifname.clone(),
            Role::Place { .. } => String::new(),
        }
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = check::commands(&self.spec, &self.role.at());
        match (&self.role, self.role.spot()) {
            (Role::Server { serving, .. }, _) => {
                problems.extend(check::side(&self.spec, At::Far, &serving.side, false));
            }
            (_, Ok(spot)) => problems.extend(check::switches(&self.spec, &spot, false)),
            (_, Err(error)) => {
                problems.push(Problem { part: "place".into(), why: host::text::one_line(&error) });
            }
        }
        problems
    }

    /// One trial, whose moments the near end decides.
    fn trial(
        &mut self,
        turn: &TrialTurn,
        calls: &mut Calls<FarPrograms>,
    ) -> Result<(FigureValues, Vec<model::NotEffective>), PathError> {
        let Agent { spec, role, settings, clock, .. } = self;
        let on = spec.all_switches().filter(|on| turn.switches.contains(&on.id().to_string()));
        let switches: Vec<&Switch> = on.collect();
        match role {
            Role::Server { serving, kept } => {
                let spots = [serving.side.spot(At::Far)];
                let (((), figures), idle) = settings.around(&spots, &switches, || {
                    serving.trial(turn, kept, |watch| watched(watch, clock, &serving.cpus, calls))
                })?;
                Ok((figures, idle))
            }
            Role::Place { name, namespace } => {
                let spots = [namespace.spot(At::Place(name.clone()))?];
                let ((), idle) =
                    settings.around(&spots, &switches, || crossed(namespace, calls))?;
                Ok((FigureValues::new(), idle))
            }
        }
    }
}

/// The part of a trial during which packets cross this host.
fn crossed(namespace: &Namespace, calls: &mut Calls<FarPrograms>) -> Result<(), PathError> {
    answer(calls, &Reply::Ready { ready_ns: None })?;
    let idle = &mut || Ok(false);
    if !matches!(next_request(idle, calls)?, Request::Begin) {
        return Ok(());
    }
    let watch = namespace.watch()?;
    answer(calls, &Reply::Begun)?;
    if !matches!(next_request(idle, calls)?, Request::End) {
        return Ok(());
    }
    answer(calls, &Reply::Seen(Box::new(watch.end()?)))?;
    next_request(idle, calls).map(drop)
}

/// The part of a trial between the start of the server and its end.
fn watched(
    watch: &mut LocalWatch<'_>,
    clock: &CpuClock,
    cpus: &[usize],
    calls: &mut Calls<FarPrograms>,
) -> Result<(), PathError> {
    answer(calls, &Reply::Ready { ready_ns: watch.ready_ns() })?;
    if !matches!(next_request(&mut || has_ended(watch), calls)?, Request::Begin) {
        return Ok(());
    }
    watch.begin()?;
    let meter = Meter::start(clock, cpus)?;
    answer(calls, &Reply::Begun)?;
    if !matches!(next_request(&mut || has_ended(watch), calls)?, Request::End) {
        return Ok(());
    }
    let used = meter.stop()?;
    let seen = watch.end()?;
    let server_ns = seen.server.as_ref().map_or(0, Usage::cpu_ns);
    let host = Some(used.with_children(server_ns).host_time());
    answer(calls, &Reply::Seen(Box::new(FarSeen { host, ..seen })))?;
    // The end of the server waits for the near end's, so that it does not disturb it.
    next_request(&mut || has_ended(watch), calls).map(drop)
}

/// True if the server has ended with success.
fn has_ended(watch: &mut LocalWatch<'_>) -> Result<bool, PathError> {
    Ok(watch.server_ended_ns().map_err(PathError::part)?.is_some())
}

/// Next request of a trial; [`Request::Stop`] if the near end is gone. Reports the end of the server once. Errors: the
/// server has failed.
///
/// - `ended`: true if the server has ended with success.
fn next_request(
    ended: &mut dyn FnMut() -> Result<bool, PathError>,
    calls: &mut Calls<FarPrograms>,
) -> Result<Request, PathError> {
    let mut is_reported = false;
    loop {
        match calls.within(SERVER_INTERVAL) {
            Ok(Some(request)) => return Ok(request),
            Err(NearEndGone) => return Ok(Request::Stop),
            Ok(None) => {
                if ended()? && !std::mem::replace(&mut is_reported, true) {
                    answer(calls, &Reply::Ended)?;
                }
            }
        }
    }
}
