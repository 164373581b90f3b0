//! A set of priorities in one word.

use crate::Priority;

/// Priorities 0 to 63; counting zeros finds the most urgent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bitmap(u64);

impl Bitmap {
    pub(crate) const EMPTY: Bitmap = Bitmap(0);

    pub(crate) fn insert(&mut self, priority: Priority) {
        self.0 |= 1 << priority;
    }

    pub(crate) fn remove(&mut self, priority: Priority) {
        self.0 &= !(1 << priority);
    }

    pub(crate) fn contains(self, priority: Priority) -> bool {
        self.0 & 1 << priority != 0
    }

    /// The smallest member: the most urgent priority.
    pub(crate) fn first(self) -> Option<Priority> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as Priority)
    }

    /// Members, most urgent first.
    pub(crate) fn iter(self) -> impl Iterator<Item = Priority> {
        let mut left = self;
        core::iter::from_fn(move || {
            let first = left.first()?;
            left.remove(first);
            Some(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn bitmap_is_a_sorted_set(changes in prop::collection::vec((0u8..64, any::<bool>()), 0..99)) {
            let (mut bitmap, mut oracle) = (Bitmap::EMPTY, BTreeSet::new());
            for (priority, insert) in changes {
                if insert {
                    bitmap.insert(priority);
                    oracle.insert(priority);
                } else {
                    bitmap.remove(priority);
                    oracle.remove(&priority);
                }
                prop_assert_eq!(bitmap.first(), oracle.first().copied());
                prop_assert_eq!(bitmap.contains(priority), insert);
            }
            prop_assert_eq!(bitmap.iter().collect::<Vec<_>>(), oracle.into_iter().collect::<Vec<_>>());
        }
    }
}
