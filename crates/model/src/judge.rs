//! Values by arm, metric and block, and their verdicts.

use std::collections::BTreeMap;

use crate::failures::fisher;
use crate::pairs::Pairs;
use crate::statistics::{self, Comparison, LEVEL};
use crate::tail::{self, Tail};
use crate::verdict::{self, Looks, Question};
use crate::{
    Arm, ArmKind, Better, Experiment, Floor, MetricOutcome, QUANTILES, Reliability, Support,
    Verdict, describe, is_event_count,
};

/// One metric of one arm over all blocks that count.
#[derive(Debug)]
pub(crate) struct Series<'a> {
    pub(crate) unit: &'a str,
    pub(crate) better: Better,
    pub(crate) values: Vec<Option<f64>>,
    /// Trials in which it was refused, and the last reason.
    pub(crate) refused: u32,
    pub(crate) reason: Option<&'a str>,
}

impl Series<'_> {
    /// True if more than a quarter of the trials refused it.
    pub(crate) fn is_refused(&self) -> bool {
        let given = self.values.iter().flatten().count() as u32;
        self.refused > 0 && 4 * self.refused > self.refused + given
    }

    fn is_positive(&self) -> bool {
        self.values.iter().flatten().all(|value| *value > 0.0)
    }
}

#[derive(Debug, Clone, Default)]
struct Judgement {
    comparison: Option<Comparison>,
    p_adjusted: Option<f64>,
    detectable: Option<f64>,
    verdict: Option<Verdict>,
    why: Option<String>,
    tail: Option<Tail>,
}

/// Verdicts on every arm, judged together.
pub(crate) struct Judged<'a> {
    metrics: Vec<BTreeMap<&'a str, Judgement>>,
    failures: Vec<Option<Reliability>>,
}

impl<'a> Judged<'a> {
    pub(crate) fn verdict(&self, arm: usize, name: &str) -> Option<Verdict> {
        self.metrics[arm].get(name)?.verdict
    }

    /// Failed trials of an arm beside the baseline's; `None` if neither failed any.
    pub(crate) fn reliability(&self, arm: usize) -> Option<Reliability> {
        self.failures[arm].clone()
    }

    /// The control arm's 95 % interval.
    pub(crate) fn floors(&self, table: &Table<'a>) -> BTreeMap<String, Floor> {
        let Some(control) = table.control else { return BTreeMap::new() };
        let metrics = self.metrics[control].iter();
        metrics
            .filter_map(|(name, judged)| Some((name.to_string(), judged.comparison?.interval?)))
            .collect()
    }
}

