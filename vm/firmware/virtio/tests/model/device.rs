//! A device that obeys virtio 1.2, barriers included.

use loom::sync::atomic::{Ordering, fence};
use wirepath_virtio::packed::{EVENT_DESC, EVENT_DISABLE, EVENT_ENABLE, Position, passed};
use wirepath_virtio::ring::need_event;
use wirepath_virtio::split::{AVAIL_NO_INTERRUPT, USED_NO_NOTIFY};

use crate::SIZE;
use crate::memory::Shared;
use crate::queue::{PACKED, SPLIT};

/// Address of buffer `n`.
pub(crate) fn address(n: u16) -> u64 {
    0x1000 * (u64::from(n) + 1)
}

/// Length of buffer `n` as posted.
pub(crate) fn len_bytes(n: u16) -> u32 {
    u32::from(n) + 60
}

/// Length of buffer `n` as completed.
pub(crate) fn used_bytes(n: u16) -> u32 {
    u32::from(n) + 1000
}

pub(crate) trait Device: Send + 'static {
    fn new(event_idx: bool) -> Self;

    /// Takes buffer `n`, the next one, if available. Returns its id.
    fn take(&mut self, memory: &Shared, n: u16) -> Option<u16>;
    /// Completes it. Returns true if the driver requests an interrupt.
    fn give(&mut self, memory: &Shared, id: u16, n: u16) -> bool;
    /// Requests a doorbell. Returns true if a buffer is already available.
    fn arm(&mut self, memory: &Shared) -> bool;
    /// Withdraws the request, if that is a separate step.
    fn disarm(&mut self, memory: &Shared);
}

fn assert_fresh(found: (u64, u64), n: u16) {
    assert_eq!(found, (address(n), len_bytes(n).into()), "stale descriptor");
}

/// Section 2.7.
pub(crate) struct SplitDevice {
    event_idx: bool,
    /// Available index up to which buffers were taken.
    taken: u16,
    used: u16,
}

impl Device for SplitDevice {
    fn new(event_idx: bool) -> Self {
        SplitDevice { event_idx, taken: 0, used: 0 }
    }

    fn take(&mut self, memory: &Shared, n: u16) -> Option<u16> {
        if memory.get(SPLIT.avail_index()) as u16 == self.taken {
            return None;
        }
        fence(Ordering::Acquire);
        let id = memory.get(SPLIT.avail_slot(self.taken % SIZE)) as u16;
        self.taken = self.taken.wrapping_add(1);
        let at = SPLIT.descriptors + 16 * usize::from(id);
        assert_fresh((memory.get(at), memory.get(at + 8)), n);
        Some(id)
    }

    fn give(&mut self, memory: &Shared, id: u16, n: u16) -> bool {
        let (slot, old) = (SPLIT.used_slot(self.used % SIZE), self.used);
        memory.set(slot, id.into());
        memory.set(slot + 4, used_bytes(n).into());
        fence(Ordering::Release);
        self.used = self.used.wrapping_add(1);
        memory.set(SPLIT.used_index(), self.used.into());
        fence(Ordering::SeqCst);
        if self.event_idx {
            need_event(memory.get(SPLIT.used_event(SIZE)) as u16, self.used, old)
        } else {
            memory.get(SPLIT.avail_flags()) as u16 & AVAIL_NO_INTERRUPT == 0
        }
    }

    fn arm(&mut self, memory: &Shared) -> bool {
        if self.event_idx {
            memory.set(SPLIT.avail_event(SIZE), self.taken.into());
        } else {
            memory.set(SPLIT.used_flags(), 0);
        }
        fence(Ordering::SeqCst);
        memory.get(SPLIT.avail_index()) as u16 != self.taken
    }

    fn disarm(&mut self, memory: &Shared) {
        if !self.event_idx {
            memory.set(SPLIT.used_flags(), USED_NO_NOTIFY.into());
        }
    }
}

/// Section 2.8.
pub(crate) struct PackedDevice {
    event_idx: bool,
    next: Position,
    used: Position,
}

impl PackedDevice {
    fn has_next(&self, memory: &Shared) -> bool {
        self.next.is_available(memory.get(PACKED.flags(self.next.slot)) as u16)
    }

    fn wish(&self, memory: &Shared, flags: u16, place: u16) {
        memory.set(PACKED.device, u64::from(flags) << 16 | u64::from(place));
    }
}

impl Device for PackedDevice {
    fn new(event_idx: bool) -> Self {
        PackedDevice { event_idx, next: Position::START, used: Position::START }
    }

    fn take(&mut self, memory: &Shared, n: u16) -> Option<u16> {
        if !self.has_next(memory) {
            return None;
        }
        fence(Ordering::Acquire);
        let slot = self.next.slot;
        assert_fresh((memory.get(PACKED.descriptor(slot)), memory.get(PACKED.len(slot))), n);
        self.next = self.next.next(SIZE);
        Some(memory.get(PACKED.id(slot)) as u16)
    }

    fn give(&mut self, memory: &Shared, id: u16, n: u16) -> bool {
        let Position { slot, .. } = self.used;
        memory.set(PACKED.id(slot), id.into());
        memory.set(PACKED.len(slot), used_bytes(n).into());
        fence(Ordering::Release);
        memory.set(PACKED.flags(slot), self.used.used().into());
        self.used = self.used.next(SIZE);
        fence(Ordering::SeqCst);
        let wish = memory.get(PACKED.driver);
        match (wish >> 16) as u16 {
            EVENT_DISABLE => false,
            EVENT_DESC => passed(wish as u16, self.used, 1, SIZE),
            _ => true,
        }
    }

    fn arm(&mut self, memory: &Shared) -> bool {
        if self.event_idx {
            self.wish(memory, EVENT_DESC, self.next.word());
        } else {
            self.wish(memory, EVENT_ENABLE, 0);
        }
        fence(Ordering::SeqCst);
        self.has_next(memory)
    }

    fn disarm(&mut self, memory: &Shared) {
        if !self.event_idx {
            self.wish(memory, EVENT_DISABLE, 0);
        }
    }
}
