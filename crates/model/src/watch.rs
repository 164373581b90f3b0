//! Change points in the history of each figure: when did it change, and is the newest change one for the worse?
//!
//! One series for each path, load, machine, arm and judged metric; each session gives one figure, the median over its
//! runs. All series of a page are one family: each is tested at 5 % over their number (Bonferroni), so that at most one
//! of twenty pages on which nothing changed shows a change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::change_points::change_points;
use crate::compare::{ASIDE, arms_of, is_same, unit_figures, unit_means};
use crate::gate::EARLIER;
use crate::sessions::{machines, sessions};
use crate::statistics::LEVEL;
use crate::verdict::Badness;
use crate::{
    ArmKind, ArmOutcome, Better, By, CountDifference, Decision, Gate, GateAnswer, MetricOutcome,
    Outcome, RUNS_MIN, Undecided, Unit, Verdict, Warning, is_event_count, runs_needed, statistics,
    two_samples,
};

/// Version of the form of [`Watch`]; raised when a field changes its meaning.
pub const WATCH_SCHEMA: u32 = 1;

/// Most sessions of a series; older ones are left out.
pub const WATCHED_MAX: usize = 100;

/// Figure of one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedPoint {
    /// Id of its first run.
    pub id: String,
    /// RFC 3339 UTC time at which that began.
    pub started: String,
    /// Runs of the session.
    pub runs: u32,
    /// Median over its runs; of counts, the mean per trial.
    pub value: f64,
}

/// A change of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeriesChange {
    /// Index of the first session after the change.
    pub at: usize,
    /// Id of its first run.
    pub id: String,
    /// RFC 3339 UTC time at which that began.
    pub started: String,
    /// After over before, up to the neighbouring changes: median of all ratios; `None` of counts.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Of counts, in place of the ratio: events per trial after less those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<CountDifference>,
    /// p-value of the permutation test, before the correction for the number of series.
    pub p: f64,
    /// Better or worse; inconclusive if the spread changed and the level did not.
    pub verdict: Verdict,
}

/// One figure of one arm over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedSeries {
    /// Path.
    pub path: String,
    /// Load and its parameters, without duration and choice of arms.
    pub load: BTreeMap<String, String>,
    /// Id of the machine.
    pub machine: String,
    /// Id of the far end's machine, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    /// Name of the arm in the newest run.
    pub arm: String,
    /// Its role.
    pub kind: ArmKind,
    /// Name of the metric.
    pub metric: String,
    /// Unit of the figures.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// True if the newest run of this path and load has it; only such series are judged by a gate.
    pub is_current: bool,
    /// Figures, oldest first.
    pub points: Vec<WatchedPoint>,
    /// Changes, oldest first.
    pub changes: Vec<SeriesChange>,
}

/// All series of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Watch {
    /// [`WATCH_SCHEMA`].
    pub watch: u32,
    /// Unit that contributes one figure.
    pub unit: Unit,
    /// Quantity: the figure itself, or the arm's ratio to its own baseline.
    pub by: By,
    /// Ratio above 1 up to which a change does not matter.
    pub resolve: f64,
    /// Fewest sessions with which a change can be found in a series.
    pub needed: u32,
    /// Series that are long enough, which the correction is for.
    pub family: u32,
    /// Series, those with a change first.
    pub series: Vec<WatchedSeries>,
    /// Conditions that qualify the result.
    pub warnings: Vec<Warning>,
    /// The answer of `--fail-on`; absent if none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
}

/// Finds the changes in the history of each figure.
///
/// - `outcomes`: in any order.
/// - `resolve`: ratio above 1 up to which a change does not matter.
pub fn watch(outcomes: &[Outcome], unit: Unit, by: By, resolve: f64) -> Watch {
    let mut whole: Vec<&Outcome> = outcomes.iter().filter(|run| run.ended.is_complete()).collect();
    whole.sort_by(|a, b| a.started.cmp(&b.started));
    let mut series = all_series(&whole, unit, by);
    let family = series.iter().filter(|one| one.points.len() >= 2 * RUNS_MIN).count();
    let needed = 2 * runs_needed(family.max(1));
    for one in series.iter_mut().filter(|one| one.points.len() >= needed) {
        one.changes = changes(one, (1.0 - LEVEL) / family as f64);
    }
    series.sort_by_key(|one| one.changes.is_empty());
    let mut warnings = Vec::new();
    let partial = outcomes.len() - whole.len();
    if partial > 0 {
        warnings.push(Warning {
            what: format!(
                "{partial} of {} experiments did not reach their planned end",
                outcomes.len()
            ),
            advice: "they are left out: a run that is stopped when it looks bad is not a sample"
                .into(),
        });
    }
    if unit == Unit::Run {
        warnings.push(Warning {
            what: "each run counts as independent, so whatever a day shifts counts as a change"
                .into(),
            advice: "leave --unit run out".into(),
        });
    }
    Watch {
        watch: WATCH_SCHEMA,
        unit,
        by,
        resolve,
        needed: needed as u32,
        family: family as u32,
        series,
        warnings,
        gate: None,
    }
}

