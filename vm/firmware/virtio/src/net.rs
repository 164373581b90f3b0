//! The virtio-net driver: four verbs over a pool of frames.
//!
//! `rx_post` posts a frame for receiving, `rx_take` takes a received one, `tx_post` posts a frame
//! for sending, `tx_reap` reclaims sent ones. A received frame may be sent without a copy.
//!
//! Source: virtio 1.2, section 5.1.

use crate::frames::Frames;
use crate::indirect::TABLE_BYTES;
use crate::layout::{Layout, clamped};
pub use crate::layout::{RING_FRAMES_MIN, memory_bytes, pool_frames};
use crate::mmio::{
    FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED, Interrupt, QueueAddresses,
    status,
};
use crate::packed::PackedQueue;
use crate::ring::{Access, Completion, Published, Ring};
use crate::split::SplitQueue;
use crate::{DeviceFault, Frame, Ledger, Memory, Registers, StartError, Transport};

/// Device id of a network card.
pub const DEVICE_NET: u32 = 1;
/// Feature bit 5: the device has a MAC address.
pub const FEATURE_MAC: u64 = 1 << 5;
/// Header of every frame; 12 bytes under VERSION_1 (5.1.6.1).
pub const HEADER_BYTES: usize = 12;
/// Room for a frame and its header.
pub const BUFFER_BYTES: usize = 2048;
/// Longest frame: Ethernet header and 1500 bytes.
pub const FRAME_BYTES_MAX: usize = 1514;
/// Shortest valid received frame: an Ethernet header.
pub const FRAME_BYTES_MIN: usize = 14;
/// Largest queue used.
pub const QUEUE_FRAMES: usize = 256;
/// Frames in the pool of the largest rings.
pub const POOL_FRAMES: usize = pool_frames(QUEUE_FRAMES as u16);
/// Bytes of shared memory for the largest rings, page-aligned.
pub const MEMORY_BYTES: usize = memory_bytes(QUEUE_FRAMES as u16);

const RX: u16 = 0;
const TX: u16 = 1;

// Without mergeable buffers, one must hold the largest frame and the header (5.1.6.3.1).
const _: () = assert!(BUFFER_BYTES >= 1526 && BUFFER_BYTES >= HEADER_BYTES + FRAME_BYTES_MAX);

/// Settings of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Use VIRTIO_F_EVENT_IDX if the device offers it.
    pub event_idx: bool,
    /// Request interrupts for sent frames.
    pub tx_interrupts: bool,
    /// Request interrupts for received frames, from the start.
    pub rx_interrupts: bool,
    /// Use VIRTIO_F_RING_PACKED if the device offers it.
    pub packed: bool,
    /// Use VIRTIO_F_INDIRECT_DESC if the device offers it: frames are sent as a table of header
    /// and frame.
    pub indirect: bool,
    /// Largest size of a ring, from [`RING_FRAMES_MIN`] to [`QUEUE_FRAMES`]; the device may have less. Pool and shared
    /// memory are sized by it: [`pool_frames`], [`memory_bytes`].
    pub ring_frames: u16,
}

/// Notification counts since the driver was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NotifyStats {
    /// Times that new receive buffers were shown to the device.
    pub rx_shown_count: u64,
    /// Of those: with a doorbell.
    pub rx_doorbell_count: u64,
    /// Times that new frames to send were shown to the device.
    pub tx_shown_count: u64,
    /// Of those: with a doorbell.
    pub tx_doorbell_count: u64,
    /// Frames sent as a table.
    pub tx_table_count: u64,
}

/// A received frame.
#[derive(Debug)]
pub struct Received {
    pub frame: Frame,
    /// Length without the header.
    pub len_bytes: usize,
}

/// A started network card.
pub struct NetDriver<R, M> {
    transport: Transport<R>,
    memory: M,
    settings: Settings,
    layout: Layout,
    features: u64,
    mac: Option<[u8; 6]>,
    /// INDIRECT_DESC was negotiated.
    indirect: bool,
    rx: Ring<QUEUE_FRAMES>,
    tx: Ring<QUEUE_FRAMES>,
    frames: Frames<POOL_FRAMES>,
    notify_stats: NotifyStats,
}

