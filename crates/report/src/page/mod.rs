//! Results as they are shown: finished text, tones, and data of charts.
//!
//! [`Page::from_outcome`] and [`ComparisonPage::from_comparison`] compute everything once; `text` and
//! `html` only lay it out, so that they cannot disagree.

mod best;
mod charts;
mod command;
mod comparison;
mod curve;
mod feed;
mod mesh;
mod rollout;
mod steps;

use std::collections::BTreeMap;

use model::{
    ArmKind, ArmOutcome, Better, Ended, Machine, MetricOutcome, Outcome, Support, Verdict,
};

use crate::screen::Tone;
use crate::{units, wording};

pub use best::Best;
pub(crate) use best::best;
pub(crate) use charts::{CPUS_MAX, whole_percent};
pub use charts::{Cpu, CpuChart, Line, LineChart, RatioChart, RatioRow};
pub use command::quoted;
pub use comparison::{ChangeText, ComparedMetric, ComparedRow, ComparisonPage, SeriesText};
pub use curve::{CurveArm, CurveChart, CurvePage, CurveRow};
pub use feed::{Bar, BarChart, FeedAnswer, FeedPage, FeedTable};
pub use mesh::{MeshCell, MeshPage};
pub use rollout::{RolloutHost, RolloutPage, RolloutStage};
pub(crate) use steps::{Worth, worth};

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Path and load in one line.
    pub subject: String,
    pub id: String,
    pub started: String,
    pub version: String,
    /// Reasons to distrust the whole run, as sentences.
    pub notices: Vec<String>,
    /// Judged metrics, most important first.
    pub metrics: Vec<Metric>,
    /// The set that a search found and what each member is worth; empty without a search.
    pub members: Vec<Remark>,
    /// One sentence per variant and peer, by the first judged metric.
    pub answers: Vec<Remark>,
    /// Metrics that are reported and not judged.
    pub reported: Reported,
    /// Reasons for missing figures and verdicts.
    pub reasons: Vec<Remark>,
    /// Lost, duplicated and reordered packets.
    pub delivery: Vec<Remark>,
    pub failures: Vec<Failures>,
    /// Modes in use, where arms differ.
    pub modes: Vec<Remark>,
    /// Arms that could not run, or were not run on purpose.
    pub not_run: Vec<Remark>,
    pub warnings: Vec<Remark>,
    pub machine: Vec<(String, String)>,
    /// The machine in one line.
    pub machine_line: String,
    /// The method in one line.
    pub method: String,
    pub command: String,
    pub load: String,
    /// Tails of latencies, one chart per segment.
    pub tails: Vec<LineChart>,
    pub cpus: Option<CpuChart>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name in JSON and CSV: `rtt_ns_p50`.
    pub name: String,
    /// Name for people: `rtt p50`.
    pub label: String,
    /// Unit of the medians; empty if no arm has the metric.
    pub unit: String,
    /// Direction; `None` if no arm has the metric.
    pub better: Option<&'static str>,
    /// Ratios of the A/A pair: `0.987× to 1.01×`.
    pub floor: Option<String>,
    /// Smallest difference that the run could have found: `4.1 % to 9 % by arm`.
    pub detectable: Option<String>,
    /// Best arm, or the reason why there is none, in one line.
    pub headline: String,
    pub best: Option<Best>,
    /// The headline's reason if there is no best arm.
    pub none_better: String,
    /// One row per arm.
    pub rows: Vec<Row>,
    pub ratios: Option<RatioChart>,
    pub series: Option<LineChart>,
    pub trials: Option<Trials>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub arm: String,
    pub median: Option<String>,
    pub ratio: Option<String>,
    /// Ratio to the rung below, which has one switch less: `0.146×`, and its tone.
    pub step: Option<(String, Tone)>,
    pub interval: Option<String>,
    pub p: Option<String>,
    pub verdict: &'static str,
    pub tone: Tone,
    pub trials: u32,
    /// Median as a share of the largest, 0 to 1.
    pub bar: f64,
    /// The same for programs.
    pub figures: Figures,
}

