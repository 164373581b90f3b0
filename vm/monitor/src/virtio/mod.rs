//! A virtio network card over memory-mapped registers, as a state machine over guest memory.
//!
//! As the Lance, it has no hypervisor, clock or thread: its owner passes register accesses and
//! arriving frames, and then reads [`VirtioNet::irq`]. Nothing that a guest does makes it panic,
//! touch what [`GuestMemory`] does not offer, or work without bound: one call reads at most
//! [`WORK_MAX`] descriptors and those of one more chain. A guest that breaks a rule gets a device
//! that says DEVICE_NEEDS_RESET.
//!
//! Deliberately absent: offloads, mergeable buffers, a control queue, more than one
//! pair of queues.
//!
//! Source: virtio 1.2, sections 2, 4.2 and 5.1.

mod chain;
mod fault;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod in_place;
mod layout;
mod packed;
mod queue;
mod registers;
mod split;
mod state;
#[cfg(test)]
mod tests;
mod traffic;

pub use fault::DriverFault;
pub use queue::QUEUE_SIZE_MAX;
pub use registers::{WINDOW_BYTES, register, status};
pub use state::State;
pub use traffic::{HEADER_BYTES, WORK_MAX};

use crate::bus::{Bus, GuestMemory, NetworkSide};
use crate::lance::Counters;
use chain::Chain;
use in_place::Placed;
use layout::Layout;
use queue::{Negotiated, Queue};

/// Number of the queue of received frames.
pub const RX: u16 = 0;
/// Number of the queue of frames to send.
pub const TX: u16 = 1;

const FEATURE_MAC: u64 = 1 << 5;
const FEATURE_INDIRECT_DESC: u64 = 1 << 28;
const FEATURE_EVENT_IDX: u64 = 1 << 29;
const FEATURE_VERSION_1: u64 = 1 << 32;
const FEATURE_RING_PACKED: u64 = 1 << 34;

/// Choices of the device's owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NicOptions {
    /// Offer VIRTIO_F_EVENT_IDX.
    pub event_idx: bool,
    /// Offer VIRTIO_F_RING_PACKED.
    pub packed: bool,
    /// The owner [polls](VirtioNet::poll) the transmit queue.
    pub polls: bool,
}

/// One card.
#[derive(Debug)]
pub struct VirtioNet {
    mac: [u8; 6],
    options: NicOptions,
    /// Device status.
    status: u32,
    feature_halves: [u32; 2],
    offered_half: u32,
    chosen_half: u32,
    selected: u32,
    layouts: [Layout; 2],
    queues: [Option<Queue>; 2],
    /// Interrupt status.
    causes: u32,
    /// Received frames are among the causes.
    tells_received: bool,
    /// The last frames sent raised no interrupt, since the driver wanted none.
    sent_silently: bool,
    /// Frames to send are left: the wire was busy, or one call has a limit.
    has_demand: bool,
    fault: Option<DriverFault>,
    pub counters: Counters,
    chain: Chain,
    frame: Vec<u8>,
    placed: Placed,
}

impl VirtioNet {
    /// A card after power-on.
    pub fn new(mac: [u8; 6], options: NicOptions) -> Self {
        VirtioNet {
            mac,
            options,
            status: 0,
            feature_halves: [0; 2],
            offered_half: 0,
            chosen_half: 0,
            selected: 0,
            layouts: [Layout::default(); 2],
            queues: [None, None],
            causes: 0,
            tells_received: false,
            sent_silently: false,
            has_demand: false,
            fault: None,
            counters: Counters::default(),
            chain: Chain::default(),
            frame: Vec::new(),
            placed: Placed::default(),
        }
    }

    /// Level of the interrupt line. Look after every operation.
    pub fn irq(&self) -> bool {
        self.causes != 0
    }

    /// True if sent frames are the only cause of [`Self::irq`], which may then be delayed a little.
    pub fn irq_tells_only_of_sent(&self) -> bool {
        self.causes == registers::CAUSE_USED && !self.tells_received
    }

    /// True if the driver wanted no interrupt for the last frames sent.
    pub fn masks_tx_interrupt(&self) -> bool {
        self.sent_silently
    }

    /// True if the driver runs, so that a doorbell has an effect.
    pub fn can_transmit(&self) -> bool {
        self.is_driven() && self.queues[usize::from(TX)].is_some()
    }

    /// True if frames to send are left: call [`Self::demand`] again soon.
    pub fn has_demand(&self) -> bool {
        self.can_transmit() && self.has_demand
    }

    /// True if its owner is to poll the transmit queue.
    pub fn polls(&self) -> bool {
        self.options.polls && self.can_transmit()
    }

    /// True if the transmit queue is packed.
    pub fn is_packed(&self) -> bool {
        matches!(self.queues[usize::from(TX)], Some(Queue::Packed(_)))
    }

    /// Latest violation by the driver, until a reset.
    pub fn fault(&self) -> Option<DriverFault> {
        self.fault
    }

    fn is_driven(&self) -> bool {
        self.status & (status::DRIVER_OK | status::DEVICE_NEEDS_RESET) == status::DRIVER_OK
    }

    fn offered(&self) -> u64 {
        let event_idx = if self.options.event_idx { FEATURE_EVENT_IDX } else { 0 };
        let packed = if self.options.packed { FEATURE_RING_PACKED } else { 0 };
        FEATURE_MAC | FEATURE_INDIRECT_DESC | FEATURE_VERSION_1 | event_idx | packed
    }

    fn chosen(&self) -> u64 {
        u64::from(self.feature_halves[0]) | u64::from(self.feature_halves[1]) << 32
    }

    fn negotiated(&self) -> Negotiated {
        let [event_idx, tables, packed] =
            [FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED]
                .map(|bit| self.chosen() & bit != 0);
        Negotiated { event_idx, tables, packed }
    }

    /// Reset by the driver: everything but the counters.
    fn reset(&mut self) {
        let fresh = VirtioNet::new(self.mac, self.options);
        let counters = self.counters;
        let placed = std::mem::take(&mut self.placed);
        *self = VirtioNet { counters, placed, ..fresh };
    }

    /// The driver broke a rule: nothing moves until it resets the device.
    fn broken(&mut self, fault: DriverFault) {
        self.counters.bus_error_count += 1;
        self.fault = Some(fault);
        self.status |= status::DEVICE_NEEDS_RESET;
        self.has_demand = false;
        if self.status & status::DRIVER_OK != 0 {
            self.causes |= registers::CAUSE_CONFIG;
        }
    }

    /// Work of one operation: a rule that the driver broke ends in [`Self::broken`].
    fn guard<R>(&mut self, done: Result<R, DriverFault>, otherwise: R) -> R {
        done.unwrap_or_else(|fault| {
            self.broken(fault);
            otherwise
        })
    }

    /// Notification of a queue.
    fn notified<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>, queue: u32) {
        if queue == u32::from(TX) {
            self.demand(bus);
        }
    }
}
