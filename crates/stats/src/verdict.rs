//! Verdicts of a whole run: every question that it answers, judged together over all its looks.

use crate::looks::{blocks_min, trials_without_event};
use crate::paired::{self, Comparison, LEVEL, STRICT_LEVEL, normal_quantile};
use crate::pairs::{Pairs, Scale, Shift};
use crate::{Better, CountDifference, Verdict, holm};

/// Level of the interval by which the spread of a median is estimated for [`Answer::finds`].
const SPREAD_LEVEL: f64 = 0.95;

/// Standard error of the statistic behind the signed-rank test over that of the median, for normal noise.
const RANKS_OVER_MEDIAN: f64 = 0.84;

/// Share of the effect by the formula that [`Answer::finds`] needs: looks before the last one find some effects that the last would
/// miss. By simulation (`model/tests/worlds.rs`).
const EARLIER_LOOKS: f64 = 0.92;

/// Power of [`Answer::finds`], as a quantile of the normal distribution: 19 of 20 runs.
const POWER_QUANTILE: f64 = 1.645;

/// One figure of one arm against the baseline.
#[derive(Debug, Clone)]
pub struct Question {
    /// By block.
    pub pairs: Pairs,
    /// Direction in which the figure improves.
    pub better: Better,
    /// Of counts, the baselines' mean per trial, of which the resolution is a share; not used for ratios.
    pub level: f64,
    /// Upper end of the interval of the pooled tail, for metrics that are a tail: the arm over the
    /// baseline, above 1 if worse; `None` for other metrics.
    pub tail_high: Option<f64>,
    /// Step in which the program's figures come, over the baselines' mean; 0 for counts.
    pub step: f64,
}

/// Evidence on one question from all looks so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// Smallest p-value of no shift, over the weight of its look.
    p: f64,
    /// The same of a shift beyond the resolution.
    p_equal: f64,
    /// Interval that holds at every look: the overlap of theirs.
    interval: Option<(f64, f64)>,
    /// Weight of the last look.
    weight: f64,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence { p: 1.0, p_equal: 1.0, interval: None, weight: 1.0 }
    }
}

impl Evidence {
    /// Evidence of one look at a number of blocks that was fixed beforehand.
    pub fn once(question: &Question, resolve: f64) -> Self {
        let mut evidence = Evidence::default();
        evidence.look(question, 1.0, resolve);
        evidence
    }

    /// Adds a look.
    ///
    /// - `weight`: that of [`crate::Look`].
    /// - `resolve`: ratio up to which a difference is none, above 1.
    pub fn look(&mut self, question: &Question, weight: f64, resolve: f64) {
        let permitted = (1.0 - LEVEL) * weight;
        self.weight = weight;
        let Some(shift) = question.pairs.shift(1.0 - permitted) else { return };
        self.p = self.p.min(shift.p / weight);
        let has_no_event =
            question.pairs.scale == Scale::Count && question.level == 0.0 && shift.center == 0.0;
        if has_no_event && shift.pairs < trials_without_event(1.0 - permitted) {
            return;
        }
        self.p_equal = self.p_equal.min(question.p_equal(permitted, resolve) / weight);
        if let Some((low, high)) = shift.interval {
            let (lowest, highest) = self.interval.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
            self.interval = Some((low.max(lowest), high.min(highest)));
        }
    }

    /// The interval, unless the looks contradict each other.
    pub fn overlap(&self) -> Option<(f64, f64)> {
        self.interval.filter(|(low, high)| low <= high)
    }
}

/// Verdict on one question, with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct QuestionAnswer {
    /// Median ratio, interval at 95 % and p-value; `None` without a pair, and of counts.
    pub comparison: Option<Comparison>,
    /// Of counts.
    pub difference: Option<CountDifference>,
    /// Not corrected; `None` without a pair.
    pub p: Option<f64>,
    /// p-value corrected for the number of looks and of questions.
    pub p_adjusted: Option<f64>,
    /// Ratio above 1 that a run like this one finds in 19 of 20 cases; `None` if it can find none.
    pub finds: Option<f64>,
    /// Answer at 95 %.
    pub verdict: Verdict,
    /// Reason for a verdict that decides nothing.
    pub why: Option<String>,
}