impl<R: Registers, M: Memory> NetDriver<R, M> {
    /// Starts the card behind `registers`, with all rings and frames in `memory`
    /// ([`memory_bytes`], page-aligned), and fills the receive ring.
    pub fn start(registers: R, memory: M, settings: Settings) -> Result<Self, StartError> {
        let given_bytes = memory.len_bytes();
        let needed_bytes = memory_bytes(settings.ring_frames);
        if given_bytes < needed_bytes || !memory.address().is_multiple_of(4096) {
            return Err(StartError::Memory { needed_bytes, given_bytes });
        }
        let layout = Layout::new(settings.ring_frames);
        let mut transport = Transport::probe(registers, DEVICE_NET)?;
        let (features, mac, [rx, tx]) = bring_up(&mut transport, &memory, settings, &layout)?;
        let mut driver = NetDriver {
            transport,
            memory,
            settings,
            layout,
            features,
            mac,
            indirect: features & FEATURE_INDIRECT_DESC != 0,
            rx,
            tx,
            frames: Frames::new(layout.pool_frames),
            notify_stats: NotifyStats::default(),
        };
        driver.fill();
        Ok(driver)
    }

    /// Restarts the card after a fault. Frames owned by the device return to the pool, so frames in
    /// flight are lost; held frames stay held.
    pub fn restart(&mut self) -> Result<(), StartError> {
        let started = bring_up(&mut self.transport, &self.memory, self.settings, &self.layout)?;
        (self.features, self.mac, [self.rx, self.tx]) = started;
        self.indirect = self.features & FEATURE_INDIRECT_DESC != 0;
        self.frames.reclaim();
        self.fill();
        Ok(())
    }

    /// Fills the receive ring and enables the interrupts.
    fn fill(&mut self) {
        for _ in 0..self.rx.size() {
            let Some(frame) = self.frames.take() else { break };
            self.rx_post(frame);
        }
        if !self.settings.rx_interrupts {
            self.rx.disable_interrupts(&self.memory);
        }
        self.rx_kick();
        if !self.settings.tx_interrupts {
            self.tx.disable_interrupts(&self.memory);
        }
    }

