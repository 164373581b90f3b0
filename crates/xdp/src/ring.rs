//! The four rings of an AF_XDP socket: single producer, single consumer, one side in user space,
//! the other in the kernel.
//!
//! Each side keeps its own index as a plain number and publishes it. It reads the other side's
//! index only if the last value seen does not suffice, so that the cache line moves between CPUs
//! once a batch and not once a frame.
//!
//! Source: kernel documentation, networking/af_xdp.rst, "Rings"; include/uapi/linux/if_xdp.h.

use std::ptr::NonNull;
use std::sync::Arc;

use super::sync::{AtomicU32, Cell, OBSERVE, Ordering, PUBLISH};
use crate::mmap::Mapping;

/// Byte offsets of the parts of a ring in its mapping.
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
    slots: NonNull<Cell<T>>,
    mask: u32,
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping that the ring keeps alive, which any thread may use.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// # Panics
    /// If `size` is not a power of two or the layout does not fit the mapping.
    fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        assert!(size.is_power_of_two(), "ring size must be a power of two");
        let index = |offset| {
            let at = mapping.at(offset, size_of::<AtomicU32>()).cast::<AtomicU32>();
            assert!(at.is_aligned(), "ring index is not aligned");
            at
        };
        let slots = mapping.at(layout.slots, size as usize * size_of::<Cell<T>>()).cast();
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

    fn slot(&self, index: u32) -> &Cell<T> {
        // SAFETY: the masked index is below the size, for which `new` checked the room.
        let at = unsafe { self.slots.add((index & self.mask) as usize) };
        // SAFETY: as for `producer`.
        unsafe { at.as_ref() }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }
}

/// Producer side: the user-space end of the fill and TX rings.
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
        // Acquire: the consumer has read the slots before it released them.
        self.seen = self.ring.consumer().load(OBSERVE);
    }

    fn used(&self) -> u32 {
        // The consumer's index is not trusted: one ahead of the producer counts as a full ring.
        let used = self.own.wrapping_sub(self.seen);
        used.min(self.ring.size())
    }

    /// Free slots; reads the consumer's index only if fewer than `want` are known.
    pub(crate) fn room(&mut self, want: u32) -> u32 {
        if self.ring.size() - self.used() < want {
            self.refresh();
        }
        self.ring.size() - self.used()
    }

    /// Writes the next entry, visible to the consumer after [`publish`](Self::publish).
    ///
    /// Errors: the entry, if the ring is full.
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
        self.ring.producer().store(self.own, PUBLISH);
    }

    /// Entries that the consumer has not taken yet.
    pub(crate) fn outstanding(&mut self) -> u32 {
        self.refresh();
        self.used()
    }

    /// Overwrites all entries that the consumer has not taken yet. Returns how many; one that the consumer
    /// takes at this moment may keep its old value.
    pub(crate) fn overwrite(&mut self, entry: T) -> u32 {
        let count = self.outstanding();
        for back in 1..=count {
            let slot = self.ring.slot(self.own.wrapping_sub(back));
            // SAFETY: an aligned slot inside the mapping. The kernel may read it at the same time: it copies
            // the entry by one load and checks it.
            unsafe { slot.write(entry) };
        }
        self.outstanding().min(count)
    }

    /// True if the kernel needs a notification before it polls this ring again.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.flags() & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Consumer side: the user-space end of the RX and completion rings.
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

    /// Entries ready to take, at most the ring's size; reads the producer's index only if fewer than
    /// `want` are known.
    pub(crate) fn ready(&mut self, want: u32) -> u32 {
        if self.seen.wrapping_sub(self.own) < want {
            // Acquire: the entries are read after the index that covers them.
            self.seen = self.ring.producer().load(OBSERVE);
        }
        // The producer's index is not trusted: never more entries than the ring can hold.
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

    /// Releases the slots of all taken entries to the producer.
    pub(crate) fn release(&mut self) {
        // Release: the entries were read before the producer may overwrite them.
        self.ring.consumer().store(self.own, PUBLISH);
    }
}
