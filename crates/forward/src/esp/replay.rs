//! Window of received sequence numbers: each is accepted once.
//!
//! Source: RFC 4303, section 3.4.3; RFC 6479 for the ring of words.

const WORD_BITS: u64 = u64::BITS as u64;
const EPOCH: u64 = 1 << 32;

/// Sequence numbers received lately.
#[derive(Debug, Clone)]
pub struct ReplayWindow {
    /// Highest number accepted.
    top: u64,
    /// Numbers up to this one are refused.
    floor: u64,
    size: u64,
    words: Box<[u64]>,
}

impl ReplayWindow {
    /// - `size`: numbers below the highest that are still accepted, at least 1.
    /// - `floor`: all numbers up to this one count as received.
    pub fn new(size: u32, floor: u64) -> ReplayWindow {
        let size = u64::from(size.max(1));
        // One word more: numbers of the oldest word may have left the window in part.
        let words = vec![0; size.div_ceil(WORD_BITS) as usize + 1].into_boxed_slice();
        ReplayWindow { top: floor, floor, size, words }
    }

    /// Highest number accepted.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The number whose lower half was sent: the one that is nearest above the window's lower end.
    /// `None` beyond the last.
    ///
    /// Source: RFC 4303, appendix A2.
    pub fn infer(&self, low: u32) -> Option<u64> {
        let bottom = self.top.saturating_sub(self.size - 1);
        let ahead = low.wrapping_sub(bottom as u32);
        debug_assert!(u64::from(ahead) < EPOCH);
        bottom.checked_add(ahead.into())
    }

    /// True if a number is neither used nor too old.
    pub fn admits(&self, sequence: u64) -> bool {
        if sequence <= self.floor {
            return false;
        }
        if sequence > self.top {
            return true;
        }
        let word = self.words[self.word_of(sequence)];
        self.top - sequence < self.size && word & bit_of(sequence) == 0
    }

    /// Marks a number as received. Returns false if it is used or too old.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if !self.admits(sequence) {
            return false;
        }
        if sequence > self.top {
            let (from, to) = (self.top / WORD_BITS, sequence / WORD_BITS);
            let cleared = (to - from).min(self.words.len() as u64);
            for ahead in 0..cleared {
                let at = self.word_of((to - ahead) * WORD_BITS);
                self.words[at] = 0;
            }
            self.top = sequence;
        }
        let at = self.word_of(sequence);
        self.words[at] |= bit_of(sequence);
        true
    }

    fn word_of(&self, sequence: u64) -> usize {
        (sequence / WORD_BITS % self.words.len() as u64) as usize
    }
}

fn bit_of(sequence: u64) -> u64 {
    1 << (sequence % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_number_is_accepted_once_and_zero_never() {
        let mut window = ReplayWindow::new(64, 0);
        assert!(!window.accept(0));
        assert!(window.accept(5) && !window.accept(5) && window.accept(4));
        assert!(window.accept(68) && !window.accept(5));
        assert!(window.accept(6), "just inside");
        assert!(window.accept(69) && !window.accept(4), "just outside");
        assert!(window.accept(u64::MAX) && !window.accept(u64::MAX) && !window.accept(69));
    }

    #[test]
    fn numbers_up_to_the_floor_are_refused() {
        let mut window = ReplayWindow::new(64, 1_000);
        assert!(!window.accept(1_000) && !window.accept(990) && window.accept(1_001));
    }

    #[test]
    fn upper_half_follows_the_window() {
        let mut window = ReplayWindow::new(64, 0);
        assert_eq!(window.infer(7), Some(7));
        assert!(window.accept(EPOCH - 2));
        assert_eq!(window.infer(u32::MAX), Some(EPOCH - 1));
        assert_eq!(window.infer(3), Some(EPOCH + 3), "the next epoch has begun");
        assert!(window.accept(EPOCH + 3));
        assert_eq!(window.infer(u32::MAX), Some(EPOCH - 1), "a late one of the last epoch");
        assert_eq!(window.infer(4), Some(EPOCH + 4));
        let end = ReplayWindow::new(64, u64::MAX);
        assert_eq!(end.infer(70), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Against a set of all numbers ever accepted.
        #[test]
        fn window_is_a_set_of_numbers_with_a_lower_end(
            size in 1_u32..300,
            start in prop_oneof![Just(0_u64), Just(EPOCH - 100), any::<u32>().prop_map(u64::from)],
            steps in prop::collection::vec((0_u64..700, any::<bool>()), 1..200),
        ) {
            let mut window = ReplayWindow::new(size, start);
            let mut seen = BTreeSet::new();
            let mut top = start;
            for (step, is_back) in steps {
                let number = if is_back { top.saturating_sub(step) } else { top + step / 8 };
                let is_new = number > start
                    && !seen.contains(&number)
                    && (number > top || top - number < u64::from(size));
                prop_assert_eq!(window.admits(number), is_new);
                prop_assert_eq!(window.accept(number), is_new);
                if is_new {
                    seen.insert(number);
                    top = top.max(number);
                }
                prop_assert_eq!(window.top(), top);
            }
        }

        /// The upper half of any number in the window, or ahead of it by less than an epoch.
        #[test]
        fn upper_half_is_found(
            size in 1_u32..5_000, top in 0_u64..1 << 40, ahead in 0_u64..EPOCH - 5_000, back: bool,
        ) {
            let window = ReplayWindow::new(size, top);
            let bottom = top.saturating_sub(u64::from(size) - 1);
            let number = if back { bottom + ahead % (top - bottom + 1) } else { top + ahead };
            prop_assert_eq!(window.infer(number as u32), Some(number));
        }
    }
}