/// Answers questions that are looked at once, after a number of blocks that was fixed beforehand.
pub fn answers_once(
    questions: &[Question],
    others: &[f64],
    resolve: f64,
) -> (Vec<QuestionAnswer>, Vec<f64>) {
    let evidence: Vec<Evidence> =
        questions.iter().map(|question| Evidence::once(question, resolve)).collect();
    answers(questions, &evidence, others, true)
}

/// Answers all questions of a run.
///
/// - `evidence`: of each question.
/// - `others`: further p-values judged in the same run, over the weights of their looks, such as those of failed trials; they are
///   corrected with the rest and returned in the second part.
/// - `is_complete`: false for a run that goes on or was broken off.
///
/// [`Verdict::Better`] and [`Verdict::Worse`] need a corrected p-value below 0.05 and an interval clear of 1.
/// [`Verdict::NoDifferenceShown`] needs a corrected p-value below 0.05 of a difference beyond the resolution. The two are corrected apart (Holm):
/// in a run of which each arm is like the baseline, or each arm differs from it by the resolution or more, one claim or the other can be
/// wrong, and is in at most 5 % of runs. Everything else is [`Verdict::Inconclusive`], or [`Verdict::Exploratory`] if the run
/// is not complete.
pub fn answers(
    questions: &[Question],
    evidence: &[Evidence],
    others: &[f64],
    is_complete: bool,
) -> (Vec<QuestionAnswer>, Vec<f64>) {
    let adjusted = holm(&capped(evidence.iter().map(|of| of.p).chain(others.iter().copied())));
    let equal = holm(&capped(evidence.iter().map(|of| of.p_equal)));
    let family = adjusted.len();
    let answers = questions.iter().zip(evidence).zip(adjusted.iter().zip(equal));
    let answers = answers.map(|((question, evidence), (&p, p_equal))| {
        answer(question, evidence, [p, p_equal], family, is_complete)
    });
    (answers.collect(), adjusted[questions.len()..].to_vec())
}

/// Answers a question by its corrected p-values of no shift, and of one beyond the resolution.
fn answer(
    question: &Question,
    evidence: &Evidence,
    [p, p_equal]: [f64; 2],
    family: usize,
    is_complete: bool,
) -> QuestionAnswer {
    let Some(shift) = question.pairs.shift(LEVEL) else {
        return QuestionAnswer {
            comparison: None,
            difference: None,
            p: None,
            p_adjusted: None,
            finds: None,
            verdict: Verdict::Inconclusive,
            why: Some("no block has a value of both this arm and the baseline".into()),
        };
    };
    let (verdict, why) = match decided(question, evidence, p, p_equal) {
        Some(verdict) => (verdict, None),
        None if !is_complete => (
            Verdict::Exploratory,
            Some("the run did not reach its planned end; run it to the end for a verdict".into()),
        ),
        None => (Verdict::Inconclusive, undecided(question, evidence, p, family)),
    };
    // An estimate outside of what all looks allow would contradict them.
    let center = match evidence.overlap() {
        Some((low, high)) => shift.center.clamp(low, high),
        None => shift.center,
    };
    let shown = Shift { center, interval: evidence.overlap(), ..shift };
    let is_ratio = question.pairs.scale == Scale::Ratio;
    QuestionAnswer {
        comparison: is_ratio.then(|| shown.as_ratio()),
        difference: (!is_ratio).then(|| shown.as_count()),
        p: Some(shift.p),
        p_adjusted: Some(p),
        finds: question.finds(evidence.weight, family),
        verdict,
        why,
    }
}

