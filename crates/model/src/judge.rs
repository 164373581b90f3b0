//! Values by arm, metric and block, and what may be said of them.

use std::collections::BTreeMap;

use crate::statistics::{self, Comparison, LEVEL, STRICT_LEVEL};
use crate::{
    Arm, ArmKind, Better, Experiment, Floor, MetricOutcome, Support, Verdict, describe, is_tally,
};

/// One metric of one arm over all blocks that count.
#[derive(Debug)]
pub(crate) struct Series<'a> {
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) values: Vec<Option<f64>>,
    /// Trials in which it was refused, and the last reason.
    pub(crate) refused: u32,
    pub(crate) reason: Option<&'a str>,
}

impl Series<'_> {
    /// Whether more than a quarter of the trials refused it. What the rest say would
    /// then be the arm at its best.
    pub(crate) fn is_refused(&self) -> bool {
        let given = self.values.iter().flatten().count() as u32;
        self.refused > 0 && 4 * self.refused > self.refused + given
    }

    fn is_positive(&self) -> bool {
        self.values.iter().flatten().all(|value| *value > 0.0)
    }
}

/// What is said of one metric of one arm.
#[derive(Debug, Default)]
struct Said {
    comparison: Option<Comparison>,
    verdict: Option<Verdict>,
    why: Option<String>,
}

/// All values of an experiment.
pub(crate) struct Table<'a> {
    experiment: &'a Experiment,
    pub(crate) arms: Vec<BTreeMap<&'a str, Series<'a>>>,
    baseline: Option<usize>,
    control: Option<usize>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(experiment: &'a Experiment) -> Self {
        let counted = || experiment.trials.iter().filter(|trial| !trial.warmup);
        let blocks = counted().map(|trial| trial.block).max().unwrap_or(0) as usize;
        let mut arms: Vec<BTreeMap<&str, Series>> = Vec::new();
        arms.resize_with(experiment.plan.arms.len(), BTreeMap::new);
        for trial in counted() {
            for metric in trial.result.iter().flatten() {
                let series =
                    arms[trial.arm].entry(metric.name.as_str()).or_insert_with(|| Series {
                        unit: metric.unit,
                        better: metric.better,
                        values: vec![None; blocks],
                        refused: 0,
                        reason: None,
                    });
                match &metric.value {
                    Ok(value) => series.values[trial.block as usize - 1] = Some(*value),
                    Err(reason) => {
                        series.refused += 1;
                        series.reason = Some(reason);
                    }
                }
            }
        }
        Table {
            experiment,
            arms,
            baseline: experiment.place(ArmKind::Baseline),
            control: experiment.place(ArmKind::Control),
        }
    }

    fn arm(&self, arm: usize) -> &Arm {
        &self.experiment.plan.arms[arm].0
    }

    /// The control arm's 95 % interval.
    pub(crate) fn floor(&self, name: &str) -> Option<Floor> {
        self.said(self.control?, name, LEVEL).comparison?.interval
    }

    /// The verdict at a level; `None` where there is nothing to judge.
    pub(crate) fn verdict(&self, arm: usize, name: &str, level: f64) -> Option<Verdict> {
        self.said(arm, name, level).verdict
    }

    fn said(&self, arm: usize, name: &str, level: f64) -> Said {
        let refusal = |series: &Series, whose: &str| Said {
            verdict: Some(Verdict::Refused),
            why: series.reason.map(|reason| format!("{whose}{reason}")),
            ..Said::default()
        };
        let Some(series) = self.arms[arm].get(name) else { return Said::default() };
        if self.arm(arm).kind == ArmKind::Baseline {
            let why = series.reason.filter(|_| series.is_refused()).map(str::to_owned);
            return Said { why, ..Said::default() };
        }
        if is_tally(name) {
            return Said::default();
        }
        if series.is_refused() {
            return refusal(series, "");
        }
        let Some(base) = self.baseline.and_then(|arm| self.arms[arm].get(name)) else {
            return Said::default();
        };
        if base.is_refused() {
            return refusal(base, "nothing to compare with: the baseline's ");
        }
        if !series.is_positive() || !base.is_positive() {
            // There is no ratio to or of nothing.
            return Said::default();
        }
        let ratios = statistics::log_ratios(&series.values, &base.values);
        let Some(comparison) = statistics::compare(&ratios, level) else {
            return Said {
                verdict: Some(Verdict::Inconclusive),
                why: Some("no block in which both this arm and the baseline gave a value".into()),
                ..Said::default()
            };
        };
        let (margin, better) = (self.experiment.plan.margin, series.better);
        if self.arm(arm).kind == ArmKind::Control {
            let strict = statistics::interval(&ratios, STRICT_LEVEL)
                .map(|(low, high)| Floor { low: low.exp(), high: high.exp() });
            let strict = Comparison { interval: strict, ..comparison };
            let fallback = comparison.interval;
            let verdict = statistics::control_verdict(&strict, fallback, margin, better);
            return Said { comparison: Some(comparison), verdict: Some(verdict), why: None };
        }
        let floor = self.floor(name);
        let verdict = statistics::verdict(&comparison, level, floor, margin, better);
        let why = match (verdict, comparison.interval, floor) {
            (Verdict::Inconclusive, None, _) => Some(format!(
                "{} pairs; an interval needs {}",
                comparison.pairs,
                statistics::PAIRS_MIN
            )),
            (Verdict::Inconclusive, _, None) => {
                Some("no A/A floor: the control arm gave too few values".into())
            }
            _ => None,
        };
        Said { comparison: Some(comparison), verdict: Some(verdict), why }
    }

    /// One metric of one arm, at 95 %.
    pub(crate) fn outcome(&self, arm: usize, name: &str) -> MetricOutcome {
        let series = self.arms[arm].get(name);
        let (unit, better) = match series {
            Some(series) => (series.unit, series.better),
            None => describe(name),
        };
        let said = self.said(arm, name, LEVEL);
        let shown = series.filter(|series| !series.is_refused());
        let values: Vec<f64> =
            shown.iter().flat_map(|series| series.values.iter().flatten()).copied().collect();
        let interval = said.comparison.and_then(|comparison| comparison.interval);
        MetricOutcome {
            unit: unit.into(),
            better,
            median: statistics::median(&values),
            ratio: said.comparison.map(|comparison| comparison.ratio),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            p: said.comparison.map(|comparison| comparison.p),
            verdict: said.verdict,
            why: said.why,
            trials: series.map(|series| series.values.clone()).unwrap_or_default(),
        }
    }
}

/// The place of a judged metric in an arm that never ran.
pub(crate) fn absent(name: &str, support: &Support, failure: Option<&str>) -> MetricOutcome {
    let (verdict, why) = match (support, failure) {
        (Support::Unsupported { what, needs }, _) if needs.is_empty() => {
            (Verdict::Unsupported, what.clone())
        }
        (Support::Unsupported { what, needs }, _) => {
            (Verdict::Unsupported, format!("{what}; needs {needs}"))
        }
        (Support::Refused { why }, _) => (Verdict::Refused, why.clone()),
        (Support::Yes, Some(failure)) => {
            (Verdict::Refused, format!("every trial failed: {failure}"))
        }
        (Support::Yes, None) => (Verdict::Inconclusive, "no trial yet".into()),
    };
    let (unit, better) = describe(name);
    MetricOutcome {
        verdict: Some(verdict),
        why: Some(why),
        ..MetricOutcome::unjudged(unit, better, Vec::new())
    }
}
