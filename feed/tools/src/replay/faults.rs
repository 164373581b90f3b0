//! Faults that a replay injects, to test a receiver.

use model::Random;

/// Shares of datagrams, 0 to 1, drawn independently per line and datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// Dropped, on line A and on line B.
    pub drop: [f64; 2],
    /// Sent twice.
    pub duplicate: f64,
    /// Sent after the next.
    pub reorder: f64,
    /// Seed of all draws.
    pub seed: u64,
}

/// Fault of a datagram on a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) is_dropped: bool,
    pub(super) is_duplicated: bool,
    pub(super) is_delayed: bool,
}

/// Draws fates.
#[derive(Debug)]
pub(super) struct Dice {
    faults: Faults,
    random: [Random; 2],
}

impl Dice {
    pub(super) fn new(faults: Faults) -> Self {
        let random = [0, 1].map(|line| Random::new(faults.seed, 0xfa17 + line));
        Dice { faults, random }
    }

    /// Fate of the next datagram of a line. A dropped one is neither duplicated nor delayed.
    pub(super) fn fate(&mut self, line: usize) -> Fate {
        let Faults { drop, duplicate, reorder, .. } = self.faults;
        // Always three draws, so that a changed share does not change the other faults.
        let [a, b, c] = [(); 3].map(|()| self.random[line].unit());
        let is_dropped = a < drop[line];
        Fate {
            is_dropped,
            is_duplicated: !is_dropped && b < duplicate,
            is_delayed: !is_dropped && c < reorder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_hold_and_lines_are_independent() {
        let faults = Faults { drop: [0.1, 0.1], duplicate: 0.05, reorder: 0.02, seed: 7 };
        let mut dice = Dice::new(faults);
        let (mut dropped, mut both, mut twice, mut late) = ([0; 2], 0, 0, 0);
        for _ in 0..100_000 {
            let fates = [dice.fate(0), dice.fate(1)];
            for (count, fate) in dropped.iter_mut().zip(fates) {
                *count += u32::from(fate.is_dropped);
                twice += u32::from(fate.is_duplicated);
                late += u32::from(fate.is_delayed);
                assert!(!fate.is_dropped || !(fate.is_duplicated || fate.is_delayed));
            }
            both += u32::from(fates[0].is_dropped && fates[1].is_dropped);
        }
        let near = |count: u32, expected: u32| count.abs_diff(expected) < expected / 10;
        assert!(near(dropped[0], 10_000) && near(dropped[1], 10_000), "{dropped:?}");
        assert!(near(both, 1000), "{both}");
        assert!(near(twice, 9000) && near(late, 3600), "{twice} {late}");
    }

    #[test]
    fn no_fault_is_the_default() {
        let mut dice = Dice::new(Faults::default());
        assert!((0..1000).all(|n| dice.fate(n % 2) == Fate::default()));
    }
}
