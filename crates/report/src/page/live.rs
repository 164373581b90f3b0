//! A proof on a running service: all that its forms show.

use model::Verdict;
use model::live::{LiveArm, LivePeriodRecord, LiveVerdict};

use crate::answer::{Sentence, live_end, live_label, live_sentences, live_time, live_trust};
use crate::live::LiveProof;
use crate::screen::Tone;
use crate::{units, wording};

/// A proof on a running service.
#[derive(Debug, Clone, PartialEq)]
pub struct LivePage {
    pub title: String,
    /// Service, plan, id and start.
    pub caption: String,
    pub sentences: Vec<Sentence>,
    pub end: (String, Tone),
    pub trust: (String, Tone),
    pub rows: Vec<LiveRow>,
    /// Settings: what, without, with.
    pub settings: Vec<[String; 3]>,
    /// Facts of the run, in few words each.
    pub facts: Vec<(String, String)>,
    pub absent: Vec<(String, String)>,
    /// Trips: time, arm, reason, undone after.
    pub trips: Vec<[String; 4]>,
    pub timeline: LiveTimeline,
}

/// One judged figure.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRow {
    pub figure: String,
    /// Value in the baseline.
    pub baseline: String,
    /// With the plan over without it.
    pub ratio: String,
    pub verdict: String,
    pub evidence: String,
    pub decided: String,
    pub tone: Tone,
}

impl LiveRow {
    /// Of a figure whose baseline is not shown.
    pub fn new(verdict: &LiveVerdict) -> Self {
        let ratio = match (&verdict.ratio, &verdict.difference) {
            (Some(ratio), _) => units::ratio(ratio.median),
            (None, Some(difference)) => format!("{:+.2} ‰", difference.mean * 1e3),
            (None, None) => "–".to_owned(),
        };
        LiveRow {
            figure: live_label(&verdict.figure),
            baseline: "–".to_owned(),
            ratio,
            verdict: match verdict.verdict {
                Verdict::Inconclusive => "not decided".to_owned(),
                Verdict::NoDifferenceShown => "no difference".to_owned(),
                verdict => wording::verdict(verdict).to_owned(),
            },
            evidence: format!("{:.0} of {:.0}", verdict.evidence.min(1e6), verdict.evidence_needed),
            decided: verdict.decided_ns.map_or("–".to_owned(), live_time),
            tone: wording::tone(Some(verdict.verdict)),
        }
    }
}

/// Periods over time.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveTimeline {
    pub periods: Vec<LivePeriodRecord>,
    /// Figures that are drawn: name, unit, and place among the judged ones.
    pub figures: Vec<(String, String, usize)>,
    pub description: String,
}

/// Figures that get a picture.
const FIGURES_MAX: usize = 4;
/// Trips that are listed.
const TRIPS_MAX: usize = 20;

impl LivePage {
    pub fn from_proof(proof: &LiveProof) -> Self {
        let outcome = &proof.outcome;
        let title = proof.name.clone().unwrap_or_else(|| {
            let name = proof.plan.rsplit('/').next().unwrap_or(&proof.plan);
            format!("Is {name} worth it on the running service?")
        });
        let caption =
            [&proof.service, &proof.id, &proof.started, &proof.version].map(String::as_str);
        LivePage {
            title,
            caption: caption.join(" · "),
            sentences: live_sentences(proof),
            end: live_end(proof),
            trust: live_trust(outcome),
            rows: rows(proof),
            settings: settings(proof),
            facts: facts(proof),
            absent: proof
                .absent
                .iter()
                .map(|absent| (live_label(&absent.figure), absent.why.clone()))
                .collect(),
            trips: trips(proof),
            timeline: timeline(proof),
        }
    }
}

fn rows(proof: &LiveProof) -> Vec<LiveRow> {
    let outcome = &proof.outcome;
    let figures = outcome.figures.iter().zip(&outcome.verdicts).enumerate();
    figures
        .map(|(place, (figure, verdict))| {
            let baseline = proof.baseline.values.get(place).copied().flatten();
            let baseline = baseline.map(|value| units::value(value, &figure.unit));
            LiveRow { baseline: baseline.unwrap_or_else(|| "–".into()), ..LiveRow::new(verdict) }
        })
        .collect()
}

fn settings(proof: &LiveProof) -> Vec<[String; 3]> {
    let row = |setting: &crate::live::LiveSetting| {
        let what = format!("{} of {}", setting.knob, setting.target);
        [what, setting.off.clone(), setting.on.clone()]
    };
    proof.settings.iter().map(row).collect()
}

fn facts(proof: &LiveProof) -> Vec<(String, String)> {
    let (outcome, baseline) = (&proof.outcome, &proof.baseline);
    let requests_per_s = baseline.request_count as f64 / (baseline.time_ns.max(1) as f64 / 1e9);
    let periods = format!(
        "{} of {} periods, {} of each washed out, ordered by a coin of seed {}",
        units::plural(u64::from(outcome.pairs), "pair"),
        live_time(outcome.period_ns),
        live_time(outcome.washout_ns),
        outcome.seed
    );
    let before = format!(
        "{} without any switch, {requests_per_s:.0} requests a second; a switch took up to {}",
        live_time(baseline.time_ns),
        live_time(baseline.act_ns)
    );
    let forecast = format!(
        "{} for the primary figure; the run took {}",
        live_time(outcome.forecast.time_ns),
        live_time(proof.time_ns())
    );
    let silent = outcome.silent.on + outcome.silent.off;
    let mut facts = vec![
        ("Periods".to_owned(), periods),
        ("Baseline".to_owned(), before),
        ("Forecast".to_owned(), forecast),
    ];
    if silent > 0 {
        let text =
            format!("left out: {} without a request", units::plural(u64::from(silent), "period"));
        facts.push(("Silent".to_owned(), text));
    }
    facts
}

fn trips(proof: &LiveProof) -> Vec<[String; 4]> {
    let tripped = proof.periods.iter().filter_map(|period| Some((period, period.trip.as_ref()?)));
    tripped
        .take(TRIPS_MAX)
        .map(|(period, trip)| {
            let undone = trip.undone_after_ns.map_or("–".to_owned(), live_time);
            [live_time(trip.at_ns), arm(period.arm).to_owned(), trip.reason.clone(), undone]
        })
        .collect()
}

pub(crate) fn arm(arm: LiveArm) -> &'static str {
    match arm {
        LiveArm::On => "on",
        LiveArm::Off => "off",
    }
}

fn timeline(proof: &LiveProof) -> LiveTimeline {
    // A figure that is always zero has no picture.
    let is_drawn = |place: &usize| {
        let mut values = proof.periods.iter().filter_map(|period| *period.values.get(*place)?);
        values.any(|value| value != 0.0)
    };
    let figures = proof.outcome.figures.iter().enumerate();
    let figures = figures.filter(|(place, _)| is_drawn(place)).take(FIGURES_MAX);
    let on = proof.periods.iter().filter(|period| period.arm == LiveArm::On).count();
    LiveTimeline {
        figures: figures
            .map(|(place, figure)| (live_label(&figure.name), figure.unit.clone(), place))
            .collect(),
        description: format!(
            "{on} periods with the plan and {} without it, over {}",
            proof.periods.len() - on,
            live_time(proof.time_ns())
        ),
        periods: proof.periods.clone(),
    }
}
