//! One place of the trace ring: written by one recorder at a time, read by anybody at any time.

use super::sync::{AtomicU64, Ordering, fence};

/// Stamp of a slot that is being written; above that of any entry.
const WRITING: u64 = u64::MAX;

/// An entry: two words, and the stamp that says which it is.
pub(super) struct Slot {
    /// Number of the entry and one; 0 when there was none yet.
    pub(super) stamp: AtomicU64,
    pub(super) words: [AtomicU64; 2],
}

impl Slot {
    /// Writes entry `number`. False, with nothing done, when a later one is there, or another
    /// recorder is at it: one of the two was held up for a whole turn of the ring.
    pub(super) fn write(&self, number: u64, words: [u64; 2]) -> bool {
        let found = self.stamp.load(Ordering::Relaxed);
        // Acquire: what we write comes after what the last recorder wrote.
        let (taken, not_taken) = (Ordering::Acquire, Ordering::Relaxed);
        if found > number || self.stamp.compare_exchange(found, WRITING, taken, not_taken).is_err()
        {
            return false;
        }
        // A reader that sees one of the new words sees that the stamp is gone, or is another.
        fence(Ordering::Release);
        for (at, word) in self.words.iter().zip(words) {
            at.store(word, Ordering::Relaxed);
        }
        self.stamp.store(number + 1, Ordering::Release);
        true
    }

    /// Entry `number`, if it is there whole.
    pub(super) fn read(&self, number: u64) -> Option<[u64; 2]> {
        let is_there = || self.stamp.load(Ordering::Acquire) == number + 1;
        if !is_there() {
            return None;
        }
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        is_there().then_some(words)
    }
}
