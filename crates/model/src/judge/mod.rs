//! Values by arm, metric and block, and their verdicts.

mod gate;
mod looks;
mod starts;
mod trust;

use std::collections::BTreeMap;

use crate::decision;
use crate::evidence::RunEvidence;
use crate::failures::fisher;
use crate::metrics::tail_of;
use crate::pairs::{Pairs, Scale};
use crate::starts::{Components, Starts};
use crate::statistics::{self, Comparison, LEVEL, finite};
use crate::tail::{self, Tail};
use crate::verdict::{self, Question, QuestionAnswer};
use crate::{
    Arm, ArmKind, Better, CountDifference, Experiment, Floor, Look, MetricOutcome, Reliability,
    Support, Verdict, describe, is_event_count,
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

    /// Values, without those of trials that gave none.
    pub(crate) fn given(&self) -> impl Iterator<Item = f64> {
        self.values.iter().flatten().copied()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Judgement {
    comparison: Option<Comparison>,
    difference: Option<CountDifference>,
    p: Option<f64>,
    p_adjusted: Option<f64>,
    finds: Option<f64>,
    verdict: Option<Verdict>,
    why: Option<String>,
    tail: Option<Tail>,
}

impl From<QuestionAnswer> for Judgement {
    fn from(answer: QuestionAnswer) -> Self {
        Judgement {
            comparison: answer.comparison,
            difference: answer.difference,
            p: answer.p,
            p_adjusted: answer.p_adjusted,
            finds: answer.finds,
            verdict: Some(answer.verdict.into()),
            why: answer.why,
            tail: None,
        }
    }
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

/// Reason for a figure without a comparison.
const NEGATIVE: &str = "values below 0 have no ratio; give the figure an origin at 0";

pub(crate) struct Table<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) arms: Vec<BTreeMap<&'a str, Series<'a>>>,
    pub(crate) baseline: Option<usize>,
    pub(crate) control: Option<usize>,
    /// Blocks that have ended.
    pub(crate) complete: usize,
    pub(crate) starts: Starts,
    /// Variance of the judged metrics between starts that several blocks share, and within them.
    pub(crate) spreads: BTreeMap<&'a str, Components>,
}

fn refusal(why: Option<String>) -> Box<Judgement> {
    Box::new(Judgement { verdict: Some(Verdict::Refused), why, ..Judgement::default() })
}

fn failed_share(failed: u32, of: u32) -> f64 {
    f64::from(failed) / f64::from(of.max(1))
}

impl<'a> Table<'a> {
    pub(crate) fn new(experiment: &'a Experiment) -> Self {
        let counted = || experiment.trials.iter().filter(|trial| !trial.warmup);
        let blocks = counted().map(|trial| trial.block).max().unwrap_or(0) as usize;
        let block_count =
            |arm: usize| experiment.decided[arm].map_or(usize::MAX, |block| block as usize);
        let mut arms: Vec<BTreeMap<&str, Series>> = Vec::new();
        arms.resize_with(experiment.plan.arms.len(), BTreeMap::new);
        let mut starts = vec![vec![None; blocks]; experiment.plan.arms.len()];
        for trial in counted() {
            starts[trial.arm][trial.block as usize - 1] = trial.start;
            for metric in trial.result.iter().flatten() {
                let series =
                    arms[trial.arm].entry(metric.name.as_str()).or_insert_with(|| Series {
                        unit: &metric.unit,
                        better: metric.better,
                        values: vec![None; blocks.min(block_count(trial.arm))],
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
        let mut table = Table {
            experiment,
            arms,
            baseline: experiment.place(ArmKind::Baseline),
            control: experiment.place(ArmKind::Control),
            complete: experiment.blocks() as usize,
            starts: Starts::new(&starts),
            spreads: BTreeMap::new(),
        };
        table.spreads = table.spreads();
        table
    }

    fn arm(&self, arm: usize) -> &Arm {
        &self.experiment.plan.arms[arm].0
    }

    /// Judges all arms by the evidence of all looks. Only the plan's judged metrics get a verdict, and are corrected for
    /// each other.
    pub(crate) fn judge(&self, seen: &RunEvidence) -> Judged<'a> {
        let mut judged = Judged {
            metrics: vec![BTreeMap::new(); self.arms.len()],
            failures: vec![None; self.arms.len()],
        };
        let mut places = Vec::new();
        let (mut questions, mut evidence) = (Vec::new(), Vec::new());
        for (arm, series) in self.arms.iter().enumerate() {
            for (&name, series) in series {
                let judgement = match self.pairs(arm, name, series) {
                    Err(judgement) => *judgement,
                    Ok(pairs) if self.is_question(arm, name) => {
                        let tail = self.tail(arm, name);
                        let tail_high =
                            tail.and_then(|tail| Some(tail.pooled.or(tail.worst_decile)?.high));
                        places.push((arm, name));
                        evidence.push(seen.verdict(arm, name));
                        questions.push(Question {
                            tail_high,
                            ..self.question(name, pairs, series.better)
                        });
                        Judgement { tail, ..Judgement::default() }
                    }
                    Ok(pairs) => self.unjudged(arm, name, pairs, series.better),
                };
                judged.metrics[arm].insert(name, judgement);
            }
        }
        let failing: Vec<(usize, Reliability)> =
            (0..self.arms.len()).filter_map(|arm| Some((arm, self.failing(arm)?))).collect();
        let p: Vec<f64> = failing.iter().map(|(arm, _)| seen.failures(*arm)).collect();
        let (answers, failing_p) =
            verdict::answers(&questions, &evidence, &p, self.experiment.is_complete());
        for ((arm, name), answer) in places.into_iter().zip(answers) {
            let judgement = judged.metrics[arm].entry(name).or_default();
            *judgement = Judgement { tail: judgement.tail, ..answer.into() };
        }
        for ((arm, mut failing), p_adjusted) in failing.into_iter().zip(failing_p) {
            failing.p_adjusted = p_adjusted;
            failing.fails_more = p_adjusted < 1.0 - LEVEL
                && failed_share(failing.failed, failing.trials)
                    > failed_share(failing.baseline_failed, failing.baseline_trials);
            judged.failures[arm] = Some(failing);
        }
        judged
    }

    /// Number of judged figures.
    fn questions(&self) -> usize {
        let arms = (0..self.arms.len()).filter(|arm| self.experiment.can_be_judged(*arm));
        arms.map(|arm| {
            let judged = self.experiment.plan.judged.iter();
            judged.filter(|name| self.arms[arm].contains_key(name.as_str())).count()
        })
        .sum()
    }

    /// Largest of the differences that such a run finds in 19 of 20 cases, of the figures that are open.
    pub(crate) fn finds(&self, is_open: &dyn Fn(usize, &str) -> bool) -> Option<f64> {
        let family = self.questions();
        let mut most: Option<f64> = None;
        for (arm, series) in self.arms.iter().enumerate() {
            for (&name, series) in series {
                let Ok(pairs) = self.pairs(arm, name, series) else { continue };
                if self.is_question(arm, name) && is_open(arm, name) {
                    let question = self.question(name, pairs, series.better);
                    let finds = question.finds(Look::END_WEIGHT, family);
                    most = finds.map(|finds| most.map_or(finds, |most| most.max(finds))).or(most);
                }
            }
        }
        most
    }

    fn question(&self, name: &str, pairs: Pairs, better: Better) -> Question {
        let level = self.baselines_mean(name);
        let step = match pairs.scale {
            Scale::Ratio if level > 0.0 => decision::step_of(self.all_values(name)) / level,
            _ => 0.0,
        };
        Question { pairs, better, level, tail_high: None, step }
    }

    fn is_gated(&self, arm: usize) -> bool {
        self.experiment.plan.gate && self.arm(arm).kind == ArmKind::Variant
    }

    fn is_judged(&self, name: &str) -> bool {
        self.experiment.plan.judged.iter().any(|judged| judged == name)
    }

    fn is_question(&self, arm: usize, name: &str) -> bool {
        self.arm(arm).kind.is_compared()
            && self.is_judged(name)
            && self.control.is_some_and(|control| self.arms[control].contains_key(name))
    }

    /// Comparison of a control, of a metric that is not judged, or without a control.
    fn unjudged(&self, arm: usize, name: &str, pairs: Pairs, better: Better) -> Judgement {
        let is_judged = self.is_judged(name);
        if self.arm(arm).kind == ArmKind::Control {
            let question = self.question(name, pairs, better);
            let judged = verdict::control(&question, self.experiment.plan.resolve);
            let judged = judged.map_or_else(Judgement::default, Judgement::from);
            let (verdict, why) = (judged.verdict, judged.why.clone());
            return Judgement {
                verdict: verdict.filter(|_| is_judged),
                why: why.filter(|_| is_judged),
                ..judged
            };
        }
        let why = "no A/A floor: the control arm gave no value";
        let comparison = pairs.compare(LEVEL).filter(|_| pairs.scale == Scale::Ratio);
        Judgement {
            p: comparison.map(|comparison| comparison.p),
            comparison,
            verdict: is_judged.then_some(Verdict::Inconclusive),
            why: is_judged.then(|| why.to_owned()),
            ..Judgement::default()
        }
    }

    /// Pairs of an arm with the baselines; the judgement if there can be none.
    pub(crate) fn pairs(
        &self,
        arm: usize,
        name: &str,
        series: &Series,
    ) -> Result<Pairs, Box<Judgement>> {
        if self.arm(arm).kind == ArmKind::Baseline {
            let why = series.reason.filter(|_| series.is_refused()).map(str::to_owned);
            return Err(Box::new(Judgement { why, ..Judgement::default() }));
        }
        if is_event_count(name) && !self.is_judged(name) {
            return Err(Box::default());
        }
        if series.is_refused() {
            return Err(refusal(series.reason.map(str::to_owned)));
        }
        let Some(base) = self.baseline.and_then(|arm| self.arms[arm].get(name)) else {
            return Err(Box::default());
        };
        if base.is_refused() {
            return Err(refusal(
                base.reason
                    .map(|reason| format!("nothing to compare with: the baseline's {reason}")),
            ));
        }
        let scale = match self.scale(name) {
            Some(scale) => scale,
            None if self.is_judged(name) => {
                return Err(refusal(Some(NEGATIVE.to_owned())));
            }
            None => return Err(Box::default()),
        };
        let control = self.control_beside(arm, name);
        let (values, base) = (&series.values, &base.values);
        let pairs = Pairs::on(scale, values, base, control, self.complete, series.better);
        Ok(self.independent(name, pairs))
    }

    /// Values of the second baseline, unless `arm` is that.
    fn control_beside(&self, arm: usize, name: &str) -> Option<&[Option<f64>]> {
        let control = self.control.filter(|control| *control != arm)?;
        Some(self.arms[control].get(name)?.values.as_slice())
    }

    /// Values of a metric in all arms.
    pub(crate) fn all_values(&self, name: &str) -> impl Iterator<Item = f64> {
        let series = self.arms.iter().filter_map(move |arm| arm.get(name));
        series.flat_map(Series::given)
    }

    /// Scale on which a metric is compared; `None` if it has none.
    ///
    /// A metric is a count if its name says so (`lost_count`), or if it states no unit, less of it is better, and all its
    /// values are whole numbers of which one is 0. Other metrics that are judged are ratios: a time or size of 0 is
    /// below the resolution of the program that printed it. Figures that are not judged need a ratio to be shown.
    pub(crate) fn scale(&self, name: &str) -> Option<Scale> {
        let is_judged = self.is_judged(name);
        let (mut has_zero, mut is_whole) = (false, true);
        for value in self.all_values(name) {
            if value < 0.0 || (value == 0.0 && !is_judged) {
                return None;
            }
            has_zero |= value == 0.0;
            is_whole &= value.fract() == 0.0;
        }
        let shape = self.arms.iter().find_map(|arm| arm.get(name));
        let is_plain = shape.is_some_and(|series| {
            matches!(series.unit, "" | "count") && series.better == Better::Lower
        });
        let is_count = is_event_count(name) || (is_plain && has_zero && is_whole);
        Some(if is_count { Scale::Count } else { Scale::Ratio })
    }

    /// Trials of an arm in which a judged time or size was 0; 0 for counts.
    pub(crate) fn zeros(&self, arm: usize, name: &str) -> usize {
        let series = self.arms[arm].get(name).filter(|_| self.scale(name) == Some(Scale::Ratio));
        series.map_or(0, |series| series.given().filter(|value| *value == 0.0).count())
    }

    /// Mean over all trials of both baselines; 0 if there is none.
    fn baselines_mean(&self, name: &str) -> f64 {
        let both = [self.baseline, self.control].into_iter().flatten();
        let series = both.filter_map(|arm| self.arms[arm].get(name));
        statistics::mean(&series.flat_map(Series::given).collect::<Vec<f64>>()).unwrap_or(0.0)
    }

    /// Failed trials of some arms, and all, without the warm-up.
    fn trial_counts(&self, arms: &[Option<usize>]) -> (u32, u32) {
        let mut counts = (0, 0);
        for trial in self.experiment.trials.iter().filter(|trial| !trial.warmup) {
            if arms.contains(&Some(trial.arm)) {
                counts.0 += u32::from(trial.result.is_err());
                counts.1 += 1;
            }
        }
        counts
    }

    /// Failed trials of an arm beside those of both baselines.
    fn failing(&self, arm: usize) -> Option<Reliability> {
        if !self.arm(arm).kind.is_compared() {
            return None;
        }
        let (failed, trials) = self.trial_counts(&[Some(arm)]);
        let (baseline_failed, baseline_trials) = self.trial_counts(&[self.baseline, self.control]);
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
        let blocks = self.complete.min(self.arms[arm].get(name)?.values.len());
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
        let (of_arm, base) = (trials(&|of| of == arm), trials(&base));
        tail::tail(&of_arm, &base, blocks, quantile, self.experiment.plan.seed)
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
            ratio: judged.comparison.and_then(|comparison| finite(comparison.ratio)),
            low: interval.and_then(|interval| finite(interval.low)),
            high: interval.and_then(|interval| finite(interval.high)),
            difference: judged.difference,
            p: judged.p,
            p_adjusted: judged.p_adjusted,
            finds: judged.finds.and_then(finite),
            tail: judged.tail,
            verdict: judged.verdict,
            why: judged.why,
            trials: series.map(|series| series.values.clone()).unwrap_or_default(),
        }
    }
}

/// Entry of a judged metric for an arm that never ran.
pub(crate) fn absent(name: &str, support: &Support, failure: Option<&str>) -> MetricOutcome {
    let (verdict, why) = match (support.reason(), failure) {
        (Some(why), _) if matches!(support, Support::Refused { .. }) => (Verdict::Refused, why),
        (Some(why), _) => (Verdict::Unsupported, why),
        (None, Some(failure)) => (Verdict::Refused, format!("every trial failed: {failure}")),
        (None, None) => (Verdict::Inconclusive, "no trial yet".into()),
    };
    let (unit, better) = describe(name);
    MetricOutcome {
        verdict: Some(verdict),
        why: Some(why),
        ..MetricOutcome::unjudged(unit, better, Vec::new())
    }
}