/// Numbers of a row; all of them are finite.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// In the metric's unit.
    pub median: Option<f64>,
    /// To the baseline, with its 95 % interval.
    pub ratio: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub verdict: Option<Verdict>,
}

impl Figures {
    fn of(metric: &MetricOutcome) -> Figures {
        let finite = |figure: Option<f64>| figure.filter(|figure| figure.is_finite());
        Figures {
            median: finite(metric.median),
            ratio: finite(metric.ratio),
            low: finite(metric.low),
            high: finite(metric.high),
            verdict: metric.verdict,
        }
    }
}

/// Medians, arms down and metrics across.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    pub labels: Vec<String>,
    pub rows: Vec<(String, Vec<Option<String>>)>,
}

/// Every trial's value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Trials {
    pub unit: String,
    /// Arm and its values in the order of blocks.
    pub rows: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failures {
    pub arm: String,
    /// Number of failures and the last error.
    pub summary: String,
    pub errors: Vec<String>,
}

impl Failures {
    pub fn remark(&self) -> Remark {
        Remark::new(&self.arm, &self.summary, Tone::Bad)
    }
}

/// A statement about an arm or the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    pub subject: String,
    pub text: String,
    pub tone: Tone,
}

impl Remark {
    fn new(subject: impl Into<String>, text: impl Into<String>, tone: Tone) -> Self {
        Remark { subject: subject.into(), text: text.into(), tone }
    }
}

impl Page {
    /// Computes everything that text and HTML show of an experiment.
    pub fn from_outcome(outcome: &Outcome) -> Page {
        let load: Vec<_> = outcome.load.iter().map(|(k, v)| format!("{k} = {v}")).collect();
        Page {
            subject: wording::subject(&outcome.path, &outcome.load),
            id: outcome.id.clone(),
            started: wording::time(&outcome.started),
            version: format!("wirepath {}", outcome.version),
            notices: notices(outcome),
            metrics: outcome.judged.iter().map(|name| metric(outcome, name)).collect(),
            members: best::members(outcome),
            answers: answers(outcome),
            reported: reported(outcome),
            reasons: reasons(outcome),
            delivery: delivery(outcome),
            failures: failures(outcome),
            modes: modes(outcome),
            not_run: not_run(outcome),
            warnings: (outcome.warnings.iter())
                .map(|w| Remark::new(&w.what, &w.advice, Tone::Doubt))
                .collect(),
            machine: machine(&outcome.machine),
            machine_line: machine_line(&outcome.machine),
            method: method(outcome),
            command: command::command(outcome),
            load: load.join(", "),
            tails: charts::tails(outcome),
            cpus: charts::cpus(outcome),
        }
    }
}

pub(crate) fn first_headline(outcome: &Outcome) -> Option<String> {
    outcome.judged.first().map(|name| metric(outcome, name).headline)
}

/// Direction and unit of a metric, from the first arm that has it.
pub(crate) fn shape<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a MetricOutcome> {
    outcome.arms.iter().find_map(|arm| arm.metrics.get(name))
}

fn median(metric: &MetricOutcome) -> Option<String> {
    let median = metric.median.filter(|median| median.is_finite())?;
    Some(units::value(median, &metric.unit))
}

pub(crate) fn interval(metric: &MetricOutcome) -> Option<String> {
    match (metric.low?, metric.high) {
        (low, Some(high)) => Some(units::interval(low, high)),
        // So many trials failed that the interval has no upper end.
        (low, None) => Some(format!("[{}, ∞)", units::digits(low))),
    }
}