/// Path, load and machines of a run.
type Key<'a> = (&'a str, BTreeMap<&'a str, &'a str>, [Option<&'a str>; 2]);

fn key(run: &Outcome) -> Key<'_> {
    let load = run.load.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    (&run.path, load.filter(|(name, _)| !ASIDE.contains(name)).collect(), machines(&run.machine))
}

/// Series without changes, oldest path first.
///
/// - `runs`: oldest first.
fn all_series(runs: &[&Outcome], unit: Unit, by: By) -> Vec<WatchedSeries> {
    let mut groups: BTreeMap<Key<'_>, Vec<&Outcome>> = BTreeMap::new();
    let mut newest: BTreeMap<(&str, BTreeMap<&str, &str>), &str> = BTreeMap::new();
    for run in runs {
        let (path, load, machines) = key(run);
        newest.insert((path, load.clone()), &run.id);
        groups.entry((path, load, machines)).or_default().push(run);
    }
    let mut found = Vec::new();
    for ((path, load, [machine, far]), group) in &groups {
        let Some(last) = group.last() else { continue };
        let units = sessions(group.iter().copied(), unit);
        let newest_id = newest.get(&(*path, load.clone())).copied();
        for arm in arms_of(group.iter().copied()) {
            for metric in &last.judged {
                let Some((shape, points)) = points(&units, arm, metric, by) else { continue };
                let has_newest = group
                    .iter()
                    .filter(|run| run.arms.iter().any(|other| is_same(other, arm)))
                    .any(|run| Some(&*run.id) == newest_id);
                found.push(WatchedSeries {
                    path: (*path).to_owned(),
                    load: load.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
                    machine: machine.unwrap_or_default().to_owned(),
                    far: far.map(str::to_owned),
                    arm: arm.name.clone(),
                    kind: arm.kind,
                    metric: metric.clone(),
                    unit: if by == By::Worth { "ratio".into() } else { shape.unit.clone() },
                    better: shape.better,
                    is_current: has_newest,
                    points,
                    changes: Vec::new(),
                });
            }
        }
    }
    found
}

/// The newest metric, and the figure of each unit that has one; `None` without a figure.
fn points<'a>(
    units: &[Vec<&'a Outcome>],
    arm: &ArmOutcome,
    name: &str,
    by: By,
) -> Option<(&'a MetricOutcome, Vec<WatchedPoint>)> {
    let is_count_name = is_event_count(name);
    if by == By::Worth && (arm.kind == ArmKind::Baseline || is_count_name) {
        return None;
    }
    let metric_of =
        |run: &&'a Outcome| run.arms.iter().find(|other| is_same(other, arm))?.metrics.get(name);
    let shape = units.iter().rev().flatten().rev().find_map(metric_of)?;
    let mut found: Vec<WatchedPoint> = units
        .iter()
        .filter_map(|unit| {
            let metrics: Vec<&MetricOutcome> = unit
                .iter()
                .filter_map(metric_of)
                .filter(|metric| metric.unit == shape.unit)
                .collect();
            let of_unit = [metrics];
            let values = match by {
                By::Worth => unit_figures(&of_unit, |metric| metric.ratio),
                By::Value if is_count_name => unit_means(&of_unit),
                By::Value => unit_figures(&of_unit, |metric| metric.median),
            };
            let value = values.first().copied().filter(|value| value.is_finite())?;
            let first = unit.first()?;
            let (id, started) = (first.id.clone(), first.started.clone());
            Some(WatchedPoint { id, started, runs: unit.len() as u32, value })
        })
        .collect();
    found.drain(..found.len().saturating_sub(WATCHED_MAX));
    (!found.is_empty()).then_some((shape, found))
}

