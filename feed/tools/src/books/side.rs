//! Price levels of one side of a book.

use std::collections::BTreeMap;

/// Levels next to the touch that are kept in an array.
const NEAR_MAX: usize = 32;

/// All orders of one price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SideLevel {
    /// The price, higher the better it is; see [`super::order_table::rank`].
    pub(super) rank: u32,
    pub(super) order_count: u32,
    pub(super) shares: u64,
}

/// Levels of one side.
///
/// The best ones are in a short array, the best last: where almost all messages are, a level is found and moved in a
/// cache line or two. The others are in a tree, so that a level far from the touch takes logarithmic time, however
/// many there are. Half an array moves at once between the two.
///
/// Invariants: all levels of the array are better than those of the tree, and the array is empty only if the tree is.
#[derive(Debug, Default)]
pub(super) struct Side {
    near: Vec<SideLevel>,
    far: BTreeMap<u32, SideLevel>,
}

impl Side {
    /// Number of levels.
    pub(super) fn level_count(&self) -> usize {
        self.near.len() + self.far.len()
    }

    /// Levels, the best first.
    pub(super) fn levels(&self) -> impl Iterator<Item = &SideLevel> {
        self.near.iter().rev().chain(self.far.values().rev())
    }

    /// The best level.
    #[inline]
    pub(super) fn best(&self) -> Option<&SideLevel> {
        self.near.last()
    }

    /// Begins to fetch the best levels into the near cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Some(best) = self.near.last() {
            sys::cache::prefetch(best);
        }
    }

    /// Adds an order.
    #[inline]
    pub(super) fn add(&mut self, rank: u32, shares: u32) {
        let new = SideLevel { rank, order_count: 1, shares: shares.into() };
        let worse = self.worse_count(rank);
        let is_far = worse == 0 && (self.near.len() == NEAR_MAX || !self.far.is_empty());
        match self.near.get_mut(worse) {
            Some(level) if level.rank == rank => level.join(&new),
            _ if is_far => {
                self.far.entry(rank).and_modify(|level| level.join(&new)).or_insert(new);
            }
            _ => self.insert(worse, new),
        }
    }

    /// Takes shares from an order, and the order too if `is_last`.
    #[inline]
    pub(super) fn take(&mut self, rank: u32, shares: u32, is_last: bool) {
        let worse = self.worse_count(rank);
        match self.near.get_mut(worse).filter(|level| level.rank == rank) {
            Some(level) => {
                if level.leave(shares, is_last) {
                    self.near.remove(worse);
                    if self.near.is_empty() {
                        self.refill();
                    }
                }
            }
            None => self.take_far(rank, shares, is_last),
        }
    }

    /// Number of levels of the array that are worse than a price: the place of its level.
    #[inline]
    fn worse_count(&self, rank: u32) -> usize {
        let better = self.near.iter().rev().take_while(|level| level.rank >= rank).count();
        self.near.len() - better
    }

    #[inline]
    fn insert(&mut self, at: usize, level: SideLevel) {
        if self.near.len() < NEAR_MAX { self.near.insert(at, level) } else { self.spill(at, level) }
    }

    /// Moves the worse half of the full array to the tree, and inserts a level.
    #[cold]
    fn spill(&mut self, at: usize, level: SideLevel) {
        self.far.extend(self.near.drain(..NEAR_MAX / 2).map(|level| (level.rank, level)));
        match at.checked_sub(NEAR_MAX / 2) {
            Some(at) => self.near.insert(at, level),
            None => drop(self.far.insert(level.rank, level)),
        }
    }

    /// Moves the best levels of the tree to the empty array.
    #[cold]
    fn refill(&mut self) {
        while self.near.len() < NEAR_MAX / 2
            && let Some((_, level)) = self.far.pop_last()
        {
            self.near.push(level);
        }
        self.near.reverse();
    }

    #[cold]
    fn take_far(&mut self, rank: u32, shares: u32, is_last: bool) {
        if let Some(level) = self.far.get_mut(&rank)
            && level.leave(shares, is_last)
        {
            self.far.remove(&rank);
        }
    }
}

impl SideLevel {
    #[inline]
    fn join(&mut self, other: &SideLevel) {
        self.order_count += other.order_count;
        self.shares += other.shares;
    }

    /// True if no order is left.
    #[inline]
    fn leave(&mut self, shares: u32, is_last: bool) -> bool {
        self.shares -= u64::from(shares);
        self.order_count -= u32::from(is_last);
        self.order_count == 0
    }
}
