//! A virtio network card over memory-mapped registers, as a state machine over guest memory.
//!
//! As the Lance, it has no hypervisor, clock or thread: its owner passes register accesses and
//! arriving frames, and then reads [`VirtioNet::irq`]. Nothing that a guest does makes it panic,
//! touch what [`GuestMemory`] does not offer, or work without bound: one call reads at most
//! [`WORK_MAX`] descriptors of frames and those of one more chain, and as many commands as their queue holds. A guest
//! that breaks a rule gets a device that says DEVICE_NEEDS_RESET; a frame whose header asks for work that it does not
//! fit is dropped and counted.
//!
//! Deliberately absent: segmentation of UDP, filters and announcements by the control queue, RSS by the driver's keys.
//!
//! Source: virtio 1.2, sections 2, 4.2 and 5.1.

mod chain;
mod control;
mod fault;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod in_place;
mod layout;
mod packed;
mod queue;
mod receive;
mod registers;
mod split;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub use fault::DriverFault;
pub use queue::QUEUE_SIZE_MAX;
pub use registers::{WINDOW_BYTES, register, status};
pub use state::State;
pub use transmit::{HEADER_BYTES, WORK_MAX};

use crate::bus::{Bus, GuestMemory, NetworkSide};
use crate::lance::Counters;
use crate::offload::Offloads;
use chain::{Chain, Direction};
use in_place::Placed;
use layout::Layout;
use queue::{Negotiated, Queue};
use receive::Room;

/// Number of the first pair's queue of received frames.
pub const RX: u16 = 0;
/// Number of the first pair's queue of frames to send.
pub const TX: u16 = 1;
/// Most pairs of queues.
pub const PAIRS_MAX: u16 = 4;
const QUEUES_MAX: usize = 2 * PAIRS_MAX as usize + 1;

const FEATURE_CSUM: u64 = 1 << 0;
const FEATURE_GUEST_CSUM: u64 = 1 << 1;
const FEATURE_MAC: u64 = 1 << 5;
const FEATURE_GUEST_TSO4: u64 = 1 << 7;
const FEATURE_GUEST_TSO6: u64 = 1 << 8;
const FEATURE_HOST_TSO4: u64 = 1 << 11;
const FEATURE_HOST_TSO6: u64 = 1 << 12;
const FEATURE_MRG_RXBUF: u64 = 1 << 15;
const FEATURE_CTRL_VQ: u64 = 1 << 17;
const FEATURE_MQ: u64 = 1 << 22;
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
    /// The owner [polls](VirtioNet::poll) the transmit queues.
    pub polls: bool,
    /// Offer VIRTIO_NET_F_CSUM and VIRTIO_NET_F_GUEST_CSUM. The owner's wire carries them.
    pub checksum: bool,
    /// Offer segmentation of TCP in both directions, and checksums with it.
    pub segmentation: bool,
    /// Offer VIRTIO_NET_F_MRG_RXBUF.
    pub mergeable: bool,
    /// Offer so many pairs of queues with VIRTIO_NET_F_MQ, from 2 to [`PAIRS_MAX`]; fewer: one pair without that feature.
    pub pairs: u16,
}

