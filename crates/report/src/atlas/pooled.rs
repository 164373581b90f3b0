//! The worth of each switch and knob over all machines, and by driver, kernel and platform: the fleet's model, with the
//! machine as the unit.

use std::collections::{BTreeMap, BTreeSet};

use model::pool::{HOSTS_MIN, PoolAnswer, PoolQuestion, answers, arm_effect, control_effect};
use model::{ArmKind, ArmOutcome, Better, Outcome, RESOLVE, Verdict};

use crate::wording;

/// A run of a contribution.
#[derive(Debug, Clone)]
pub struct AtlasEntry {
    /// Identity of the machine: the signer's key and what the machine is.
    pub machine: String,
    pub driver: String,
    /// `6.18` of `6.18.44-amd64`.
    pub kernel: String,
    /// Hypervisor, or that there is none.
    pub platform: String,
    pub outcome: Outcome,
}

impl AtlasEntry {
    /// - `signer`: public key of the contribution.
    pub fn new(signer: &str, outcome: Outcome) -> Self {
        let machine = &outcome.machine;
        let platform = match &machine.hypervisor {
            Some(hypervisor) => format!("under {hypervisor}"),
            None => "no hypervisor".to_owned(),
        };
        // Without the kernel: one machine with two kernels is one machine.
        let facts = [signer, &machine.cpu, &platform];
        let identity = format!("{}\n{}\n{}", facts.join("\n"), machine.cpus, machine.memory_bytes);
        let inner = machine.nic.trim_start_matches('(').trim_end_matches(')');
        let driver = inner.split(", ").next().unwrap_or_default().to_owned();
        let kernel = machine.kernel.split(['.', '-']).take(2).collect::<Vec<_>>().join(".");
        AtlasEntry { machine: identity, driver, kernel, platform, outcome }
    }
}

/// Machines whose runs are pooled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AtlasGroup {
    All,
    Driver(String),
    Kernel(String),
    Platform(String),
}

impl AtlasGroup {
    /// Groups of a run, each but the first with machines that have something in common.
    fn memberships(entry: &AtlasEntry) -> [AtlasGroup; 4] {
        [
            AtlasGroup::All,
            AtlasGroup::Driver(entry.driver.clone()),
            AtlasGroup::Kernel(entry.kernel.clone()),
            AtlasGroup::Platform(entry.platform.clone()),
        ]
    }
}

/// Runs by their own verdicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtlasCounts {
    pub better: u32,
    pub worse: u32,
    pub equal: u32,
    /// Neither: also those whose figure was refused or is missing.
    pub undecided: u32,
    /// The switch did nothing there; not pooled.
    pub not_effective: u32,
    /// The arm could not run there; not pooled.
    pub unsupported: u32,
}

/// An arm in a metric on the machines of a group.
#[derive(Debug, Clone)]
pub struct Row {
    pub group: AtlasGroup,
    pub machines: usize,
    /// Runs that are pooled, and how many of them gave no figure.
    pub runs: usize,
    pub missing: usize,
    pub counts: AtlasCounts,
    /// Least and greatest effect of a machine, as ratios.
    pub range: Option<(f64, f64)>,
    pub answer: PoolAnswer,
}

#[derive(Debug, Clone)]
pub struct AtlasMetric {
    /// Set of switches.
    pub arm: String,
    pub metric: String,
    pub better: Better,
    /// All machines, and then groups of them.
    pub rows: Vec<Row>,
}

/// A path with a load.
#[derive(Debug, Clone)]
pub struct AtlasSection {
    pub subject: String,
    pub machines: usize,
    pub runs: usize,
    /// Ratio up to which a difference does not matter: the smallest of the runs.
    pub resolve: f64,
    pub metrics: Vec<AtlasMetric>,
}

#[derive(Debug, Clone)]
pub struct Atlas {
    pub sections: Vec<AtlasSection>,
}

