//! Reorder buffer: messages that arrived early, in a fixed number of slots.

use super::FeedLine;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Metadata of a held message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) domain: u32,
    pub(super) side: u8,
    pub(super) line: FeedLine,
    pub(super) bytes: u32,
    pub(super) sequence: u64,
    pub(super) arrived_ns: u64,
    older: u32,
    newer: u32,
}

/// Slots as a list in order of arrival; free slots are linked by `newer`.
#[derive(Debug)]
pub(super) struct ReorderBuffer {
    slots: Box<[Held]>,
    bytes: Box<[u8]>,
    slot_bytes: usize,
    free: u32,
    oldest: u32,
    newest: u32,
    count: u32,
}

impl ReorderBuffer {
    pub(super) fn new(slots: u32, slot_bytes: u32) -> Self {
        let slots = slots.min(1 << 24);
        ReorderBuffer {
            slots: (0..slots)
                .map(|n: u32| Held {
                    domain: 0,
                    side: 0,
                    line: FeedLine::A,
                    bytes: 0,
                    sequence: 0,
                    arrived_ns: 0,
                    older: NONE,
                    newer: if n + 1 == slots { NONE } else { n + 1 },
                })
                .collect(),
            bytes: vec![0; slots as usize * slot_bytes as usize].into_boxed_slice(),
            slot_bytes: slot_bytes as usize,
            free: 0,
            oldest: NONE,
            newest: NONE,
            count: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    pub(super) fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    pub(super) fn len(&self) -> u64 {
        u64::from(self.count)
    }

    #[inline]
    pub(super) fn oldest(&self) -> Option<&Held> {
        (self.oldest != NONE).then(|| &self.slots[self.oldest as usize])
    }

    /// Copies a message into a free slot. There must be one, and the message must fit.
    pub(super) fn put(
        &mut self,
        (domain, side): (u32, u8),
        line: FeedLine,
        sequence: u64,
        arrived_ns: u64,
        message: &[u8],
    ) -> u32 {
        let slot = self.free;
        let at = slot as usize;
        self.free = self.slots[at].newer;
        let bytes = message.len() as u32;
        let older = self.newest;
        self.slots[at] =
            Held { domain, side, line, bytes, sequence, arrived_ns, older, newer: NONE };
        self.bytes[at * self.slot_bytes..][..message.len()].copy_from_slice(message);
        match older {
            NONE => self.oldest = slot,
            older => self.slots[older as usize].newer = slot,
        }
        self.newest = slot;
        self.count += 1;
        slot
    }

    pub(super) fn get(&self, slot: u32) -> (&Held, &[u8]) {
        let held = &self.slots[slot as usize];
        (held, &self.bytes[slot as usize * self.slot_bytes..][..held.bytes as usize])
    }

    pub(super) fn free(&mut self, slot: u32) {
        let Held { older, newer, .. } = self.slots[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        self.slots[slot as usize].newer = self.free;
        self.free = slot;
        self.count -= 1;
    }
}
