//! Changes in the history of each figure.

use model::{By, SeriesChange, Unit, Verdict, Watch, WatchedSeries};

use super::{GateLine, Remark};
use crate::screen::Tone;
use crate::{answer, units, wording};

#[derive(Debug, Clone, PartialEq)]
pub struct WatchPage {
    /// Numbers of series, and of those with a change.
    pub subject: String,
    /// Quantity, unit, correction and resolution in one sentence each.
    pub method: Vec<String>,
    /// Figures that decide a gate against it, or leave it open; one line if all are no worse.
    pub gate: Vec<GateLine>,
    /// Series, those with a change first.
    pub series: Vec<WatchRow>,
    pub remarks: Vec<Remark>,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchRow {
    /// Path and load in one line.
    pub subject: String,
    pub arm: String,
    pub metric: String,
    pub machine: String,
    pub sessions: String,
    pub latest: String,
    /// The latest change in few words, or `none`, or too few sessions.
    pub change: String,
    pub tone: Tone,
    /// Every change: its time and run, and the change in one sentence.
    pub changes: Vec<Remark>,
}

impl WatchPage {
    /// Computes everything that text and HTML show of a watched history.
    pub fn from_watch(watch: &Watch) -> WatchPage {
        let count = watch.series.len() as u32;
        let changed = watch.series.iter().filter(|one| !one.changes.is_empty()).count();
        let series = if count == 1 { "1 series".into() } else { format!("{count} series") };
        WatchPage {
            subject: format!("{series}, {changed} with a change"),
            method: method(watch),
            gate: gate(watch),
            series: watch.series.iter().map(|one| row(watch, one)).collect(),
            remarks: watch
                .warnings
                .iter()
                .map(|warning| Remark::new(&warning.what, &warning.advice, Tone::Doubt))
                .collect(),
        }
    }
}

fn method(watch: &Watch) -> Vec<String> {
    let unit = watch.unit.name();
    let what = match watch.by {
        By::Value => "the median of an arm's trials",
        By::Worth => "the arm's ratio to the baselines of its own run",
    };
    let of_unit = match watch.unit {
        Unit::Run => "one figure a run, so whatever a day shifts counts as a change".to_owned(),
        _ => format!("one figure a {unit}, the median over its runs"),
    };
    vec![
        format!("{what}; {of_unit}; a series for each path, load, machine, arm and metric"),
        format!(
            "E-divisive (energy statistic, permutation test) at 5 % over {} series that are long enough, so that at \
             most one of twenty pages without a change shows one; {} {unit}s at least, five on each side of a change",
            watch.family, watch.needed
        ),
    ]
}

fn gate(watch: &Watch) -> Vec<GateLine> {
    let Some(gate) = &watch.gate else { return Vec::new() };
    let mut lines = GateLine::all(Some(gate));
    let passed = lines.iter().filter(|line| line.answer == model::GateAnswer::NoWorse).count();
    lines.retain(|line| line.answer != model::GateAnswer::NoWorse);
    if passed > 0 {
        let count =
            if passed == 1 { "1 series has".into() } else { format!("{passed} series have") };
        lines.push(GateLine {
            arm: String::new(),
            metric: None,
            answer: model::GateAnswer::NoWorse,
            sentence: format!(
                "{count} no latest change for the worse by more than {}",
                answer::percent(watch.resolve - 1.0)
            ),
            tone: Tone::Good,
        });
    }
    lines
}

fn row(watch: &Watch, series: &WatchedSeries) -> WatchRow {
    let latest = series.points.last().map(|point| figure(series, point.value));
    let last = series.changes.last();
    let is_short = series.points.len() < watch.needed as usize;
    let sessions = series.points.len() as u32;
    WatchRow {
        subject: wording::subject(&series.path, &series.load),
        arm: series.arm.clone(),
        metric: wording::metric(&series.metric),
        machine: series.machine.clone(),
        sessions: units::plural(sessions, watch.unit.name()),
        latest: latest.unwrap_or_else(|| "–".into()),
        change: match last {
            Some(change) => short(series, change),
            None if is_short => format!("{} more are needed", watch.needed - sessions),
            None => "none found".into(),
        },
        tone: match last.map(|change| change.verdict) {
            Some(verdict) => wording::tone(Some(verdict)),
            None if is_short => Tone::Doubt,
            None => Tone::Plain,
        },
        changes: series.changes.iter().map(|change| remark(series, change)).collect(),
    }
}

fn figure(series: &WatchedSeries, value: f64) -> String {
    if series.unit == "ratio" { units::ratio(value) } else { units::value(value, &series.unit) }
}

/// `1.05× [1.04, 1.06] worse`.
fn short(series: &WatchedSeries, change: &SeriesChange) -> String {
    let verdict = match change.verdict {
        Verdict::Inconclusive => "the spread changed, or the level by less than its noise",
        verdict => wording::verdict(verdict),
    };
    let size = match (&change.difference, change.ratio) {
        (Some(counts), _) => {
            let interval = counts.low.zip(counts.high);
            let interval = interval.map_or(String::new(), |(low, high)| {
                format!(" [{}, {}]", units::digits(low), units::digits(high))
            });
            format!("{}{interval} {}", units::digits(counts.mean), series.unit)
        }
        (None, Some(ratio)) => {
            let interval = change.low.zip(change.high);
            let interval = interval
                .map_or(String::new(), |(low, high)| format!(" {}", units::interval(low, high)));
            format!("{}{interval}", units::ratio(ratio))
        }
        (None, None) => String::new(),
    };
    format!("{size} {verdict}")
}

fn remark(series: &WatchedSeries, change: &SeriesChange) -> Remark {
    let subject = format!("{} ({})", wording::time(&change.started), change.id);
    let values = change
        .at
        .checked_sub(1)
        .and_then(|before| series.points.get(before))
        .zip(series.points.get(change.at))
        .map_or(String::new(), |(before, after)| {
            format!(
                "; {} in the session before, {} in this one",
                figure(series, before.value),
                figure(series, after.value)
            )
        });
    let text = format!("{}, p {}{values}", short(series, change), units::p(change.p));
    Remark::new(subject, text, wording::tone(Some(change.verdict)))
}
