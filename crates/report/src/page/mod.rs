//! Results as they are shown: finished text, tones, and data of charts.
//!
//! [`Page::from_outcome`] and [`ComparisonPage::from_comparison`] compute everything once; `text` and
//! `html` only lay it out, so that they cannot disagree.

mod absent;
mod atlas;
mod beside;
mod best;
mod calibrated;
mod charts;
mod command;
mod comparison;
mod curve;
mod functions;
mod live;
mod machine;
mod mesh;
mod metric;
mod remarks;
mod rollout;
mod starts;
mod steps;
mod summary;
mod title;
mod traffic;
mod trust;
mod watch;
mod wire;

use model::{Decision, Gate, GateAnswer, MetricOutcome, Outcome, Verdict};

use crate::answer::{self, Sentence};
use crate::screen::Tone;
use crate::{units, wording};

use machine::{machine, machine_line, method};
use metric::metric;
use remarks::{answers, delivery, failures, modes, not_run, reasons};

pub use absent::Absent;
pub use atlas::{AtlasIndexRow, AtlasPage, AtlasSite};
pub use beside::{Beside, BesideCell};
pub(crate) use best::best;
pub use calibrated::Calibrated;
pub(crate) use charts::{CPUS_MAX, whole_percent};
pub use charts::{ChartLine, Cpu, CpuChart, LineChart, RatioChart, RatioRow};
pub use command::quoted;
pub use comparison::{ChangeText, ComparedMetric, ComparedRow, ComparisonPage, SeriesText};
pub use curve::{CurveArm, CurveChart, CurvePage, CurveRow};
pub use functions::{FunctionLine, FunctionTable};
pub use live::{LivePage, LiveRow, LiveTimeline};
pub use mesh::{MeshCell, MeshPage};
pub use rollout::{RolloutHost, RolloutPage, RolloutStage};
pub use starts::starts;
pub(crate) use steps::{Worth, helpful as helpful_switches, worth};
pub use summary::{Bar, BarChart, SummaryAnswer, SummaryPage, SummaryTable};
pub(crate) use title::{stored_title, title};
pub use traffic::Traffic;
pub use watch::{WatchPage, WatchRow};

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The user's name for the run, or its question.
    pub title: String,
    /// The user's note on it.
    pub note: Option<String>,
    /// Path and load in one line.
    pub subject: String,
    pub path: String,
    /// The load by itself, in one line.
    pub load_name: String,
    pub id: String,
    pub started: String,
    pub version: String,
    /// Answer of the run.
    pub sentences: Vec<Sentence>,
    /// Answers of a gate, each a sentence; empty if none was asked for.
    pub gate: Vec<GateLine>,
    /// Judged metrics, most important first.
    pub metrics: Vec<PageMetric>,
    /// The same side by side; `None` with few.
    pub beside: Option<Beside>,
    /// Rates, round trips and jitter; `None` if the question is not a rate.
    pub traffic: Option<Traffic>,
    /// Latency from a time in the packet; `None` if packets have none.
    pub calibrated: Option<Calibrated>,
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
    /// The same in few words.
    pub not_here: Vec<Absent>,
    /// Arms whose last switch did nothing.
    pub without_effect: Vec<Absent>,
    /// How far the figures can be trusted, in one line.
    pub trust: String,
    pub warnings: Vec<Remark>,
    pub machine: Vec<(String, String)>,
    /// The machine in one line.
    pub machine_line: String,
    /// The method in one line.
    pub method: String,
    /// Note on a p-value of the page that cannot be smaller.
    pub smallest_p: Option<String>,
    pub command: String,
    pub load: String,
    /// Functions whose CPU time differs most; `None` if no arm differs in time, or nothing was sampled.
    pub functions: Option<FunctionTable>,
    /// Tails of latencies, one chart per segment.
    pub tails: Vec<LineChart>,
    pub cpus: Option<CpuChart>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PageMetric {
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
    /// Checks of the run's own assumptions: `after another arm 1.00× (p 0.60)`.
    pub checks: Option<String>,
    /// Reason why it is not to be trusted.
    pub distrust: Option<&'static str>,
    /// Difference that such a run finds in 19 of 20 cases: `4.1 % to 9 % by arm`.
    pub finds: Option<String>,
    /// One row per arm.
    pub rows: Vec<Row>,
    pub ratios: Option<RatioChart>,
    pub series: Option<LineChart>,
    pub trials: Option<PageTrials>,
}

/// Answer of a gate on one figure of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct GateLine {
    pub arm: String,
    /// Name of the figure; `None` for failed trials.
    pub metric: Option<String>,
    pub answer: GateAnswer,
    pub sentence: String,
    pub tone: Tone,
}

impl GateLine {
    fn new(gate: &Gate, decision: &Decision) -> Self {
        GateLine {
            arm: decision.arm.clone(),
            metric: decision.metric.clone(),
            answer: decision.answer,
            sentence: answer::decision_sentence(gate, decision, answer::has_several_figures(gate)),
            tone: answer::gate_tone(decision.answer),
        }
    }

