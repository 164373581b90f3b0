//! Answers of a gate: no worse than a threshold, worse by more, or not decided.
//!
//! A gate asks one question of every judged figure of every arm: is it worse than the baseline by more than the
//! threshold? "No" needs an interval that ends before the threshold. All of these must hold for the gate to pass, so
//! they need no correction: a gate passes wrongly only if a figure that is truly beyond the threshold passes, which
//! its own 95 % interval prevents (intersection-union test; Berger 1982, Technometrics 24, 295-300). "Yes" needs an
//! interval that begins behind the threshold and a p-value, corrected for all figures of the run, of the figures as
//! they would be if the arm were better by the threshold. Everything else is not decided, with its reason.

use stats::{blocks_min, holm, trials_without_event};

use crate::pairs::{Pairs, Scale};
use crate::statistics::{LEVEL, STRICT_PAIRS_MIN};
use crate::verdict::Badness;
use crate::{Better, GateAnswer, Undecided};

/// More blocks than this are not proposed: the difference is too close to the threshold.
const MORE_BLOCKS_MAX: f64 = 100_000.0;

/// Reserve on the number of blocks that would decide, which is an estimate.
const RESERVE: f64 = 1.3;

/// A figure of an arm against its reference, each bound with the step of the program's figures against the answer.
#[derive(Debug, Clone)]
pub(crate) struct GateQuestion {
    /// The arm, better by the threshold.
    pub(crate) pairs: Pairs,
    /// The same, as bad as its steps allow.
    pub(crate) at_worst: Pairs,
    /// The same, as good as its steps allow.
    pub(crate) at_best: Pairs,
    pub(crate) better: Better,
    /// Step of the figures; 0 for counts.
    pub(crate) step: f64,
    /// True if the tail of all trials together is beyond the threshold.
    pub(crate) has_worse_tail: bool,
}

/// Answer on one question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GateVerdict {
    pub(crate) answer: GateAnswer,
    pub(crate) reason: Option<Undecided>,
    pub(crate) p: f64,
    pub(crate) more_blocks: Option<u32>,
}

impl GateVerdict {
    fn decided(answer: GateAnswer, p: f64) -> Self {
        GateVerdict { answer, reason: None, p, more_blocks: None }
    }

    fn open(reason: Undecided, p: f64, more_blocks: Option<u32>) -> Self {
        GateVerdict { answer: GateAnswer::NotDecided, reason: Some(reason), p, more_blocks }
    }
}

/// Evidence on one question of a gate from all looks so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GateEvidence {
    /// Smallest p-value of a change by exactly the resolution, over the weight of its look.
    p: f64,
    /// Interval that holds at every look; the same with the figures as bad, and as good, as their steps allow.
    plain: Option<Badness>,
    at_worst: Option<Badness>,
    at_best: Option<Badness>,
    /// Trials without an event that a look needed to exclude rare ones.
    trials_needed: usize,
}

impl Default for GateEvidence {
    fn default() -> Self {
        let (plain, at_worst, at_best) = (None, None, None);
        GateEvidence { p: 1.0, plain, at_worst, at_best, trials_needed: 0 }
    }
}

impl GateEvidence {
    /// Adds a look.
    ///
    /// - `weight`: that of [`crate::Look`].
    pub(crate) fn look(&mut self, question: &GateQuestion, weight: f64) {
        let level = 1.0 - (1.0 - LEVEL) * weight;
        let p = question.at_best.shift(level).map_or(1.0, |shift| shift.p);
        self.p = self.p.min(p / weight);
        self.trials_needed = trials_without_event(level);
        let has_trials = question.pairs.differences.len() >= self.trials_needed;
        if question.pairs.scale == Scale::Count && !has_trials {
            // The interval of a few trials without an event has no width.
            return;
        }
        let overlap = |known: &mut Option<Badness>, pairs: &Pairs| {
            let Some(interval) = pairs.shift_interval(level) else { return };
            let seen = Badness::of(interval, question.better);
            *known = Some(known.map_or(seen, |known| known.overlap(seen)));
        };
        overlap(&mut self.plain, &question.pairs);
        overlap(&mut self.at_worst, &question.at_worst);
        overlap(&mut self.at_best, &question.at_best);
    }
}