impl Atlas {
    /// Pools runs; a run that is there twice counts once.
    pub fn new(mut entries: Vec<AtlasEntry>) -> Self {
        let mut known = BTreeSet::new();
        entries.retain(|entry| known.insert(entry.outcome.id.clone()));
        let mut sections: BTreeMap<String, Vec<AtlasEntry>> = BTreeMap::new();
        for entry in entries {
            let outcome = &entry.outcome;
            let subject = wording::subject(&outcome.path, &outcome.load);
            sections.entry(subject).or_default().push(entry);
        }
        let sections = sections.into_iter().map(|(subject, entries)| section(subject, &entries));
        Atlas { sections: sections.collect() }
    }
}

/// An arm in a metric in a group, before it is answered.
struct Asked<'a> {
    arm: &'a str,
    metric: &'a str,
    better: Better,
    group: AtlasGroup,
    counts: AtlasCounts,
    question: PoolQuestion,
}

fn section(subject: String, entries: &[AtlasEntry]) -> AtlasSection {
    let resolve = entries.iter().map(|entry| entry.outcome.resolve).reduce(f64::min);
    let resolve = resolve.unwrap_or(RESOLVE);
    let mut asked = Vec::new();
    for (arm, metric) in arms_and_metrics(entries) {
        let groups: BTreeSet<AtlasGroup> =
            entries.iter().flat_map(AtlasGroup::memberships).collect();
        asked.extend(groups.into_iter().filter_map(|group| ask(entries, arm, metric, group)));
    }
    // Two families, each corrected by itself: all machines, and parts of them.
    let (all, parts): (Vec<Asked<'_>>, Vec<Asked<'_>>) =
        asked.into_iter().partition(|asked| asked.group == AtlasGroup::All);
    let mut metrics: Vec<AtlasMetric> = Vec::new();
    for family in [all, parts] {
        let questions: Vec<PoolQuestion> =
            family.iter().map(|asked| asked.question.clone()).collect();
        for (asked, answer) in family.into_iter().zip(answers(&questions, resolve)) {
            add(&mut metrics, asked, answer);
        }
    }
    AtlasSection {
        subject,
        machines: machine_count(entries),
        runs: entries.len(),
        resolve,
        metrics,
    }
}

fn machine_count<'a>(entries: impl IntoIterator<Item = &'a AtlasEntry>) -> usize {
    entries.into_iter().map(|entry| &entry.machine).collect::<BTreeSet<_>>().len()
}

fn add(metrics: &mut Vec<AtlasMetric>, asked: Asked<'_>, answer: PoolAnswer) {
    let row = Row {
        group: asked.group,
        machines: asked.question.groups.iter().collect::<BTreeSet<_>>().len(),
        runs: asked.question.effects.len(),
        missing: asked.question.effects.iter().filter(|effect| effect.is_none()).count(),
        counts: asked.counts,
        range: range(&asked.question),
        answer,
    };
    let known = metrics.iter_mut().find(|of| of.arm == asked.arm && of.metric == asked.metric);
    match known {
        Some(of) => of.rows.push(row),
        None => metrics.push(AtlasMetric {
            arm: asked.arm.to_owned(),
            metric: asked.metric.to_owned(),
            better: asked.better,
            rows: vec![row],
        }),
    }
}

fn range(question: &PoolQuestion) -> Option<(f64, f64)> {
    let ratios = question.effects.iter().flatten().map(|effect| effect.log_ratio.exp());
    ratios.fold(None, |range, ratio| match range {
        None => Some((ratio, ratio)),
        Some((least, most)) => Some((f64::min(least, ratio), f64::max(most, ratio))),
    })
}

/// Arms whose switches are Wirepath's own, with the metrics that their runs are judged by.
fn arms_and_metrics(entries: &[AtlasEntry]) -> Vec<(&str, &str)> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for AtlasEntry { outcome, .. } in entries {
        for arm in outcome.arms.iter().filter(|arm| is_judged(arm)) {
            for metric in &outcome.judged {
                if known.insert((&arm.name, metric)) {
                    found.push((arm.name.as_str(), metric.as_str()));
                }
            }
        }
    }
    found
}

