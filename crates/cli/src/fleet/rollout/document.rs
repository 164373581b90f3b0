//! Document and page of a roll-out.

use fleet::rollout::{
    Draw, LedgerRow, LiveCrossings, Proof, RolloutGate, RolloutHeader, RolloutState, StepAnswer,
};
use house::context::DOCUMENT;
use model::pool::PooledMetric;
use report::page::{LiveRow, RolloutHost, RolloutPage, RolloutStage};
use report::screen::Tone;
use report::units;
use schemars::JsonSchema;
use serde::Serialize;

use super::request::RolloutRequest;

/// Document of `fleet rollout --json`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Document")]
pub(crate) struct RolloutDocument {
    schema: u32,
    id: String,
    metric: String,
    seed: u64,
    state: RolloutState,
    /// Reason for the state.
    why: String,
    /// The first reason to roll back, or to pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<String>,
    stages: Vec<StageDocument>,
    /// Every transition, oldest first.
    transitions: Vec<Transition>,
    /// True if it is proved on the running services.
    is_live: bool,
}

const UNDER_LOAD: &str = "Each stage is proved on its own hosts, with and without the plan in turn, before the plan stays on \
    any of them. The control group is not touched; its drift is its figure over that of the baseline.";
const LIVE: &str = "Each stage is proved on the running services of its hosts, in pairs: one host has the plan while the other \
    has not, and then the other way round; a coin says which has it first. What takes longer than a period to show is not seen.";

#[derive(Serialize, JsonSchema)]
struct StageDocument {
    hosts: Vec<String>,
    /// Untouched hosts that are measured beside it.
    control: Vec<String>,
    /// Latest proof; `None` before.
    proof: Option<Proof>,
    /// True if the plan was confirmed on its hosts and not rolled back since.
    has_plan: bool,
}

#[derive(Serialize, JsonSchema)]
struct Transition {
    /// State that began.
    state: RolloutState,
    why: String,
    /// Answers of hosts in the state before.
    answers: Vec<HostAnswer>,
}

#[derive(Serialize, JsonSchema)]
struct HostAnswer {
    host: String,
    #[serde(flatten)]
    answer: StepAnswer,
}

