//! Pooled outcome of one experiment on many hosts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Effect, PoolQuestion, answers, discoveries, effect, hosts_needed};
use crate::outcome::resolve_unrecorded;
use crate::pairs::Pairs;
use crate::statistics;
use crate::{
    ArmKind, ArmOutcome, Better, Floor, Machine, MetricOutcome, Outcome, RESOLVE, Verdict, Warning,
};

/// Fewest hosts that have a pooled verdict.
pub const HOSTS_MIN: usize = 6;

/// Version of the form of [`PooledOutcome`]; raised when a field changes its meaning.
pub const POOLED_SCHEMA: u32 = 1;

/// A host's part in the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostRun {
    /// Name of the host.
    pub host: String,
    /// Its group, e.g. a rack, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Id of its experiment; `None` without an outcome.
    pub id: Option<String>,
    /// Its machine; `None` without an outcome.
    pub machine: Option<Machine>,
    /// Reason for a missing outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Effect of an arm on one host, told from all hosts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FleetSide {
    /// Better, at a false-discovery rate of 5 % over all hosts, arms and metrics of the experiment.
    Helped,
    /// Worse, at the same rate.
    Hurt,
    /// Neither is shown.
    Undecided,
}

/// One arm in one metric on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostLine {
    /// Name of the host.
    pub host: String,
    /// Arm over baseline; `None` without a figure.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The host's own verdict.
    pub verdict: Option<Verdict>,
    /// Effect on this host.
    pub side: FleetSide,
    /// Reason for a missing figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One metric of one arm on all hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PooledMetric {
    /// Direction of improvement.
    pub better: Better,
    /// Hosts of the experiment, those without a figure included.
    pub hosts: u32,
    /// Groups of the experiment, which are the units, with hosts of no group as groups of their own; `None` if no
    /// group is known, and the host is the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Hosts without a figure.
    pub missing: u32,
    /// Mean ratio over the hosts; `None` with too few hosts, or if refused.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Standard deviation of the logarithm of the hosts' true ratios.
    pub tau: Option<f64>,
    /// Lower end of the 95 % interval of the next host's ratio.
    pub next_low: Option<f64>,
    /// Upper end.
    pub next_high: Option<f64>,
    /// Two-sided p-value: the larger of that of the mean and of the signed ranks.
    pub p: Option<f64>,
    /// `p` corrected for all verdicts of the experiment (Holm).
    pub p_adjusted: Option<f64>,
    /// Pooled interval of the control arms.
    pub floor: Option<Floor>,
    /// Hosts that are helped, at a false-discovery rate of 5 % over all hosts, arms and metrics.
    pub helped: u32,
    /// Hosts that are hurt, likewise.
    pub hurt: u32,
    /// Pooled verdict; `None` with too few hosts.
    pub verdict: Option<Verdict>,
    /// False if the verdict is better or worse on average and the next host may see no difference.
    pub everywhere: Option<bool>,
    /// The property of the hosts that explains most of their differences: a guess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Reason for a verdict that decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Every host, in the order of the experiment.
    pub lines: Vec<HostLine>,
}

/// One arm on all hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PooledArm {
    /// Unique within the experiment.
    pub name: String,
    /// Judged metrics by name.
    pub metrics: BTreeMap<String, PooledMetric>,
}

/// One experiment on many hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PooledOutcome {
    /// [`POOLED_SCHEMA`].
    pub pooled: u32,
    /// Path.
    pub path: String,
    /// Hosts, in the order given.
    pub hosts: Vec<HostRun>,
    /// Ratio up to which a difference does not matter: the smallest of the hosts' experiments.
    #[serde(default = "resolve_unrecorded")]
    pub resolve: f64,
    /// Metrics the load judges by, most important first.
    pub judged: Vec<String>,
    /// Arms but the baseline and its control.
    pub arms: Vec<PooledArm>,
    /// Conditions that qualify the results.
    pub warnings: Vec<Warning>,
}

/// Pools an experiment, with the host as the unit.
///
/// - `hosts`: name, and outcome or the reason for its absence.
pub fn pool(hosts: &[(String, Result<Outcome, String>)]) -> PooledOutcome {
    pool_groups(hosts, &BTreeMap::new())
}