/// Logarithms of the figures, or the figures themselves if they are counts or one of them is not above 0.
fn scaled(series: &WatchedSeries) -> (Vec<f64>, bool) {
    let values: Vec<f64> = series.points.iter().map(|point| point.value).collect();
    let is_ratio = !is_event_count(&series.metric) && values.iter().all(|value| *value > 0.0);
    if is_ratio { (values.into_iter().map(f64::ln).collect(), true) } else { (values, false) }
}

fn changes(series: &WatchedSeries, level: f64) -> Vec<SeriesChange> {
    let (values, is_ratio) = scaled(series);
    let found = change_points(&values, RUNS_MIN, level, 1);
    let place = |index: usize| found.get(index).map_or(values.len(), |change| change.at);
    let change = |(index, change): (usize, &crate::change_points::ChangePoint)| {
        let from = index.checked_sub(1).map_or(0, place);
        let (before, after) = (&values[from..change.at], &values[change.at..place(index + 1)]);
        let shift = two_samples::shift(after, before, LEVEL)?;
        let point = &series.points[change.at];
        let bad = shift.interval.map(|interval| Badness::of(interval, series.better));
        let ratio = |log: f64| is_ratio.then(|| log.exp());
        Some(SeriesChange {
            at: change.at,
            id: point.id.clone(),
            started: point.started.clone(),
            ratio: ratio(shift.center),
            low: shift.interval.and_then(|interval| ratio(interval.0)),
            high: shift.interval.and_then(|interval| ratio(interval.1)),
            difference: (!is_ratio).then(|| shift.as_count()),
            p: change.p,
            verdict: match bad {
                Some(bad) if bad.least > 0.0 => Verdict::Worse,
                Some(bad) if bad.most < 0.0 => Verdict::Better,
                _ => Verdict::Inconclusive,
            },
        })
    };
    found.iter().enumerate().filter_map(change).collect()
}

impl WatchedSeries {
    /// Figure of its sessions since the latest change, median; the one before it with `false`.
    fn level(&self, is_after: bool) -> Option<f64> {
        let last = self.changes.last().map_or(0, |change| change.at);
        let before = self.changes.len().checked_sub(2).map_or(0, |index| self.changes[index].at);
        let points = if is_after { &self.points[last..] } else { &self.points[before..last] };
        statistics::median(&points.iter().map(|point| point.value).collect::<Vec<f64>>())
    }
}

impl Watch {
    /// Answers for each current series whether its latest change is one for the worse by more than the resolution.
    pub fn decide(&self) -> Gate {
        let current = self.series.iter().filter(|series| series.is_current);
        Gate::new(self.resolve, self.by, current.map(|series| self.decision(series)).collect())
    }

    fn decision(&self, series: &WatchedSeries) -> Decision {
        let change = series.changes.last();
        let (answer, reason) = self.answer(series);
        Decision {
            arm: series.arm.clone(),
            base: EARLIER.into(),
            metric: Some(series.metric.clone()),
            unit: series.unit.clone(),
            better: series.better,
            value: series.level(true),
            base_value: series.level(false),
            ratio: change.and_then(|change| change.ratio),
            low: change.and_then(|change| change.low),
            high: change.and_then(|change| change.high),
            difference: change.and_then(|change| change.difference),
            failures: None,
            p: change.map(|change| (change.p * f64::from(self.family)).min(1.0)),
            answer,
            reason,
            more_blocks: None,
            more_ms: None,
        }
    }

    fn answer(&self, series: &WatchedSeries) -> (GateAnswer, Option<Undecided>) {
        let (sessions, needed) = (series.points.len() as u32, self.needed);
        if sessions < needed {
            let few = Undecided::FewPoints { unit: self.unit, sessions, needed };
            return (GateAnswer::NotDecided, Some(few));
        }
        let Some(change) = series.changes.last().filter(|change| change.verdict == Verdict::Worse)
        else {
            return (GateAnswer::NoWorse, None);
        };
        let (interval, allowed) = match (&change.difference, change.low.zip(change.high)) {
            (Some(counts), _) => {
                let level = series.level(false).unwrap_or(0.0).abs();
                (counts.low.zip(counts.high), (self.resolve - 1.0) * level)
            }
            (None, interval) => {
                (interval.map(|(low, high)| (low.ln(), high.ln())), self.resolve.ln())
            }
        };
        match interval.map(|interval| Badness::of(interval, series.better)) {
            Some(bad) if bad.least > allowed => (GateAnswer::Worse, None),
            Some(bad) if bad.most <= allowed => (GateAnswer::NoWorse, None),
            _ => (GateAnswer::NotDecided, Some(Undecided::Wide)),
        }
    }
}
