//! Order of the arms in a block.
//!
//! # Balanced orders
//! A trial that leaves the machine changed (heat, caches, connection tables) falls on the trial after it. In random order
//! of two baselines and one arm, 44 % of the baselines' trials run after the arm and 11 % of the arm's, so a third of
//! that effect becomes a difference between them. In a balanced order, each program runs equally often after each
//! other as its share of the trials is, itself included, where baseline and control are one program. That needs blocks
//! that begin with the arm with which the last one ended.
//!
//! Not balanced is an effect of *any* other program before: an arm that runs once a block follows itself in a third of
//! its trials, the baseline in two thirds. A settling trial removes that, too.

use serde::{Deserialize, Serialize};

use crate::Random;

/// Kind of order of the arms in a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BlockOrder {
    /// Each block in random order.
    #[default]
    Random,
    /// Blocks of two baselines and one or two other arms in random cycles in which predecessors are balanced; others
    /// in random order.
    Balanced,
}

/// Order of trials, and trials that only settle the machine. A stored run goes on with its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Schedule {
    /// Order of the arms in a block; random in results of versions that knew no other.
    #[serde(default)]
    pub order: BlockOrder,
    /// True if each trial that counts runs after one of the same arm that does not.
    #[serde(default)]
    pub settle: bool,
}

impl Schedule {
    /// True for the schedule of versions that knew no other.
    pub fn is_default(&self) -> bool {
        *self == Schedule::default()
    }
}

/// Cycles of three blocks of a program that runs twice (`P`) and one arm.
const CYCLES_OF_ONE: [&[&str]; 2] = [&["PAP", "PPA", "APP"], &["PPA", "APP", "PAP"]];

/// Cycles of four blocks with two arms.
const CYCLES_OF_TWO: [&[&str]; 2] =
    [&["PAPB", "BPAP", "PPBA", "ABPP"], &["PPAB", "BAPP", "PBPA", "APBP"]];

/// Streams of a seed beside those of the blocks.
const PHASE_STREAM: u64 = 1 << 33;
const CYCLE_STREAM: u64 = 1 << 34;

/// Returns the arms of a block in balanced order, each once; `None` unless there are one or two arms beside the
/// baselines.
///
/// - `baselines`: baseline and control, which are one program.
/// - Every cycle begins and ends with the baseline program and has each arm once at each place of a block, so that
///   cycles in any order are balanced and a trend within blocks favours no arm. Which cycle, which arm is `A` and which
///   baseline comes first are drawn from the seed, and so is the block at which the first cycle begins.
pub(crate) fn balanced_order(
    seed: u64,
    block: u32,
    baselines: [usize; 2],
    arms: &[usize],
) -> Option<Vec<usize>> {
    let cycles = match arms.len() {
        1 => CYCLES_OF_ONE,
        2 => CYCLES_OF_TWO,
        _ => return None,
    };
    let cycle_blocks = arms.len() as u64 + 2;
    let place = u64::from(block) + Random::new(seed, PHASE_STREAM).below(cycle_blocks);
    let mut of_cycle = Random::new(seed, CYCLE_STREAM + place / cycle_blocks);
    let cycle = cycles[of_cycle.below(cycles.len() as u64) as usize];
    let is_swapped = of_cycle.below(2) == 1;
    let mut next_baseline = Random::new(seed, u64::from(block)).below(2) as usize;
    let letters = cycle[(place % cycle_blocks) as usize].chars();
    Some(
        letters
            .map(|letter| {
                if letter == 'P' {
                    next_baseline = 1 - next_baseline;
                    baselines[next_baseline]
                } else if (letter == 'A') != is_swapped || arms.len() == 1 {
                    arms[0]
                } else {
                    arms[1]
                }
            })
            .collect(),
    )
}