/// Pools an experiment, with the group of hosts as the unit where groups are known.
///
/// - `groups`: group by name of the host; a host of no group is one of its own.
pub fn pool_groups(
    hosts: &[(String, Result<Outcome, String>)],
    groups: &BTreeMap<String, String>,
) -> PooledOutcome {
    let unit_of_host = unit_of_host(hosts, groups);
    let outcomes = || hosts.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
    let judged = outcomes().next().map(|first| first.judged.clone()).unwrap_or_default();
    let resolve = outcomes().map(|outcome| outcome.resolve).reduce(f64::min).unwrap_or(RESOLVE);
    let names = arm_names(outcomes());
    let asked: Vec<(&String, &String)> =
        names.iter().flat_map(|arm| judged.iter().map(move |metric| (arm, metric))).collect();
    let questions: Vec<PoolQuestion> =
        asked.iter().map(|(arm, metric)| question(hosts, &unit_of_host, arm, metric)).collect();
    let figures: Vec<Vec<Option<&MetricOutcome>>> = asked
        .iter()
        .zip(&questions)
        .map(|((arm, metric), question)| figures(hosts, arm, metric, question))
        .collect();
    // One family: each list by itself named a host on 32 to 37 % of pages of 6 arms and 3 metrics without an effect.
    let p = figures.iter().flatten().map(|of| of.and_then(|of| of.p).unwrap_or(1.0));
    let named = discoveries(&p.collect::<Vec<f64>>());
    let mut arms: Vec<PooledArm> = names
        .iter()
        .map(|name| PooledArm { name: name.clone(), metrics: BTreeMap::new() })
        .collect();
    let named = named.chunks(hosts.len().max(1));
    let found = figures.iter().zip(named);
    for ((((arm, metric), question), answer), (figures, named)) in
        asked.iter().zip(&questions).zip(answers(&questions, resolve)).zip(found)
    {
        let Some(place) = arms.iter_mut().find(|of| of.name == **arm) else { continue };
        let lines = lines(hosts, (arm, metric), question, figures, named);
        let pooled = pooled_metric(hosts, question, answer, lines);
        place.metrics.insert((*metric).clone(), pooled);
    }
    PooledOutcome {
        pooled: POOLED_SCHEMA,
        path: outcomes().next().map(|first| first.path.clone()).unwrap_or_default(),
        hosts: hosts.iter().map(|host| host_run(host, groups)).collect(),
        warnings: warnings(hosts, &unit_of_host, questions.len()),
        resolve,
        judged,
        arms,
    }
}

/// Index of each host's group, or of itself if it has none; empty if no host has one.
fn unit_of_host(
    hosts: &[(String, Result<Outcome, String>)],
    groups: &BTreeMap<String, String>,
) -> Vec<usize> {
    if !hosts.iter().any(|(host, _)| groups.contains_key(host)) {
        return Vec::new();
    }
    let mut known: Vec<(bool, &str)> = Vec::new();
    let mut units = Vec::new();
    for (host, _) in hosts {
        let name = match groups.get(host) {
            Some(group) => (true, group.as_str()),
            None => (false, host.as_str()),
        };
        let unit = known.iter().position(|other| *other == name).unwrap_or(known.len());
        if unit == known.len() {
            known.push(name);
        }
        units.push(unit);
    }
    units
}

/// Number of units whose indexes these are.
fn unit_count(unit_of_host: &[usize]) -> usize {
    unit_of_host.iter().max().map_or(0, |last| last + 1)
}

fn host_run(
    (host, outcome): &(String, Result<Outcome, String>),
    groups: &BTreeMap<String, String>,
) -> HostRun {
    let of = outcome.as_ref().ok();
    HostRun {
        host: host.clone(),
        group: groups.get(host).cloned(),
        id: of.map(|outcome| outcome.id.clone()),
        machine: of.map(|outcome| outcome.machine.clone()),
        why: outcome.as_ref().err().cloned(),
    }
}

/// Arms to judge of all hosts, each once, in the order of the first host that has it.
fn arm_names<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<String> {
    let mut known = BTreeSet::new();
    outcomes
        .flat_map(|outcome| &outcome.arms)
        .filter(|arm| arm.kind.is_compared() && known.insert(arm.name.clone()))
        .map(|arm| arm.name.clone())
        .collect()
}

fn question(
    hosts: &[(String, Result<Outcome, String>)],
    unit_of_host: &[usize],
    arm: &str,
    metric: &str,
) -> PoolQuestion {
    let each = |of: fn(&Outcome, &str, &str) -> Option<Effect>| {
        hosts
            .iter()
            .map(|(_, outcome)| outcome.as_ref().ok().and_then(|outcome| of(outcome, arm, metric)))
            .collect()
    };
    let better = hosts.iter().find_map(|(_, outcome)| {
        Some(metric_of(outcome.as_ref().ok()?, |of| of.name == arm, metric)?.better)
    });
    PoolQuestion {
        effects: each(arm_effect),
        control: each(|outcome, _, metric| control_effect(outcome, metric)),
        groups: unit_of_host.to_vec(),
        better: better.unwrap_or(Better::Lower),
    }
}