impl NicOptions {
    /// Nothing but frames.
    pub const PLAIN: NicOptions = NicOptions {
        event_idx: false,
        packed: false,
        polls: false,
        checksum: false,
        segmentation: false,
        mergeable: false,
        pairs: 1,
    };
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
    layouts: [Layout; QUEUES_MAX],
    queues: [Option<Queue>; QUEUES_MAX],
    /// Pairs of queues that the driver uses.
    active_pairs: u16,
    /// Transmit queue that the next pass begins with.
    next_tx: u16,
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
    room: Room,
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
            layouts: [Layout::default(); QUEUES_MAX],
            queues: [const { None }; QUEUES_MAX],
            active_pairs: 1,
            next_tx: TX,
            causes: 0,
            tells_received: false,
            sent_silently: false,
            has_demand: false,
            fault: None,
            counters: Counters::default(),
            chain: Chain::default(),
            frame: Vec::new(),
            room: Room::default(),
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
        self.is_driven() && self.tx_numbers().any(|queue| self.queues[usize::from(queue)].is_some())
    }

    /// Pairs of queues that exist.
    pub fn pairs(&self) -> u16 {
        self.options.pairs.clamp(1, PAIRS_MAX)
    }

    /// True for a queue of frames to send.
    pub fn is_tx(&self, queue: u32) -> bool {
        queue % 2 == 1 && queue < 2 * u32::from(self.pairs())
    }

    fn tx_numbers(&self) -> impl Iterator<Item = u16> + use<> {
        (TX..2 * self.pairs()).step_by(2)
    }

    fn queue_count(&self) -> u16 {
        2 * self.pairs() + u16::from(self.pairs() > 1)
    }

    /// Number of the control queue; `None` if it is not negotiated (5.1.2).
    fn control_number(&self) -> Option<u16> {
        let pairs = if self.chooses(FEATURE_MQ) { self.pairs() } else { 1 };
        self.chooses(FEATURE_CTRL_VQ).then_some(2 * pairs)
    }

    fn direction(&self, queue: u16) -> Direction {
        match queue {
            control if self.control_number() == Some(control) => Direction::Both,
            queue if queue % 2 == 0 => Direction::Written,
            _ => Direction::Read,
        }
    }

    /// Work that the wire may leave to the driver, as long as it runs.
    pub fn accepted_offloads(&self) -> Offloads {
        if !self.is_driven() {
            return Offloads::default();
        }
        Offloads {
            checksum: self.chooses(FEATURE_GUEST_CSUM),
            tcp_v4: self.chooses(FEATURE_GUEST_TSO4),
            tcp_v6: self.chooses(FEATURE_GUEST_TSO6),
        }
    }

    /// Work that the driver may leave to the wire.
    fn granted_offloads(&self) -> Offloads {
        Offloads {
            checksum: self.chooses(FEATURE_CSUM),
            tcp_v4: self.chooses(FEATURE_HOST_TSO4),
            tcp_v6: self.chooses(FEATURE_HOST_TSO6),
        }
    }

    /// True if frames to send are left: call [`Self::demand`] again soon.
    pub fn has_demand(&self) -> bool {
        self.can_transmit() && self.has_demand
    }

    /// True if its owner is to poll the transmit queue.
    pub fn polls(&self) -> bool {
        self.options.polls && self.can_transmit()
    }

    /// True if the queues are packed.
    pub fn is_packed(&self) -> bool {
        self.chooses(FEATURE_RING_PACKED) && self.can_transmit()
    }

    /// Latest violation by the driver, until a reset.
    pub fn fault(&self) -> Option<DriverFault> {
        self.fault
    }

    fn is_driven(&self) -> bool {
        self.status & (status::DRIVER_OK | status::DEVICE_NEEDS_RESET) == status::DRIVER_OK
    }

    fn offered(&self) -> u64 {
        let NicOptions { event_idx, packed, checksum, segmentation, mergeable, .. } = self.options;
        let sums = FEATURE_CSUM | FEATURE_GUEST_CSUM;
        let segments =
            FEATURE_HOST_TSO4 | FEATURE_HOST_TSO6 | FEATURE_GUEST_TSO4 | FEATURE_GUEST_TSO6;
        let optional = [
            (event_idx, FEATURE_EVENT_IDX),
            (packed, FEATURE_RING_PACKED),
            (checksum || segmentation, sums),
            (segmentation, segments),
            (mergeable, FEATURE_MRG_RXBUF),
            (self.pairs() > 1, FEATURE_MQ | FEATURE_CTRL_VQ),
        ];
        let always = FEATURE_MAC | FEATURE_INDIRECT_DESC | FEATURE_VERSION_1;
        optional.iter().filter(|(is_on, _)| *is_on).fold(always, |all, (_, bits)| all | bits)
    }

    /// True if the driver's choice was offered and has for each feature those that it needs (5.1.3.1).
    fn has_valid_choice(&self) -> bool {
        let needs = [
            (FEATURE_GUEST_TSO4 | FEATURE_GUEST_TSO6, FEATURE_GUEST_CSUM),
            (FEATURE_HOST_TSO4 | FEATURE_HOST_TSO6, FEATURE_CSUM),
            (FEATURE_MQ, FEATURE_CTRL_VQ),
        ];
        let chosen = self.chosen();
        chosen & !self.offered() == 0
            && chosen & FEATURE_VERSION_1 != 0
            && needs.iter().all(|(feature, need)| chosen & feature == 0 || chosen & need != 0)
    }

    fn chooses(&self, feature: u64) -> bool {
        self.chosen() & feature != 0
    }

    fn chosen(&self) -> u64 {
        u64::from(self.feature_halves[0]) | u64::from(self.feature_halves[1]) << 32
    }

    fn negotiated(&self) -> Negotiated {
        let [event_idx, tables, packed] =
            [FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED]
                .map(|bit| self.chooses(bit));
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
        if self.is_tx(queue) {
            self.demand(bus);
        } else if self.is_driven()
            && let Some(control) = self.control_number()
            && queue == u32::from(control)
        {
            let done = self.obey(bus.memory, control);
            self.guard(done, ());
        }
    }
}
