//! Hosts of a roll-out, which do its steps.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fleet::rollout::{Answer, Answers, Hosts, Proof};
use host::tune::Plan;
use sys::child::Finished;
use sys::thread::start;

use super::super::experiment::{self, Running};
use super::super::hosts::Host;
use super::super::work::Work;
use super::proof::{self, Figure};
use super::request::Request;
use crate::exit::Failure;
use crate::{console, signals};

/// Connections by ssh at a time.
const REMOTE_MAX: usize = 16;
/// Limit for a step that measures nothing.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Limit for one measurement, whose own limit is among its arguments.
const MEASURE_MAX: Duration = Duration::from_secs(24 * 3600);
const LOOK: Duration = Duration::from_millis(50);

/// The hosts, with the programs that wait on them for a confirmation.
pub(super) struct Members<'a> {
    pub(super) hosts: &'a [Host],
    pub(super) plan: &'a Plan,
    pub(super) request: &'a Request,
    /// Id of the roll-out, the owner of the settings on every host.
    pub(super) id: &'a str,
    /// Folder of results on this machine.
    pub(super) data: Option<PathBuf>,
    /// Each ends with this, and its host rolls back then unless it was confirmed.
    pub(super) waiting: Vec<(usize, Running)>,
}

/// End of a step on one host.
enum Ended {
    Finished(Finished),
    Silent(String),
}

impl Ended {
    fn answer(&self, host: &Host) -> Answer {
        match self {
            Ended::Silent(why) => Answer::Silent(why.clone()),
            Ended::Finished(finished) => match (finished.status.code(), host) {
                (Some(0), _) => Answer::Done(one_line(&finished.stdout)),
                // The client of ssh has lost its connection, or never had one.
                (Some(255), Host::Ssh(_)) => Answer::Silent(experiment::reason(finished)),
                (Some(4), _) => Answer::Drifted(one_line(&finished.stdout)),
                _ => Answer::Failed(experiment::reason(finished)),
            },
        }
    }
}

fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