/// Answers one of `family` questions of which the others are left out.
pub fn answer_one_of(
    question: &Question,
    evidence: &Evidence,
    family: usize,
    is_complete: bool,
) -> QuestionAnswer {
    let family = family.max(1) as f64;
    let p = (evidence.p * family).min(1.0);
    let p_equal = (evidence.p_equal * family).min(1.0);
    answer(question, evidence, [p, p_equal], family as usize, is_complete)
}

/// Verdict that the evidence allows; `None` if it decides nothing.
fn decided(question: &Question, evidence: &Evidence, p: f64, p_equal: f64) -> Option<Verdict> {
    let differs = side(evidence.overlap()?, question.better).filter(|_| p < 1.0 - LEVEL);
    match differs {
        Some(Verdict::Better) => better_tail(question),
        Some(verdict) => Some(verdict),
        None if p_equal < 1.0 - LEVEL => Some(Verdict::NoDifferenceShown),
        None => None,
    }
}

/// A tail is better only if the tail of all trials together is.
fn better_tail(question: &Question) -> Option<Verdict> {
    match question.tail_high {
        Some(high) if high >= 1.0 => None,
        _ => Some(Verdict::Better),
    }
}

/// Reason why nothing is decided; `None` if the interval is just too wide.
fn undecided(question: &Question, evidence: &Evidence, p: f64, family: usize) -> Option<String> {
    let blocks = question.pairs.differences.len();
    let Some(all) = evidence.interval else {
        if question.pairs.scale == Scale::Count && blocks >= paired::PAIRS_MIN {
            let needed = trials_without_event(1.0 - (1.0 - LEVEL) * evidence.weight);
            return Some(format!("no event in {blocks} blocks; {needed} exclude rare ones"));
        }
        let needed = paired::PAIRS_MIN;
        return Some(format!("{blocks} pairs; an interval needs {needed}"));
    };
    let Some(interval) = evidence.overlap() else {
        return Some(format!(
            "its early blocks contradict its later ones: {:.3} at most, and {:.3} at least",
            all.1.exp(),
            all.0.exp()
        ));
    };
    let side = side(interval, question.better)?;
    if p < 1.0 - LEVEL && side == Verdict::Better {
        return Some("better in the typical trial, but not in all trials taken together".into());
    }
    let needed = blocks_min(family);
    Some(if (blocks as u64) < u64::from(needed) {
        format!(
            "the interval is clear of 1, but {blocks} blocks cannot decide one of {family} \
             questions; {needed} can"
        )
    } else {
        format!("the interval is clear of 1, but not after the correction for {family} questions")
    })
}

fn capped(p: impl Iterator<Item = f64>) -> Vec<f64> {
    p.map(|p| p.min(1.0)).collect()
}

impl Question {
    /// A question about ratios of figures that are finer than any difference that matters.
    pub fn new(pairs: Pairs, better: Better) -> Self {
        Question { pairs, better, level: 0.0, tail_high: None, step: 0.0 }
    }

    /// Largest shift on the scale of its pairs that is no difference: a ratio, or that share of the baselines' count.
    fn margin(&self, resolve: f64) -> f64 {
        match self.pairs.scale {
            // Figures in steps may hide as much as one step.
            Scale::Ratio => resolve.ln() - self.step.ln_1p(),
            Scale::Count => (resolve - 1.0) * self.level,
        }
    }

    /// p-value of a shift beyond the resolution: the highest level of error whose interval lies within it. Not computed above
    /// `permitted`, where it decides nothing.
    fn p_equal(&self, permitted: f64, resolve: f64) -> f64 {
        let margin = self.margin(resolve);
        let is_equal = |p: f64| {
            let interval = self.pairs.shift_interval(1.0 - p);
            // The small term absorbs rounding.
            interval.is_some_and(|(low, high)| low >= -margin - 1e-12 && high <= margin + 1e-12)
        };
        if margin < 0.0 || !is_equal(permitted) {
            return 1.0;
        }
        // In halves of the logarithm: 2^-40 is far below every corrected level.
        let (mut fails, mut holds) = (permitted * 0.5f64.powi(40), permitted);
        if is_equal(fails) {
            return fails;
        }
        while holds / fails > 1.05 {
            let middle = (holds * fails).sqrt();
            if is_equal(middle) { holds = middle } else { fails = middle }
        }
        holds
    }

