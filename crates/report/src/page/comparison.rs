//! Two series of experiments against each other.

use std::collections::BTreeSet;

use model::{
    ArmComparison, ArmKind, Better, By, Change, Difference, MetricComparison, RUNS_MIN,
    RunComparison, Unit, Verdict, runs_needed,
};

use super::{GateLine, RatioChart, RatioRow, Remark};
use crate::answer::{self, Sentence};
use crate::screen::Tone;
use crate::{units, wording};

#[derive(Debug, Clone, PartialEq)]
pub struct ComparisonPage {
    /// Path and load in one line.
    pub subject: String,
    /// Name of the unit, e.g. `session`.
    pub unit: &'static str,
    /// The unit in one sentence.
    pub unit_line: Remark,
    /// Margin of no difference, e.g. `5 %`.
    pub resolve: String,
    pub old: SeriesText,
    pub new: SeriesText,
    pub same_machine: bool,
    pub differences: Vec<Difference>,
    /// Answer of the series: a sentence for each judged metric.
    pub sentences: Vec<Sentence>,
    /// Verdict over all judged metrics by value, and by worth.
    pub values: Remark,
    pub worth: Remark,
    /// Answers of a gate, each a sentence; empty if none was asked for.
    pub gate: Vec<GateLine>,
    /// Judged metrics, most important first.
    pub metrics: Vec<ComparedMetric>,
    /// Missing figures, arms of only one run, and warnings.
    pub remarks: Vec<Remark>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeriesText {
    /// Ids, oldest first.
    pub ids: Vec<String>,
    /// First id, and the last if there are several.
    pub name: String,
    /// Numbers of runs, units and blocks, and the versions that ran them.
    pub extent: String,
    /// Start of the first run, numbers of runs and blocks, and reasons for the end.
    pub course: String,
}

impl SeriesText {
    fn new(runs: &[model::ComparedRun], unit: Unit, unit_count: usize) -> Self {
        let mut count = units::plural(runs.len() as u32, "run");
        if unit != Unit::Run {
            count += &format!(" in {}", units::plural(unit_count as u32, unit.name()));
        }
        let blocks = units::plural(runs.iter().map(|run| run.blocks).sum::<u32>(), "block");
        let versions = distinct(runs.iter().map(|run| run.version.as_str()));
        let ended = distinct(runs.iter().map(|run| wording::ended(run.ended)));
        let ids: Vec<String> = runs.iter().map(|run| run.id.clone()).collect();
        let started = runs.first().map_or(String::new(), |run| wording::time(&run.started));
        let name = match ids.as_slice() {
            [first, .., last] => format!("{first} to {last}"),
            [only] => only.clone(),
            [] => String::new(),
        };
        SeriesText {
            name,
            ids,
            extent: format!("{count}, {blocks}, wirepath {versions}"),
            course: format!("{started}, {count}, {blocks}, {ended}"),
        }
    }
}

/// Sorted, each once.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// A judged metric of both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedMetric {
    pub name: String,
    pub label: String,
    pub better: Option<&'static str>,
    /// One row per arm.
    pub rows: Vec<ComparedRow>,
    pub values: Option<RatioChart>,
    pub worth: Option<RatioChart>,
}

/// An arm of both runs, by one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRow {
    pub arm: String,
    pub old: Option<String>,
    pub new: Option<String>,
    pub value: Option<ChangeText>,
    pub worth: Option<ChangeText>,
    /// The whole row in one sentence, in the tone of its value.
    pub sentence: String,
    pub tone: Tone,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChangeText {
    pub ratio: String,
    pub interval: Option<String>,
    pub verdict: &'static str,
    pub tone: Tone,
    pub p: Option<String>,
}

impl ChangeText {
    fn new(change: &Change) -> Self {
        ChangeText {
            ratio: units::ratio(change.ratio),
            interval: change.low.zip(change.high).map(|(low, high)| units::interval(low, high)),
            verdict: wording::verdict(change.verdict),
            tone: wording::tone(Some(change.verdict)),
            p: change.p_adjusted.map(units::p),
        }
    }

