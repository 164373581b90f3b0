//! The split virtqueue, one descriptor per buffer.
//!
//! Source: virtio 1.2, section 2.7.

use crate::ids::Ids;
use crate::ring::{Access, Completion, Published, need_event};
use crate::{DeviceFault, Memory};

/// Available ring flag: suppress interrupts.
pub const AVAIL_NO_INTERRUPT: u16 = 1;
/// Used ring flag: suppress doorbells.
pub const USED_NO_NOTIFY: u16 = 1;

/// Longest cache line that the parts of a queue are kept apart for.
const LINE_BYTES: usize = 64;

/// Offsets of the parts of a queue, from the start of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Descriptor table, 16 bytes each.
    pub descriptors: usize,
    /// Available ring: flags, index, ring, used_event.
    pub available: usize,
    /// Used ring: flags, index, ring of id and length, avail_event.
    pub used: usize,
    /// End of the queue.
    pub end: usize,
}

impl Layout {
    /// Lays out a queue of `size` descriptors from offset `base`, aligned to 16.
    ///
    /// Alignments are 16, 2 and 4 (2.7). What the driver writes and what the device writes share no cache line of up to
    /// 64 bytes, so that a machine without coherent caches can clean and invalidate them apart.
    pub const fn new(base: usize, size: u16) -> Layout {
        let size = size as usize;
        let descriptors = base.next_multiple_of(LINE_BYTES);
        let available = (descriptors + 16 * size).next_multiple_of(2);
        let used = (available + 6 + 2 * size).next_multiple_of(LINE_BYTES);
        let end = (used + 6 + 8 * size).next_multiple_of(LINE_BYTES);
        Layout { descriptors, available, used, end }
    }

    /// Offset of the available ring's flags.
    pub const fn avail_flags(&self) -> usize {
        self.available
    }
    /// Offset of the available index.
    pub const fn avail_index(&self) -> usize {
        self.available + 2
    }
    /// Offset of a slot of the available ring.
    pub const fn avail_slot(&self, slot: u16) -> usize {
        self.available + 4 + 2 * slot as usize
    }
    /// Offset of used_event, behind the available ring.
    pub const fn used_event(&self, size: u16) -> usize {
        self.avail_slot(size)
    }
    /// Offset of the used ring's flags.
    pub const fn used_flags(&self) -> usize {
        self.used
    }
    /// Offset of the used index.
    pub const fn used_index(&self) -> usize {
        self.used + 2
    }
    /// Offset of a slot of the used ring: id, then length.
    pub const fn used_slot(&self, slot: u16) -> usize {
        self.used + 4 + 8 * slot as usize
    }
    /// Offset of avail_event, behind the used ring.
    pub const fn avail_event(&self, size: u16) -> usize {
        self.used_slot(size)
    }
}

/// Driver side of a queue of at most `N` descriptors.
///
/// Descriptors come from a free list and return to it by the ids of the device: completions may be
/// in any order (2.7.9, 2.7.14). All indexes wrap as u16.
pub struct SplitQueue<const N: usize> {
    layout: Layout,
    event_idx: bool,
    ids: Ids<N>,
    /// Available index including posted buffers.
    available: u16,
    /// Available index shown to the device.
    published: u16,
    /// Used index up to which completions were taken.
    used: u16,
}

impl<const N: usize> SplitQueue<N> {
    /// Creates an empty queue of `size` descriptors, a power of two of at most `N`; clears its
    /// memory.
    ///
    /// The size is the negotiated one, which may be less than requested.
    pub fn new(memory: &impl Memory, layout: Layout, size: u16, event_idx: bool) -> Self {
        assert!(size.is_power_of_two(), "queue size {size}");
        for at in (layout.descriptors..layout.end).step_by(2) {
            memory.write16(at, 0);
        }
        let ids = Ids::new(size);
        SplitQueue { layout, event_idx, ids, available: 0, published: 0, used: 0 }
    }

    /// True if EVENT_IDX is in use.
    pub fn has_event_idx(&self) -> bool {
        self.event_idx
    }

