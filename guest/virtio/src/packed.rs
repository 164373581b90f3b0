//! The packed virtqueue, one ring slot a buffer.
//!
//! One ring holds what was made available and what was used: the device writes its answer over
//! the descriptor, at the next slot in the order in which it finishes. Two bits of the flags and a
//! wrap counter on each side tell which is which.
//!
//! Source: virtio 1.2, section 2.8.

use crate::ids::Ids;
use crate::ring::{Access, Completion, Published, need_event};
use crate::{DeviceFault, Memory};

/// Descriptor flag: made available in a turn of the ring in which this bit equals the counter.
pub const DESC_AVAIL: u16 = 1 << 7;
/// Descriptor flag: used, if it equals the other.
pub const DESC_USED: u16 = 1 << 15;
/// Event suppression: tell me of everything.
pub const EVENT_ENABLE: u16 = 0;
/// Event suppression: tell me of nothing.
pub const EVENT_DISABLE: u16 = 1;
/// Event suppression: tell me when that slot is reached; with VIRTIO_F_EVENT_IDX only.
pub const EVENT_DESC: u16 = 2;

/// Where the parts of a queue lie, from the start of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Descriptor ring, 16 bytes each: address, length, id, flags.
    pub descriptors: usize,
    /// What the driver wants to be told: slot and wrap counter, flags.
    pub driver: usize,
    /// What the device wants to be told.
    pub device: usize,
    /// First byte after it all.
    pub end: usize,
}

impl Layout {
    /// Lays a queue of `size` descriptors out from offset `base`; alignments are 16, 4 and 4
    /// (2.8, Structure Size and Alignment).
    pub const fn new(base: usize, size: u16) -> Layout {
        let descriptors = base.next_multiple_of(16);
        let driver = descriptors + 16 * size as usize;
        Layout { descriptors, driver, device: driver + 4, end: driver + 8 }
    }

    /// Offset of a descriptor: address.
    pub const fn descriptor(&self, slot: u16) -> usize {
        self.descriptors + 16 * slot as usize
    }
    /// Offset of a descriptor's length.
    pub const fn len(&self, slot: u16) -> usize {
        self.descriptor(slot) + 8
    }
    /// Offset of a descriptor's id.
    pub const fn id(&self, slot: u16) -> usize {
        self.descriptor(slot) + 12
    }
    /// Offset of a descriptor's flags.
    pub const fn flags(&self, slot: u16) -> usize {
        self.descriptor(slot) + 14
    }
}

/// A place in the ring, with the counter that changes at each wrap (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Slot.
    pub slot: u16,
    /// Wrap counter; true at first.
    pub wrap: bool,
}

impl Position {
    /// Where both sides start.
    pub const START: Position = Position { slot: 0, wrap: true };

    /// The next one, in a ring of any size.
    #[must_use]
    pub const fn next(self, size: u16) -> Position {
        match self.slot + 1 == size {
            true => Position { slot: 0, wrap: !self.wrap },
            false => Position { slot: self.slot + 1, wrap: self.wrap },
        }
    }

    /// Flags of a descriptor that is made available here.
    pub const fn available(self) -> u16 {
        if self.wrap { DESC_AVAIL } else { DESC_USED }
    }

    /// Flags of a descriptor that is used here.
    pub const fn used(self) -> u16 {
        if self.wrap { DESC_AVAIL | DESC_USED } else { 0 }
    }

    /// Whether flags say that the descriptor here is available.
    pub const fn is_available(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.available()
    }

    /// Whether flags say that the descriptor here was used.
    pub const fn is_used(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.used()
    }

    /// As in event suppression: the counter in bit 15.
    pub const fn word(self) -> u16 {
        self.slot | (self.wrap as u16) << 15
    }
}

/// Whether a side that has gone on by `by` slots and stands at `now` passed the place that the
/// other named: slot and wrap counter as in [`Position::word`].
///
/// A place of the turn before lies `size` slots back. Any word is allowed: one that is no place
/// gives some answer.
pub const fn passed(word: u16, now: Position, by: u16, size: u16) -> bool {
    let mut event = word & 0x7fff;
    if (word >> 15 != 0) != now.wrap {
        event = event.wrapping_sub(size);
    }
    need_event(event, now.slot, now.slot.wrapping_sub(by))
}

/// Driver's end of a packed queue of at most `N` descriptors.
pub struct PackedQueue<const N: usize> {
    layout: Layout,
    event_idx: bool,
    ids: Ids<N>,
    /// Where the next buffer goes.
    available: Position,
    /// Flags yet to be written to the first buffer that the device was not shown.
    head: Option<(u16, u16)>,
    /// Buffers that it was not shown.
    unshown_count: u16,
    /// Where the next used element is awaited.
    used: Position,
}

impl<const N: usize> PackedQueue<N> {
    /// An empty queue of `size` descriptors, at most `N`, no power of two needed; its memory is
    /// cleared.
    pub fn new(memory: &impl Memory, layout: Layout, size: u16, event_idx: bool) -> Self {
        for at in (layout.descriptors..layout.end).step_by(2) {
            memory.write16(at, 0);
        }
        let start = Position::START;
        PackedQueue {
            layout,
            event_idx,
            ids: Ids::new(size),
            available: start,
            head: None,
            unshown_count: 0,
            used: start,
        }
    }

    /// Number of descriptors.
    pub fn size(&self) -> u16 {
        self.ids.size()
    }