    /// `1.31× [1.27, 1.35] worse`.
    fn text(&self) -> String {
        match &self.interval {
            Some(interval) => format!("{} {interval} {}", self.ratio, self.verdict),
            None => format!("{} {}", self.ratio, self.verdict),
        }
    }
}

impl ComparisonPage {
    /// Computes everything that text and HTML show of a comparison.
    pub fn from_comparison(comparison: &RunComparison) -> ComparisonPage {
        ComparisonPage {
            subject: wording::subject(&comparison.path, &comparison.load),
            unit: comparison.unit.name(),
            unit_line: unit_line(comparison.unit),
            resolve: answer::percent(comparison.resolve - 1.0),
            old: SeriesText::new(&comparison.old_runs, comparison.unit, comparison.old_units),
            new: SeriesText::new(&comparison.new_runs, comparison.unit, comparison.new_units),
            same_machine: comparison.same_machine,
            differences: comparison.differences.clone(),
            sentences: answer::compared(comparison),
            values: answer(comparison, By::Value),
            worth: answer(comparison, By::Worth),
            gate: GateLine::all(comparison.gate.as_ref()),
            metrics: comparison.judged.iter().map(|name| metric(comparison, name)).collect(),
            remarks: remarks(comparison),
        }
    }
}

fn unit_line(unit: Unit) -> Remark {
    match unit {
        Unit::Run => Remark::new(
            "the run",
            "whatever a day shifts counts as a change: do not decide by this",
            Tone::Bad,
        ),
        Unit::Session => Remark::new(
            "the session",
            "runs of one machine less than an hour apart, as one figure",
            Tone::Dim,
        ),
        Unit::Day => Remark::new(
            "the day",
            "all runs of one machine and one day (UTC), as one figure",
            Tone::Dim,
        ),
    }
}

/// All changes in one word and one sentence.
fn answer(comparison: &RunComparison, by: By) -> Remark {
    let changes: Vec<_> = comparison
        .values()
        .filter_map(|(arm, name, metric)| Some((arm, name, metric.change(by)?)))
        .collect();
    // The order in which verdicts are listed; the first one that occurs is that of the whole.
    const ORDER: [Verdict; 7] = [
        Verdict::Worse,
        Verdict::Better,
        Verdict::Inconclusive,
        Verdict::NoDifferenceShown,
        Verdict::NotEffective,
        Verdict::Unsupported,
        Verdict::Refused,
    ];
    let mut counts = ORDER.map(|verdict| (verdict, 0)).to_vec();
    for (verdict, count) in &mut counts {
        *count = changes.iter().filter(|(.., change)| change.verdict == *verdict).count();
    }
    counts.retain(|(_, count)| *count > 0);
    let overall = counts.first().map_or(Verdict::Refused, |(verdict, _)| *verdict);
    let word = match overall {
        Verdict::Worse if counts.iter().any(|(verdict, _)| *verdict == Verdict::Better) => "mixed",
        verdict => wording::verdict(verdict),
    };
    let tone = wording::tone(Some(overall));
    if changes.is_empty() {
        return Remark::new(word, "no figure is in both series", tone);
    }
    let few = comparison.old_units.min(comparison.new_units) < RUNS_MIN;
    if few && comparison.unit != Unit::Run {
        let needed = runs_needed(changes.len());
        let text = format!(
            "the day cannot be told from the change: {} before and {} now, {needed} a side are needed",
            units::plural(comparison.old_units as u32, comparison.unit.name()),
            units::plural(comparison.new_units as u32, comparison.unit.name()),
        );
        return Remark::new(wording::verdict(Verdict::Inconclusive), text, tone);
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(verdict, count)| format!("{count} {}", wording::verdict(*verdict)))
        .collect();
    let mut text = format!("of {} figures, {}", changes.len(), parts.join(", "));
    let most = changes
        .iter()
        .filter(|(.., change)| change.verdict.differs())
        .reduce(|most, next| if distance(next.2) > distance(most.2) { next } else { most });
    if let Some((arm, name, change)) = most {
        let change = ChangeText::new(change).text();
        let label = wording::metric(name);
        text.push_str(&format!("; the largest change: {label} of {}, {change}", arm.name));
    }
    Remark::new(word, text, tone)
}