impl Members<'_> {
    fn plan_of(&self, host: &Host) -> String {
        let mut plan = self.plan.clone();
        if let Host::Netns(name) = host {
            plan.netns = Some(name.clone());
        }
        plan.to_text()
    }

    /// Folder of a host's journal on this machine.
    fn state(&self, host: &Host) -> PathBuf {
        let folder = Path::new(&self.request.state);
        match host {
            Host::Netns(name) => folder.join("fleet").join(name),
            _ => folder.to_owned(),
        }
    }

    fn measurement(&self, host: &Host, has_plan: bool) -> Work {
        let arguments =
            self.request.arguments.iter().map(|word| word.replace("{host}", &name(host)));
        Work::Measure { plan: self.plan_of(host), has_plan, arguments: arguments.collect() }
    }

    fn start(&self, at: usize, work: &Work) -> Result<Running, Failure> {
        let host = &self.hosts[at];
        work.start(host, &self.request.ssh_options, &self.state(host), self.data.as_deref())
    }

    /// Does a step on one host, to its end.
    fn once(&self, at: usize, work: &Work) -> Ended {
        let limit = if work.measures() { MEASURE_MAX } else { STEP_MAX };
        let run = || -> Result<Ended, Failure> {
            let mut running = self.start(at, work)?;
            let until = Instant::now() + limit;
            let mut is_told = false;
            while Instant::now() < until {
                if let Some(ended) = running.wait(LOOK)? {
                    return Ok(Ended::Finished(ended));
                }
                if work.measures() && signals::stop_requested() && !is_told {
                    is_told = true;
                    match &mut running {
                        Running::Child(child) => child.interrupt(),
                        Running::Far(_) => return Ok(Ended::Silent("interrupted".into())),
                    }
                }
            }
            Ok(Ended::Silent(format!("no answer within {} s", limit.as_secs())))
        };
        // A program that cannot be started, here or by ssh: the state of the host is unknown.
        run().unwrap_or_else(|failure| Ended::Silent(failure.text().to_owned()))
    }

    /// Does a step on every host: one after the other on this machine, others at the same time.
    fn each(&self, steps: &[(usize, Work)]) -> Result<Vec<(usize, Ended)>, Failure> {
        let (local, remote): (Vec<_>, Vec<_>) =
            steps.iter().partition(|(at, _)| self.hosts[*at].is_local());
        let share = remote.len().div_ceil(REMOTE_MAX).max(1);
        let groups = std::iter::once(local)
            .chain(remote.chunks(share).map(<[_]>::to_vec))
            .filter(|group| !group.is_empty());
        let found = Mutex::new(Vec::new());
        let work = |group: Vec<&(usize, Work)>| {
            for (at, work) in group {
                let is_over = work.measures() && signals::stop_requested();
                let ended = match is_over {
                    true => Ended::Silent("interrupted".into()),
                    false => self.once(*at, work),
                };
                found.lock().map_err(|_| "a thread panicked".to_owned())?.push((*at, ended));
            }
            Ok(())
        };
        let done: Result<(), String> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                groups.map(|group| start(scope, "wp-rollout", move || work(group))).collect();
            threads.into_iter().try_for_each(|thread| thread.end())
        });
        done.map_err(Failure::Failed)?;
        let mut found = found.into_inner().map_err(|_| Failure::failed("a thread panicked"))?;
        // In the order that was asked for.
        found.sort_by_key(|(at, _)| steps.iter().position(|(of, _)| of == at));
        Ok(found)
    }

    fn same(&self, hosts: &[usize], work: impl Fn(&Host) -> Work) -> Result<Answers, Failure> {
        let steps: Vec<(usize, Work)> =
            hosts.iter().map(|at| (*at, work(&self.hosts[*at]))).collect();
        let ended = self.each(&steps)?;
        Ok(ended.into_iter().map(|(at, ended)| (at, ended.answer(&self.hosts[at]))).collect())
    }

    /// Figures of hosts in the metric of the roll-out.
    fn figures(&self, steps: &[(usize, Work)]) -> Result<Vec<(usize, Figure)>, Failure> {
        let read = |(at, ended): (usize, Ended)| {
            let figure = match &ended {
                Ended::Finished(finished) if finished.status.success() => {
                    experiment::outcome(&finished.stdout)
                        .and_then(|(_, outcome)| proof::judged(outcome, &self.request.metric))
                        .map_err(Answer::Failed)
                }
                other => Err(other.answer(&self.hosts[at])),
            };
            (at, figure)
        };
        Ok(self.each(steps)?.into_iter().map(read).collect())
    }

    fn owner(&self) -> String {
        self.id.to_owned()
    }

    fn within(&self) -> Duration {
        Duration::from_millis(self.request.within_ms)
    }

    fn extend(&self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.same(hosts, |_| Work::Extend {
            within_ms: self.request.within_ms,
            owner: self.owner(),
        })
    }

    /// Starts to apply on one host, and waits until its settings are changed.
    fn apply_on(&mut self, at: usize) -> Result<Answer, Failure> {
        let host = &self.hosts[at];
        let (plan, within_ms) = (self.plan_of(host), self.request.within_ms);
        let work = Work::Apply { plan, within_ms, owner: self.owner() };
        // From this thread, with which the program would end.
        let mut running = match self.start(at, &work) {
            Ok(running) => running,
            Err(failure) => return Ok(Answer::Silent(failure.text().to_owned())),
        };
        let until = Instant::now() + STEP_MAX;
        loop {
            let ended = running.wait(LOOK)?;
            if let Some(ended) = ended {
                return Ok(match Ended::Finished(ended).answer(host) {
                    Answer::Done(said) => Answer::Failed(format!("did not wait: {said}")),
                    other => other,
                });
            }
            // Refused until the last setting is changed.
            if let Some((_, Answer::Done(said))) = self.extend(&[at])?.pop() {
                self.waiting.push((at, running));
                return Ok(Answer::Done(said));
            }
            if Instant::now() > until {
                return Ok(Answer::Silent(format!("not applied within {} s", STEP_MAX.as_secs())));
            }
        }
    }

    /// Ends the programs of these hosts that wait for a confirmation, once they have it or were rolled back.
    fn end_waiting(&mut self, hosts: &[usize]) {
        let (ending, others) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(at, _)| hosts.contains(at));
        self.waiting = others;
        let until = Instant::now() + STEP_MAX;
        let ending: Vec<(usize, Running)> = ending;
        for (_, mut running) in ending {
            while matches!(running.wait(LOOK), Ok(None)) && Instant::now() < until {}
        }
    }

    /// Keeps the settings for good.
    pub(super) fn keep(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.same(hosts, |_| Work::Keep { owner: self.owner() })
    }

    fn say(&self, what: &str, hosts: &[usize]) {
        console::say(&format!("{what}: {}", console::count(hosts.len(), "host")));
    }
}

/// Name of a host in arguments.
fn name(host: &Host) -> String {
    match host {
        Host::This => "this".to_owned(),
        Host::Netns(name) => name.clone(),
        Host::Ssh(far) => far.destination.clone(),
    }
}