fn notices(outcome: &Outcome) -> Vec<String> {
    let mut notices = Vec::new();
    if outcome.schema < 2 {
        notices.push(
            "Judged by older rules: not corrected for the number of verdicts, and failed trials were \
             left out."
                .to_owned(),
        );
    }
    if outcome.ended == Ended::Unfinished {
        notices.push("Not finished: these are the trials so far.".to_owned());
    }
    let explored = |name: &String| {
        let verdicts = outcome.arms.iter().filter_map(|arm| arm.metrics.get(name)?.verdict);
        verdicts.into_iter().any(|verdict| verdict == Verdict::Exploratory)
    };
    if outcome.ended == Ended::Interrupted && outcome.judged.iter().any(explored) {
        notices.push(
            "Exploratory: the run was interrupted, so intervals are those that hold at every look. \
             Let it reach its end for verdicts."
                .to_owned(),
        );
    }
    notices.extend(outcome.arms.iter().filter_map(failing));
    let differing: Vec<_> = outcome.distrusted().into_iter().map(wording::metric).collect();
    if !differing.is_empty() {
        notices.push(format!(
            "Do not trust this run: the baseline differs from itself in {}: something else moved \
             the figures. Repeat it on a quieter machine.",
            differing.join(", ")
        ));
    }
    notices
}

/// Headline for an arm that fails more often than the baseline.
fn failing(arm: &ArmOutcome) -> Option<String> {
    let seen = arm.reliability.as_ref().filter(|seen| seen.fails_more)?;
    Some(format!(
        "{} fails more often than the baseline: {} of {} trials against {} of {}.",
        arm.name, seen.failed, seen.trials, seen.baseline_failed, seen.baseline_trials
    ))
}

/// Smallest difference that every arm could have shown.
fn detectable(outcome: &Outcome, name: &str) -> Option<String> {
    let judged = |arm: &&ArmOutcome| matches!(arm.kind, ArmKind::Variant | ArmKind::Peer);
    let ratios =
        outcome.arms.iter().filter(judged).filter_map(|arm| arm.metrics.get(name)?.detectable);
    let (least, most) = ratios.fold((f64::INFINITY, 1.0), |(l, m), r| (r.min(l), r.max(m)));
    let percent = |ratio: f64| units::digits((ratio - 1.0) * 100.0);
    match least.is_finite() {
        false => None,
        true if percent(least) == percent(most) => Some(format!("{} %", percent(most))),
        true => Some(format!("{} % to {} % by arm", percent(least), percent(most))),
    }
}

fn metric(outcome: &Outcome, name: &str) -> Metric {
    let label = wording::metric(name);
    let shape = shape(outcome, name);
    let floor = outcome.floor.get(name);
    let none_better = best::none_better(outcome, name);
    let best = best(outcome, name).map(|(arm, metric)| best::best_text(outcome, arm, metric, name));
    let headline = match &best {
        Some((headline, _)) => format!("{label}: {headline}"),
        None => format!("{label}: {none_better}"),
    };
    Metric {
        unit: shape.map_or(String::new(), |shape| shape.unit.clone()),
        better: shape.map(|shape| wording::better(shape.better)),
        floor: floor.map(|f| format!("{} to {}", units::ratio(f.low), units::ratio(f.high))),
        detectable: detectable(outcome, name),
        headline,
        best: best.map(|(_, best)| best),
        none_better,
        rows: shape.map_or(Vec::new(), |_| rows(outcome, name)),
        ratios: shape.and_then(|shape| ratio_chart(outcome, name, shape.better)),
        series: shape.and_then(|shape| charts::series(outcome, name, &shape.unit)),
        trials: shape.and_then(|shape| trials(outcome, name, &shape.unit)),
        name: name.to_owned(),
        label,
    }
}

/// Headline without the metric, and the same in parts.
/// Word in place of a verdict, for an arm that has none.
fn missing(arm: &ArmOutcome, metric: Option<&MetricOutcome>) -> Option<&'static str> {
    match (&arm.support, metric) {
        (Support::Unsupported { .. }, _) => Some("unsupported"),
        (Support::Refused { .. }, _) => Some("not run"),
        (Support::Yes, None) if arm.trials == 0 => Some("no trial"),
        (Support::Yes, None) => Some("no figure"),
        (Support::Yes, Some(_)) => None,
    }
}