impl RolloutDocument {
    pub(super) fn new(
        header: &RolloutHeader,
        draw: &Draw,
        request: &RolloutRequest,
        rows: &[LedgerRow],
    ) -> Self {
        let name = |at: &usize| header.hosts.get(*at).cloned().unwrap_or_default();
        let names = |hosts: &[usize]| hosts.iter().map(name).collect::<Vec<String>>();
        let state = rows.last().map_or(RolloutState::Planned, |row| row.state);
        let stages = (0..draw.stages()).map(|stage| StageDocument {
            hosts: names(draw.stage(stage)),
            control: names(draw.control(stage)),
            proof: latest_proof(rows, stage),
            has_plan: confirmed_stages(state, draw.stages()) > stage,
        });
        let transitions = rows.iter().map(|row| Transition {
            state: row.state,
            why: row.why.clone(),
            answers: row
                .answers
                .iter()
                .map(|(at, answer)| HostAnswer { host: name(at), answer: answer.clone() })
                .collect(),
        });
        RolloutDocument {
            schema: DOCUMENT,
            id: header.id.clone(),
            metric: first_figure(rows).unwrap_or_else(|| request.metric()).to_owned(),
            seed: header.seed,
            state,
            why: rows.last().map(|row| row.why.clone()).unwrap_or_default(),
            trigger: trigger(rows),
            stages: stages.collect(),
            transitions: transitions.collect(),
            is_live: request.live().is_some(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// False if it ended in the baseline for a reason of its hosts: the plan was on none of them.
    pub(super) fn was_begun(&self) -> bool {
        let mut states = self.transitions.iter().map(|transition| transition.state);
        self.state != RolloutState::RolledBack
            || states.any(|state| matches!(state, RolloutState::Proving { .. }))
    }

    /// Reason for the end, in a sentence.
    pub(super) fn why(&self) -> &str {
        match self.state {
            RolloutState::RolledBack | RolloutState::Paused { .. } => {
                self.trigger.as_deref().unwrap_or(&self.why)
            }
            _ => &self.why,
        }
    }

    pub(super) fn page(&self) -> RolloutPage {
        let hosts: usize = self.stages.iter().map(|stage| stage.hosts.len()).sum();
        RolloutPage {
            subject: format!("Roll-out on {}", units::plural(hosts as u32, "host")),
            caption: format!("{}, judged by {}, seed {}", self.id, self.metric, self.seed),
            findings: self.findings(),
            stages: self.stages.iter().enumerate().map(stage_row).collect(),
            figures: self.stages.iter().enumerate().flat_map(figure_rows).collect(),
            hosts: self.stages.iter().enumerate().flat_map(host_rows).collect(),
            steps: self
                .transitions
                .iter()
                .map(|of| (of.state.to_string(), of.why.clone()))
                .collect(),
            remarks: vec![
                if self.is_live { LIVE } else { UNDER_LOAD }.into(),
                "Until it is confirmed, each host rolls back by itself if it loses contact.".into(),
            ],
        }
    }

    fn findings(&self) -> Vec<(Tone, String)> {
        let why = self.why();
        let (tone, text) = match self.state {
            RolloutState::Done => (Tone::Good, "done: every stage has the plan".to_owned()),
            RolloutState::Kept => {
                (Tone::Good, "done and kept: every stage has the plan".to_owned())
            }
            RolloutState::RolledBack => (Tone::Bad, format!("rolled back: {why}")),
            RolloutState::Stuck { .. } => (Tone::Bad, format!("stuck: {why}")),
            state => (Tone::Doubt, format!("{state}: {why}")),
        };
        vec![(tone, text)]
    }
}

/// Figure that decides in a live proof.
fn first_figure(rows: &[LedgerRow]) -> Option<&str> {
    let mut proofs = rows.iter().filter_map(|row| row.proof.as_ref()?.live.as_ref());
    proofs.find_map(|live| Some(live.figures.first()?.verdict.figure.as_str()))
}

/// Number of stages on whose hosts the plan was confirmed.
fn confirmed_stages(state: RolloutState, stages: usize) -> usize {
    match state {
        RolloutState::Proving { stage }
        | RolloutState::Applying { stage }
        | RolloutState::Holding { stage }
        | RolloutState::Confirming { stage }
        | RolloutState::Paused { stage, .. } => stage,
        RolloutState::Done | RolloutState::Kept => stages,
        _ => 0,
    }
}

fn latest_proof(rows: &[LedgerRow], stage: usize) -> Option<Proof> {
    let after = rows.windows(2).filter(|pair| pair[0].state == RolloutState::Proving { stage });
    let mut proofs = after.filter_map(|pair| pair[1].proof.as_ref());
    proofs.next_back().map(|proof| (**proof).clone())
}

/// Reason of the latest transition that ended the work of the roll-out.
fn trigger(rows: &[LedgerRow]) -> Option<String> {
    let mut pairs = rows.windows(2);
    let ended = pairs.rfind(|pair| pair[0].state.is_at_work() && !pair[1].state.is_at_work())?;
    (!matches!(ended[1].state, RolloutState::Done)).then(|| ended[1].why.clone())
}

fn stage_row((at, stage): (usize, &StageDocument)) -> RolloutStage {
    let plan = stage.proof.as_ref().and_then(|proof| proof.plan.as_ref());
    let (verdict, tone) = match stage.proof.as_ref().map(|proof| &proof.gate) {
        None => ("not proved".to_owned(), Tone::Plain),
        Some(RolloutGate::Open(why)) => (why.clone(), Tone::Good),
        Some(RolloutGate::Shut(why)) => (why.clone(), Tone::Bad),
        Some(RolloutGate::Void(why) | RolloutGate::Unclear(why) | RolloutGate::Suspect(why)) => {
            (why.clone(), Tone::Doubt)
        }
    };
    let first = live_proof(stage).and_then(|live| live.figures.first());
    let live = first.and_then(|of| Some(units::ratio(of.verdict.ratio?.median)));
    let drift = stage.proof.as_ref().and_then(|proof| proof.control_drift);
    RolloutStage {
        name: (at + 1).to_string(),
        hosts: stage.hosts.len().to_string(),
        ratio: plan.and_then(figure).or(live).unwrap_or_else(|| "–".into()),
        verdict,
        control: match drift {
            None if live_proof(stage).is_some() => "–".into(),
            Some(drift) => format!("{}, {}", stage.control.len(), units::ratio(drift)),
            None => stage.control.len().to_string(),
        },
        now: if stage.has_plan { "has the plan" } else { "earlier values" }.into(),
        tone,
    }
}

fn live_proof(stage: &StageDocument) -> Option<&LiveCrossings> {
    stage.proof.as_ref()?.live.as_deref()
}

fn figure_rows((at, stage): (usize, &StageDocument)) -> Vec<(String, LiveRow)> {
    let figures = live_proof(stage).into_iter().flat_map(|live| &live.figures);
    figures.map(|of| ((at + 1).to_string(), LiveRow::new(&of.verdict))).collect()
}

/// Pooled ratio of a stage, or that of its only host.
fn figure(plan: &PooledMetric) -> Option<String> {
    let ratio = match plan.lines.as_slice() {
        [line] => plan.ratio.or(line.ratio),
        _ => plan.ratio,
    };
    ratio.map(units::ratio)
}

/// Partner of a host in a live proof.
fn crossed_with(stage: &StageDocument, host: &str) -> Option<String> {
    let live = live_proof(stage)?;
    let pair = live.groups.iter().find(|pair| pair.iter().any(|of| of == host))?;
    let rounds = units::plural(u64::from(live.rounds), "round");
    Some(match pair.iter().find(|of| *of != host) {
        Some(other) => format!("crossed over with {other}, {rounds}"),
        None => format!("crossed over alone, {rounds}"),
    })
}

fn host_rows((at, stage): (usize, &StageDocument)) -> Vec<RolloutHost> {
    let plan = stage.proof.as_ref().and_then(|proof| proof.plan.as_ref());
    let mut rows = Vec::new();
    for host in &stage.hosts {
        let line = plan.and_then(|plan| plan.lines.iter().find(|line| line.host == *host));
        rows.push(RolloutHost {
            host: host.clone(),
            stage: (at + 1).to_string(),
            ratio: line.and_then(|line| line.ratio),
            verdict: line.and_then(|line| line.verdict),
            why: line.and_then(|line| line.why.clone()).or_else(|| crossed_with(stage, host)),
        });
    }
    rows
}
