//! The four rings of an AF_XDP socket: single producer, single consumer, one side ours and
//! the other the kernel's.
//!
//! Each side keeps its own index as a plain number and publishes it; the other side's index
//! is read only when the last value seen does not suffice, so that the cache line moves
//! between CPUs once a batch and not once a frame.
//!
//! Source: kernel documentation, networking/af_xdp.rst, "Rings"; include/uapi/linux/if_xdp.h.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mmap::Mapping;

/// Where the parts of a ring lie in its mapping, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) slots: usize,
}

#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping that the ring keeps alive, which any thread may use.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// # Panics
    /// When `size` is not a power of two or the layout does not fit the mapping.
    fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        assert!(size.is_power_of_two(), "ring size must be a power of two");
        let index = |offset| {
            let at = mapping.at(offset, size_of::<AtomicU32>()).cast::<AtomicU32>();
            assert!(at.is_aligned(), "ring index is not aligned");
            at
        };
        let slots = mapping.at(layout.slots, size as usize * size_of::<T>()).cast::<T>();
        assert!(slots.is_aligned(), "ring slots are not aligned");
        Ring {
            producer: index(layout.producer),
            consumer: index(layout.consumer),
            flags: index(layout.flags),
            slots,
            mask: size - 1,
            _mapping: mapping,
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: checked in `new` to lie aligned within the mapping, which lives as long as self.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> u32 {
        // SAFETY: as for `producer`.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed)
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below the size, for which `new` checked the room.
        unsafe { self.slots.add((index & self.mask) as usize) }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }
}

/// The side that puts entries in: our end of the fill and TX rings.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    own: u32,
    seen: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        let ring = Ring::new(mapping, layout, size);
        let own = ring.producer().load(Ordering::Relaxed);
        Producer { own, seen: own, ring }.refreshed()
    }

    fn refreshed(mut self) -> Self {
        self.refresh();
        self
    }

    fn refresh(&mut self) {
        // Acquire: the consumer has read the slots before it released them to us.
        self.seen = self.ring.consumer().load(Ordering::Acquire);
    }

    fn used(&self) -> u32 {
        // The consumer's index is not ours to trust: one that runs ahead of us counts as full.
        let used = self.own.wrapping_sub(self.seen);
        used.min(self.ring.size())
    }

    /// Free slots; looks at the consumer's index only when fewer than `want` are known.
    pub(crate) fn room(&mut self, want: u32) -> u32 {
        if self.ring.size() - self.used() < want {
            self.refresh();
        }
        self.ring.size() - self.used()
    }

    /// Writes the next entry; not visible to the consumer before [`publish`](Self::publish).
    /// Gives it back when the ring is full.
    pub(crate) fn push(&mut self, entry: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(entry);
        }
        let slot = self.ring.slot(self.own);
        // SAFETY: the slot is free, so the consumer does not read it before `publish`.
        unsafe { slot.write(entry) };
        self.own = self.own.wrapping_add(1);
        Ok(())
    }

    /// Makes all pushed entries visible.
    pub(crate) fn publish(&mut self) {
        // Release: the entries are written before the index that covers them.
        self.ring.producer().store(self.own, Ordering::Release);
    }

    /// Entries that the consumer has not taken yet.
    pub(crate) fn outstanding(&mut self) -> u32 {
        self.refresh();
        self.used()
    }

    /// Whether the kernel asked to be woken before it looks at this ring again.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.flags() & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The side that takes entries out: our end of the RX and completion rings.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    own: u32,
    seen: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        let ring = Ring::new(mapping, layout, size);
        let own = ring.consumer().load(Ordering::Relaxed);
        Consumer { own, seen: own, ring }
    }

    /// Entries ready to take, at most the ring's size; looks at the producer's index only
    /// when fewer than `want` are known.
    pub(crate) fn ready(&mut self, want: u32) -> u32 {
        if self.seen.wrapping_sub(self.own) < want {
            // Acquire: the entries are read after the index that covers them.
            self.seen = self.ring.producer().load(Ordering::Acquire);
        }
        // The producer's index is not ours to trust: never more than the ring can hold.
        self.seen.wrapping_sub(self.own).min(self.ring.size())
    }

    /// Takes the next entry, if one is ready.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.ready(1) == 0 {
            return None;
        }
        let slot = self.ring.slot(self.own);
        // SAFETY: the producer published this slot and does not write it again before `release`.
        let entry = unsafe { slot.read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of all taken entries back to the producer.
    pub(crate) fn release(&mut self) {
        // Release: the entries were read before the producer may write over them.
        self.ring.consumer().store(self.own, Ordering::Release);
    }
}

