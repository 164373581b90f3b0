//! A judged metric as it is shown: its table, its chart, and each trial's value.

use model::{ArmKind, ArmOutcome, Better, MetricOutcome, Outcome, Support, Verdict};

use super::{
    Figures, PageMetric, PageTrials, RatioChart, RatioRow, Reported, Row, change, charts, interval,
    median, shape, steps, trust,
};
use crate::answer::percent;
use crate::screen::Tone;
use crate::{units, wording};

/// Differences that such a run finds in 19 of 20 cases.
pub(super) fn finds(outcome: &Outcome, name: &str) -> Option<String> {
    let ratios = outcome
        .arms
        .iter()
        .filter(|arm| arm.kind.is_compared())
        .filter_map(|arm| arm.metrics.get(name)?.finds);
    // A difference within a step of the figures cannot be shown, also where they do not vary.
    let step = outcome.trust.ticks_of(name).map_or(1.0, |ticks| 1.0 + ticks.share);
    let ratios = ratios.map(|ratio| ratio.max(step)).filter(|ratio| *ratio > 1.0);
    let (least, most) = ratios.fold((f64::INFINITY, 1.0), |(l, m), r| (r.min(l), r.max(m)));
    if !least.is_finite() {
        return None;
    }
    let [least, most] = [least, most].map(|ratio| percent(ratio - 1.0));
    Some(if least == most { most } else { format!("{least} to {most} by arm") })
}

pub(super) fn metric(outcome: &Outcome, name: &str) -> PageMetric {
    let shape = shape(outcome, name);
    let floor = outcome.floor.get(name);
    PageMetric {
        unit: shape.map_or(String::new(), |shape| shape.unit.clone()),
        better: shape.map(|shape| wording::better(shape.better)),
        floor: floor.map(|f| format!("{} to {}", units::ratio(f.low), units::ratio(f.high))),
        checks: trust::checks(outcome, name),
        distrust: trust::distrust(outcome, name),
        finds: finds(outcome, name),
        rows: shape.map_or(Vec::new(), |_| rows(outcome, name)),
        ratios: shape.and_then(|shape| ratio_chart(outcome, name, shape.better)),
        series: shape.and_then(|shape| charts::series(outcome, name, &shape.unit)),
        trials: shape.and_then(|shape| trials(outcome, name, &shape.unit)),
        name: name.to_owned(),
        label: wording::metric(name),
    }
}

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

fn finite_median(arm: &ArmOutcome, name: &str) -> Option<f64> {
    arm.metrics.get(name)?.median.filter(|median| median.is_finite())
}

fn rows(outcome: &Outcome, name: &str) -> Vec<Row> {
    let medians = outcome.arms.iter().filter_map(|arm| finite_median(arm, name));
    let largest = medians.fold(0.0, f64::max);
    outcome
        .arms
        .iter()
        .map(|arm: &ArmOutcome| {
            let metric = arm.metrics.get(name);
            let verdict = metric.and_then(|metric| metric.verdict);
            let missing = missing(arm, metric);
            Row {
                arm: arm.name.clone(),
                runs_here: arm.support.is_yes(),
                label: arm.label(),
                is_baseline: arm.kind == ArmKind::Baseline,
                is_control: arm.kind == ArmKind::Control,
                why: metric.and_then(|metric| metric.why.clone()),
                median: metric.and_then(median),
                ratio: metric.and_then(change),
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
                bar: finite_median(arm, name)
                    .filter(|_| largest > 0.0)
                    .map_or(0.0, |median| median / largest),
                figures: metric.map(Figures::new).unwrap_or_default(),
            }
        })
        .collect()
}

/// Ratio to the rung below; the first rung is on the baseline, as its ratio says already.
fn step_below(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> Option<(String, Tone)> {
    let step = steps::step(outcome, steps::rung_below(outcome, arm)?, arm, name)?;
    Some((units::ratio(step.ratio), wording::tone(Some(step.verdict))))
}

fn ratio_chart(outcome: &Outcome, name: &str, better: Better) -> Option<RatioChart> {
    outcome.arms.iter().find_map(|arm| arm.metrics.get(name)?.ratio)?;
    let floor = outcome.floor.get(name).copied();
    let description =
        floor.map(|f| format!("A/A floor {} to {}. ", units::ratio(f.low), units::ratio(f.high)));
    let chart = RatioChart {
        title: format!("{}: ratio of each arm to the baseline", wording::metric(name)),
        description: description.unwrap_or_default(),
        one: if floor.is_some() { "baseline and A/A floor" } else { "baseline" },
        axis: format!("ratio to baseline (×), {}, 95 % interval", wording::better(better)),
        notes: "value, ratio, verdict",
        floor,
        rows: outcome.arms.iter().filter_map(|arm| ratio_row(arm, name)).collect(),
    };
    chart.unless_empty()
}

/// A line of the picture; `None` of an arm without a figure or an effect. The second baseline is the noise floor.
fn ratio_row(arm: &ArmOutcome, name: &str) -> Option<RatioRow> {
    let metric = arm.metrics.get(name)?;
    let is_baseline = arm.kind == ArmKind::Baseline;
    let is_idle = metric.verdict == Some(Verdict::NotEffective);
    if !arm.support.is_yes() || arm.kind == ArmKind::Control || is_idle {
        return None;
    }
    let ratio = if is_baseline { Some(1.0) } else { Some(metric.ratio?) };
    let verdict = metric.verdict.map(|verdict| wording::verdict(verdict).to_owned());
    let verdict = verdict.or_else(|| is_baseline.then(|| "baseline".to_owned()));
    let ratio_text = metric.ratio.filter(|_| !is_baseline).map(units::ratio);
    let parts = [median(metric), ratio_text, verdict];
    Some(RatioRow {
        name: arm.name.clone(),
        ratio,
        interval: metric.low.zip(metric.high),
        tone: wording::tone(metric.verdict),
        note: parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
        missing: None,
    })
}

fn trials(outcome: &Outcome, name: &str, unit: &str) -> Option<PageTrials> {
    let arms: Vec<_> =
        outcome.arms.iter().filter_map(|arm| Some((arm, arm.metrics.get(name)?))).collect();
    let values = arms.iter().flat_map(|(_, metric)| metric.trials.iter().flatten());
    let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
        (least.min(value.abs()), most.max(value.abs()))
    });
    if !least.is_finite() {
        return None;
    }
    let (step, unit) = units::step((least.max(most / 1e3) * most).sqrt(), unit);
    let rows = arms.iter().map(|(arm, metric)| {
        let values: Vec<String> = metric
            .trials
            .iter()
            .map(|value: &Option<f64>| value.map_or("–".into(), |v| units::digits(v / step)))
            .collect();
        (arm.name.clone(), values.join(" "))
    });
    Some(PageTrials { unit, rows: rows.collect() })
}

pub(super) fn reported(outcome: &Outcome) -> Reported {
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