    /// Ratio above 1 that is found in 19 of 20 runs with as many blocks and as much noise.
    ///
    /// Better and worse need an interval of the median clear of 1, at the error of the last look, and a p-value by ranks at that error divided by
    /// the number of questions; the larger effect of the two is the answer. Checked by simulation at that effect (`model/tests/power.rs`).
    pub fn finds(&self, weight: f64, family: usize) -> Option<f64> {
        if self.pairs.scale != Scale::Ratio {
            return None;
        }
        let permitted = (1.0 - LEVEL) * weight;
        let each = permitted / family.max(1) as f64;
        let blocks = self.pairs.differences.len() as i32;
        self.pairs.shift_interval(1.0 - permitted)?;
        if 2f64.powi(1 - blocks) >= each {
            return None;
        }
        let (low, high) = self.pairs.shift_interval(SPREAD_LEVEL)?;
        let center = paired::median(&self.pairs.differences)?;
        // Skewed noise reaches farther on one side.
        let reach = (high - center).max(center - low);
        let error = reach / normal_quantile((1.0 - SPREAD_LEVEL) / 2.0);
        let by_interval = normal_quantile(permitted / 2.0) + POWER_QUANTILE;
        let by_ranks = (normal_quantile(each / 2.0) + POWER_QUANTILE) * RANKS_OVER_MEDIAN;
        let found = EARLIER_LOOKS * error * by_interval.max(by_ranks) + self.step.ln_1p();
        Some(found.exp()).filter(|found| found.is_finite())
    }
}

/// Verdict on the control arm, at 99 % and without correction: it guards all others.
///
/// Returns the answer with its interval at 95 %; `None` without a pair.
pub fn control(question: &Question, resolve: f64) -> Option<QuestionAnswer> {
    let margin = question.margin(resolve) + 1e-12;
    let shown = question.pairs.shift(LEVEL)?;
    let strict = question.pairs.shift(STRICT_LEVEL)?.interval;
    // The interval of a mean exists at every level.
    let strict = strict.filter(|_| shown.pairs >= paired::STRICT_PAIRS_MIN);
    let (verdict, why) = match strict {
        None => {
            let needed = paired::STRICT_PAIRS_MIN;
            let why = format!("control not judged: {} blocks, {needed} are needed", shown.pairs);
            (Verdict::Inconclusive, Some(why))
        }
        Some(strict) => {
            let differs = side(strict, question.better).filter(|_| shown.p < 1.0 - STRICT_LEVEL);
            let is_close =
                shown.interval.is_some_and(|(low, high)| low >= -margin && high <= margin);
            let otherwise =
                if is_close { Verdict::NoDifferenceShown } else { Verdict::Inconclusive };
            (differs.unwrap_or(otherwise), None)
        }
    };
    let is_ratio = question.pairs.scale == Scale::Ratio;
    Some(QuestionAnswer {
        comparison: is_ratio.then(|| shown.as_ratio()),
        difference: (!is_ratio).then(|| shown.as_count()),
        p: Some(shown.p),
        p_adjusted: None,
        finds: None,
        verdict,
        why,
    })
}

/// Verdict on a change between two series of runs.
///
/// - `low`, `high`: its 95 % interval, newer over older.
/// - `p_adjusted`: corrected for the number of questions.
pub fn between(low: f64, high: f64, p_adjusted: f64, margin: f64, better: Better) -> Verdict {
    match side((low.ln(), high.ln()), better).filter(|_| p_adjusted < 1.0 - LEVEL) {
        Some(verdict) => verdict,
        None if low >= 1.0 / margin && high <= margin => Verdict::NoDifferenceShown,
        None => Verdict::Inconclusive,
    }
}

