//! Common parts of both kinds of virtqueue, and a queue of either kind.

use crate::packed::PackedQueue;
use crate::split::SplitQueue;
use crate::{DeviceFault, Memory};

/// Descriptor flag: the next descriptor belongs to the same buffer.
pub const DESC_NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer.
pub const DESC_WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub const DESC_INDIRECT: u16 = 4;

/// True if an index that advanced from `old` to `new` passed `event` (2.7.10).
pub const fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Use of a buffer by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The device reads it: to send.
    DeviceReads,
    /// The device writes it: to receive.
    DeviceWrites,
    /// The device reads a table of descriptors there, and the buffers they name: to send.
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

/// A completed buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Token given when it was posted.
    pub token: u16,
    /// Length written according to the device; not checked yet.
    pub len_bytes: u32,
}

/// Result of publishing posted buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Nothing was posted since the last time.
    Nothing,
    /// Published; the device is awake and wants no doorbell.
    Silently,
    /// Published; the doorbell must be rung.
    Ring,
}

impl Published {
    pub(crate) const fn of(wanted: bool) -> Published {
        if wanted { Published::Ring } else { Published::Silently }
    }
}

/// A queue of the negotiated kind.
///
/// A match per call that always goes the same way is a predictable branch; a type parameter would
/// put the whole responder into the image twice.
pub(crate) enum Ring<const N: usize> {
    Split(SplitQueue<N>),
    Packed(PackedQueue<N>),
}

/// Calls the same method on either kind.
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

    #[must_use = "the caller keeps a buffer that was refused"]
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

    /// Renews the suppression of interrupts after completions were taken, if it expires.
    pub(crate) fn stay_silent(&self, memory: &impl Memory) {
        if let Ring::Split(queue) = self
            && queue.has_event_idx()
        {
            // The event is a whole lap of the index away; move it along to keep it there.
            queue.disable_interrupts(memory);
        }
    }

    #[must_use = "an earlier completion raises no interrupt"]
    pub(crate) fn enable_interrupts(&self, memory: &impl Memory) -> bool {
        either!(self, queue => queue.enable_interrupts(memory))
    }
}
