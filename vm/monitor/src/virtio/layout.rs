//! Parts of a queue, and of its state, that both kinds of queues have.

use super::fault::DriverFault;

/// Registers of a queue as the driver has written them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    pub(super) size: u32,
    pub(super) descriptors: u64,
    pub(super) driver: u64,
    pub(super) device: u64,
}

/// True if `event` is among the steps from `old` to `new` (2.7.7.2).
pub(super) fn needs_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Address of a part of a queue, the whole of which must have a 32-bit address.
pub(super) fn part(at: u64, len_bytes: u64) -> Result<u32, DriverFault> {
    let end = at.checked_add(len_bytes).filter(|&end| end <= u32::MAX.into());
    end.map(|_| at as u32).ok_or(DriverFault::Address(at))
}

/// A chain that the device has taken and not returned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TakenChain {
    /// Number of its first descriptor, or its id in a packed queue.
    pub(super) head: u16,
    /// Slots that it takes in a packed queue.
    pub(super) slot_count: u16,
}

/// A chain as the device returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsedChain {
    pub(super) taken: TakenChain,
    /// Bytes that the device has written.
    pub(super) written_bytes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_needed_when_the_index_passes_it_also_around_the_wrap() {
        assert!(needs_event(4, 5, 4) && !needs_event(5, 5, 4) && !needs_event(3, 5, 4));
        assert!(needs_event(u16::MAX, 0, u16::MAX) && needs_event(u16::MAX, 3, 0xfffe));
        assert!(!needs_event(3, 3, 0xfffe));
        assert!(!needs_event(7, 4, 4));
    }
}
