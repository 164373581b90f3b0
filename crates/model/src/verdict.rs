//! Verdicts of a whole run: every question that it answers, judged together.

use crate::pairs::{Pairs, Scale, Shift};
use crate::statistics::{self, Comparison, LEVEL, STRICT_LEVEL, holm};
use crate::{Better, CountDifference, Ended, Verdict, always_valid};

/// When the figures decide about the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// Never, or at the few planned looks: the number of blocks was fixed beforehand.
    Planned,
    /// Possibly after every block: the run goes on, was interrupted or was killed.
    AtWill,
}

impl Looks {
    /// Looks of a run by the reason for its end; `None` while it runs.
    pub fn of(ended: Option<Ended>) -> Self {
        match ended {
            Some(Ended::Settled | Ended::TimeUp | Ended::BlockLimit) => Looks::Planned,
            Some(Ended::Interrupted | Ended::Unfinished) | None => Looks::AtWill,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Question {
    /// By block.
    pub pairs: Pairs,
    pub better: Better,
    /// Of counts, the baselines' mean per trial, of which the margin is a share; not used for ratios.
    pub level: f64,
    /// Upper end of the interval of the pooled tail, for metrics that are a tail: the arm over the
    /// baseline, above 1 if worse; `None` for other metrics.
    pub tail_high: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Median ratio, interval at 95 % and p-value; `None` without a pair, and of counts.
    pub comparison: Option<Comparison>,
    /// Of counts.
    pub difference: Option<CountDifference>,
    /// Not corrected; `None` without a pair.
    pub p: Option<f64>,
    /// p-value corrected for the number of questions.
    pub p_adjusted: Option<f64>,
    /// Ratio above 1 from which on a difference could have been found; `None` with too few blocks.
    pub detectable: Option<f64>,
    pub verdict: Verdict,
    /// Reason for a verdict that decides nothing.
    pub why: Option<String>,
}

/// Answers all questions of a run, with Holm's correction over all of them.
///
/// - `level`: 0.95, or 0.99 at an early look.
/// - `margin`: ratio up to which a difference does not matter, above 1.
/// - `others`: further p-values judged in the same run, such as those of failed trials; they are corrected
///   with the rest and returned in the second part.
///
/// [`Verdict::Better`] and [`Verdict::Worse`] need a corrected p-value below `1 - level` and an interval
/// clear of 1. [`Verdict::NoDifferenceShown`] needs an interval inside the margin. Everything else is
/// [`Verdict::Inconclusive`]. With [`Looks::AtWill`] better and worse need an interval that
/// holds at every look; everything else is [`Verdict::Exploratory`].
pub fn answers(
    questions: &[Question],
    others: &[f64],
    level: f64,
    margin: f64,
    looks: Looks,
) -> (Vec<Answer>, Vec<f64>) {
    let compared: Vec<_> = questions.iter().map(|q| q.pairs.shift(level)).collect();
    let p = compared.iter().map(|c| c.map_or(1.0, |c| c.p)).chain(others.iter().copied());
    let adjusted = holm(&p.collect::<Vec<f64>>());
    let family = adjusted.len();
    let answers = questions.iter().zip(compared).zip(&adjusted).map(|((question, shift), &p)| {
        let Some(shift) = shift else {
            return Answer {
                comparison: None,
                difference: None,
                p: None,
                p_adjusted: None,
                detectable: None,
                verdict: Verdict::Inconclusive,
                why: Some("no block has a value of both this arm and the baseline".into()),
            };
        };
        let values = &question.pairs.differences;
        let (shown, (verdict, why)) = match looks {
            Looks::Planned => {
                (shift, planned(question, &shift, Adjusted { p, level, family }, margin))
            }
            Looks::AtWill => {
                let seen = |alpha| always_valid::interval(values, alpha);
                let corrected = seen((1.0 - level) / family as f64);
                (Shift { interval: seen(1.0 - level), ..shift }, at_will(question, corrected))
            }
        };
        let is_ratio = question.pairs.scale == Scale::Ratio;
        let detectable = statistics::interval(values, 1.0 - (1.0 - level) / family as f64)
            .filter(|_| is_ratio)
            .map(|(low, high)| ((high - low) / 2.0).exp());
        Answer {
            comparison: is_ratio.then(|| shown.as_ratio()),
            difference: (!is_ratio).then(|| CountDifference::new(&shown)),
            p: Some(shift.p),
            p_adjusted: Some(p),
            detectable,
            verdict,
            why,
        }
    });
    (answers.collect(), adjusted[questions.len()..].to_vec())
}

/// Fewest blocks after which `questions` can be answered better or worse at 95 %: the smallest p-value
/// of the signed-rank test is 2 in 2^blocks.
pub fn blocks_min(questions: usize) -> u32 {
    let possible = |blocks: &i32| 2f64.powi(1 - blocks) * (questions as f64) < 1.0 - LEVEL;
    (statistics::STRICT_PAIRS_MIN as i32..64).find(possible).unwrap_or(64) as u32
}

/// p-value corrected for the number of questions.
struct Adjusted {
    p: f64,
    level: f64,
    /// Number of questions.
    family: usize,
}

impl Adjusted {
    fn is_small(&self) -> bool {
        self.p < 1.0 - self.level
    }

    /// Reason why an interval that is clear of 1 has no verdict.
    fn too_large(&self, blocks: usize) -> String {
        let (family, needed) = (self.family, blocks_min(self.family));
        match (blocks as u64) < u64::from(needed) {
            true => format!(
                "the interval is clear of 1, but {blocks} blocks cannot decide one of {family} \
                 questions; {needed} can"
            ),
            false => format!(
                "the interval is clear of 1, but not after the correction for {family} questions"
            ),
        }
    }
}

fn planned(
    question: &Question,
    shift: &Shift,
    adjusted: Adjusted,
    margin: f64,
) -> (Verdict, Option<String>) {
    let Some(interval) = shift.interval else {
        let needed = statistics::PAIRS_MIN;
        let why = format!("{} pairs; an interval needs {needed}", shift.pairs);
        return (Verdict::Inconclusive, Some(why));
    };
    match side(interval, question.better) {
        Some(Verdict::Better) if adjusted.is_small() => better_tail(question),
        Some(verdict) if adjusted.is_small() => (verdict, None),
        _ if is_within(interval, question, margin) => (Verdict::NoDifferenceShown, None),
        Some(_) => (Verdict::Inconclusive, Some(adjusted.too_large(shift.pairs))),
        None => (Verdict::Inconclusive, None),
    }
}

fn at_will(question: &Question, corrected: Option<(f64, f64)>) -> (Verdict, Option<String>) {
    match corrected.and_then(|interval| side(interval, question.better)) {
        Some(Verdict::Better) => better_tail(question),
        Some(verdict) => (verdict, None),
        None => (
            Verdict::Exploratory,
            Some("the run did not reach its planned end; run it to the end for a verdict".into()),
        ),
    }
}

/// A tail is better only if the tail of all trials together is.
fn better_tail(question: &Question) -> (Verdict, Option<String>) {
    match question.tail_high {
        Some(high) if high >= 1.0 => (
            Verdict::Inconclusive,
            Some("better in the typical trial, but not in all trials taken together".into()),
        ),
        _ => (Verdict::Better, None),
    }
}

/// Verdict on the control arm, at 99 % and without correction: it guards all others.
///
/// Returns the answer with its interval at 95 %; `None` without a pair.
pub fn control(question: &Question, margin: f64) -> Option<Answer> {
    let shown = question.pairs.shift(LEVEL)?;
    let strict = question.pairs.shift(STRICT_LEVEL)?.interval;
    // The interval of a mean exists at every level.
    let strict = strict.filter(|_| shown.pairs >= statistics::STRICT_PAIRS_MIN);
    let (verdict, why) = match strict {
        None => {
            let needed = statistics::STRICT_PAIRS_MIN;
            let why = format!("control not judged: {} blocks, {needed} are needed", shown.pairs);
            (Verdict::Inconclusive, Some(why))
        }
        Some(strict) => {
            let differs = side(strict, question.better).filter(|_| shown.p < 1.0 - STRICT_LEVEL);
            let is_close =
                shown.interval.is_some_and(|interval| is_within(interval, question, margin));
            let otherwise =
                if is_close { Verdict::NoDifferenceShown } else { Verdict::Inconclusive };
            (differs.unwrap_or(otherwise), None)
        }
    };
    let is_ratio = question.pairs.scale == Scale::Ratio;
    Some(Answer {
        comparison: is_ratio.then(|| shown.as_ratio()),
        difference: (!is_ratio).then(|| CountDifference::new(&shown)),
        p: Some(shown.p),
        p_adjusted: None,
        detectable: None,
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
pub(crate) struct Badness {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Badness {
    pub(crate) fn of((low, high): (f64, f64), better: Better) -> Self {
        match better {
            Better::Lower => Badness { least: low, most: high },
            Better::Higher => Badness { least: -high, most: -low },
        }
    }
}

/// True if the interval lies within the margin: a ratio, or that share of the baselines' count.
fn is_within((low, high): (f64, f64), question: &Question, margin: f64) -> bool {
    let most = match question.pairs.scale {
        Scale::Ratio => margin.ln(),
        Scale::Count => (margin - 1.0) * question.level,
    };
    // The small term absorbs rounding.
    low >= -most - 1e-12 && high <= most + 1e-12
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(differences: Vec<f64>) -> Question {
        let pairs = Pairs { differences, ..Pairs::default() };
        Question { pairs, better: Better::Lower, level: 1.0, tail_high: None }
    }

    /// `count` log-ratios around `center`, `spread` wide.
    fn around(center: f64, spread: f64, count: usize) -> Vec<f64> {
        let at = |i: usize| (i as f64 / (count - 1) as f64 - 0.5) * spread;
        (0..count).map(|i| center + at(i)).collect()
    }

    fn judged(questions: &[Question], looks: Looks) -> Vec<Verdict> {
        let (answers, _) = answers(questions, &[], LEVEL, 1.1, looks);
        answers.into_iter().map(|answer| answer.verdict).collect()
    }

    /// Reason of the first question's verdict.
    fn reason(questions: &[Question]) -> Option<String> {
        answers(questions, &[], LEVEL, 1.1, Looks::Planned).0[0].why.clone()
    }

    #[test]
    fn one_of_many_questions_needs_more_blocks_than_one_alone() {
        let found = question(around(-0.1, 0.05, 8));
        assert_eq!(judged(std::slice::from_ref(&found), Looks::Planned), [Verdict::Better]);
        let mut many = vec![question(around(0.0, 0.05, 8)); 35];
        many.insert(0, found);
        assert_eq!(judged(&many, Looks::Planned)[0], Verdict::Inconclusive);
        assert_eq!(
            reason(&many).unwrap(),
            "the interval is clear of 1, but 8 blocks cannot decide one of 36 questions; 11 can"
        );
        many[0] = question(around(-0.1, 0.05, blocks_min(36) as usize));
        assert_eq!(judged(&many, Looks::Planned)[0], Verdict::Better);
        assert_eq!((blocks_min(1), blocks_min(36)), (8, 11));
    }

    #[test]
    fn correction_is_the_reason_where_the_blocks_would_do() {
        let mut slight = around(-0.1, 0.05, 12);
        slight[0] = 0.5;
        let mut many = vec![question(slight)];
        assert_eq!(judged(&many, Looks::Planned)[0], Verdict::Better);
        many.extend(vec![question(around(0.0, 0.4, 12)); 35]);
        assert_eq!(judged(&many, Looks::Planned)[0], Verdict::Inconclusive);
        assert_eq!(
            reason(&many).unwrap(),
            "the interval is clear of 1, but not after the correction for 36 questions"
        );
    }

    #[test]
    fn difference_is_excluded_only_inside_the_margin() {
        let verdict = |values| judged(&[question(values)], Looks::Planned)[0];
        assert_eq!(verdict(around(0.0, 0.1, 12)), Verdict::NoDifferenceShown);
        assert_eq!(verdict(around(0.0, 0.4, 12)), Verdict::Inconclusive);
    }

    #[test]
    fn run_that_was_interrupted_has_no_verdict_that_rests_on_its_length() {
        let slight = question(around(-0.03, 0.08, 12));
        assert_eq!(judged(std::slice::from_ref(&slight), Looks::Planned), [Verdict::Better]);
        assert_eq!(judged(&[slight], Looks::AtWill), [Verdict::Exploratory]);
        let clear = question(around(-0.5, 0.1, 12));
        assert_eq!(judged(&[clear], Looks::AtWill), [Verdict::Better]);
    }

    #[test]
    fn arm_that_fails_half_of_its_trials_is_not_better() {
        let mut values = around(-0.15, 0.01, 20);
        values[..10].fill(f64::INFINITY);
        assert_eq!(judged(&[question(values)], Looks::Planned), [Verdict::Inconclusive]);
    }

    #[test]
    fn tail_is_better_only_if_the_pooled_tail_is() {
        let mut tail = question(around(-0.15, 0.01, 12));
        tail.tail_high = Some(0.9);
        assert_eq!(judged(&[tail.clone()], Looks::Planned), [Verdict::Better]);
        tail.tail_high = Some(3.0);
        assert_eq!(judged(&[tail], Looks::Planned), [Verdict::Inconclusive]);
    }

    #[test]
    fn control_needs_eight_blocks() {
        let control = |values: Vec<f64>| super::control(&question(values), 1.1).unwrap();
        let seven = control(around(0.3, 0.01, 7));
        assert_eq!(seven.verdict, Verdict::Inconclusive);
        assert_eq!(seven.why.unwrap(), "control not judged: 7 blocks, 8 are needed");
        assert_eq!(control(around(0.3, 0.01, 8)).verdict, Verdict::Worse);
        assert_eq!(control(around(0.0, 0.1, 8)).verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn higher_is_better_inverts_the_verdict() {
        let mut rate = question(around(0.3, 0.05, 12));
        rate.better = Better::Higher;
        assert_eq!(judged(&[rate], Looks::Planned), [Verdict::Better]);
    }

    #[test]
    fn smallest_effect_that_could_be_found_grows_with_the_spread() {
        let detectable = |spread| {
            let (answers, _) =
                answers(&[question(around(0.0, spread, 24))], &[], LEVEL, 1.1, Looks::Planned);
            answers[0].detectable.unwrap()
        };
        assert!(detectable(0.2) > detectable(0.1) && detectable(0.1) > 1.0);
    }
}