fn rows(outcome: &Outcome, name: &str) -> Vec<Row> {
    let finite = |arm: &ArmOutcome| arm.metrics.get(name)?.median.filter(|m| m.is_finite());
    let largest = outcome.arms.iter().filter_map(finite).fold(0.0, f64::max);
    let row = |arm: &ArmOutcome| {
        let metric = arm.metrics.get(name);
        let verdict = metric.and_then(|metric| metric.verdict);
        let missing = missing(arm, metric);
        Row {
            arm: arm.name.clone(),
            median: metric.and_then(median),
            ratio: metric.and_then(|metric| metric.ratio).map(units::ratio),
            step: step_below(outcome, arm, name),
            interval: metric.and_then(interval),
            p: metric.and_then(|metric| metric.p_adjusted.or(metric.p)).map(units::p),
            verdict: match (missing, verdict) {
                (Some(word), _) => word,
                (None, Some(verdict)) => wording::verdict(verdict),
                (None, None) if arm.kind == ArmKind::Baseline => "baseline",
                (None, None) => "not judged",
            },
            tone: if missing.is_some() { Tone::Dim } else { wording::tone(verdict) },
            trials: arm.trials,
            bar: finite(arm).filter(|_| largest > 0.0).map_or(0.0, |median| median / largest),
            figures: metric.map(Figures::of).unwrap_or_default(),
        }
    };
    outcome.arms.iter().map(row).collect()
}

/// Ratio to the rung below; the first rung is on the baseline, as its ratio says already.
fn step_below(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> Option<(String, Tone)> {
    let step = steps::step(outcome, steps::rung_below(outcome, arm)?, arm, name)?;
    Some((units::ratio(step.ratio), wording::tone(Some(step.verdict))))
}

fn ratio_chart(outcome: &Outcome, name: &str, better: Better) -> Option<RatioChart> {
    outcome.arms.iter().find_map(|arm| arm.metrics.get(name)?.ratio)?;
    let row = |arm: &ArmOutcome| {
        let metric = arm.metrics.get(name);
        let is_baseline = arm.kind == ArmKind::Baseline;
        let ratio = metric.and_then(|metric| metric.ratio);
        let verdict = metric.and_then(|metric| metric.verdict);
        let missing = missing(arm, metric).or_else(|| {
            let unjudged = verdict.map_or("no figure", wording::verdict);
            (ratio.is_none() && !is_baseline).then_some(unjudged)
        });
        let interval_text = metric.and_then(interval);
        let verdict_text = verdict.map(|verdict| wording::verdict(verdict).to_owned());
        let parts = [ratio.map(units::ratio), interval_text, verdict_text];
        RatioRow {
            name: arm.name.clone(),
            ratio: if is_baseline { Some(1.0) } else { ratio },
            interval: metric.and_then(|metric| metric.low.zip(metric.high)),
            tone: metric.map_or(Tone::Dim, |_| wording::tone(verdict)),
            note: match missing {
                Some(word) => word.to_owned(),
                None if is_baseline => "the base".into(),
                None => parts.into_iter().flatten().collect::<Vec<_>>().join(" "),
            },
            missing,
        }
    };
    let floor = outcome.floor.get(name).copied();
    let description =
        floor.map(|f| format!("A/A floor {} to {}. ", units::ratio(f.low), units::ratio(f.high)));
    let chart = RatioChart {
        title: format!("{}: ratio of each arm to the baseline", wording::metric(name)),
        description: description.unwrap_or_default(),
        one: if floor.is_some() { "baseline and A/A floor" } else { "baseline" },
        axis: format!("ratio to baseline (×), {}, 95 % interval", wording::better(better)),
        notes: "ratio, 95 % interval, verdict",
        floor,
        rows: outcome.arms.iter().map(row).collect(),
    };
    chart.of_rows()
}

fn trials(outcome: &Outcome, name: &str, unit: &str) -> Option<Trials> {
    let arms = || outcome.arms.iter().filter_map(|arm| Some((arm, arm.metrics.get(name)?)));
    let values = || arms().flat_map(|(_, metric)| metric.trials.iter().flatten());
    let (least, most) = values().fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
        (least.min(value.abs()), most.max(value.abs()))
    });
    if !least.is_finite() {
        return None;
    }
    let (step, unit) = units::step((least.max(most / 1e3) * most).sqrt(), unit);
    let text = |value: &Option<f64>| value.map_or("–".into(), |v| units::digits(v / step));
    let rows = arms().map(|(arm, metric)| {
        let values: Vec<String> = metric.trials.iter().map(text).collect();
        (arm.name.clone(), values.join(" "))
    });
    Some(Trials { unit, rows: rows.collect() })
}

