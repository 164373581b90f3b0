//! Looks: the numbers of blocks at which a run may be decided, and what each look may cost.
//!
//! A run is looked at after a first number of blocks, then after every third more, and once more at its planned end. Each look
//! has a **weight**, its part of the permitted error: a p-value counts as itself divided by the weight of its look. The smallest
//! of these over all looks is valid however many there were and whatever ended the run. The numbers of blocks are fixed before the
//! first trial, so a user who stops a run chooses among looks that were counted already.
//!
//! The weights add up to 1.2 until the 200th block and to 1.3 for ever. The figures of two looks are largely the same ones, so a true null is
//! rejected at any of them less often than the sum says: for a Brownian motion, in 0.88, 0.95 and 1.03 times the permitted share of
//! 5 %, 1 % and 0.14 % of runs (ends at 200 blocks; `bounds_of_the_looks_keep_the_permitted_error`). The weights of most looks are small on purpose: an effect that
//! matters is found at an early look or at the end, and the end keeps half.
//!
//! Sources: Pocock 1977, Biometrika 64, 191-199; Lan and DeMets 1983, Biometrika 70, 659-663; for several questions Maurer and Bretz
//! 2013, Statistics in Biopharmaceutical Research 5, 311-320.

use crate::paired::LEVEL;

/// Weight of the first look.
const FIRST_WEIGHT: f64 = 0.16;

/// Weight of a look over that of the look before it.
const DECAY: f64 = 0.8;

/// Fewest blocks of a look: the control cannot be judged before.
const BLOCKS_MIN: u32 = 8;

/// A look at the figures of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Look {
    /// Blocks that had ended.
    pub blocks: u32,
    /// Part of the permitted error, 0 to 1.
    pub weight: f64,
}

impl Look {
    /// The only look of a run whose length was fixed.
    pub fn only(blocks: u32) -> Self {
        Look { blocks, weight: 1.0 }
    }

    /// Weight of the planned end of a run that was looked at before.
    pub const END_WEIGHT: f64 = 0.5;

    /// The look at the planned end of a run, after `before` others.
    pub fn at_end(blocks: u32, before: usize) -> Self {
        if before == 0 { Look::only(blocks) } else { Look { blocks, weight: Look::END_WEIGHT } }
    }
}

/// Returns the look after this number of blocks, if there is one.
///
/// - `first`: blocks of the first look.
pub fn look_after(blocks: u32, first: u32) -> Option<Look> {
    let (mut at, mut weight) = (first.max(BLOCKS_MIN), FIRST_WEIGHT);
    while at < blocks {
        at += at.div_ceil(3);
        weight *= DECAY;
    }
    (at == blocks).then_some(Look { blocks, weight })
}

/// Fewest blocks after which the first look can answer one of `questions`: the smallest p-value of the signed-rank test is 2 in
/// 2^blocks.
pub fn blocks_min(questions: usize) -> u32 {
    (BLOCKS_MIN..64)
        .find(|blocks| {
            let p = 2f64.powi(1 - *blocks as i32) / FIRST_WEIGHT;
            p * (questions.max(1) as f64) < 1.0 - LEVEL
        })
        .unwrap_or(64)
}

/// Share of trials of which a run without any event must exclude that they have one, before it shows that there is
/// none: eight trials without a loss may well be of an arm that loses in every fourth.
const EVENT_SHARE: f64 = 0.2;

/// Trials without an event after which a share of `EVENT_SHARE` is excluded at a level.
pub fn trials_without_event(level: f64) -> usize {
    ((1.0 - level).ln() / (1.0 - EVENT_SHARE).ln()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired::normal_quantile;
    use model::Random;

    /// Share of Brownian motions that are beyond the bound of any look up to the end, over the permitted share.
    fn crossed(permitted: f64, first: u32, end: u32) -> f64 {
        let mut looks: Vec<Look> = (first..end).filter_map(|at| look_after(at, first)).collect();
        looks.push(Look::at_end(end, looks.len()));
        let bounds: Vec<(f64, f64)> = looks
            .iter()
            .map(|look| (f64::from(look.blocks), normal_quantile(permitted * look.weight / 2.0)))
            .collect();
        let runs = 40_000;
        let mut random = Random::new(1, 0);
        let crossing = (0..runs).filter(|_| {
            let (mut sum, mut at, mut is_beyond) = (0.0, 0.0f64, false);
            for (blocks, bound) in &bounds {
                sum += (blocks - at).sqrt() * random.normal();
                at = *blocks;
                is_beyond |= sum.abs() > bound * at.sqrt();
            }
            is_beyond
        });
        crossing.count() as f64 / f64::from(runs) / permitted
    }

    #[test]
    fn bounds_of_the_looks_keep_the_permitted_error() {
        for (permitted, end) in [(0.05, 8), (0.05, 60), (0.05, 200), (0.05, 1_000), (0.01, 200)] {
            let share = crossed(permitted, 8, end);
            eprintln!("{permitted}, end at {end}: {share:.2} of the permitted share");
            // Three standard errors of 40,000 runs.
            let error = 3.0 * (1.0 / (permitted * 40_000.0)).sqrt();
            assert!(share <= 1.0 + error, "{permitted} {end}: {share}");
        }
    }

    #[test]
    fn looks_are_after_every_third_more_and_weigh_less_and_less() {
        let looks: Vec<Look> = (0..40).filter_map(|at| look_after(at, 8)).collect();
        assert_eq!(
            looks.iter().map(|look| look.blocks).collect::<Vec<_>>(),
            [8, 11, 15, 20, 27, 36]
        );
        assert!(looks.windows(2).all(|pair| pair[0].weight > pair[1].weight));
        assert_eq!(look_after(3, 3), None, "the control cannot be judged yet");
        assert_eq!(Look::at_end(12, 0).weight, 1.0);
    }

    #[test]
    fn fewest_blocks_can_decide_at_the_first_look() {
        assert_eq!([1, 2, 3, 12, 36].map(blocks_min), [8, 9, 10, 12, 14]);
    }
}