/// Answers the questions of a gate together.
///
/// - `evidence`: of each question.
/// - `others`: p-values that are corrected with these, those of failed trials.
pub(crate) fn decide(
    questions: &[GateQuestion],
    evidence: &[GateEvidence],
    others: &[f64],
) -> Vec<GateVerdict> {
    let raw = evidence.iter().map(|of| of.p).chain(others.iter().copied());
    let adjusted = holm(&raw.map(|p| p.min(1.0)).collect::<Vec<f64>>());
    let family = adjusted.len();
    let answers = questions.iter().zip(evidence).zip(adjusted);
    answers.map(|((question, evidence), p)| answer(question, evidence, p, family)).collect()
}

fn answer(question: &GateQuestion, evidence: &GateEvidence, p: f64, family: usize) -> GateVerdict {
    let blocks = question.pairs.differences.len();
    let is_count = question.pairs.scale == Scale::Count;
    let (Some(worst), Some(best), Some(plain)) =
        (evidence.at_worst, evidence.at_best, evidence.plain)
    else {
        let needed = if is_count { evidence.trials_needed } else { STRICT_PAIRS_MIN };
        return too_few(blocks, needed, p);
    };
    let more = more_blocks(question, plain, LEVEL);
    if blocks < STRICT_PAIRS_MIN && !(best.least > 0.0 && p < 1.0 - LEVEL) {
        // Too few to judge the control, without which nothing passes.
        return too_few(blocks, STRICT_PAIRS_MIN, p);
    }
    if worst.most <= 0.0 {
        if question.has_worse_tail {
            return GateVerdict::open(Undecided::Tail, p, None);
        }
        return GateVerdict::decided(GateAnswer::NoWorse, p);
    }
    if best.least > 0.0 {
        if p < 1.0 - LEVEL {
            return GateVerdict::decided(GateAnswer::Worse, p);
        }
        let least = blocks_min(family).saturating_sub(blocks as u32);
        let more = more.unwrap_or(1).max(least);
        return GateVerdict::open(Undecided::Corrected { figures: family as u32 }, p, Some(more));
    }
    if plain.most <= 0.0 || plain.least > 0.0 {
        return GateVerdict::open(Undecided::Resolution { step: question.step }, p, None);
    }
    GateVerdict::open(Undecided::Wide, p, more)
}

fn too_few(blocks: usize, needed: usize, p: f64) -> GateVerdict {
    let (blocks, needed) = (blocks as u32, needed as u32);
    let more = needed.saturating_sub(blocks).max(1);
    GateVerdict::open(Undecided::FewBlocks { blocks, needed }, p, Some(more))
}

/// Blocks in addition to those of `question` after which its interval would end before the threshold, or begin behind
/// it; `None` if there is no such number.
fn more_blocks(question: &GateQuestion, interval: Badness, level: f64) -> Option<u32> {
    let shift = question.pairs.shift(level)?;
    let center = match question.better {
        Better::Lower => shift.center,
        Better::Higher => -shift.center,
    };
    let reach = if center <= 0.0 { interval.most - center } else { center - interval.least };
    let blocks = question.pairs.differences.len() as f64;
    let needed = blocks * (reach / center.abs()).powi(2) * RESERVE;
    let more = (needed - blocks).max(1.0).ceil();
    (more.is_finite() && more <= MORE_BLOCKS_MAX).then_some(more as u32)
}

/// Step in which figures come: the last decimal that any of them has, or a coarser one that all are multiples of.
/// Returns 0 without a value.
///
/// A clock or a printed figure in whole milliseconds cannot show a difference of a tenth of one, however often it is
/// repeated.
pub(crate) fn step_of(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    if values.is_empty() {
        return 0.0;
    }
    let decimals = values.iter().map(|value| decimals(*value)).max().unwrap_or(0);
    let printed = 0.1f64.powi(decimals);
    let gaps = values.windows(2).map(|pair| pair[1] - pair[0]);
    let gap = gaps.fold(f64::INFINITY, f64::min);
    // Two values have a gap of which they may be multiples by chance.
    let is_step = gap.is_finite()
        && values.len() > 2
        && values.iter().all(|value| {
            let times = value / gap;
            (times - times.round()).abs() < 1e-6 * times.abs().max(1.0)
        });
    if is_step { gap.max(printed) } else { printed }
}

/// Digits behind the decimal point of the shortest text that reads as this number.
fn decimals(value: f64) -> i32 {
    let text = format!("{value}");
    text.split_once('.').map_or(0, |(_, digits)| digits.len() as i32)
}

#[cfg(test)]
mod tests;