fn answers(outcome: &Outcome) -> Vec<Remark> {
    let Some(name) = outcome.judged.first() else { return Vec::new() };
    let arms = outcome.arms.iter();
    arms.filter(|arm| matches!(arm.kind, ArmKind::Variant | ArmKind::Peer))
        .map(|arm| {
            let (tone, text) = answer(outcome, arm, name);
            Remark::new(&arm.name, text, tone)
        })
        .collect()
}

fn answer(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> (Tone, String) {
    match &arm.support {
        Support::Unsupported { what, .. } => {
            return (Tone::Dim, format!("Cannot run here: {what}."));
        }
        Support::Refused { why } => return (Tone::Dim, format!("Not run: {why}.")),
        Support::Yes => {}
    }
    let Some(metric) = arm.metrics.get(name) else { return (Tone::Dim, "No figure.".into()) };
    let tone = wording::tone(metric.verdict);
    let why = metric.why.as_deref().unwrap_or("no reason given");
    let mut text = match metric.verdict {
        Some(Verdict::Refused) => return (tone, format!("No figure: {why}.")),
        Some(Verdict::NotEffective) => format!("Not effective ({why})"),
        Some(verdict) => wording::capitalised(wording::verdict(verdict)),
        None => "Not judged".into(),
    };
    if let Some(median) = median(metric) {
        text.push_str(&format!(": {median}"));
    }
    if let Some(ratio) = metric.ratio {
        text.push_str(&format!(", {} of baseline", units::ratio(ratio)));
        if let Some(interval) = interval(metric) {
            text.push_str(&format!(" {interval}"));
        }
    }
    text.push('.');
    if let Some(rung) = steps::rung_below(outcome, arm)
        && let Some(step) = steps::step(outcome, rung, arm, name)
    {
        let verdict = wording::verdict(step.verdict);
        text.push_str(&format!(" On top of {}: {}, {verdict}.", rung.name, step.text()));
    }
    (tone, text)
}

fn reported(outcome: &Outcome) -> Reported {
    let mut names: Vec<&String> = Vec::new();
    for name in outcome.arms.iter().flat_map(|arm| arm.metrics.keys()) {
        if !names.contains(&name) && !outcome.judged.contains(name) {
            names.push(name);
        }
    }
    let arms = outcome.arms.iter().filter(|arm| !names.is_empty() && !arm.metrics.is_empty());
    let rows = arms.map(|arm| {
        let medians = names.iter().map(|name| median(arm.metrics.get(*name)?)).collect();
        (arm.name.clone(), medians)
    });
    let rows = rows.collect();
    Reported { labels: names.into_iter().map(|name| wording::metric(name)).collect(), rows }
}

fn reasons(outcome: &Outcome) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for arm in outcome.arms.iter().filter(|arm| arm.support.is_yes()) {
        let mut reasons: Vec<(&String, Vec<String>)> = Vec::new();
        for name in &outcome.judged {
            let Some(why) = arm.metrics.get(name).and_then(|metric| metric.why.as_ref()) else {
                continue;
            };
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, labels)) => labels.push(wording::metric(name)),
                None => reasons.push((why, vec![wording::metric(name)])),
            }
        }
        remarks.extend(reasons.into_iter().map(|(why, labels)| {
            Remark::new(&arm.name, format!("{why} ({})", labels.join(", ")), Tone::Doubt)
        }));
    }
    remarks
}

