//! Hosts of a roll-out, which do its steps.

use std::time::{Duration, Instant};

use fleet::rollout::{Answers, Hosts, Proof, StepAnswer, Watched};
use host::tune::Plan;
use house::{console, signals};
use model::PlanArms;
use remote::Failure;
use remote::work::{Call, RolloutStep};

use super::proof::{self, Figure};
use super::request::RolloutRequest;

/// Time between two looks at signals.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A way to reach the hosts of a roll-out, by their places in its list.
pub(super) trait Reach {
    /// Replaces `{host}` in the load.
    fn word(&self, at: usize) -> String;
    /// Text of the plan for a host.
    fn plan_text(&self, at: usize, plan: &Plan) -> String;
    /// Has each host answer one call. Returns the answers in the order of the calls; that of a measurement is its
    /// outcome.
    fn each(&mut self, calls: &[(usize, Call)]) -> Result<Answers, Failure>;
    /// Applies the plan; hosts that have done so wait for a confirmation. Hosts after one that failed may be left
    /// out.
    fn apply(&mut self, calls: &[(usize, Call)]) -> Result<Answers, Failure>;
    /// Ends the wait of hosts that were confirmed or rolled back.
    fn end_waiting(&mut self, hosts: &[usize]);
}

/// The hosts of one roll-out.
pub(super) struct Members<'a, R> {
    pub(super) reach: R,
    /// Of all hosts, for messages.
    pub(super) names: &'a [String],
    pub(super) plan: &'a Plan,
    pub(super) request: &'a RolloutRequest,
    /// Id of the roll-out, the owner of the settings on every host.
    pub(super) id: &'a str,
}

impl<R: Reach> Members<'_, R> {
    pub(super) fn plan_text(&self, at: usize) -> String {
        self.reach.plan_text(at, self.plan)
    }

    fn measurements(&self, hosts: &[usize], arms: PlanArms) -> Result<Vec<(usize, Call)>, Failure> {
        let measurement = |at: usize| {
            let plan = self.plan_text(at);
            Ok((at, self.request.measurement(&self.reach.word(at), plan, arms)?))
        };
        hosts.iter().copied().map(measurement).collect()
    }

    fn same(&mut self, hosts: &[usize], step: &RolloutStep) -> Result<Answers, Failure> {
        let call = Call::Step(Box::new(step.clone()));
        let calls: Vec<(usize, Call)> = hosts.iter().map(|at| (*at, call.clone())).collect();
        self.reach.each(&calls)
    }

    /// Figures of hosts in the metric of the roll-out.
    fn figures(&mut self, calls: &[(usize, Call)]) -> Result<Vec<(usize, Figure)>, Failure> {
        let answers = self.reach.each(calls)?;
        let metric = self.request.metric();
        Ok(answers.into_iter().map(|(at, answer)| (at, proof::figure(answer, metric))).collect())
    }

    fn owner(&self) -> String {
        self.id.to_owned()
    }

    /// Postpones the rollback, and compares the settings with the plan.
    fn watch(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        let extend = RolloutStep::Extend { within_ms: self.request.within_ms, owner: self.owner() };
        let mut answers = self.same(hosts, &extend)?;
        let answering = answers.iter().filter(|(_, answer)| matches!(answer, StepAnswer::Done(_)));
        let calls: Vec<(usize, Call)> = answering
            .map(|(at, _)| {
                (*at, Call::Step(Box::new(RolloutStep::Verify { plan: self.plan_text(*at) })))
            })
            .collect();
        for (at, verified) in self.reach.each(&calls)? {
            if let Some((_, answer)) = answers.iter_mut().find(|(host, _)| *host == at) {
                *answer = verified;
            }
        }
        Ok(answers)
    }

    /// Keeps the settings for good.
    pub(super) fn keep(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.same(hosts, &RolloutStep::Keep { owner: self.owner() })
    }

    pub(super) fn say(&self, what: &str, hosts: &[usize]) {
        console::say(&format!("{what}: {}", console::count(hosts.len(), "host")));
    }
}

/// Answers of a measurement.
fn answers(figures: &[(usize, Figure)]) -> Answers {
    let mut answers = Vec::new();
    for (at, figure) in figures {
        answers.push(match figure {
            Ok(outcome) => (*at, StepAnswer::Done(format!("run {}", outcome.id))),
            Err(answer) => (*at, answer.clone()),
        });
    }
    answers
}

impl<R: Reach> Hosts for Members<'_, R> {
    type Error = Failure;

    fn baseline(&mut self, hosts: &[usize]) -> Result<(Answers, Vec<Option<f64>>), Failure> {
        if let Some(live) = self.request.live() {
            return self.live_baseline(live, hosts);
        }
        self.say("baseline", hosts);
        let calls = self.measurements(hosts, PlanArms::None)?;
        let figures = self.figures(&calls)?;
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
        if let Some(live) = self.request.live() {
            return self.live_proof(live, stage, levels);
        }
        self.say("proving, beside a control group of the same size if there is one", stage);
        let with = self.measurements(stage, PlanArms::Plan)?;
        let without = self.measurements(control, PlanArms::None)?;
        // In turn, so that hosts of this machine measure at similar times.
        let figures = self.figures(&interleaved(with, without))?;
        let (stage_figures, control_figures): (Vec<_>, Vec<_>) =
            figures.into_iter().partition(|(at, _)| stage.contains(at));
        let mut all = answers(&stage_figures);
        all.extend(answers(&control_figures));
        let named: Vec<(String, Figure)> = stage_figures
            .into_iter()
            .map(|(at, figure)| (self.names[at].clone(), figure))
            .collect();
        let proof = proof::proof(named, &control_figures, levels, self.request.wants());
        Ok((all, proof))
    }

    fn apply(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("applying", hosts);
        let (within_ms, owner) = (self.request.within_ms, self.owner());
        let mut calls = Vec::new();
        for at in hosts {
            let apply =
                RolloutStep::Apply { plan: self.plan_text(*at), within_ms, owner: owner.clone() };
            calls.push((*at, Call::Step(Box::new(apply))));
        }
        self.reach.apply(&calls)
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
                std::thread::sleep(
                    POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())),
                );
            }
            if signals::stop_requested() {
                return Ok(());
            }
        }
    }

    fn confirm(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        self.say("confirming", hosts);
        let answers = self.same(hosts, &RolloutStep::Confirm { owner: self.owner() })?;
        self.reach.end_waiting(hosts);
        Ok(answers)
    }

    fn roll_back(&mut self, hosts: &[usize]) -> Result<Answers, Failure> {
        if hosts.is_empty() {
            return Ok(Vec::new());
        }
        self.say("rolling back", hosts);
        let answers = self.same(hosts, &RolloutStep::RollBack { owner: self.owner() })?;
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