    /// The device's MAC address, if it has one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// Negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    pub fn offered(&self) -> u64 {
        self.transport.offered()
    }

    /// True if EVENT_IDX was negotiated.
    pub fn has_event_idx(&self) -> bool {
        self.features & FEATURE_EVENT_IDX != 0
    }

    /// True if packed rings were negotiated.
    pub fn has_packed_rings(&self) -> bool {
        self.features & FEATURE_RING_PACKED != 0
    }

    /// True if frames are sent as tables.
    pub fn has_indirect(&self) -> bool {
        self.indirect
    }

    /// Notification counts since the start.
    pub fn notify_stats(&self) -> NotifyStats {
        self.notify_stats
    }

    /// Slots of the receive and the transmit ring.
    pub fn ring_frames(&self) -> (u16, u16) {
        (self.rx.size(), self.tx.size())
    }

    /// Number of frames by owner.
    pub fn ledger(&self) -> Ledger {
        self.frames.ledger()
    }

    /// Acknowledges the interrupt; call before draining the rings.
    pub fn take_interrupt(&self) -> Interrupt {
        self.transport.take_interrupt()
    }

    /// True if the device asks for a reset (2.1).
    pub fn needs_restart(&self) -> bool {
        self.transport.status() & (status::DEVICE_NEEDS_RESET | status::FAILED) != 0
    }

    /// Borrows the first `len_bytes` of a held frame, from its Ethernet header on.
    pub fn with_frame<T>(
        &mut self,
        frame: &Frame,
        len_bytes: usize,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let at = self.layout.buffer(frame.0) + HEADER_BYTES;
        self.memory.with_bytes(at..at + len_bytes.min(FRAME_BYTES_MAX), work)
    }

    /// Copies the first `len_bytes` of one held frame to another.
    pub fn copy(&mut self, from: &Frame, to: &Frame, len_bytes: usize) {
        let (from, to) =
            (self.layout.buffer(from.0) + HEADER_BYTES, self.layout.buffer(to.0) + HEADER_BYTES);
        self.memory.copy(from, to, len_bytes.min(FRAME_BYTES_MAX));
    }

    /// Takes a frame from the pool; post it, or return it by [`free`](Self::free).
    pub fn take_free(&mut self) -> Option<Frame> {
        self.frames.take()
    }

    /// A frame that the driver's user holds, by its [number](Frame::number), for users that cannot keep a [`Frame`]: of
    /// two for one number, use only one. `None` if no such frame is held.
    pub fn held(&self, number: u16) -> Option<Frame> {
        self.frames.held(number)
    }

    /// Returns a frame to the pool.
    pub fn free(&mut self, frame: Frame) {
        self.frames.give(frame);
    }

    /// Posts a frame for receiving; if the ring is full, it returns to the pool.
    ///
    /// [`rx_kick`](Self::rx_kick) notifies the device.
    pub fn rx_post(&mut self, frame: Frame) {
        let address = self.memory.address() + self.layout.buffer(frame.0) as u64;
        let len = BUFFER_BYTES as u32;
        if self.rx.post(&self.memory, frame.0, address, len, Access::DeviceWrites) {
            self.frames.post_receive(frame);
        } else {
            self.frames.give(frame);
        }
    }

    /// Posts free frames in place of received ones that were not posted again.
    pub fn rx_refill(&mut self) {
        while !self.rx.is_full() {
            let Some(frame) = self.frames.take() else { return };
            self.rx_post(frame);
        }
    }

    /// Shows posted receive buffers to the device. Required after every refill: a device that has run
    /// out of buffers waits for this doorbell indefinitely.
    pub fn rx_kick(&mut self) {
        let published = self.rx.publish(&self.memory);
        if published == Published::Nothing {
            return;
        }
        self.notify_stats.rx_shown_count += 1;
        if published == Published::Ring {
            self.notify_stats.rx_doorbell_count += 1;
            self.transport.notify(RX);
        }
    }

    /// Takes a received frame.
    ///
    /// A frame of invalid length returns to the receive ring. A fault that
    /// [needs a restart](DeviceFault::needs_restart) repeats at every call until the card is
    /// [restarted](Self::restart).
    pub fn rx_take(&mut self) -> Option<Result<Received, DeviceFault>> {
        let Completion { token, len_bytes } = match self.rx.take(&self.memory)? {
            Ok(completion) => completion,
            Err(fault) => return Some(Err(fault)),
        };
        let frame = self.frames.received(token);
        let range =
            (HEADER_BYTES + FRAME_BYTES_MIN) as u32..=(HEADER_BYTES + FRAME_BYTES_MAX) as u32;
        if !range.contains(&len_bytes) {
            self.rx_post(frame);
            let (min_bytes, max_bytes) = range.into_inner();
            return Some(Err(DeviceFault::Len { len_bytes, min_bytes, max_bytes }));
        }
        Some(Ok(Received { frame, len_bytes: len_bytes as usize - HEADER_BYTES }))
    }

    /// True if a received frame was not yet taken.
    pub fn rx_has_used(&self) -> bool {
        self.rx.has_used(&self.memory)
    }

    /// Asks the device not to interrupt for received frames.
    pub fn rx_disable_interrupts(&self) {
        self.rx.disable_interrupts(&self.memory);
    }

    /// Requests an interrupt for the next received frame. Returns true if one is already there:
    /// take it, then request again.
    #[must_use = "a frame that arrived before raises no interrupt"]
    pub fn rx_enable_interrupts(&self) -> bool {
        self.rx.enable_interrupts(&self.memory)
    }

    /// Posts the first `len_bytes` of a frame for sending. Errors: returns the frame if the ring is
    /// full.
    ///
    /// [`tx_kick`](Self::tx_kick) notifies the device. Panics if `len_bytes` exceeds a frame.
    pub fn tx_post(&mut self, frame: Frame, len_bytes: usize) -> Result<(), Frame> {
        assert!(len_bytes <= FRAME_BYTES_MAX, "{len_bytes} bytes exceed a frame");
        let at = self.layout.buffer(frame.0);
        if self.tx.is_full() {
            return Err(frame);
        }
        // A descriptor of no bytes is not allowed, and an empty frame is useless.
        let (address, len, access) = if self.indirect && len_bytes > 0 {
            self.notify_stats.tx_table_count += 1;
            let table = self.layout.tables.set_len(&self.memory, frame.0, len_bytes as u32);
            (table, TABLE_BYTES as u32, Access::DeviceReadsTable)
        } else {
            // No offload: the header is all zeros (5.1.6.2). num_buffers is not used in sending.
            self.memory.with_bytes(at..at + HEADER_BYTES, |header| header.fill(0));
            let len = (HEADER_BYTES + len_bytes) as u32;
            (self.memory.address() + at as u64, len, Access::DeviceReads)
        };
        if !self.tx.post(&self.memory, frame.0, address, len, access) {
            return Err(frame);
        }
        self.frames.post_transmit(frame);
        Ok(())
    }

    /// Shows posted frames to the device, and rings the doorbell if it asks for it.
    pub fn tx_kick(&mut self) {
        let published = self.tx.publish(&self.memory);
        if published == Published::Nothing {
            return;
        }
        self.notify_stats.tx_shown_count += 1;
        if published == Published::Ring {
            self.notify_stats.tx_doorbell_count += 1;
            self.transport.notify(TX);
        }
    }

    /// Frames that the device has not sent yet.
    pub fn tx_posted(&self) -> u16 {
        self.tx.posted_count()
    }

    /// Reclaims sent frames.
    ///
    /// - Returns their number, and the first fault of the device. It must be
    ///   [restarted](Self::restart) if [`DeviceFault::needs_restart`].
    pub fn tx_reap(&mut self) -> (u16, Option<DeviceFault>) {
        let (mut count, mut fault) = (0, None);
        while let Some(taken) = self.tx.take(&self.memory) {
            match taken {
                Ok(Completion { token, .. }) => {
                    self.frames.transmitted(token);
                    count += 1;
                }
                Err(found) => {
                    if found.needs_restart() {
                        // Faults that need a restart take precedence.
                        fault = Some(found);
                        break;
                    }
                    fault = fault.or(Some(found));
                }
            }
        }
        if count > 0 && !self.settings.tx_interrupts {
            self.tx.stay_silent(&self.memory);
        }
        (count, fault)
    }

    /// Requests an interrupt for the next sent frame, regardless of the settings: needed when the ring
    /// is full. Returns true if one was already sent.
    #[must_use = "a frame completed before raises no interrupt"]
    pub fn tx_enable_interrupts(&self) -> bool {
        self.tx.enable_interrupts(&self.memory)
    }

    /// True if the settings request interrupts for sent frames.
    pub fn tx_wants_interrupts(&self) -> bool {
        self.settings.tx_interrupts
    }

    /// Asks the device not to interrupt for sent frames.
    pub fn tx_disable_interrupts(&self) {
        self.tx.disable_interrupts(&self.memory);
    }

    /// The shared memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The registers, for tests.
    pub fn transport(&self) -> &Transport<R> {
        &self.transport
    }
}