/// Two ends of one ring over plain memory, both ours: for tests and for benchmarks.
#[cfg(any(test, feature = "bench"))]
pub(crate) fn plain<T: Copy>(size: u32, start: u32) -> (Producer<T>, Consumer<T>) {
    let layout = Layout { producer: 0, consumer: 64, flags: 128, slots: 192 };
    let len_bytes = layout.slots + size as usize * size_of::<T>();
    let mapping = Arc::new(Mapping::anonymous(len_bytes).expect("memory for a ring"));
    let ring = Ring::<T>::new(mapping.clone(), layout, size);
    ring.producer().store(start, Ordering::Relaxed);
    ring.consumer().store(start, Ordering::Relaxed);
    (Producer::new(mapping.clone(), layout, size), Consumer::new(mapping, layout, size))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn full_ring_gives_the_entry_back() {
        let (mut producer, mut consumer) = plain::<u64>(4, 0);
        for n in 0..4 {
            producer.push(n).unwrap();
        }
        assert_eq!(producer.push(9), Err(9));
        producer.publish();
        assert_eq!(consumer.take(), Some(0));
        assert_eq!(producer.push(9), Err(9), "taken but not released yet");
        consumer.release();
        assert_eq!(producer.push(9), Ok(()));
    }

    #[test]
    fn nothing_is_seen_before_it_is_published() {
        let (mut producer, mut consumer) = plain::<u64>(4, 0);
        producer.push(1).unwrap();
        assert_eq!(consumer.take(), None);
        producer.publish();
        assert_eq!(consumer.take(), Some(1));
    }

    #[test]
    fn an_index_that_runs_ahead_never_yields_more_than_the_ring_holds() {
        let (producer, mut consumer) = plain::<u64>(8, 0);
        producer.ring.producer().store(1_000_000, Ordering::Release);
        assert_eq!(consumer.ready(64), 8);
        let (mut producer, consumer) = plain::<u64>(8, 0);
        consumer.ring.consumer().store(77, Ordering::Release);
        assert_eq!(producer.room(9), 0, "the consumer cannot be ahead of us");
    }

    #[test]
    fn two_threads_pass_every_entry_in_order() {
        let (mut producer, mut consumer) = plain::<u64>(64, u32::MAX - 500);
        let sender = std::thread::spawn(move || {
            for n in 0..200_000u64 {
                while producer.push(n).is_err() {
                    producer.publish();
                    std::thread::yield_now();
                }
                if n % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let mut expected = 0;
        while expected < 200_000 {
            match consumer.take() {
                Some(n) => {
                    assert_eq!(n, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
            consumer.release();
        }
        sender.join().unwrap();
    }

    proptest! {
        /// Any mix of pushes, publications, takes and releases behaves like a bounded queue,
        /// from any starting index, across the wrap.
        #[test]
        fn a_ring_behaves_like_a_bounded_queue(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec(0u8..4, 1..400),
        ) {
            let (mut producer, mut consumer) = plain::<u64>(8, start);
            let (mut pushed, mut visible, mut held) = (VecDeque::new(), VecDeque::new(), 0usize);
            for (n, step) in steps.into_iter().enumerate() {
                let n = n as u64;
                match step {
                    0 => {
                        let full = pushed.len() + visible.len() + held == 8;
                        prop_assert_eq!(producer.push(n).is_err(), full);
                        if !full {
                            pushed.push_back(n);
                        }
                    }
                    1 => {
                        producer.publish();
                        visible.append(&mut pushed);
                    }
                    2 => {
                        let got = consumer.take();
                        held += usize::from(got.is_some());
                        prop_assert_eq!(got, visible.pop_front());
                    }
                    _ => {
                        consumer.release();
                        held = 0;
                    }
                }
            }
        }
    }
}
