//! Order of the arms in a block.

use crate::Random;

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

    #[test]
    fn no_arm_and_one_arm_are_orders_too() {
        assert!(order(1, 1, 0).is_empty());
        assert_eq!(order(1, 1, 1), [0]);
    }
}