    /// Descriptors that the device has.
    pub fn posted_count(&self) -> u16 {
        self.ids.posted_count()
    }

    /// Hands a buffer to the device, which sees it after [`publish`](Self::publish). Returns
    /// false, having done nothing, when the queue is full.
    #[must_use = "a buffer that was refused is still ours"]
    pub fn post(
        &mut self,
        memory: &impl Memory,
        token: u16,
        address: u64,
        len_bytes: u32,
        access: Access,
    ) -> bool {
        let Some(id) = self.ids.take(token) else { return false };
        let Position { slot, .. } = self.available;
        memory.write64(self.layout.descriptor(slot), address);
        memory.write32(self.layout.len(slot), len_bytes);
        memory.write16(self.layout.id(slot), id);
        let flags = access.flags() | self.available.available();
        // The device stops at the first slot that is not available. So the flags of all but the
        // first may be written now; those of the first show it the whole batch.
        match self.head {
            None => self.head = Some((slot, flags)),
            Some(_) => memory.write16(self.layout.flags(slot), flags),
        }
        self.unshown_count += 1;
        self.available = self.available.next(self.size());
        true
    }

    /// Shows the device what was posted since, and says whether it wants the doorbell rung.
    #[must_use = "without the doorbell, the device sleeps on"]
    pub fn publish(&mut self, memory: &impl Memory) -> Published {
        let Some((slot, flags)) = self.head.take() else { return Published::Nothing };
        // Everything else before the flags that make it valid.
        memory.write_barrier();
        memory.write16(self.layout.flags(slot), flags);
        let by = core::mem::take(&mut self.unshown_count);
        // The flags before the device's wish is read: else both sides could miss each other.
        memory.full_barrier();
        // One read, so that place and flags belong together.
        let wish = memory.read32(self.layout.device);
        let wanted = match (wish >> 16) as u16 & 3 {
            EVENT_DISABLE => false,
            EVENT_DESC if self.event_idx => {
                passed(wish as u16, self.available, by, self.size())
                    || self.is_behind(memory, wish as u16)
            }
            // Everything; or what it must not say, in which case once too often does no harm.
            _ => true,
        };
        Published::of(wanted)
    }

    /// Whether the device has gone past the place that it named and has named no other: it would
    /// sleep with what was posted now, until the ring is full and for good.
    ///
    /// QEMU's card does, 7.2 for one: when a frame has left that its wire refused at
    /// first, it names a place, sends all there is, and goes to sleep (`virtio_net_tx_complete`).
    /// A frame made available just before the place could be read rang no doorbell.
    fn is_behind(&self, memory: &impl Memory, word: u16) -> bool {
        let place = Position { slot: word & 0x7fff, wrap: word >> 15 != 0 };
        if place.slot >= self.size() {
            return true;
        }
        let size = u32::from(self.size());
        let count = |at: Position| u32::from(at.slot) + if at.wrap { 0 } else { size };
        let ahead = (count(place) + 2 * size - count(self.used)) % (2 * size);
        if ahead >= u32::from(self.posted_count()) {
            // Before all that is under way, or a whole turn away: it came back already. Else it
            // is yet to come, and the device wants a batch.
            return ahead >= size;
        }
        // Under way, as far as we know. Is the slot not used yet, then what was published before
        // this look is seen by the device before it looks for more.
        place.is_used(memory.read16(self.layout.flags(place.slot)))
    }

    /// Whether the device has finished with something that was not taken yet.
    pub fn has_used(&self, memory: &impl Memory) -> bool {
        self.used.is_used(memory.read16(self.layout.flags(self.used.slot)))
    }

    /// Takes back the next buffer that the device has finished with.
    pub fn take(&mut self, memory: &impl Memory) -> Option<Result<Completion, DeviceFault>> {
        if !self.has_used(memory) {
            return None;
        }
        if self.posted_count() == self.unshown_count {
            return Some(Err(DeviceFault::Index { announced: 1, posted: 0 }));
        }
        // The element is not older than the flags that announced it.
        memory.read_barrier();
        let id = memory.read16(self.layout.id(self.used.slot));
        let len_bytes = memory.read32(self.layout.len(self.used.slot));
        let Some(token) = self.ids.give(id.into()) else {
            // The id tells how many slots on the next element is. With a wrong one, nobody knows.
            return Some(Err(DeviceFault::Place { id }));
        };
        self.used = self.used.next(self.size());
        Some(Ok(Completion { token, len_bytes }))
    }

    /// Asks the device not to interrupt for this queue. A wish: it may interrupt all the same.
    pub fn disable_interrupts(&self, memory: &impl Memory) {
        // Allowed with EVENT_IDX too, unlike in a split ring.
        memory.write32(self.layout.driver, u32::from(EVENT_DISABLE) << 16);
    }

    /// Asks for an interrupt at the next completion. Returns true when there is one already, for
    /// which none may come any more: take it, then arm again.
    #[must_use = "a completion from before is announced by no interrupt"]
    pub fn enable_interrupts(&self, memory: &impl Memory) -> bool {
        let wish = match self.event_idx {
            true => u32::from(EVENT_DESC) << 16 | u32::from(self.used.word()),
            false => u32::from(EVENT_ENABLE) << 16,
        };
        // One write, so that place and flags belong together.
        memory.write32(self.layout.driver, wish);
        memory.full_barrier();
        self.has_used(memory)
    }
}