fn delivery(outcome: &Outcome) -> Vec<Remark> {
    let remark = |arm: &ArmOutcome| {
        Some(Remark::new(&arm.name, Delivered::by_arm(arm).text()?, Tone::Doubt))
    };
    outcome.arms.iter().filter_map(remark).collect()
}

/// Packets of all trials of one arm.
#[derive(Debug, Default, PartialEq, Eq)]
struct Delivered {
    sent_count: u64,
    lost_count: u64,
    duplicated_count: u64,
    reordered_count: u64,
}

impl Delivered {
    /// From the counters if they have it (`lost_count`, or by direction `forward_lost_count`), else
    /// from the metric of that name.
    fn by_arm(arm: &ArmOutcome) -> Self {
        let total = |name: &str| {
            if let Some(whole) = arm.counters.get(name) {
                return *whole;
            }
            let suffix = format!("_{name}");
            let directions = || arm.counters.iter().filter(|(key, _)| key.ends_with(&suffix));
            if directions().next().is_some() {
                return model::total(directions().map(|(_, count)| *count));
            }
            let trials = arm.metrics.get(name).map(|metric| &metric.trials);
            trials.map_or(0, |t| t.iter().flatten().sum::<f64>().round() as u64)
        };
        Delivered {
            sent_count: total("sent_count"),
            lost_count: total("lost_count"),
            duplicated_count: total("duplicated_count"),
            reordered_count: total("reordered_count"),
        }
    }