    /// Lines of a gate: those that fail it first, then those that are open.
    pub(crate) fn all(gate: Option<&Gate>) -> Vec<GateLine> {
        let Some(gate) = gate else { return Vec::new() };
        let mut lines: Vec<GateLine> =
            gate.decisions.iter().map(|decision| GateLine::new(gate, decision)).collect();
        if lines.is_empty() {
            let (arm, metric) = (String::new(), None);
            let (answer, sentence) = (gate.answer, answer::summary(gate));
            lines.push(GateLine { arm, metric, answer, sentence, tone: Tone::Doubt });
        }
        lines.sort_by_key(|line| match line.answer {
            GateAnswer::Worse => 0,
            GateAnswer::NotDecided => 1,
            GateAnswer::NoWorse => 2,
        });
        lines
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub arm: String,
    /// False for an arm that was not run: tables for people leave it out, as its reason stands elsewhere.
    pub runs_here: bool,
    /// The arm's name, with the version of a peer program.
    pub label: String,
    /// True for the reference of all others.
    pub is_baseline: bool,
    /// True for the reference's second run.
    pub is_control: bool,
    /// Reason for a missing figure or verdict.
    pub why: Option<String>,
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
    fn new(metric: &MetricOutcome) -> Figures {
        let [median, ratio, low, high] = [metric.median, metric.ratio, metric.low, metric.high]
            .map(|figure| figure.filter(|figure| figure.is_finite()));
        Figures { median, ratio, low, high, verdict: metric.verdict }
    }
}

/// Medians, arms down and metrics across.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    pub labels: Vec<String>,
    pub rows: Vec<(String, Vec<Option<String>>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PageTrials {
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
    /// Answers of a gate on several arms that do not pass, each by itself; none where the sentences say all.
    pub fn further_answers(&self) -> impl Iterator<Item = &GateLine> {
        let first = self.gate.first().map(|line| &line.arm);
        let has_several = self.gate.iter().any(|line| Some(&line.arm) != first);
        let open = self.gate.iter().filter(|line| line.answer != GateAnswer::NoWorse);
        open.filter(move |_| has_several)
    }

    /// Computes everything that text and HTML show of an experiment.
    pub fn from_outcome(outcome: &Outcome) -> Page {
        let load: Vec<_> = outcome.load.iter().map(|(k, v)| format!("{k} = {v}")).collect();
        Page {
            title: title(outcome),
            note: outcome.note.clone(),
            subject: wording::subject(&outcome.path, &outcome.load),
            path: outcome.path.clone(),
            load_name: wording::load(&outcome.load),
            id: outcome.id.clone(),
            started: wording::time(&outcome.started),
            version: format!("wirepath {}", outcome.version),
            sentences: answer::sentences(outcome),
            gate: GateLine::all(outcome.gate.as_ref()),
            metrics: outcome.judged.iter().map(|name| metric(outcome, name)).collect(),
            beside: beside::beside(outcome),
            traffic: traffic::traffic(outcome),
            calibrated: calibrated::calibrated(outcome),
            members: best::members(outcome),
            answers: answers(outcome),
            reported: metric::reported(outcome),
            reasons: reasons(outcome),
            delivery: delivery(outcome),
            failures: failures(outcome),
            modes: modes(outcome),
            not_run: not_run(outcome),
            not_here: absent::not_here(outcome),
            without_effect: absent::without_effect(outcome),
            trust: trust::line(outcome),
            warnings: remarks::warnings(outcome),
            machine: machine(&outcome.machine),
            machine_line: machine_line(&outcome.machine),
            method: method(outcome),
            smallest_p: trust::smallest_p(outcome),
            command: command::command(outcome),
            load: load.join(", "),
            functions: functions::functions(outcome),
            tails: charts::tails(outcome),
            cpus: charts::cpus(outcome),
        }
    }
}

/// Direction and unit of a metric, from the first arm that has it.
pub(crate) fn shape<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a MetricOutcome> {
    outcome.arms.iter().find_map(|arm| arm.metrics.get(name))
}

fn median(metric: &MetricOutcome) -> Option<String> {
    let median = metric.median.filter(|median| median.is_finite())?;
    Some(units::value(median, &metric.unit))
}

/// `0.146×`; of counts the difference per trial: `+44.5`.
pub(crate) fn change(metric: &MetricOutcome) -> Option<String> {
    let ratio = metric.ratio.map(units::ratio);
    ratio.or_else(|| metric.difference.map(|difference| signed(difference.mean)))
}

fn signed(mean: f64) -> String {
    if mean > 0.0 { format!("+{}", units::digits(mean)) } else { units::digits(mean) }
}

pub(crate) fn interval(metric: &MetricOutcome) -> Option<String> {
    if let Some(difference) = &metric.difference {
        return Some(units::interval(difference.low?, difference.high?));
    }
    match (metric.low?, metric.high) {
        (low, Some(high)) => Some(units::interval(low, high)),
        // So many trials failed that the interval has no upper end.
        (low, None) => Some(format!("[{}, ∞)", units::digits(low))),
    }
}