fn metric_of<'a>(
    outcome: &'a Outcome,
    is_arm: impl Fn(&ArmOutcome) -> bool,
    metric: &str,
) -> Option<&'a MetricOutcome> {
    outcome.arms.iter().find(|arm| is_arm(arm))?.metrics.get(metric)
}

/// Effect of an arm in a run; `None` without a figure, of a refused one, and of a run that did not reach its end.
pub fn arm_effect(outcome: &Outcome, arm: &str, metric: &str) -> Option<Effect> {
    let of =
        metric_of(outcome, |of| of.name == arm, metric).filter(|_| outcome.ended.is_complete())?;
    // A figure that a host refuses is not used through its trials.
    of.ratio.filter(|_| is_figure(of))?;
    let base = metric_of(outcome, |of| of.kind == ArmKind::Baseline, metric)?;
    let control = metric_of(outcome, |of| of.kind == ArmKind::Control, metric);
    let control = control.map(|control| control.trials.as_slice());
    let blocks = outcome.blocks as usize;
    effect(&Pairs::new(&of.trials, &base.trials, control, blocks, of.better).differences)
}

fn is_figure(metric: &MetricOutcome) -> bool {
    !matches!(metric.verdict, Some(Verdict::Refused | Verdict::Unsupported | Verdict::NotEffective))
}

/// Effect of the baseline's second run in a run; `None` without it.
pub fn control_effect(outcome: &Outcome, metric: &str) -> Option<Effect> {
    let base = metric_of(outcome, |of| of.kind == ArmKind::Baseline, metric)?;
    let control = metric_of(outcome, |of| of.kind == ArmKind::Control, metric)
        .filter(|_| outcome.ended.is_complete())?;
    let blocks = outcome.blocks as usize;
    effect(&Pairs::new(&control.trials, &base.trials, None, blocks, base.better).differences)
}

fn pooled_metric(
    hosts: &[(String, Result<Outcome, String>)],
    question: &PoolQuestion,
    answer: super::PoolAnswer,
    lines: Vec<HostLine>,
) -> PooledMetric {
    let count = |side| lines.iter().filter(|line| line.side == side).count() as u32;
    let ratio = |of: fn(&super::Pooled) -> f64| answer.pooled.as_ref().map(|p| of(p).exp());
    let (next_low, next_high) = (ratio(|p| p.prediction.0), ratio(|p| p.prediction.1));
    let floor = answer.floor.unwrap_or(Floor { low: 1.0, high: 1.0 });
    let differs = answer.verdict.is_some_and(Verdict::differs);
    let everywhere = next_low
        .zip(next_high)
        .filter(|_| differs)
        .map(|(low, high)| low > floor.high || high < floor.low);
    let has_split = answer.pooled.is_some() && everywhere != Some(true);
    PooledMetric {
        better: question.better,
        hosts: hosts.len() as u32,
        groups: (!question.groups.is_empty()).then(|| unit_count(&question.groups) as u32),
        missing: question.effects.iter().filter(|effect| effect.is_none()).count() as u32,
        ratio: ratio(|p| p.mean),
        low: ratio(|p| p.interval.0),
        high: ratio(|p| p.interval.1),
        tau: answer.pooled.map(|pooled| pooled.tau),
        next_low,
        next_high,
        p: answer.p,
        p_adjusted: answer.p_adjusted,
        floor: answer.floor,
        helped: count(FleetSide::Helped),
        hurt: count(FleetSide::Hurt),
        verdict: answer.verdict,
        everywhere,
        split: has_split.then(|| split(hosts, &question.effects)).flatten(),
        why: answer.why,
        lines,
    }
}

/// Figure of each host that has an effect.
fn figures<'a>(
    hosts: &'a [(String, Result<Outcome, String>)],
    arm: &str,
    metric: &str,
    question: &PoolQuestion,
) -> Vec<Option<&'a MetricOutcome>> {
    let found = |(_, outcome): &'a (String, Result<Outcome, String>)| {
        metric_of(outcome.as_ref().ok()?, |of| of.name == arm, metric)
    };
    hosts.iter().zip(&question.effects).map(|(host, effect)| effect.and(found(host))).collect()
}