/// Answers of a measurement.
fn answers(figures: &[(usize, Figure)]) -> Answers {
    let answer = |(at, figure): &(usize, Figure)| {
        let answer = match figure {
            Ok(outcome) => Answer::Done(format!("run {}", outcome.id)),
            Err(answer) => answer.clone(),
        };
        (*at, answer)
    };
    figures.iter().map(answer).collect()
}

impl Hosts for Members<'_> {
    type Error = Failure;

    fn baseline(&mut self, hosts: &[usize]) -> Result<(Answers, Vec<Option<f64>>), Failure> {
        self.say("baseline", hosts);
        let steps: Vec<(usize, Work)> =
            hosts.iter().map(|at| (*at, self.measurement(&self.hosts[*at], false))).collect();
        let figures = self.figures(&steps)?;
        let mut levels = vec![None; self.hosts.len()];
        for (at, figure) in &figures {
            levels[*at] = figure.as_ref().ok().and_then(proof::level);
        }
        Ok((answers(&figures), levels))
    }

    fn prove(
        &mut self,
        stage: &[usize],
        control: &[usize],
        levels: &[Option<f64>],
    ) -> Result<(Answers, Proof), Failure> {
        self.say("proving, beside a control group of the same size if there is one", stage);
        let with = stage.iter().map(|at| (*at, self.measurement(&self.hosts[*at], true)));
        let without = control.iter().map(|at| (*at, self.measurement(&self.hosts[*at], false)));
        // In turn, so that hosts of this machine measure at similar times.
        let steps: Vec<(usize, Work)> = interleaved(with.collect(), without.collect());
        let figures = self.figures(&steps)?;
        let (of_stage, of_control): (Vec<_>, Vec<_>) =
            figures.into_iter().partition(|(at, _)| stage.contains(at));
        let mut all = answers(&of_stage);
        all.extend(answers(&of_control));
        let named: Vec<(String, Figure)> =
            of_stage.into_iter().map(|(at, figure)| (self.hosts[at].to_string(), figure)).collect();
        let proof = proof::proof(named, &of_control, levels, self.request.wants());
        Ok((all, proof))
    }

    fn apply(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("applying", hosts);
        let mut answers = Vec::new();
        let mut extended = Instant::now();
        for at in hosts {
            answers.push((*at, self.apply_on(*at)?));
            if matches!(answers.last(), Some((_, Answer::Failed(_)))) {
                break;
            }
            if extended.elapsed() > self.within() / 3 {
                extended = Instant::now();
                let waiting: Vec<usize> = self.waiting.iter().map(|(at, _)| *at).collect();
                // A host that has rolled back shows while it holds.
                self.extend(&waiting)?;
            }
        }
        Ok(answers)
    }

    fn hold(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("holding", hosts);
        let until = Instant::now() + Duration::from_millis(self.request.hold_ms);
        loop {
            let mut answers = self.extend(hosts)?;
            let answering: Vec<usize> = answers
                .iter()
                .filter(|(_, answer)| matches!(answer, Answer::Done(_)))
                .map(|(at, _)| *at)
                .collect();
            let verified =
                self.same(&answering, |host| Work::Verify { plan: self.plan_of(host) })?;
            for (at, answer) in verified {
                if let Some(of) = answers.iter_mut().find(|(of, _)| *of == at) {
                    of.1 = answer;
                }
            }
            let is_well = answers.iter().all(|(_, answer)| matches!(answer, Answer::Done(_)));
            let pause = until.saturating_duration_since(Instant::now()).min(self.within() / 3);
            if !is_well || pause.is_zero() || signals::stop_requested() {
                return Ok(answers);
            }
            let until = Instant::now() + pause;
            while Instant::now() < until && !signals::stop_requested() {
                std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
            }
        }
    }

    fn confirm(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("confirming", hosts);
        let answers = self.same(hosts, |_| Work::Confirm { owner: self.owner() })?;
        self.end_waiting(hosts);
        Ok(answers)
    }

    fn roll_back(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        if hosts.is_empty() {
            return Ok(Vec::new());
        }
        self.say("rolling back", hosts);
        let answers = self.same(hosts, |_| Work::RollBack { owner: self.owner() })?;
        self.end_waiting(hosts);
        Ok(answers)
    }

    fn is_stopped(&self) -> bool {
        signals::stop_requested()
    }
}

fn interleaved<T>(one: Vec<T>, other: Vec<T>) -> Vec<T> {
    let mut other = other.into_iter();
    let mut all = Vec::new();
    for item in one {
        all.push(item);
        all.extend(other.next());
    }
    all.extend(other);
    all
}