/// Returns every arm once, in random order.
///
/// - `block`: 0 is the warm-up.
/// - Returns a permutation of `0..arm_count` that depends only on the three arguments, so an arm that
///   is skipped in one block does not affect other blocks.
///
/// Source: Fisher and Yates 1938, in Durstenfeld's form.
pub fn order(seed: u64, block: u32, arm_count: usize) -> Vec<usize> {
    let mut random = Random::new(seed, u64::from(block));
    let mut arms: Vec<usize> = (0..arm_count).collect();
    for last in (1..arm_count).rev() {
        let other = random.below(last as u64 + 1) as usize;
        arms.swap(last, other);
    }
    arms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_runs_once_in_every_block() {
        for block in 0..50 {
            let mut arms = order(7, block, 12);
            arms.sort_unstable();
            assert_eq!(arms, (0..12).collect::<Vec<_>>());
        }
    }

    #[test]
    fn same_seed_gives_the_same_order_and_another_seed_another() {
        let run = |seed| (0..20).map(|block| order(seed, block, 8)).collect::<Vec<_>>();
        assert_eq!(run(42), run(42));
        assert_ne!(run(42), run(43));
    }

    #[test]
    fn order_is_stable_for_ever() {
        // A change here would make a seed of an older report useless.
        assert_eq!(order(1, 1, 6), [5, 3, 2, 1, 4, 0]);
    }

    #[test]
    fn every_arm_comes_first_about_equally_often() {
        let mut first = [0u32; 5];
        for block in 0..5000 {
            first[order(3, block, 5)[0]] += 1;
        }
        assert!(first.iter().all(|&count| (900..1100).contains(&count)), "{first:?}");
    }

    /// Share of the trials of `program` that run directly after one of `before`; 0 and 1 are one program.
    fn share_after(sequence: &[usize], program: usize, before: usize) -> f64 {
        let program_of = |arm: usize| arm.max(1);
        let pairs = sequence.windows(2).map(|pair| (program_of(pair[0]), program_of(pair[1])));
        let own: Vec<usize> = pairs.filter(|pair| pair.1 == program).map(|pair| pair.0).collect();
        own.iter().filter(|&&other| other == before).count() as f64 / own.len() as f64
    }

    #[test]
    fn every_program_runs_equally_often_after_each_other_in_balanced_order() {
        for seed in 0..10 {
            let run = |arms: &[usize]| -> Vec<usize> {
                (0..120)
                    .flat_map(|block| balanced_order(seed, block, [0, 1], arms).unwrap())
                    .collect()
            };
            let one = run(&[2]);
            let shares = [share_after(&one, 1, 2), share_after(&one, 2, 2)];
            assert!(shares.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.02), "{shares:?}");
            let two = run(&[2, 3]);
            for arm in [2, 3] {
                let shares = [1, 2, 3].map(|program| share_after(&two, program, arm));
                assert!(shares.iter().all(|share| (share - 0.25).abs() < 0.02), "{shares:?}");
            }
        }
    }

    #[test]
    fn random_order_has_the_shares_that_the_bias_comes_from() {
        let run: Vec<usize> = (0..20_000).flat_map(|block| order(1, block, 3)).collect();
        assert!((share_after(&run, 1, 2) - 4.0 / 9.0).abs() < 0.01);
        assert!((share_after(&run, 2, 2) - 1.0 / 9.0).abs() < 0.01);
    }

    #[test]
    fn balanced_blocks_have_each_arm_once_and_equally_often_at_each_place() {
        for arms in [&[2][..], &[2, 3]] {
            let count = arms.len() + 2;
            let mut places = vec![vec![0u32; count]; count];
            for seed in 0..50 {
                for block in 0..(12 * count as u32) {
                    let order = balanced_order(seed, block, [0, 1], arms).unwrap();
                    let mut sorted = order.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                    for (place, arm) in order.into_iter().enumerate() {
                        places[arm][place] += 1;
                    }
                }
            }
            assert!(
                places.iter().flatten().all(|&times| (500..700).contains(&times)),
                "{places:?}"
            );
        }
    }

    #[test]
    fn balanced_order_is_stable_for_ever_and_only_for_few_arms() {
        // A change here would end the resumption of stored runs.
        assert_eq!(balanced_order(1, 1, [0, 1], &[2]).unwrap(), [1, 2, 0]);
        assert_eq!(balanced_order(1, 1, [0, 1], &[2, 3]).unwrap(), [1, 2, 0, 3]);
        assert_eq!(balanced_order(1, 1, [0, 1], &[]), None);
        assert_eq!(balanced_order(1, 1, [0, 1], &[2, 3, 4]), None);
    }

    #[test]
    fn no_arm_and_one_arm_are_orders_too() {
        assert!(order(1, 1, 0).is_empty());
        assert_eq!(order(1, 1, 1), [0]);
    }
}
