//! A queue that is ready, of either kind.

use super::chain::{Chain, Direction, Rules};
use super::fault::DriverFault;
use super::layout::{Layout, TakenChain, UsedChain};
use super::packed::PackedQueue;
use super::split::SplitQueue;
use crate::bus::GuestMemory;

/// Largest queue.
pub const QUEUE_SIZE_MAX: u16 = 256;

/// Features that change how a queue works.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Negotiated {
    pub(super) event_idx: bool,
    pub(super) tables: bool,
    pub(super) packed: bool,
}

/// Evaluates an expression with the queue of either kind.
macro_rules! either {
    ($self:expr, $queue:ident => $done:expr) => {
        match $self {
            Queue::Split($queue) => $done,
            Queue::Packed($queue) => $done,
        }
    };
}

/// A queue that is ready.
#[derive(Debug)]
pub(super) enum Queue {
    Split(SplitQueue),
    Packed(PackedQueue),
}

impl Queue {
    pub(super) fn new(
        queue: u16,
        direction: Direction,
        layout: &Layout,
        negotiated: Negotiated,
    ) -> Result<Self, DriverFault> {
        let Layout { size, descriptors, .. } = *layout;
        let fits = (1..=u32::from(QUEUE_SIZE_MAX)).contains(&size);
        if !fits || descriptors % 16 != 0 {
            return Err(DriverFault::Layout { queue, size });
        }
        let Negotiated { event_idx, tables, packed } = negotiated;
        let rules = Rules { queue, size: size as u16, tables, direction };
        if packed {
            PackedQueue::new(rules, event_idx, layout).map(Queue::Packed)
        } else {
            SplitQueue::new(rules, event_idx, layout).map(Queue::Split)
        }
    }

    /// Chains that the driver has made available.
    pub(super) fn available_count(&self, memory: &impl GuestMemory) -> Result<u16, DriverFault> {
        either!(self, queue => queue.available_count(memory))
    }

    /// Descriptors of the queue.
    pub(super) fn size(&self) -> u16 {
        either!(self, queue => queue.rules.size)
    }

    /// Reads the next available chain, which stays available; false if there is none.
    pub(super) fn peek(
        &self,
        memory: &impl GuestMemory,
        chain: &mut Chain,
    ) -> Result<bool, DriverFault> {
        either!(self, queue => queue.peek(memory, chain))
    }

    /// Takes the chain that [`Self::peek`] read last. Each is returned by [`Self::put_used`], in any order.
    pub(super) fn take(&mut self, chain: &Chain) -> TakenChain {
        either!(self, queue => queue.take(chain))
    }

    /// Makes the last chains that were taken, and not returned, available again.
    pub(super) fn untake(&mut self, chains: &[UsedChain]) {
        either!(self, queue => queue.untake(chains))
    }

    /// Returns a chain, with `written_bytes` written by the device.
    pub(super) fn put_used(
        &mut self,
        memory: &impl GuestMemory,
        taken: TakenChain,
        written_bytes: u32,
    ) -> Result<(), DriverFault> {
        self.put_all_used(memory, &[UsedChain { taken, written_bytes }])
    }

    /// Returns chains that belong together: the driver sees all of them or none.
    pub(super) fn put_all_used(
        &mut self,
        memory: &impl GuestMemory,
        chains: &[UsedChain],
    ) -> Result<(), DriverFault> {
        either!(self, queue => queue.put_all_used(memory, chains))
    }

    /// True if the driver wants an interrupt for what was returned since the last call.
    pub(super) fn wants_interrupt(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        either!(self, queue => queue.wants_interrupt(memory))
    }

    /// Asks the driver not to notify: the device looks by itself.
    pub(super) fn disable_notifications(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<(), DriverFault> {
        either!(self, queue => queue.disable_notifications(memory))
    }

    /// Asks the driver to notify. Returns true if a chain is available already, whose notification may
    /// never come: look again.
    pub(super) fn enable_notifications(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        either!(self, queue => queue.enable_notifications(memory))
    }
}
