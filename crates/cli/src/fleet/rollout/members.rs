//! Hosts of a roll-out, which do its steps.

use std::time::{Duration, Instant};

use fleet::rollout::{Answer, Answers, Hosts, Proof, Watched};
use host::tune::Plan;
use remote::Failure;

use super::super::experiment;
use super::super::work::Work;
use super::proof::{self, Figure};
use super::request::Request;
use crate::{console, signals};

const LOOK: Duration = Duration::from_millis(50);

/// A way to reach the hosts of a roll-out, by their places in its list.
pub(super) trait Reach {
    /// Replaces `{host}` in arguments.
    fn word(&self, at: usize) -> String;
    /// Text of the plan for a host.
    fn plan_of(&self, at: usize, plan: &Plan) -> String;
    /// Does one step on each host. Returns an answer of each, in the order of the steps; that of a measurement is
    /// its document.
    fn each(&mut self, steps: &[(usize, Work)]) -> Result<Answers, Failure>;
    /// Applies the plan; hosts that have done so wait for a confirmation. Hosts after one that failed may be left
    /// out.
    fn apply(&mut self, steps: &[(usize, Work)]) -> Result<Answers, Failure>;
    /// Ends the wait of hosts that were confirmed or rolled back.
    fn end_waiting(&mut self, hosts: &[usize]);
}

/// The hosts of one roll-out.
pub(super) struct Members<'a, R> {
    pub(super) reach: R,
    /// Of all hosts, for messages.
    pub(super) names: &'a [String],
    pub(super) plan: &'a Plan,
    pub(super) request: &'a Request,
    /// Id of the roll-out, the owner of the settings on every host.
    pub(super) id: &'a str,
}

impl<R: Reach> Members<'_, R> {
    fn plan_of(&self, at: usize) -> String {
        self.reach.plan_of(at, self.plan)
    }

    fn measurements(&self, hosts: &[usize], has_plan: bool) -> Vec<(usize, Work)> {
        let work = |at: &usize| {
            let words = self.request.arguments.iter();
            let arguments = words.map(|word| word.replace("{host}", &self.reach.word(*at)));
            let plan = self.plan_of(*at);
            (*at, Work::Measure { plan, has_plan, arguments: arguments.collect() })
        };
        hosts.iter().map(work).collect()
    }

    fn same(&mut self, hosts: &[usize], work: &Work) -> Result<Answers, Failure> {
        let steps: Vec<(usize, Work)> = hosts.iter().map(|at| (*at, work.clone())).collect();
        self.reach.each(&steps)
    }

    /// Figures of hosts in the metric of the roll-out.
    fn figures(&mut self, steps: &[(usize, Work)]) -> Result<Vec<(usize, Figure)>, Failure> {
        let metric = &self.request.metric;
        let read = |(at, answer): (usize, Answer)| {
            let figure = match answer {
                Answer::Done(document) => experiment::outcome(document.as_bytes())
                    .and_then(|(_, outcome)| proof::judged(outcome, metric))
                    .map_err(Answer::Failed),
                other => Err(other),
            };
            (at, figure)
        };
        Ok(self.reach.each(steps)?.into_iter().map(read).collect())
    }

    fn owner(&self) -> String {
        self.id.to_owned()
    }

    /// Postpones the rollback, and compares the settings with the plan.
    fn watch(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        let extend = Work::Extend { within_ms: self.request.within_ms, owner: self.owner() };
        let mut answers = self.same(hosts, &extend)?;
        let is_answering = |(_, answer): &&(usize, Answer)| matches!(answer, Answer::Done(_));
        let verify = |(at, _): &(usize, Answer)| (*at, Work::Verify { plan: self.plan_of(*at) });
        let steps: Vec<(usize, Work)> = answers.iter().filter(is_answering).map(verify).collect();
        for (at, answer) in self.reach.each(&steps)? {
            if let Some(of) = answers.iter_mut().find(|(of, _)| *of == at) {
                of.1 = answer;
            }
        }
        Ok(answers)
    }

    /// Keeps the settings for good.
    pub(super) fn keep(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.same(hosts, &Work::Keep { owner: self.owner() })
    }

    fn say(&self, what: &str, hosts: &[usize]) {
        console::say(&format!("{what}: {}", console::count(hosts.len(), "host")));
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

impl<R: Reach> Hosts for Members<'_, R> {
    type Error = Failure;

    fn baseline(&mut self, hosts: &[usize]) -> Result<(Answers, Vec<Option<f64>>), Failure> {
        self.say("baseline", hosts);
        let steps = self.measurements(hosts, false);
        let figures = self.figures(&steps)?;
        let mut levels = vec![None; self.names.len()];
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
        let (with, without) = (self.measurements(stage, true), self.measurements(control, false));
        // In turn, so that hosts of this machine measure at similar times.
        let figures = self.figures(&interleaved(with, without))?;
        let (of_stage, of_control): (Vec<_>, Vec<_>) =
            figures.into_iter().partition(|(at, _)| stage.contains(at));
        let mut all = answers(&of_stage);
        all.extend(answers(&of_control));
        let named: Vec<(String, Figure)> =
            of_stage.into_iter().map(|(at, figure)| (self.names[at].clone(), figure)).collect();
        let proof = proof::proof(named, &of_control, levels, self.request.wants());
        Ok((all, proof))
    }

    fn apply(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("applying", hosts);
        let (within_ms, owner) = (self.request.within_ms, self.owner());
        let work = |at: &usize| {
            (*at, Work::Apply { plan: self.plan_of(*at), within_ms, owner: owner.clone() })
        };
        let steps: Vec<(usize, Work)> = hosts.iter().map(work).collect();
        self.reach.apply(&steps)
    }

    fn hold(&mut self, watched: &mut Watched) -> Result<(), Failure> {
        self.say("holding", watched.hosts());
        let until = Instant::now() + Duration::from_millis(self.request.hold_ms);
        loop {
            // From the begin of one round to the next: silent hosts take up to two thirds of the time after which
            // the others roll back.
            let next = (Instant::now() + self.request.within() / 3).min(until);
            let answers = self.watch(watched.hosts())?;
            if !watched.take(answers) || Instant::now() >= until {
                return Ok(());
            }
            while Instant::now() < next && !signals::stop_requested() {
                std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
            if signals::stop_requested() {
                return Ok(());
            }
        }
    }

    fn confirm(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("confirming", hosts);
        let answers = self.same(hosts, &Work::Confirm { owner: self.owner() })?;
        self.reach.end_waiting(hosts);
        Ok(answers)
    }

    fn roll_back(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        if hosts.is_empty() {
            return Ok(Vec::new());
        }
        self.say("rolling back", hosts);
        let answers = self.same(hosts, &Work::RollBack { owner: self.owner() })?;
        self.reach.end_waiting(hosts);
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