/// - `named`: for each host, true if its effect is shown.
fn lines(
    hosts: &[(String, Result<Outcome, String>)],
    (arm, metric): (&str, &str),
    question: &PoolQuestion,
    figures: &[Option<&MetricOutcome>],
    named: &[bool],
) -> Vec<HostLine> {
    let found: Vec<Option<&MetricOutcome>> = hosts
        .iter()
        .map(|(_, outcome)| metric_of(outcome.as_ref().ok()?, |of| of.name == arm, metric))
        .collect();
    let lines = (0..hosts.len()).map(|at| {
        let (host, outcome) = &hosts[at];
        let (effect, figure) = (question.effects[at], figures[at]);
        HostLine {
            host: host.clone(),
            ratio: figure.and_then(|of| of.ratio),
            low: figure.and_then(|of| of.low),
            high: figure.and_then(|of| of.high),
            verdict: found[at].and_then(|of| of.verdict),
            side: side(effect.filter(|_| named[at]), question.better),
            why: effect.is_none().then(|| missing_reason(outcome, found[at])),
        }
    });
    lines.collect()
}

fn side(effect: Option<Effect>, better: Better) -> FleetSide {
    match (effect.map(|effect| effect.log_ratio < 0.0), better) {
        (None, _) => FleetSide::Undecided,
        (Some(true), Better::Lower) | (Some(false), Better::Higher) => FleetSide::Helped,
        _ => FleetSide::Hurt,
    }
}

fn missing_reason(outcome: &Result<Outcome, String>, metric: Option<&MetricOutcome>) -> String {
    match (outcome, metric) {
        (Err(why), _) => why.clone(),
        (Ok(outcome), _) if !outcome.ended.is_complete() => "its run was interrupted".into(),
        (Ok(_), None) => "the arm did not run there".into(),
        (Ok(_), Some(metric)) => {
            metric.why.clone().unwrap_or_else(|| "too few blocks, or most trials failed".into())
        }
    }
}

/// Share of the hosts' differences that a property must explain to be named.
const SPLIT_MIN: f64 = 0.5;

type Property = (&'static str, fn(&Machine) -> &str);

/// The property by whose values the hosts' effects differ most.
fn split(
    hosts: &[(String, Result<Outcome, String>)],
    effects: &[Option<Effect>],
) -> Option<String> {
    let properties: [Property; 3] =
        [("kernel", |m| &m.kernel), ("CPU", |m| &m.cpu), ("interface", |m| &m.nic)];
    let best = properties
        .into_iter()
        .filter_map(|(name, property)| {
            let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for ((_, outcome), effect) in hosts.iter().zip(effects) {
                if let (Ok(outcome), Some(effect)) = (outcome, effect) {
                    groups.entry(property(&outcome.machine)).or_default().push(effect.log_ratio);
                }
            }
            Some((explained_share(&groups)?, name.to_owned()))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= SPLIT_MIN).then_some(best.1)
}

/// Sum of the squared distances from the mean.
fn squares(values: &[f64]) -> f64 {
    let mean = statistics::mean(values).unwrap_or_default();
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Share of the variance between groups; `None` unless there are two groups of two hosts and more.
fn explained_share(groups: &BTreeMap<&str, Vec<f64>>) -> Option<f64> {
    if groups.len() < 2 || groups.values().any(|group| group.len() < 2) {
        return None;
    }
    let all: Vec<f64> = groups.values().flatten().copied().collect();
    let within: f64 = groups.values().map(|group| squares(group)).sum();
    let total = squares(&all);
    (total > 0.0).then(|| 1.0 - within / total)
}

fn warnings(
    hosts: &[(String, Result<Outcome, String>)],
    unit_of_host: &[usize],
    questions: usize,
) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn =
        |what: String, advice: &str| found.push(Warning { what, advice: advice.to_owned() });
    let needed = hosts_needed(questions);
    let (units, unit) = match unit_count(unit_of_host) {
        0 => (hosts.len(), "hosts"),
        groups => (groups, "groups of hosts"),
    };
    if hosts.len() >= HOSTS_MIN && units < needed {
        let what = format!("{units} {unit} cannot decide {questions} figures; {needed} can");
        warn(what, &format!("give fewer arms, or more {unit}"));
    }
    let names: Vec<&str> = hosts
        .iter()
        .filter(|(_, outcome)| {
            outcome.as_ref().is_ok_and(|outcome| !outcome.distrusted().is_empty())
        })
        .map(|(host, _)| host.as_str())
        .collect();
    if !names.is_empty() {
        let what = format!("the baseline differs from itself on {}", names.join(", "));
        warn(what, "something else moved the figures there; run again on quiet hosts");
    }
    found
}