fn distance(change: &Change) -> f64 {
    change.ratio.ln().abs()
}

fn metric(comparison: &RunComparison, name: &str) -> ComparedMetric {
    let arms: Vec<_> =
        comparison.arms.iter().filter_map(|arm| Some((arm, arm.metrics.get(name)?))).collect();
    let better = arms.first().map(|(_, metric)| metric.better);
    let [values, worth] = [By::Value, By::Worth]
        .map(|by| better.and_then(|better| ratio_chart(comparison, name, better, by)));
    ComparedMetric {
        name: name.to_owned(),
        label: wording::metric(name),
        better: better.map(wording::better),
        rows: arms.into_iter().map(|(arm, metric)| row(arm, metric)).collect(),
        values,
        worth,
    }
}

fn row(arm: &ArmComparison, metric: &MetricComparison) -> ComparedRow {
    let verdict = metric.value.as_ref().map_or(Verdict::Refused, |change| change.verdict);
    let [old, new] =
        [metric.old, metric.new].map(|value| value.map(|value| units::value(value, &metric.unit)));
    ComparedRow {
        arm: arm.name.clone(),
        old,
        new,
        value: metric.value.as_ref().map(ChangeText::new),
        worth: metric.worth.as_ref().map(ChangeText::new),
        sentence: sentence(arm, metric),
        tone: wording::tone(Some(verdict)),
    }
}

fn sentence(arm: &ArmComparison, metric: &MetricComparison) -> String {
    if let Some(why) = &metric.why {
        return format!("No verdict: {why}.");
    }
    let [old, new] = [metric.old, metric.new]
        .map(|value| value.map_or("no figure".into(), |value| units::value(value, &metric.unit)));
    let mut text = format!("{old} before, {new} now");
    if let Some(value) = &metric.value {
        text.push_str(&format!(": {}", ChangeText::new(value).text()));
    }
    if let Some(worth) = &metric.worth {
        let worth = ChangeText::new(worth).text();
        text.push_str(&format!("; worth against its own baseline {worth}"));
    } else if arm.kind == ArmKind::Baseline {
        text.push_str("; the baseline itself");
    }
    text + "."
}

fn ratio_chart(
    comparison: &RunComparison,
    name: &str,
    better: Better,
    by: By,
) -> Option<RatioChart> {
    // Every worth of the baseline is 1.
    let arms =
        comparison.arms.iter().filter(|arm| by == By::Value || arm.kind != ArmKind::Baseline);
    let what = if by == By::Worth { "worth" } else { "value" };
    let chart = RatioChart {
        title: format!("{}: {what} of each arm, newer runs over older", wording::metric(name)),
        description: String::new(),
        one: "no change",
        axis: format!("{what}, newer over older (×), {}, 95 % interval", wording::better(better)),
        notes: "ratio, 95 % interval, verdict",
        floor: None,
        rows: arms
            .map(|arm: &ArmComparison| {
                let change = arm.metrics.get(name).and_then(|metric| metric.change(by));
                let text = change.map(ChangeText::new);
                RatioRow {
                    name: arm.name.clone(),
                    ratio: change.map(|change| change.ratio),
                    interval: change.and_then(|change| change.low.zip(change.high)),
                    tone: text.as_ref().map_or(Tone::Dim, |text| text.tone),
                    note: text.as_ref().map_or("no figure".into(), ChangeText::text),
                    missing: change.is_none().then_some("no figure"),
                }
            })
            .collect(),
    };
    chart.unless_empty()
}

fn remarks(comparison: &RunComparison) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = comparison
        .values()
        .filter_map(|(arm, name, metric)| {
            let subject = format!("{}, {}", arm.name, wording::metric(name));
            Some(Remark::new(subject, metric.why.as_ref()?, Tone::Doubt))
        })
        .collect();
    for (arms, when) in [(&comparison.only_old, "before"), (&comparison.only_new, "now")] {
        if !arms.is_empty() {
            remarks.push(Remark::new(format!("only {when}"), arms.join(", "), Tone::Doubt));
        }
    }
    let warnings = comparison.warnings.iter();
    remarks.extend(warnings.map(|w| Remark::new(&w.what, &w.advice, Tone::Doubt)));
    remarks
}
