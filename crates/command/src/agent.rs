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
use host::tune::JournalStore;
use lab::program::Usage;
use lab::{Meter, describe_machine};
use model::PathError;
use remote::{Calls, NearEndGone};

use crate::check;
use crate::exchange::{FarPrograms, Opening, Reply, Request};
use crate::figures::FigureValues;
use crate::problem::Problem;
use crate::serve::{FarSeen, Kept, LocalWatch, Serving, TrialTurn, Watch, one_line};
use crate::settings::ArmSettings;
use crate::side::Side;
use crate::switches::{KnobEnd, Switch};

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
            return answer(&calls, &Reply::Failed { why: one_line(&error), is_broken: true });
        }
    };
    let machine = Box::new(describe_machine(agent.nic.clone()));
    let interface = agent.serving.side.ifname.clone();
    answer(&calls, &Reply::Opened { machine, interface })?;
    while let Some(request) = calls.next_call() {
        match request {
            Request::Check => answer(&calls, &Reply::Checked(agent.check()))?,
            Request::Trial(turn) => {
                let reply = match agent.trial(&turn, &mut calls) {
                    Ok((figures, not_effective)) => Reply::Done { not_effective, figures },
                    Err(error) => {
                        let is_broken = agent.settings.broken().is_some();
                        Reply::Failed { why: one_line(&error), is_broken }
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
    serving: Serving,
    kept: Kept,
    settings: ArmSettings,
    clock: CpuClock,
    nic: String,
}

impl Agent {
    fn open(opening: Opening, means: &mut FarMeans<'_>) -> Result<Self, PathError> {
        let spec = crate::resolve_programs(&opening.experiment).map_err(PathError::part)?;
        let netns = Netns::current().map_err(PathError::part)?;
        let side = Side::with_address(netns, opening.far)?;
        let cpus = spec.far_cpus.clone().unwrap_or_default();
        crate::session::check_cpus(&cpus)?;
        let nic = side.describe()?;
        if spec.sets_knobs_at(KnobEnd::Far) {
            (means.start_guard)().map_err(|why| PathError::Part(why.into()))?;
        }
        let journals = [(KnobEnd::Far, &side, means.journal.clone())];
        let settings = ArmSettings::journaled(&spec, journals, means.stop)?;
        // The login folder of the user.
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let clock = CpuClock::open().map_err(PathError::part)?;
        let stop = means.stop;
        let (near, units_beside) = (opening.near, RefCell::default());
        let serving = Serving { spec, side, near, cpus, folder, stop, units_beside };
        Ok(Agent { serving, kept: Kept::new(), settings, clock, nic })
    }

    fn check(&self) -> Vec<Problem> {
        let spec = &self.serving.spec;
        let mut problems = check::commands(spec, KnobEnd::Far);
        problems.extend(check::side(spec, KnobEnd::Far, &self.serving.side, false));
        problems
    }

    /// One trial, whose moments the near end decides.
    fn trial(
        &mut self,
        turn: &TrialTurn,
        calls: &mut Calls<FarPrograms>,
    ) -> Result<(FigureValues, Vec<model::NotEffective>), PathError> {
        let Agent { serving, kept, settings, clock, .. } = self;
        let switches: Vec<Switch> = turn
            .switches
            .iter()
            .map(|id| id.parse())
            .collect::<Result<_, _>>()
            .map_err(|error: crate::SpecError| PathError::part(error))?;
        let switches: Vec<&Switch> = switches.iter().collect();
        let sides = [(KnobEnd::Far, &serving.side)];
        let (((), figures), idle) = settings.around(&sides, &switches, || {
            serving.trial(turn, kept, |watch| watched(watch, clock, &serving.cpus, calls))
        })?;
        Ok((figures, idle))
    }
}

/// The part of a trial between the start of the server and its end.
fn watched(
    watch: &mut LocalWatch<'_>,
    clock: &CpuClock,
    cpus: &[usize],
    calls: &mut Calls<FarPrograms>,
) -> Result<(), PathError> {
    answer(calls, &Reply::Ready { ready_ns: watch.ready_ns() })?;
    if !matches!(next_request(watch, calls)?, Request::Begin) {
        return Ok(());
    }
    watch.begin()?;
    let meter = Meter::start(clock, cpus)?;
    answer(calls, &Reply::Begun)?;
    if !matches!(next_request(watch, calls)?, Request::End) {
        return Ok(());
    }
    let used = meter.stop()?;
    let seen = watch.end()?;
    let server_ns = seen.server.as_ref().map_or(0, Usage::cpu_ns);
    let host = Some(used.with_children(server_ns).host_time());
    answer(calls, &Reply::Seen(Box::new(FarSeen { host, ..seen })))?;
    // The end of the server waits for the near end's, so that it does not disturb it.
    next_request(watch, calls).map(drop)
}

/// Next request of a trial; [`Request::Stop`] if the near end is gone. Reports the end of the server once. Errors: the
/// server has failed.
fn next_request(
    watch: &mut LocalWatch<'_>,
    calls: &mut Calls<FarPrograms>,
) -> Result<Request, PathError> {
    let mut is_reported = false;
    loop {
        match calls.within(SERVER_INTERVAL) {
            Ok(Some(request)) => return Ok(request),
            Err(NearEndGone) => return Ok(Request::Stop),
            Ok(None) => {
                let has_ended = watch.server_ended_ns().map_err(PathError::part)?.is_some();
                if has_ended && !std::mem::replace(&mut is_reported, true) {
                    answer(calls, &Reply::Ended)?;
                }
            }
        }
    }
}
