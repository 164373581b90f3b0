//! Work of an agent on its host.

use std::path::PathBuf;
use std::time::Duration;

use fleet::book::{Job, Measured};
use fleet::rollout;
use host::exclusive::ExclusiveLock;
use house::{console, signals};
use model::Subject;
use remote::FarOptions;
use remote::work::{Answer, Call, RolloutStep};

use super::allowed::{self, Permissions};
use super::caller::{self, HostCaller, STEP_TIMEOUT};
use super::hosts::Host;
use super::site::{Site, end_waiting};
use crate::running::Folders;

/// Times that the lock of this machine is tried, which other experiments hold.
const LOCK_TRIES: u32 = 6000;
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// Tries between two signs of life.
const LOCK_TRIES_PER_BEAT: u32 = 50;

/// The host of an agent.
pub(super) struct Station {
    permissions: Permissions,
    /// Folder of results; `None` for that of the user.
    data: Option<PathBuf>,
    /// Waits for the confirmation of a plan. It ends with the agent, and the host rolls back then.
    waiting: Option<HostCaller>,
}

impl Station {
    pub(super) fn new(permissions: Permissions, data: Option<PathBuf>) -> Self {
        Station { permissions, data, waiting: None }
    }

    /// Does a job, to its end.
    ///
    /// - `beat`: called every few seconds meanwhile.
    pub(super) fn work(&mut self, job: &Job, beat: &mut dyn FnMut()) -> Measured {
        if let Err(failure) = allowed::check(&job.call, &self.permissions) {
            console::say(&format!("refused {}: {}", job.job, failure.text()));
            return Measured::Refused(failure.into_text());
        }
        console::say(&format!("{}: {}", job.job, name(&job.call)));
        let ended = match self.lock(&job.call, beat) {
            Err(why) => Measured::Failed(why),
            Ok(_lock) if is_of_rollout(&job.call) => rollout::measured(&self.step(&job.call, beat)),
            Ok(_lock) => {
                let options = FarOptions::default();
                caller::measure(&Host::This, &options, self.folders(), &job.call, beat)
            }
        };
        if job.call.is_measurement() {
            let result = match &ended {
                Measured::Done(_) => "done".to_owned(),
                Measured::Failed(why) | Measured::Refused(why) => format!("failed: {why}"),
            };
            console::say(&format!("{} {result}", job.job));
        }
        ended
    }

    /// Locks this machine for a measurement.
    fn lock(&self, call: &Call, beat: &mut dyn FnMut()) -> Result<Option<ExclusiveLock>, String> {
        match call {
            call if call.is_measurement() => lock_machine(beat).map(Some),
            Call::Step(_) => Ok(None),
            // The other end of its pair does not wait for other experiments.
            _ => ExclusiveLock::acquire_alone().map(Some).map_err(|conflict| conflict.to_string()),
        }
    }

    /// Reports a plan that was rolled back because its confirmation did not come.
    pub(super) fn look_at_waiting(&mut self) {
        let Some(caller) = &mut self.waiting else { return };
        let why = match caller.answer(Duration::ZERO) {
            Ok(None) => return,
            Ok(Some(Answer::Failed(failure))) => Some(failure.into_text()),
            Ok(Some(_)) => None,
            Err(error) => Some(host::text::chain(&error)),
        };
        self.waiting = None;
        if let Some(why) = why {
            console::say(&format!("note: {why}"));
        }
    }

    fn folders(&self) -> Folders<'_> {
        Folders { data: self.data.as_deref(), ..Folders::default() }
    }

    fn step(&mut self, call: &Call, beat: &mut dyn FnMut()) -> rollout::StepAnswer {
        let site = Site {
            host: &Host::This,
            ssh_options: &[],
            folders: self.folders(),
            held_timeout: STEP_TIMEOUT,
        };
        let Call::Step(step) = call else { return site.once(call, beat) };
        if let RolloutStep::Apply { .. } = **step {
            let (answer, caller) = site.apply(call);
            // A plan that was refused leaves an earlier one as it is.
            self.waiting = caller.or(self.waiting.take());
            return answer;
        }
        let answer = site.once(call, beat);
        if matches!(**step, RolloutStep::Confirm { .. } | RolloutStep::RollBack { .. }) {
            let is_done = matches!(answer, rollout::StepAnswer::Done(_));
            end_waiting(self.waiting.take_if(|_| is_done));
        }
        answer
    }
}

/// True for work whose result is an answer to a roll-out.
fn is_of_rollout(call: &Call) -> bool {
    match call {
        Call::RunAlone(request) => matches!(request.subject, Subject::Plan(_)),
        call => matches!(call, Call::Step(_) | Call::Cross(_)),
    }
}

/// Work for the log of an agent.
fn name(call: &Call) -> String {
    let text = match call {
        Call::RunAlone(request) => match &request.subject {
            Subject::Path(path) => {
                return format!("measures path {}, arms {}", path.path, path.arms);
            }
            Subject::Plan(_) => "measures for a roll-out",
            Subject::Programs(_) => "measures programs",
        },
        Call::Cross(_) => "switches the plan on and off on the running service",
        Call::Step(step) => match **step {
            RolloutStep::Apply { .. } => "applies the plan, unconfirmed",
            RolloutStep::Extend { .. } => "postpones the rollback",
            RolloutStep::Verify { .. } => "compares with the plan",
            RolloutStep::Confirm { .. } => "confirms the plan",
            RolloutStep::Keep { .. } => "keeps the plan",
            RolloutStep::RollBack { .. } => "rolls back",
        },
        Call::Echo(_) => "echo of a mesh",
        Call::Ping(ping) => return format!("pings {}", ping.address),
        Call::Run(_) | Call::StopPing | Call::Interrupt => "unknown",
    };
    text.to_owned()
}

/// Locks the machine, after experiments that run.
fn lock_machine(beat: &mut dyn FnMut()) -> Result<ExclusiveLock, String> {
    let mut conflict = None;
    for attempt in 1..=LOCK_TRIES {
        match ExclusiveLock::acquire_alone() {
            Ok(lock) => return Ok(lock),
            Err(other) => conflict = Some(other),
        }
        if signals::stop_requested() {
            break;
        }
        if attempt % LOCK_TRIES_PER_BEAT == 0 {
            beat();
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
    Err(conflict.map_or_else(|| "interrupted".into(), |conflict| conflict.to_string()))
}