fn is_judged(arm: &ArmOutcome) -> bool {
    arm.kind == ArmKind::Variant && !arm.switches.is_empty()
}

/// `None` if no run of the group has the arm, or if the group is all of the machines.
fn ask<'a>(
    entries: &[AtlasEntry],
    arm: &'a str,
    metric: &'a str,
    group: AtlasGroup,
) -> Option<Asked<'a>> {
    let with_arm: Vec<&AtlasEntry> =
        entries.iter().filter(|entry| judged_arm(&entry.outcome, arm).is_some()).collect();
    let of_group: Vec<&AtlasEntry> = with_arm
        .iter()
        .copied()
        .filter(|entry| AtlasGroup::memberships(entry).contains(&group))
        .collect();
    let is_part = group != AtlasGroup::All;
    if of_group.is_empty() || (is_part && of_group.len() == with_arm.len()) {
        return None;
    }
    let mut asked = Asked {
        arm,
        metric,
        better: Better::Lower,
        group,
        counts: AtlasCounts::default(),
        question: PoolQuestion {
            effects: Vec::new(),
            control: Vec::new(),
            groups: Vec::new(),
            better: Better::Lower,
        },
    };
    let machines: BTreeSet<&String> = of_group.iter().map(|entry| &entry.machine).collect();
    for entry in of_group {
        let machine = machines.iter().position(|known| **known == entry.machine)?;
        asked.add_run(entry, machine);
    }
    asked.question.better = asked.better;
    Some(asked)
}

fn judged_arm<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a ArmOutcome> {
    outcome.arms.iter().find(|arm| arm.name == name && is_judged(arm))
}

impl Asked<'_> {
    fn add_run(&mut self, entry: &AtlasEntry, machine: usize) {
        let outcome = &entry.outcome;
        let Some(arm) = judged_arm(outcome, self.arm) else { return };
        if !arm.support.is_yes() {
            self.counts.unsupported += 1;
            return;
        }
        let figures = arm.metrics.get(self.metric);
        self.better = figures.map_or(self.better, |of| of.better);
        match figures.and_then(|of| of.verdict) {
            Some(Verdict::NotEffective) => {
                self.counts.not_effective += 1;
                return;
            }
            Some(Verdict::Unsupported) => {
                self.counts.unsupported += 1;
                return;
            }
            Some(Verdict::Better) => self.counts.better += 1,
            Some(Verdict::Worse) => self.counts.worse += 1,
            Some(Verdict::NoDifferenceShown) => self.counts.equal += 1,
            Some(Verdict::Inconclusive | Verdict::Exploratory | Verdict::Refused) | None => {
                self.counts.undecided += 1;
            }
        }
        // A run that distrusts its own figure gives none.
        let is_trusted = !outcome.distrusted().contains(&self.metric);
        let effect = arm_effect(outcome, self.arm, self.metric).filter(|_| is_trusted);
        self.question.effects.push(effect);
        self.question.control.push(control_effect(outcome, self.metric).filter(|_| is_trusted));
        self.question.groups.push(machine);
    }
}

impl Row {
    /// Reason why there is no pooled figure, or why the verdict decides nothing.
    pub fn reason(&self) -> Option<String> {
        if self.machines < HOSTS_MIN {
            let machines = crate::plural(self.machines, "machine");
            return Some(format!("{machines}; a pooled verdict needs {HOSTS_MIN}"));
        }
        // The fleet's sentence is of hosts, which are runs here.
        if self.answer.verdict == Some(Verdict::Refused) {
            let runs = crate::plural(self.runs, "run");
            return Some(format!("{} of {runs} gave no figure", self.missing));
        }
        self.answer.why.clone()
    }
}