    /// `None` if all packets arrived once and in order.
    fn text(&self) -> Option<String> {
        let parts: Vec<_> = [
            (self.lost_count, "lost"),
            (self.duplicated_count, "duplicated"),
            (self.reordered_count, "reordered"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", units::grouped_count(count)))
        .collect();
        if parts.is_empty() {
            return None;
        }
        let mut text = parts.join(", ");
        if self.sent_count > 0 {
            text.push_str(&format!(" of {} sent", units::grouped_count(self.sent_count)));
            if self.lost_count > 0 {
                let share = units::percent(self.lost_count as f64 / self.sent_count as f64);
                text.push_str(&format!(" ({share} lost)"));
            }
        }
        Some(text)
    }
}

fn failures(outcome: &Outcome) -> Vec<Failures> {
    let of_arm = |arm: &ArmOutcome| {
        let last = arm.failures.last()?;
        // A long list is shortened.
        let counted = arm.reliability.as_ref().map_or(0, |reliability| reliability.failed as usize);
        let failed = counted.max(arm.failures.len());
        let summary = format!("{failed} failed, the last: {last}");
        Some(Failures { arm: arm.name.clone(), summary, errors: arm.failures.clone() })
    };
    outcome.arms.iter().filter_map(of_arm).collect()
}

/// A mode that all arms share is left out.
fn modes(outcome: &Outcome) -> Vec<Remark> {
    let ran: Vec<_> = outcome.arms.iter().filter(|arm| !arm.mode.is_empty()).collect();
    let mut arms_by_mode: BTreeMap<(&String, &String), Vec<String>> = BTreeMap::new();
    for arm in &ran {
        for mode in &arm.mode {
            arms_by_mode.entry(mode).or_default().push(arm.name.clone());
        }
    }
    arms_by_mode
        .into_iter()
        .filter(|(_, arms)| arms.len() < ran.len())
        .map(|((name, mode), arms)| {
            Remark::new(format!("{name}: {mode}"), arms.join(", "), Tone::Plain)
        })
        .collect()
}

fn not_run(outcome: &Outcome) -> Vec<Remark> {
    let remark = |arm: &ArmOutcome| {
        let text = match &arm.support {
            Support::Yes => return None,
            Support::Unsupported { what, needs } => format!("{what}. To run it: {needs}"),
            Support::Refused { why } => format!("not run on purpose: {why}"),
        };
        Some(Remark::new(&arm.name, text, Tone::Doubt))
    };
    outcome.arms.iter().filter_map(remark).collect()
}

fn load_average(machine: &Machine) -> String {
    let load_x100 = machine.load_x100;
    format!("{}.{:02}", load_x100 / 100, load_x100 % 100)
}

fn machine(m: &Machine) -> Vec<(String, String)> {
    let or_none = |text: &Option<String>, none: &str| text.clone().unwrap_or_else(|| none.into());
    let mut items = vec![
        ("Kernel".to_string(), m.kernel.clone()),
        ("CPU".into(), m.cpu.clone()),
        ("CPUs used".into(), m.cpus.to_string()),
        ("Memory".into(), units::bytes(m.memory_bytes)),
        ("Interface".into(), m.nic.clone()),
        ("Hypervisor".into(), or_none(&m.hypervisor, "none seen")),
        ("Governor".into(), or_none(&m.governor, "none")),
        ("Load at the start".into(), format!("{} over one minute", load_average(m))),
        ("Machine id".into(), m.id.clone()),
    ];
    items.extend(m.notes.clone());
    items.extend(m.far.as_deref().map(|far| ("Far end".into(), far_line(far))));
    items
}

/// The machine of the far end, of a run between two hosts.
fn far_line(m: &Machine) -> String {
    let mut parts = vec![format!("kernel {}", m.kernel)];
    parts.extend([m.cpu.clone(), units::plural(m.cpus, "CPU"), units::bytes(m.memory_bytes)]);
    parts.push(m.nic.clone());
    parts.push(m.hypervisor.clone().map_or("no hypervisor seen".into(), |h| format!("under {h}")));
    parts.extend(m.governor.as_ref().map(|governor| format!("governor {governor}")));
    parts.push(format!("machine id {}", m.id));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

fn machine_line(m: &Machine) -> String {
    let mut parts = vec![
        format!("kernel {}", m.kernel),
        m.cpu.clone(),
        units::plural(m.cpus, "CPU"),
        units::bytes(m.memory_bytes),
        m.nic.clone(),
    ];
    parts.push(m.hypervisor.clone().map_or("no hypervisor seen".into(), |h| format!("under {h}")));
    if let Some(governor) = &m.governor {
        parts.push(format!("governor {governor}"));
    }
    parts.push(format!("load {}", load_average(m)));
    parts.extend(m.notes.iter().map(|(name, value)| format!("{name} {value}")));
    parts.extend(m.far.as_deref().map(|far| format!("far end: {}", far_line(far))));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

fn method(outcome: &Outcome) -> String {
    let trials: u32 = outcome.arms.iter().map(|arm| arm.trials).sum();
    let arms = outcome.arms.iter().filter(|arm| arm.trials > 0).count();
    format!(
        "{} of {}, interleaved with seed {}; {} in {}; ended as {}",
        units::plural(outcome.blocks, "block"),
        units::plural(arms, "arm"),
        outcome.seed,
        units::plural(trials, "trial"),
        units::duration_ms(outcome.wall_ms),
        wording::ended(outcome.ended),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_largest_size_are_shown_as_large() {
        let delivered =
            Delivered { sent_count: u64::MAX, lost_count: u64::MAX, ..Default::default() };
        assert!(delivered.text().unwrap().starts_with("9,223,372,036,854,775,807 lost"));
    }

    #[test]
    fn complete_delivery_gives_no_remark() {
        assert_eq!(Delivered::default().text(), None);
        let delivered =
            Delivered { sent_count: 1000, lost_count: 40, duplicated_count: 0, reordered_count: 2 };
        assert_eq!(delivered.text().unwrap(), "40 lost, 2 reordered of 1,000 sent (4.00 % lost)");
    }
}