    /// Number of descriptors.
    pub fn size(&self) -> u16 {
        self.ids.size()
    }

    /// Descriptors owned by the device.
    pub fn posted_count(&self) -> u16 {
        self.ids.posted_count()
    }

    /// Posts a buffer, visible to the device after [`publish`](Self::publish). Returns false without
    /// effect if the queue is full.
    #[must_use = "the caller keeps a buffer that was refused"]
    pub fn post(
        &mut self,
        memory: &impl Memory,
        token: u16,
        address: u64,
        len_bytes: u32,
        access: Access,
    ) -> bool {
        let Some(id) = self.ids.take(token) else { return false };
        let descriptor = self.layout.descriptors + 16 * usize::from(id);
        memory.write64(descriptor, address);
        memory.write32(descriptor + 8, len_bytes);
        memory.write16(descriptor + 12, access.flags());
        memory.write16(self.layout.avail_slot(self.slot(self.available)), id);
        self.available = self.available.wrapping_add(1);
        true
    }

    /// Publishes posted buffers, and returns the device's doorbell request.
    #[must_use = "without the doorbell, the device stays asleep"]
    pub fn publish(&mut self, memory: &impl Memory) -> Published {
        let old = self.published;
        if old == self.available {
            return Published::Nothing;
        }
        // Descriptors and slots before the index that announces them.
        memory.write_barrier();
        memory.write16(self.layout.avail_index(), self.available);
        self.published = self.available;
        // Write the index before reading the device's request: otherwise both sides could miss each
        // other.
        memory.full_barrier();
        Published::of(if self.event_idx {
            need_event(memory.read16(self.layout.avail_event(self.size())), self.published, old)
        } else {
            memory.read16(self.layout.used_flags()) & USED_NO_NOTIFY == 0
        })
    }

    /// True if a completion was not yet taken.
    pub fn has_used(&self, memory: &impl Memory) -> bool {
        memory.read16(self.layout.used_index()) != self.used
    }

    /// Takes the next completed buffer.
    pub fn take(&mut self, memory: &impl Memory) -> Option<Result<Completion, DeviceFault>> {
        let announced = memory.read16(self.layout.used_index()).wrapping_sub(self.used);
        if announced == 0 {
            return None;
        }
        let posted = self.posted_count();
        if announced > posted {
            return Some(Err(DeviceFault::Index { announced, posted }));
        }
        // The element is not older than the index that announced it.
        memory.read_barrier();
        let slot = self.layout.used_slot(self.slot(self.used));
        let id = memory.read32(slot);
        let len_bytes = memory.read32(slot + 4);
        self.used = self.used.wrapping_add(1);
        let Some(token) = self.ids.give(id) else {
            return Some(Err(DeviceFault::Id { id }));
        };
        Some(Ok(Completion { token, len_bytes }))
    }

    /// Asks the device not to interrupt for this queue. A hint: it may interrupt anyway.
    pub fn disable_interrupts(&self, memory: &impl Memory) {
        if self.event_idx {
            // Flags must be 0 with EVENT_IDX (2.7.7.1); use an event as far behind as possible instead.
            let far = self.used.wrapping_sub(1);
            memory.write16(self.layout.used_event(self.size()), far);
        } else {
            memory.write16(self.layout.avail_flags(), AVAIL_NO_INTERRUPT);
        }
    }

    /// Requests an interrupt for the next completion. Returns true if there already is one, which may
    /// raise no interrupt: take it, then request again.
    #[must_use = "an earlier completion raises no interrupt"]
    pub fn enable_interrupts(&self, memory: &impl Memory) -> bool {
        if self.event_idx {
            memory.write16(self.layout.used_event(self.size()), self.used);
        } else {
            memory.write16(self.layout.avail_flags(), 0);
        }
        memory.full_barrier();
        self.has_used(memory)
    }

    fn slot(&self, index: u16) -> u16 {
        index & (self.size() - 1)
    }
}
