//! Live orders by reference.

use std::hash::{BuildHasher, RandomState};

use market::itch::BookSide;

/// Slots of an empty table.
pub(super) const SLOTS_MIN: usize = 1024;
/// Odd, with half of its bits set: 2^64 over the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A live order: half a cache line, so that it is never in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(32))]
pub(super) struct LiveOrder {
    pub(super) reference: u64,
    /// Index of its book.
    pub(super) book: u32,
    /// Its price; see [`rank`].
    pub(super) rank: u32,
    /// Never 0: that is a free slot.
    pub(super) shares: u32,
    pub(super) side: BookSide,
}

const FREE: LiveOrder =
    LiveOrder { reference: 0, book: 0, rank: 0, shares: 0, side: BookSide::Buy };

const _: () = assert!(size_of::<LiveOrder>() == 32);

/// A price as a number that is higher the better it is for its side; its own inverse.
#[inline]
pub(super) const fn rank(side: BookSide, price: u32) -> u32 {
    match side {
        BookSide::Buy => price,
        BookSide::Sell => !price,
    }
}

/// Orders by reference, in time that does not depend on their number.
///
/// Open addressing with linear probing, at most half full. The hash has a secret, so that a sender cannot choose
/// references that collide. The table doubles when it is half full; it never shrinks.
#[derive(Debug)]
pub(super) struct OrderTable {
    slots: Box<[LiveOrder]>,
    shift: u32,
    len: usize,
    secret: u64,
}

impl OrderTable {
    pub(super) fn new() -> Self {
        let secret = RandomState::new().hash_one(MULTIPLIER);
        OrderTable { slots: free_slots(SLOTS_MIN), shift: shift(SLOTS_MIN), len: 0, secret }
    }

    /// Orders in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Its size, used or not.
    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// True if the next order doubles the table.
    #[inline]
    pub(super) fn is_half_full(&self) -> bool {
        self.len * 2 >= self.slots.len()
    }

    /// Doubles the table.
    #[cold]
    pub(super) fn grow(&mut self) {
        let slot_count = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, free_slots(slot_count));
        self.shift = shift(slot_count);
        for order in old.iter().filter(|order| order.shares > 0) {
            if let Err(free) = self.find(order.reference) {
                self.slots[free] = *order;
            }
        }
    }

    /// First slot to search.
    #[inline]
    fn home(&self, reference: u64) -> usize {
        let product = u128::from(reference ^ self.secret) * u128::from(MULTIPLIER);
        let folded = product as u64 ^ (product >> 64) as u64;
        (folded >> self.shift) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Begins to fetch the slot of an order into the near cache.
    #[inline]
    pub(super) fn prefetch(&self, reference: u64) {
        sys::cache::prefetch(&self.slots[self.home(reference)]);
    }

    /// Slot of an order.
    ///
    /// Errors: the slot that is free for it.
    #[inline]
    pub(super) fn find(&self, reference: u64) -> Result<usize, usize> {
        let mut slot = self.home(reference);
        loop {
            let order = &self.slots[slot];
            if order.shares == 0 {
                return Err(slot);
            }
            if order.reference == reference {
                return Ok(slot);
            }
            slot = self.next(slot);
        }
    }

    /// Order in a slot from [`OrderTable::find`].
    #[inline]
    pub(super) fn order(&mut self, slot: usize) -> &mut LiveOrder {
        &mut self.slots[slot]
    }

    /// Enters an order into the slot that is free for it.
    #[inline]
    pub(super) fn enter(&mut self, free: usize, order: LiveOrder) {
        self.slots[free] = order;
        self.len += 1;
    }

    /// Removes the order of a slot, and moves up those that were displaced by it.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) {
        let last = self.slots.len() - 1;
        let (mut hole, mut at) = (slot, slot);
        loop {
            at = self.next(at);
            let order = self.slots[at];
            if order.shares == 0 {
                break;
            }
            let from_home = at.wrapping_sub(self.home(order.reference)) & last;
            if from_home >= at.wrapping_sub(hole) & last {
                self.slots[hole] = order;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.len -= 1;
    }
}

fn free_slots(count: usize) -> Box<[LiveOrder]> {
    let mut slots = Vec::with_capacity(count);
    sys::cache::prefer_huge_pages(slots.spare_capacity_mut());
    slots.resize(count, FREE);
    slots.into_boxed_slice()
}

const fn shift(slot_count: usize) -> u32 {
    u64::BITS - slot_count.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use model::Random;

    use super::*;

    fn order(reference: u64, shares: u32) -> LiveOrder {
        LiveOrder { reference, book: 1, rank: 2, shares, side: BookSide::Sell }
    }

    #[test]
    fn orders_are_found_after_others_were_removed_and_the_table_has_grown() {
        let (mut table, mut model) = (OrderTable::new(), HashMap::new());
        let mut random = Random::new(5, 1);
        for step in 0..200_000_u32 {
            // Few references, so that many are removed; powers of two, which a weak hash collides.
            let reference = random.below(6000) << (step % 40);
            match table.find(reference) {
                Ok(slot) => {
                    assert_eq!(Some(&table.order(slot).shares), model.get(&reference));
                    table.remove(slot);
                    model.remove(&reference);
                }
                Err(_) => {
                    assert!(!model.contains_key(&reference));
                    if table.is_half_full() {
                        table.grow();
                    }
                    let free = table.find(reference).expect_err("it is new");
                    table.enter(free, order(reference, step + 1));
                    model.insert(reference, step + 1);
                }
            }
            assert_eq!(table.len(), model.len());
        }
        assert!(table.slot_count() > SLOTS_MIN, "{} orders", model.len());
        for (reference, shares) in model {
            let slot = table.find(reference).expect("it is there");
            assert_eq!(*table.order(slot), order(reference, shares));
        }
    }
}
