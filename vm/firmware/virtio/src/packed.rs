//! The packed virtqueue, one ring slot per buffer.
//!
//! One ring holds available and used elements: the device overwrites descriptors with its
//! answers, at the next slot in order of completion. Two flag bits and a wrap counter on each side
//! distinguish the two.
//!
//! Source: virtio 1.2, section 2.8.

use crate::ids::Ids;
use crate::ring::{Access, Completion, Published, need_event};
use crate::{DeviceFault, Memory};

/// Descriptor flag: made available in a lap of the ring in which this bit equals the counter.
pub const DESC_AVAIL: u16 = 1 << 7;
/// Descriptor flag: used, if it equals the other.
pub const DESC_USED: u16 = 1 << 15;
/// Event suppression: notify always.
pub const EVENT_ENABLE: u16 = 0;
/// Event suppression: never notify.
pub const EVENT_DISABLE: u16 = 1;
/// Event suppression: notify when the given slot is reached; with VIRTIO_F_EVENT_IDX only.
pub const EVENT_DESC: u16 = 2;

/// Offsets of the parts of a queue, from the start of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Descriptor ring, 16 bytes each: address, length, id, flags.
    pub descriptors: usize,
    /// Driver event suppression: slot and wrap counter, flags.
    pub driver: usize,
    /// Device event suppression.
    pub device: usize,
    /// End of the queue.
    pub end: usize,
}

impl Layout {
    /// Lays out a queue of `size` descriptors from offset `base`; alignments are 16, 4 and 4
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

/// A position in the ring, with the counter that changes at each wrap (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub slot: u16,
    /// Wrap counter; initially true.
    pub wrap: bool,
}

impl Position {
    /// Initial position of both sides.
    pub const START: Position = Position { slot: 0, wrap: true };

