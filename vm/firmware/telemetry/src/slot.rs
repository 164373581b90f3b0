//! One slot of the trace ring: one writer at a time, readers at any time.

use super::sync::{AtomicU64, Ordering, fence};

/// Stamp of a slot that is being written; greater than that of any entry.
const WRITING: u64 = u64::MAX;

/// An entry: two words, and a stamp that identifies it.
pub(super) struct Slot {
    /// Number of the entry plus one; 0 if the slot was never written.
    pub(super) stamp: AtomicU64,
    pub(super) words: [AtomicU64; 2],
}

impl Slot {
    /// Writes entry `number`. Returns false and does nothing if the slot holds a later entry or
    /// another recorder is writing it: one of the two was delayed by a whole lap of the ring.
    pub(super) fn write(&self, number: u64, words: [u64; 2]) -> bool {
        let found = self.stamp.load(Ordering::Relaxed);
        // Acquire: our writes come after those of the last recorder.
        let (taken, not_taken) = (Ordering::Acquire, Ordering::Relaxed);
        if found > number || self.stamp.compare_exchange(found, WRITING, taken, not_taken).is_err()
        {
            return false;
        }
        // A reader that sees one of the new words also sees a changed stamp.
        fence(Ordering::Release);
        for (at, word) in self.words.iter().zip(words) {
            at.store(word, Ordering::Relaxed);
        }
        self.stamp.store(number + 1, Ordering::Release);
        true
    }

    /// Reads entry `number`; `None` if the slot does not hold it completely.
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