/// Better or worse if the interval is clear of no shift.
fn side((low, high): (f64, f64), better: Better) -> Option<Verdict> {
    let (below, above) = match better {
        Better::Lower => (Verdict::Better, Verdict::Worse),
        Better::Higher => (Verdict::Worse, Verdict::Better),
    };
    match (low, high) {
        _ if high < 0.0 => Some(below),
        _ if low > 0.0 => Some(above),
        _ => None,
    }
}

/// An interval in which more is worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Badness {
    /// End on the better side.
    pub least: f64,
    /// End on the worse side.
    pub most: f64,
}

impl Badness {
    /// The part that both have; `least` is above `most` if there is none.
    pub fn overlap(self, other: Badness) -> Self {
        Badness { least: self.least.max(other.least), most: self.most.min(other.most) }
    }

    /// An interval of a shift.
    pub fn of((low, high): (f64, f64), better: Better) -> Self {
        match better {
            Better::Lower => Badness { least: low, most: high },
            Better::Higher => Badness { least: -high, most: -low },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ratio up to which a difference is none.
    const RESOLVE: f64 = 1.05;

    fn question(differences: Vec<f64>) -> Question {
        let pairs = Pairs { differences, ..Pairs::default() };
        Question { pairs, better: Better::Lower, level: 1.0, tail_high: None, step: 0.0 }
    }

    /// `count` log-ratios around `center`, `spread` wide.
    fn around(center: f64, spread: f64, count: usize) -> Vec<f64> {
        (0..count).map(|i| center + ((i as f64 / (count - 1) as f64 - 0.5) * spread)).collect()
    }

    fn judged(questions: &[Question]) -> Vec<Verdict> {
        let (answers, _) = answers_once(questions, &[], RESOLVE);
        answers.into_iter().map(|answer| answer.verdict).collect()
    }

    /// Reason of the first question's verdict.
    fn reason(questions: &[Question]) -> Option<String> {
        answers_once(questions, &[], RESOLVE).0[0].why.clone()
    }

    #[test]
    fn one_of_many_questions_needs_more_blocks_than_one_alone() {
        let found = question(around(-0.1, 0.05, 8));
        assert_eq!(judged(std::slice::from_ref(&found)), [Verdict::Better]);
        let mut many = vec![question(around(0.0, 0.05, 8)); 35];
        many.insert(0, found);
        assert_eq!(judged(&many)[0], Verdict::Inconclusive);
        assert_eq!(
            reason(&many).unwrap(),
            "the interval is clear of 1, but 8 blocks cannot decide one of 36 questions; 14 can"
        );
        many[0] = question(around(-0.1, 0.05, blocks_min(36) as usize));
        assert_eq!(judged(&many)[0], Verdict::Better);
        assert_eq!((blocks_min(1), blocks_min(36)), (8, 14));
    }

    #[test]
    fn correction_is_the_reason_where_the_blocks_would_do() {
        let mut slight = around(-0.1, 0.05, 16);
        slight[0] = 0.5;
        let mut many = vec![question(slight)];
        assert_eq!(judged(&many)[0], Verdict::Better);
        many.extend(vec![question(around(0.0, 0.4, 16)); 35]);
        assert_eq!(judged(&many)[0], Verdict::Inconclusive);
        assert_eq!(
            reason(&many).unwrap(),
            "the interval is clear of 1, but not after the correction for 36 questions"
        );
    }

    #[test]
    fn difference_is_excluded_only_inside_the_margin() {
        let verdict = |values| judged(&[question(values)])[0];
        assert_eq!(verdict(around(0.0, 0.08, 12)), Verdict::NoDifferenceShown);
        assert_eq!(verdict(around(0.0, 0.4, 12)), Verdict::Inconclusive);
    }

    #[test]
    fn difference_of_the_resolution_needs_figures_finer_than_it() {
        let mut coarse = question(around(0.0, 0.02, 24));
        assert_eq!(judged(std::slice::from_ref(&coarse)), [Verdict::NoDifferenceShown]);
        coarse.step = 0.1;
        assert_eq!(judged(&[coarse]), [Verdict::Inconclusive]);
    }

    #[test]
    fn equal_is_a_claim_and_is_corrected() {
        let equal = question(around(0.0, 0.12, 12));
        assert_eq!(judged(std::slice::from_ref(&equal)), [Verdict::NoDifferenceShown]);
        let mut many = vec![equal];
        many.extend(vec![question(around(0.0, 0.4, 12)); 35]);
        assert_eq!(judged(&many)[0], Verdict::Inconclusive);
    }

    #[test]
    fn a_look_costs_its_weight_and_what_it_showed_stays() {
        let slight = question(around(-0.03, 0.08, 12));
        assert_eq!(judged(std::slice::from_ref(&slight)), [Verdict::Better]);
        let verdict_after = |looks: &[(&Question, f64)], is_complete| {
            let mut evidence = Evidence::default();
            looks.iter().for_each(|(question, weight)| evidence.look(question, *weight, RESOLVE));
            let (last, _) = looks[looks.len() - 1];
            answers(std::slice::from_ref(last), &[evidence], &[], is_complete).0[0].verdict
        };
        assert_eq!(verdict_after(&[(&slight, 0.05)], true), Verdict::Inconclusive);
        assert_eq!(verdict_after(&[(&slight, 0.05)], false), Verdict::Exploratory);
        assert_eq!(verdict_after(&[(&slight, 0.05), (&slight, 0.9)], true), Verdict::Better);
        let wide = question(around(-0.02, 0.3, 16));
        assert_eq!(verdict_after(&[(&slight, 0.9), (&wide, 0.1)], true), Verdict::Better);
        let other_side = question(around(0.05, 0.02, 16));
        assert_eq!(
            verdict_after(&[(&slight, 0.9), (&other_side, 0.5)], true),
            Verdict::Inconclusive
        );
    }

    #[test]
    fn arm_that_fails_half_of_its_trials_is_not_better() {
        let mut values = around(-0.15, 0.01, 20);
        values[..10].fill(f64::INFINITY);
        assert_eq!(judged(&[question(values)]), [Verdict::Inconclusive]);
    }

    #[test]
    fn tail_is_better_only_if_the_pooled_tail_is() {
        let mut tail = question(around(-0.15, 0.01, 12));
        tail.tail_high = Some(0.9);
        assert_eq!(judged(&[tail.clone()]), [Verdict::Better]);
        tail.tail_high = Some(3.0);
        assert_eq!(judged(&[tail]), [Verdict::Inconclusive]);
    }

    #[test]
    fn control_needs_eight_blocks() {
        let control = |values: Vec<f64>| super::control(&question(values), RESOLVE).unwrap();
        let seven = control(around(0.3, 0.01, 7));
        assert_eq!(seven.verdict, Verdict::Inconclusive);
        assert_eq!(seven.why.unwrap(), "control not judged: 7 blocks, 8 are needed");
        assert_eq!(control(around(0.3, 0.01, 8)).verdict, Verdict::Worse);
        assert_eq!(control(around(0.0, 0.05, 8)).verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn higher_is_better_inverts_the_verdict() {
        let mut rate = question(around(0.3, 0.05, 12));
        rate.better = Better::Higher;
        assert_eq!(judged(&[rate]), [Verdict::Better]);
    }

    #[test]
    fn effect_that_is_found_grows_with_the_spread_the_step_and_the_questions() {
        let finds = |spread, step, questions| {
            let mut of = question(around(0.0, spread, 24));
            of.step = step;
            answers_once(&vec![of; questions], &[], RESOLVE).0[0].finds.unwrap()
        };
        let plain = finds(0.1, 0.0, 1);
        assert!(plain > 1.0 && plain < finds(0.2, 0.0, 1) && plain < finds(0.1, 0.0, 36));
        assert!(finds(0.0, 0.1, 1) > 1.0999, "no spread is not an effect from 0 % on");
        let short = question(around(0.0, 0.1, 5));
        assert_eq!(answers_once(&[short], &[], RESOLVE).0[0].finds, None);
    }
}
