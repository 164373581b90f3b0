//! Hosts of a roll-out that are reached by ssh, or are namespaces of this machine.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fleet::rollout::{Answers, StepAnswer};
use host::tune::Plan;
use house::signals;
use remote::Failure;
use remote::work::{Call, RolloutStep};
use sys::thread::start;

use super::super::caller::HostCaller;
use super::super::hosts::Host;
use super::super::site::{self, Site};
use super::members::Reach;
use super::request::RolloutRequest;
use crate::running::Folders;

/// Connections by ssh at a time.
const REMOTE_MAX: usize = 16;

/// The hosts, with the programs that wait on them for a confirmation.
pub(super) struct Near {
    hosts: Vec<Host>,
    /// Folder of each host's journal on this machine.
    states: Vec<PathBuf>,
    ssh_options: Vec<String>,
    within: Duration,
    /// Folder of results on this machine.
    data: Option<PathBuf>,
    /// Each ends with this, and its host rolls back then unless it was confirmed.
    waiting: Vec<(usize, HostCaller)>,
}

impl Near {
    pub(super) fn new(hosts: Vec<Host>, request: &RolloutRequest, data: Option<PathBuf>) -> Self {
        let states = hosts.iter().map(|host| match host {
            Host::Netns(name) => request.state.join("fleet").join(name),
            _ => request.state.clone(),
        });
        Near {
            states: states.collect(),
            hosts,
            ssh_options: request.ssh_options.clone(),
            within: request.within(),
            data,
            waiting: Vec::new(),
        }
    }

    fn site(&self, at: usize) -> Site<'_> {
        Site {
            host: if self.hosts[at].is_local() { &Host::This } else { &self.hosts[at] },
            ssh_options: &self.ssh_options,
            folders: Folders {
                data: self.data.as_deref(),
                state: Some(&self.states[at]),
                root: None,
            },
            held_timeout: site::held_timeout(self.within),
        }
    }
}

impl Near {
    /// Has hosts answer, one after the other.
    fn ask_each(&self, calls: Vec<&(usize, Call)>, found: &Mutex<Answers>) -> Result<(), String> {
        for (at, call) in calls {
            let answer = if call.is_measurement() && signals::stop_requested() {
                StepAnswer::Silent("interrupted".into())
            } else {
                self.site(*at).once(call, &mut || {})
            };
            found.lock().map_err(|_| "a thread panicked".to_owned())?.push((*at, answer));
        }
        Ok(())
    }
}

impl Reach for Near {
    fn word(&self, at: usize) -> String {
        match &self.hosts[at] {
            Host::This => "this".to_owned(),
            Host::Netns(name) => name.clone(),
            Host::Ssh(far) => far.destination.clone(),
        }
    }

    fn plan_text(&self, at: usize, plan: &Plan) -> String {
        let mut plan = plan.clone();
        if let Host::Netns(name) = &self.hosts[at] {
            plan.netns = Some(name.clone());
        }
        plan.to_text()
    }

    /// One after the other on this machine, others at the same time; crossings at the same time everywhere.
    fn each(&mut self, calls: &[(usize, Call)]) -> Result<Answers, Failure> {
        let (remote, local): (Vec<_>, Vec<_>) = calls
            .iter()
            .partition(|(at, call)| matches!(call, Call::Cross(_)) || !self.hosts[*at].is_local());
        let has_crossings = calls.iter().any(|(_, call)| matches!(call, Call::Cross(_)));
        // A crossing that waits for another one would not be beside it.
        let share = if has_crossings { 1 } else { remote.len().div_ceil(REMOTE_MAX).max(1) };
        let groups = std::iter::once(local)
            .chain(remote.chunks(share).map(<[_]>::to_vec))
            .filter(|group| !group.is_empty());
        let found = Mutex::new(Vec::new());
        let this = &*self;
        let done: Result<(), String> = std::thread::scope(|scope| {
            let found = &found;
            let threads: Vec<_> = groups
                .map(|group| start(scope, "wp-rollout", move || this.ask_each(group, found)))
                .collect();
            threads.into_iter().try_for_each(|thread| thread.end())
        });
        done.map_err(Failure::Failed)?;
        let mut found = found.into_inner().map_err(|_| Failure::failed("a thread panicked"))?;
        // In the order that was asked for.
        found.sort_by_key(|(at, _)| calls.iter().position(|(asked, _)| asked == at));
        Ok(found)
    }

    /// One after the other, from this thread, with which the programs that wait would end.
    fn apply(&mut self, calls: &[(usize, Call)]) -> Result<Answers, Failure> {
        let mut answers = Vec::new();
        let mut extended = Instant::now();
        for (at, call) in calls {
            let (answer, caller) = self.site(*at).apply(call);
            self.waiting.extend(caller.map(|caller| (*at, caller)));
            let has_failed = matches!(answer, StepAnswer::Failed(_));
            answers.push((*at, answer));
            if has_failed {
                break;
            }
            if extended.elapsed() > self.within / 3
                && let Some(extend) = extension(call)
            {
                extended = Instant::now();
                let again = self.waiting.iter().map(|(at, _)| (*at, extend.clone()));
                // A host that has rolled back shows while it holds.
                self.each(&again.collect::<Vec<_>>())?;
            }
        }
        Ok(answers)
    }

    fn end_waiting(&mut self, hosts: &[usize]) {
        let (ending, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(at, _)| hosts.contains(at));
        self.waiting = others;
        site::end_waiting(ending.into_iter().map(|(_, caller)| caller));
    }
}

/// The call that postpones the rollback of one that applies a plan.
fn extension(call: &Call) -> Option<Call> {
    let Call::Step(step) = call else { return None };
    let RolloutStep::Apply { within_ms, owner, .. } = &**step else { return None };
    let extend = RolloutStep::Extend { within_ms: *within_ms, owner: owner.clone() };
    Some(Call::Step(Box::new(extend)))
}
