//! What both kinds of virtqueue have in common, and a queue that is either.

use crate::packed::PackedQueue;
use crate::split::SplitQueue;
use crate::{DeviceFault, Memory};

/// Descriptor flag: the next descriptor belongs to the same buffer.
pub const DESC_NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer.
pub const DESC_WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub const DESC_INDIRECT: u16 = 4;

/// Whether an index that went from `old` to `new` passed `event` (2.7.10).
pub const fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// What the device does with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads it: to send.
    DeviceReads,
    /// It writes to it: to receive.
    DeviceWrites,
    /// It reads a table of descriptors there, and what they name: to send.
    DeviceReadsTable,
}

impl Access {
    pub(crate) const fn flags(self) -> u16 {
        match self {
            Access::DeviceReads => 0,
            Access::DeviceWrites => DESC_WRITE,
            Access::DeviceReadsTable => DESC_INDIRECT,
        }
    }
}

/// A buffer that the device has finished with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// What it was posted with.
    pub token: u16,
    /// Bytes that the device says it has written; not checked yet.
    pub len_bytes: u32,
}

/// What came of showing the device what was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Nothing was posted since the last time.
    Nothing,
    /// It was shown, and the device wants no doorbell: it is awake.
    Silently,
    /// It was shown, and the doorbell is to be rung.
    Ring,
}

impl Published {
    pub(crate) const fn of(wanted: bool) -> Published {
        if wanted { Published::Ring } else { Published::Silently }
    }
}

/// A queue of either kind, as agreed with the device.
///
/// A match per call, decided the same way every time: a predictable branch, where a type parameter
/// would put the whole station into the image twice.
pub(crate) enum Ring<const N: usize> {
    Split(SplitQueue<N>),
    Packed(PackedQueue<N>),
}

/// The same call, whichever it is.
macro_rules! either {
    ($ring:expr, $queue:ident => $call:expr) => {
        match $ring {
            Ring::Split($queue) => $call,
            Ring::Packed($queue) => $call,
        }
    };
}

impl<const N: usize> Ring<N> {
    pub(crate) fn size(&self) -> u16 {
        either!(self, queue => queue.size())
    }

    pub(crate) fn posted_count(&self) -> u16 {
        either!(self, queue => queue.posted_count())
    }

    pub(crate) fn is_full(&self) -> bool {
        either!(self, queue => queue.posted_count() == queue.size())
    }

    #[must_use = "a buffer that was refused is still ours"]
    pub(crate) fn post(
        &mut self,
        memory: &impl Memory,
        token: u16,
        address: u64,
        len_bytes: u32,
        access: Access,
    ) -> bool {
        either!(self, queue => queue.post(memory, token, address, len_bytes, access))
    }

    pub(crate) fn publish(&mut self, memory: &impl Memory) -> Published {
        either!(self, queue => queue.publish(memory))
    }

    pub(crate) fn has_used(&self, memory: &impl Memory) -> bool {
        either!(self, queue => queue.has_used(memory))
    }

    pub(crate) fn take(&mut self, memory: &impl Memory) -> Option<Result<Completion, DeviceFault>> {
        either!(self, queue => queue.take(memory))
    }

    pub(crate) fn disable_interrupts(&self, memory: &impl Memory) {
        either!(self, queue => queue.disable_interrupts(memory));
    }

    /// Renews a wish for silence after completions were taken, where it wears off.
    pub(crate) fn stay_silent(&self, memory: &impl Memory) {
        if let Ring::Split(queue) = self
            && queue.has_event_idx()
        {
            // The event lies a whole turn of the index away; moved along, it stays there.
            queue.disable_interrupts(memory);
        }
    }

    #[must_use = "a completion from before is announced by no interrupt"]
    pub(crate) fn enable_interrupts(&self, memory: &impl Memory) -> bool {
        either!(self, queue => queue.enable_interrupts(memory))
    }
}