    /// The next position, in a ring of any size.
    #[must_use]
    pub const fn next(self, size: u16) -> Position {
        if self.slot + 1 == size {
            Position { slot: 0, wrap: !self.wrap }
        } else {
            Position { slot: self.slot + 1, wrap: self.wrap }
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

    /// True if `flags` mark the descriptor here as available.
    pub const fn is_available(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.available()
    }

    /// True if `flags` mark the descriptor here as used.
    pub const fn is_used(self, flags: u16) -> bool {
        flags & (DESC_AVAIL | DESC_USED) == self.used()
    }

    /// Encoding in event suppression: the counter in bit 15.
    pub const fn word(self) -> u16 {
        self.slot | (self.wrap as u16) << 15
    }
}

/// True if a side that advanced by `by` slots to `now` passed the position named by the other,
/// given as in [`Position::word`].
///
/// A position of the lap before is `size` slots back. Any word is allowed: an invalid position
/// gives some answer.
pub const fn passed(word: u16, now: Position, by: u16, size: u16) -> bool {
    let mut event = word & 0x7fff;
    if (word >> 15 != 0) != now.wrap {
        event = event.wrapping_sub(size);
    }
    need_event(event, now.slot, now.slot.wrapping_sub(by))
}

/// Driver side of a packed queue of at most `N` descriptors.
pub struct PackedQueue<const N: usize> {
    layout: Layout,
    event_idx: bool,
    ids: Ids<N>,
    /// Position of the next buffer.
    available: Position,
    /// Flags not yet written to the first buffer that is not shown to the device.
    head: Option<(u16, u16)>,
    /// Buffers not shown to the device.
    unshown_count: u16,
    /// Position of the next used element.
    used: Position,
}

impl<const N: usize> PackedQueue<N> {
    /// Creates an empty queue of `size` descriptors, at most `N`, not necessarily a power of two;
    /// clears its memory.
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
        let Position { slot, .. } = self.available;
        memory.write64(self.layout.descriptor(slot), address);
        memory.write32(self.layout.len(slot), len_bytes);
        memory.write16(self.layout.id(slot), id);
        let flags = access.flags() | self.available.available();
        // The device stops at the first slot that is not available. So the flags of all but the
        // first may be written now; those of the first publish the whole batch.
        match self.head {
            None => self.head = Some((slot, flags)),
            Some(_) => memory.write16(self.layout.flags(slot), flags),
        }
        self.unshown_count += 1;
        self.available = self.available.next(self.size());
        true
    }

    /// Publishes posted buffers, and returns the device's doorbell request.
    #[must_use = "without the doorbell, the device stays asleep"]
    pub fn publish(&mut self, memory: &impl Memory) -> Published {
        let Some((slot, flags)) = self.head.take() else { return Published::Nothing };
        // All other fields before the flags that make them valid.
        memory.write_barrier();
        memory.write16(self.layout.flags(slot), flags);
        let by = core::mem::take(&mut self.unshown_count);
        // Write the flags before reading the device's request: otherwise both sides could miss each
        // other.
        memory.full_barrier();
        // One read, so that position and flags are consistent.
        let wish = memory.read32(self.layout.device);
        let wanted = match (wish >> 16) as u16 & 3 {
            EVENT_DISABLE => false,
            EVENT_DESC if self.event_idx => {
                passed(wish as u16, self.available, by, self.size())
                    || self.is_behind(memory, wish as u16)
            }
            // Notify always; an invalid value costs at most an extra doorbell.
            _ => true,
        };
        Published::of(wanted)
    }

    /// True if the device went past the position it named without naming another: it would sleep
    /// through the buffers published now, indefinitely once the ring is full.
    ///
    /// QEMU's card does this, for example in 7.2: when a frame has left that the wire refused at
    /// first, it names a position, sends everything, and sleeps (`virtio_net_tx_complete`). A frame
    /// published just before the position became readable rang no doorbell.
    fn is_behind(&self, memory: &impl Memory, word: u16) -> bool {
        let place = Position { slot: word & 0x7fff, wrap: word >> 15 != 0 };
        if place.slot >= self.size() {
            return true;
        }
        let size = u32::from(self.size());
        let count = |at: Position| u32::from(at.slot) + if at.wrap { 0 } else { size };
        let ahead = (count(place) + 2 * size - count(self.used)) % (2 * size);
        if ahead >= u32::from(self.posted_count()) {
            // Before all buffers in flight, or a whole lap away: already completed. Otherwise it is
            // still ahead, and the device waits for a batch.
            return ahead >= size;
        }
        // In flight, as far as known. If the slot is not used yet, buffers published before this
        // check are seen by the device before it checks for more.
        place.is_used(memory.read16(self.layout.flags(place.slot)))
    }

    /// True if a completion was not yet taken.
    pub fn has_used(&self, memory: &impl Memory) -> bool {
        self.used.is_used(memory.read16(self.layout.flags(self.used.slot)))
    }

    /// Takes the next completed buffer.
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
            // The id determines the position of the next element; with an invalid id it is unknown.
            return Some(Err(DeviceFault::Place { id }));
        };
        self.used = self.used.next(self.size());
        Some(Ok(Completion { token, len_bytes }))
    }

    /// Asks the device not to interrupt for this queue. A hint: it may interrupt anyway.
    pub fn disable_interrupts(&self, memory: &impl Memory) {
        // Allowed with EVENT_IDX too, unlike in a split ring.
        memory.write32(self.layout.driver, u32::from(EVENT_DISABLE) << 16);
    }

    /// Requests an interrupt for the next completion. Returns true if there already is one, which may
    /// raise no interrupt: take it, then request again.
    #[must_use = "an earlier completion raises no interrupt"]
    pub fn enable_interrupts(&self, memory: &impl Memory) -> bool {
        let wish = if self.event_idx {
            u32::from(EVENT_DESC) << 16 | u32::from(self.used.word())
        } else {
            u32::from(EVENT_ENABLE) << 16
        };
        // One write, so that position and flags are consistent.
        memory.write32(self.layout.driver, wish);
        memory.full_barrier();
        self.has_used(memory)
    }
}