type Started = (u64, Option<[u8; 6]>, [Ring<QUEUE_FRAMES>; 2]);

/// Initialisation (3.1.1, 5.1.5) up to DRIVER_OK.
fn bring_up<R: Registers>(
    transport: &mut Transport<R>,
    memory: &impl Memory,
    settings: Settings,
    layout: &Layout,
) -> Result<Started, StartError> {
    let wanted = [
        (settings.event_idx, FEATURE_EVENT_IDX),
        (settings.packed, FEATURE_RING_PACKED),
        (settings.indirect, FEATURE_INDIRECT_DESC),
    ];
    let wanted = wanted.iter().filter(|(on, _)| *on).fold(FEATURE_MAC, |all, (_, bit)| all | bit);
    let features = transport.negotiate(wanted)?;
    let mac = match features & FEATURE_MAC {
        0 => None,
        _ => Some(transport.read_config::<6>()?),
    };
    let mut open = |queue| open(transport, memory, layout, features, settings.ring_frames, queue);
    let rings = [open(RX)?, open(TX)?];
    if features & FEATURE_INDIRECT_DESC != 0 {
        let frames = (0..layout.pool_frames).map(|index| layout.buffer(index) + HEADER_BYTES);
        layout.tables.write(memory, features & FEATURE_RING_PACKED != 0, frames);
    }
    transport.drive()?;
    Ok((features, mac, rings))
}

/// Sets up a queue of the negotiated kind.
fn open<R: Registers>(
    transport: &mut Transport<R>,
    memory: &impl Memory,
    layout: &Layout,
    features: u64,
    ring_frames: u16,
    queue: u16,
) -> Result<Ring<QUEUE_FRAMES>, StartError> {
    let max_frames = transport.queue_frames_max(queue);
    if max_frames < 2 {
        return Err(StartError::QueueSize { queue, max_frames });
    }
    // May be smaller than the device's maximum.
    let max_frames = max_frames.min(clamped(ring_frames).into());
    let event_idx = features & FEATURE_EVENT_IDX != 0;
    let (split, packed) = layout.queues[usize::from(queue)];
    let (ring, size, [descriptors, driver, device]) = if features & FEATURE_RING_PACKED != 0 {
        let size = max_frames as u16;
        let ring = Ring::Packed(PackedQueue::new(memory, packed, size, event_idx));
        (ring, size, [packed.descriptors, packed.driver, packed.device])
    } else {
        // A power of two (2.7).
        let size = (1 << max_frames.ilog2()) as u16;
        let ring = Ring::Split(SplitQueue::new(memory, split, size, event_idx));
        (ring, size, [split.descriptors, split.available, split.used])
    };
    let address = |offset| memory.address() + offset as u64;
    let (descriptors, driver, device) = (address(descriptors), address(driver), address(device));
    transport.set_queue(queue, size, QueueAddresses { descriptors, driver, device })?;
    Ok(ring)
}
