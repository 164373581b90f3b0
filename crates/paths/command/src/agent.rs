//! A far end on another host: `wirepath far-programs`, which the near end starts by ssh.
//!
//! It lives as long as its standard input, and no longer than [`lab::far::SILENCE`] without a line. Its servers end
//! with it (see [`lab::program`]), and a guard of the caller restores settings if it is killed.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use host::cpu::CpuClock;
use host::netns::Netns;
use host::tune::Store;
use lab::far::NearLines;
use lab::program::Usage;
use lab::{Meter, describe_machine};
use model::PathError;

use crate::check;
use crate::exchange::{LINE_BYTES_MAX, Opening, Reply, Request};
use crate::problem::Problem;
use crate::serve::{FarSeen, Kept, LocalWatch, Serving, Turn, Watch, one_line};
use crate::settings::Settings;
use crate::side::Side;
use crate::switches::{End, Switch};

/// Time between two looks at the server while a client runs.
const LOOK: Duration = Duration::from_millis(20);

/// Means of a far end that its process provides.
pub struct FarMeans<'a> {
    /// Journal of the settings that arms change.
    pub journal: Store,
    /// Starts a process that restores them if this one is killed.
    pub start_guard: &'a mut dyn FnMut() -> Result<(), String>,
    /// Ends whatever is under way.
    pub stop: &'static AtomicBool,
}

/// Serves one near end until it is gone.
///
/// - `say`: writes a line to it.
///
/// Errors: the exchange is broken. Failures of trials are answers.
pub fn serve_near(
    input: File,
    say: &mut dyn FnMut(&str) -> std::io::Result<()>,
    mut means: FarMeans<'_>,
) -> Result<(), PathError> {
    let requests = Requests::start(input, means.stop)?;
    let mut answer = |reply: &Reply| {
        let line = serde_json::to_string(reply).map_err(PathError::part)?;
        say(&line).map_err(PathError::part)
    };
    let opening = match requests.next() {
        Some(Request::Open(opening)) => *opening,
        Some(_) => return Err(PathError::Part("the first request is not to open".into())),
        None => return Ok(()),
    };
    let mut agent = match Agent::open(opening, &mut means) {
        Ok(agent) => agent,
        Err(error) => {
            return answer(&Reply::Failed { why: one_line(&error), is_broken: true });
        }
    };
    answer(&Reply::Opened(Box::new(describe_machine(agent.nic.clone()))))?;
    while let Some(request) = requests.next() {
        match request {
            Request::Check => answer(&Reply::Checked(agent.check()))?,
            Request::Trial(turn) => {
                let reply = match agent.trial(&turn, &requests, &mut answer) {
                    Ok(not_effective) => Reply::Done { not_effective },
                    Err(error) => {
                        let is_broken = agent.settings.broken().is_some();
                        Reply::Failed { why: one_line(&error), is_broken }
                    }
                };
                answer(&reply)?;
            }
            // Of a trial that failed before they came.
            _ => {}
        }
    }
    Ok(())
}

struct Agent {
    serving: Serving,
    kept: Kept,
    settings: Settings,
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
        if spec.sets_knobs_at(End::Far) {
            (means.start_guard)().map_err(|why| PathError::Part(why.into()))?;
        }
        let journals = [(End::Far, &side, means.journal.clone())];
        let settings = Settings::journaled(&spec, journals, means.stop)?;
        // The login folder of the user.
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let clock = CpuClock::open().map_err(PathError::part)?;
        let stop = means.stop;
        let serving = Serving { spec, side, near_ip: opening.near, cpus, folder, stop };
        Ok(Agent { serving, kept: Kept::new(), settings, clock, nic })
    }

    fn check(&self) -> Vec<Problem> {
        let spec = &self.serving.spec;
        let mut problems = check::commands(spec, End::Far);
        problems.extend(check::side(spec, End::Far, &self.serving.side, false));
        problems
    }

    /// One trial, whose moments the near end decides.
    fn trial(
        &mut self,
        turn: &Turn,
        requests: &Requests,
        answer: &mut dyn FnMut(&Reply) -> Result<(), PathError>,
    ) -> Result<Vec<model::NotEffective>, PathError> {
        let Agent { serving, kept, settings, clock, .. } = self;
        let switches: Vec<Switch> = turn
            .switches
            .iter()
            .map(|id| id.parse())
            .collect::<Result<_, _>>()
            .map_err(|error: crate::SpecError| PathError::part(error))?;
        let switches: Vec<&Switch> = switches.iter().collect();
        let sides = [(End::Far, &serving.side)];
        let ((), idle) = settings.around(&sides, &switches, || {
            serving
                .trial(turn, kept, |watch| watched(watch, clock, &serving.cpus, requests, answer))
        })?;
        Ok(idle)
    }
}

/// The part of a trial between the start of the server and its end.
fn watched(
    watch: &mut LocalWatch<'_>,
    clock: &CpuClock,
    cpus: &[usize],
    requests: &Requests,
    answer: &mut dyn FnMut(&Reply) -> Result<(), PathError>,
) -> Result<(), PathError> {
    answer(&Reply::Ready { ready_ns: watch.ready_ns() })?;
    if !matches!(next(watch, requests)?, Request::Begin) {
        return Ok(());
    }
    watch.begin()?;
    let meter = Meter::start(clock, cpus)?;
    answer(&Reply::Begun)?;
    if !matches!(next(watch, requests)?, Request::End) {
        return Ok(());
    }
    let used = meter.stop()?;
    let seen = watch.end()?;
    let server_ns = seen.server.as_ref().map_or(0, Usage::cpu_ns);
    let host = Some(used.with_children(server_ns).host_time());
    answer(&Reply::Seen(Box::new(FarSeen { host, ..seen })))?;
    // The end of the server waits for the near end's, so that it does not disturb it.
    next(watch, requests).map(drop)
}

/// Next request of a trial; [`Request::Stop`] if the near end is gone. Errors: the server has ended.
fn next(watch: &mut LocalWatch<'_>, requests: &Requests) -> Result<Request, PathError> {
    loop {
        match requests.within(LOOK) {
            Ok(request) => return Ok(request),
            Err(RecvTimeoutError::Disconnected) => return Ok(Request::Stop),
            Err(RecvTimeoutError::Timeout) => watch.check().map_err(PathError::part)?,
        }
    }
}

/// Requests, read by a thread that notices the end of the near end at any moment.
struct Requests(Receiver<Request>);

impl Requests {
    fn start(input: File, stop: &'static AtomicBool) -> Result<Self, PathError> {
        let (sender, receiver) = channel();
        let reading = sys::thread::start_free("wp-requests", move || {
            read(input, &sender, stop);
            // Whatever runs for a near end that is gone ends now.
            stop.store(true, Ordering::Relaxed);
        });
        reading.map_err(PathError::part)?;
        Ok(Requests(receiver))
    }

    fn within(&self, limit: Duration) -> Result<Request, RecvTimeoutError> {
        self.0.recv_timeout(limit)
    }

    /// Next request, `None` at their end.
    fn next(&self) -> Option<Request> {
        self.0.recv().ok()
    }
}

/// Reads requests until their end, silence, or one that is not understood.
fn read(input: File, sender: &Sender<Request>, stop: &AtomicBool) {
    let mut lines = NearLines::new(input, LINE_BYTES_MAX);
    while let Some(line) = lines.next_line() {
        let Ok(request) = serde_json::from_slice::<Request>(&line) else { return };
        if matches!(request, Request::Interrupt) {
            stop.store(true, Ordering::Relaxed);
            continue;
        }
        if sender.send(request).is_err() {
            return;
        }
    }
}