pub(crate) struct Table<'a> {
    experiment: &'a Experiment,
    pub(crate) arms: Vec<BTreeMap<&'a str, Series<'a>>>,
    baseline: Option<usize>,
    control: Option<usize>,
    /// Blocks in which every arm ran.
    complete: usize,
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
                        unit: &metric.unit,
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
            complete: experiment.blocks() as usize,
        }
    }

    fn arm(&self, arm: usize) -> &Arm {
        &self.experiment.plan.arms[arm].0
    }

    /// Judges all arms at a level. Only the plan's judged metrics get a verdict, and are corrected for
    /// each other.
    pub(crate) fn judge(&self, level: f64) -> Judged<'a> {
        let mut judged = Judged {
            metrics: vec![BTreeMap::new(); self.arms.len()],
            failures: vec![None; self.arms.len()],
        };
        let mut places = Vec::new();
        let mut questions = Vec::new();
        for (arm, series) in self.arms.iter().enumerate() {
            for (&name, series) in series {
                let judgement = match self.pairs(arm, name, series) {
                    Err(judgement) => *judgement,
                    Ok(pairs) if self.is_question(arm, name) => {
                        let tail = self.tail(arm, name);
                        let tail_high =
                            tail.and_then(|tail| Some(tail.pooled.or(tail.worst_decile)?.high));
                        places.push((arm, name));
                        questions.push(Question { pairs, better: series.better, tail_high });
                        Judgement { tail, ..Judgement::default() }
                    }
                    Ok(pairs) => self.unjudged(arm, name, &pairs, series.better),
                };
                judged.metrics[arm].insert(name, judgement);
            }
        }
        let failing: Vec<(usize, Reliability)> =
            (0..self.arms.len()).filter_map(|arm| Some((arm, self.failing(arm)?))).collect();
        let p: Vec<f64> = failing.iter().map(|(_, failing)| failing.p).collect();
        let looks = match self.experiment.looking {
            true => Looks::Planned,
            false => Looks::of(self.experiment.ended),
        };
        let margin = self.experiment.plan.margin;
        let (answers, failing_p) = verdict::answers(&questions, &p, level, margin, looks);
        for ((arm, name), answer) in places.into_iter().zip(answers) {
            let judgement = judged.metrics[arm].entry(name).or_default();
            judgement.comparison = answer.comparison;
            judgement.p_adjusted = answer.p_adjusted;
            judgement.detectable = answer.detectable;
            judgement.verdict = Some(answer.verdict);
            judgement.why = answer.why;
        }
        for ((arm, mut failing), p_adjusted) in failing.into_iter().zip(failing_p) {
            failing.p_adjusted = p_adjusted;
            let more = |failed: u32, of: u32| f64::from(failed) / f64::from(of.max(1));
            failing.fails_more = p_adjusted < 1.0 - level
                && more(failing.failed, failing.trials)
                    > more(failing.baseline_failed, failing.baseline_trials);
            judged.failures[arm] = Some(failing);
        }
        judged
    }

    fn is_question(&self, arm: usize, name: &str) -> bool {
        matches!(self.arm(arm).kind, ArmKind::Variant | ArmKind::Peer)
            && self.experiment.plan.judged.iter().any(|judged| judged == name)
            && self.control.is_some_and(|control| self.arms[control].contains_key(name))
    }

    /// Comparison of a control, of a metric that is not judged, or without a control.
    fn unjudged(&self, arm: usize, name: &str, pairs: &Pairs, better: Better) -> Judgement {
        let is_judged = self.experiment.plan.judged.iter().any(|judged| judged == name);
        if self.arm(arm).kind == ArmKind::Control {
            let judged = verdict::control(pairs, self.experiment.plan.margin, better);
            return judged.map_or_else(Judgement::default, |(comparison, verdict, why)| {
                Judgement {
                    comparison: Some(comparison),
                    verdict: Some(verdict).filter(|_| is_judged),
                    why: why.filter(|_| is_judged),
                    ..Judgement::default()
                }
            });
        }
        let why = "no A/A floor: the control arm gave no value";
        Judgement {
            comparison: pairs.compare(LEVEL),
            verdict: is_judged.then_some(Verdict::Inconclusive),
            why: is_judged.then(|| why.to_owned()),
            ..Judgement::default()
        }
    }

    /// Pairs of an arm with the baselines; the judgement if there can be none.
    fn pairs(&self, arm: usize, name: &str, series: &Series) -> Result<Pairs, Box<Judgement>> {
        let refusal = |series: &Series, prefix: &str| {
            Box::new(Judgement {
                verdict: Some(Verdict::Refused),
                why: series.reason.map(|reason| format!("{prefix}{reason}")),
                ..Judgement::default()
            })
        };
        if self.arm(arm).kind == ArmKind::Baseline {
            let why = series.reason.filter(|_| series.is_refused()).map(str::to_owned);
            return Err(Box::new(Judgement { why, ..Judgement::default() }));
        }
        if is_event_count(name) {
            return Err(Box::default());
        }
        if series.is_refused() {
            return Err(refusal(series, ""));
        }
        let Some(base) = self.baseline.and_then(|arm| self.arms[arm].get(name)) else {
            return Err(Box::default());
        };
        if base.is_refused() {
            return Err(refusal(base, "nothing to compare with: the baseline's "));
        }
        if !series.is_positive() || !base.is_positive() {
            // A ratio needs two positive values.
            return Err(Box::default());
        }
        let again = self.control.filter(|control| *control != arm);
        let again = again.and_then(|control| self.arms[control].get(name));
        let again = again.filter(|again| again.is_positive()).map(|again| again.values.as_slice());
        Ok(Pairs::new(&series.values, &base.values, again, self.complete, series.better))
    }

    /// Failed trials of an arm beside those of both baselines.
    fn failing(&self, arm: usize) -> Option<Reliability> {
        if !matches!(self.arm(arm).kind, ArmKind::Variant | ArmKind::Peer) {
            return None;
        }
        let count = |is: &dyn Fn(usize) -> bool| {
            let trials = self.experiment.trials.iter().filter(|trial| !trial.warmup);
            trials.filter(|trial| is(trial.arm)).fold((0, 0), |(failed, all), trial| {
                (failed + u32::from(trial.result.is_err()), all + 1)
            })
        };
        let (failed, trials) = count(&|of| of == arm);
        let base = |of| Some(of) == self.baseline || Some(of) == self.control;
        let (baseline_failed, baseline_trials) = count(&base);
        (failed + baseline_failed > 0 && trials > 0).then(|| Reliability {
            failed,
            trials,
            baseline_failed,
            baseline_trials,
            p: fisher(failed, trials, baseline_failed, baseline_trials),
            p_adjusted: 1.0,
            fails_more: false,
        })
    }

    /// Tail of an arm over both baselines; `None` if the metric is not one.
    fn tail(&self, arm: usize, name: &str) -> Option<Tail> {
        let (segment, quantile) = tail_of(name)?;
        let trials = |is: &dyn Fn(usize) -> bool| -> Vec<tail::Trial> {
            let counted = self.experiment.trials.iter().filter(|trial| !trial.warmup);
            counted
                .filter(|trial| is(trial.arm))
                .map(|trial| {
                    let block = trial.block as usize - 1;
                    let series = self.arms[trial.arm].get(name);
                    tail::Trial {
                        block,
                        samples: trial.samples.get(segment),
                        figure: series.and_then(|series| *series.values.get(block)?),
                    }
                })
                .collect()
        };
        let base = |of| Some(of) == self.baseline || Some(of) == self.control;
        let (arm, base) = (trials(&|of| of == arm), trials(&base));
        tail::tail(&arm, &base, self.complete, quantile, self.experiment.plan.seed)
    }

    pub(crate) fn outcome(&self, judged: &Judged, arm: usize, name: &str) -> MetricOutcome {
        let series = self.arms[arm].get(name);
        let (unit, better) = match series {
            Some(series) => (series.unit, series.better),
            None => describe(name),
        };
        let judged = judged.metrics[arm].get(name).cloned().unwrap_or_default();
        let shown = series.filter(|series| !series.is_refused());
        let values: Vec<f64> =
            shown.iter().flat_map(|series| series.values.iter().flatten()).copied().collect();
        let interval = judged.comparison.and_then(|comparison| comparison.interval);
        MetricOutcome {
            unit: unit.into(),
            better,
            median: statistics::median(&values),
            ratio: finite(judged.comparison.map(|comparison| comparison.ratio)),
            low: finite(interval.map(|interval| interval.low)),
            high: finite(interval.map(|interval| interval.high)),
            p: judged.comparison.map(|comparison| comparison.p),
            p_adjusted: judged.p_adjusted,
            detectable: finite(judged.detectable),
            tail: judged.tail,
            verdict: judged.verdict,
            why: judged.why,
            trials: series.map(|series| series.values.clone()).unwrap_or_default(),
        }
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// Stem and quantile of a metric that is a tail: `rtt_ns_p99` is (`rtt`, 0.99).
pub(crate) fn tail_of(name: &str) -> Option<(&str, f64)> {
    let (stem, suffix) = name.rsplit_once("_ns_")?;
    let (quantile, _) = QUANTILES.iter().find(|(q, known)| *q >= 0.99 && *known == suffix)?;
    Some((stem, *quantile))
}

/// Entry of a judged metric for an arm that never ran.
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
