//! Price levels of one side of a book.

use std::collections::BTreeMap;

/// Levels next to the touch that are kept in an array: with it a side is four cache lines.
const NEAR_MAX: usize = 14;

/// All orders of one price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SideLevel {
    /// The price, higher the better it is; see [`super::order_table::rank`].
    pub(super) rank: u32,
    pub(super) order_count: u32,
    pub(super) shares: u64,
}

/// Levels of one side.
///
/// The best ones are in a short array, the best first: where almost all messages are, a level is found and moved in a
/// cache line or two, whose address is known before anything of the side is read. The others are in a tree, so that a
/// level far from the touch takes logarithmic time, however many there are. Half an array moves at once between the two.
///
/// Invariants: all levels of the array are better than those of the tree, and the array is empty only if the tree is.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Side {
    far: BTreeMap<u32, SideLevel>,
    near_count: usize,
    near: [SideLevel; NEAR_MAX],
}

const _: () = assert!(size_of::<Side>() == 4 * 64);

impl Side {
    /// Number of levels.
    pub(super) fn level_count(&self) -> usize {
        self.near_count + self.far.len()
    }

    /// Levels, the best first.
    pub(super) fn levels(&self) -> impl Iterator<Item = &SideLevel> {
        self.near().iter().chain(self.far.values().rev())
    }

    /// The best level.
    #[inline]
    pub(super) fn best(&self) -> Option<&SideLevel> {
        self.near().first()
    }

    /// Begins to fetch the best levels into the near cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        sys::cache::prefetch(&self.far);
        sys::cache::prefetch(&self.near[3]);
    }

    /// Adds an order.
    #[inline]
    pub(super) fn add(&mut self, rank: u32, shares: u32) {
        let new = SideLevel { rank, order_count: 1, shares: shares.into() };
        let at = self.better_count(rank);
        let is_far = at == self.near_count && (self.near_count == NEAR_MAX || !self.far.is_empty());
        match self.near_mut().get_mut(at) {
            Some(level) if level.rank == rank => level.join(&new),
            _ if is_far => {
                self.far.entry(rank).and_modify(|level| level.join(&new)).or_insert(new);
            }
            _ => self.insert(at, new),
        }
    }

    /// Takes shares from an order, and the order too if `is_last`.
    #[inline]
    pub(super) fn take(&mut self, rank: u32, shares: u32, is_last: bool) {
        let at = self.better_count(rank);
        match self.near_mut().get_mut(at).filter(|level| level.rank == rank) {
            Some(level) => {
                if level.leave(shares, is_last) {
                    self.remove(at);
                }
            }
            None => self.take_far(rank, shares, is_last),
        }
    }

    #[inline]
    fn near(&self) -> &[SideLevel] {
        self.near.get(..self.near_count).unwrap_or_default()
    }

    #[inline]
    fn near_mut(&mut self) -> &mut [SideLevel] {
        self.near.get_mut(..self.near_count).unwrap_or_default()
    }

    /// Number of levels of the array that are better than a price: the place of its level.
    #[inline]
    fn better_count(&self, rank: u32) -> usize {
        self.near().iter().take_while(|level| level.rank > rank).count()
    }

    #[inline]
    fn insert(&mut self, at: usize, level: SideLevel) {
        if self.near_count == NEAR_MAX {
            return self.spill(at, level);
        }
        self.near.copy_within(at..self.near_count, at + 1);
        self.near[at] = level;
        self.near_count += 1;
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        self.near.copy_within(at + 1..self.near_count, at);
        self.near_count -= 1;
        if self.near_count == 0 {
            self.refill();
        }
    }

    /// Moves the worse half of the full array to the tree, and inserts a level.
    #[cold]
    fn spill(&mut self, at: usize, level: SideLevel) {
        self.near_count = NEAR_MAX / 2;
        self.far.extend(self.near[NEAR_MAX / 2..].iter().map(|level| (level.rank, *level)));
        if at <= NEAR_MAX / 2 {
            self.insert(at, level);
        } else {
            self.far.insert(level.rank, level);
        }
    }

    /// Moves the best levels of the tree to the empty array.
    #[cold]
    fn refill(&mut self) {
        while self.near_count < NEAR_MAX / 2
            && let Some((_, level)) = self.far.pop_last()
        {
            self.near[self.near_count] = level;
            self.near_count += 1;
        }
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
