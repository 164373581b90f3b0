//! A virtio-net device in plain memory, for tests on the host.
//!
//! It obeys the specification until told otherwise, and panics when the driver breaks it: a ring
//! that is not aligned, a receive buffer that is too short, a descriptor that the device has
//! already, an index that jumps, a slot made available that is still the device's, flags that must
//! be 0.

mod memory;
mod registers;
mod rings;

use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;
use std::{assert, vec};

use self::rings::Queue;
use crate::mmio::{
    self, FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED, FEATURE_VERSION_1,
};
use crate::net::{self, FEATURE_MAC, HEADER_BYTES};
use crate::{packed, split};

/// Where the shared memory lies for the device.
pub const BASE: u64 = 0x4000_0000;
/// Number of the receive queue.
pub const RX: usize = 0;
/// Number of the transmit queue.
pub const TX: usize = 1;

/// An access to ring memory, as the device would see it pass by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A field was read, at this offset.
    Read(usize),
    /// A field was written.
    Write(usize),
    /// Write barrier.
    WriteBarrier,
    /// Read barrier.
    ReadBarrier,
    /// Full barrier.
    FullBarrier,
    /// The doorbell of a queue was rung.
    Doorbell(u32),
    /// The interrupt was acknowledged.
    Acknowledge,
}

/// What the device does beside the rules.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Features offered.
    pub offered: u64,
    /// Take FEATURES_OK back.
    pub refuse_features: bool,
    /// Reads of the status after a reset before it is 0.
    pub reset_reads: u32,
    /// Reads of the configuration during which its generation changes.
    pub config_changes: u32,
    /// Largest queues.
    pub queue_frames_max: u32,
    /// Version of the register window.
    pub version: u32,
    /// Send frames as soon as the doorbell rings.
    pub sends_at_once: bool,
    /// Withhold interrupts.
    pub silent: bool,
    /// Ask for no doorbells (without EVENT_IDX).
    pub no_notify: bool,
    /// With EVENT_IDX: take buffers without naming the place of the next doorbell.
    pub names_no_place: bool,
    /// DEVICE_NEEDS_RESET as soon as DRIVER_OK is set.
    pub fails_at_start: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            offered: FEATURE_VERSION_1
                | FEATURE_RING_PACKED
                | FEATURE_INDIRECT_DESC
                | FEATURE_EVENT_IDX
                | FEATURE_MAC
                | 0xff,
            refuse_features: false,
            reset_reads: 0,
            config_changes: 0,
            queue_frames_max: 256,
            version: mmio::VERSION,
            sends_at_once: true,
            silent: false,
            no_notify: false,
            names_no_place: false,
            fails_at_start: false,
        }
    }
}

struct State {
    behaviour: Behaviour,
    memory: Vec<u8>,
    status: u32,
    reset_reads_left: u32,
    generation: u32,
    select: [u32; 3],
    chosen: u64,
    queues: [Queue; 2],
    interrupt: u32,
    interrupts: u64,
    sent: Vec<Vec<u8>>,
    log: Option<Vec<Access>>,
}

/// The device's own end, and the test's handle on it.
#[derive(Clone)]
pub struct FakeDevice(Rc<RefCell<State>>);

/// Its registers.
pub struct FakeRegisters(Rc<RefCell<State>>);

/// The memory it shares.
pub struct FakeMemory(Rc<RefCell<State>>);

impl FakeDevice {
    /// A device, with the two things a driver needs.
    pub fn new(behaviour: Behaviour) -> (FakeDevice, FakeRegisters, FakeMemory) {
        let state = Rc::new(RefCell::new(State {
            behaviour,
            memory: vec![0xa5; net::MEMORY_BYTES],
            status: 0,
            reset_reads_left: 0,
            generation: 0,
            select: [0; 3],
            chosen: 0,
            queues: Default::default(),
            interrupt: 0,
            interrupts: 0,
            sent: Vec::new(),
            log: None,
        }));
        (FakeDevice(state.clone()), FakeRegisters(state.clone()), FakeMemory(state))
    }

    /// Changes the behaviour from now on.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.0.borrow_mut().behaviour);
    }

    /// Features that the driver chose.
    pub fn chosen(&self) -> u64 {
        self.0.borrow().chosen
    }

    /// Device status.
    pub fn status(&self) -> u32 {
        self.0.borrow().status
    }

    /// Sets status bits, as a device does that has failed.
    pub fn set_status(&self, bits: u32) {
        self.0.borrow_mut().status |= bits;
    }

    /// Delivers a frame; false when the driver has given no buffer for it.
    pub fn receive(&self, frame: &[u8]) -> bool {
        let mut state = self.0.borrow_mut();
        let Some(id) = state.next_available(RX) else { return false };
        let (at, len) = state.receive_buffer(id);
        let written = HEADER_BYTES + frame.len();
        assert!(written <= len, "the test's frame is too long");
        state.memory[at..at + HEADER_BYTES].fill(0);
        state.memory[at + HEADER_BYTES..at + written].copy_from_slice(frame);
        state.complete(RX, &[(id, written as u32)]);
        true
    }

    /// Takes the next receive buffer and returns its descriptor, for [`complete`](Self::complete).
    pub fn take_available(&self, queue: usize) -> Option<u16> {
        self.0.borrow_mut().next_available(queue)
    }

    /// Completes a descriptor that the device has, with this length.
    pub fn complete(&self, queue: usize, id: u16, len_bytes: u32) {
        self.0.borrow_mut().complete(queue, &[(id, len_bytes)]);
    }

    /// Completes several at once: the driver sees all of them or none.
    pub fn complete_batch(&self, queue: usize, elements: &[(u16, u32)]) {
        self.0.borrow_mut().complete(queue, elements);
    }

    /// Writes any used element, right or wrong, and shows it. A packed ring has 16 bits for the
    /// id.
    pub fn forge_used(&self, queue: usize, id: u32, len_bytes: u32) {
        self.0.borrow_mut().write_used(queue, &[(id, len_bytes)]);
    }

    /// Has the ring run ahead: in a split one the index without elements, in a packed one
    /// elements of an id that nobody has.
    pub fn forge_index(&self, queue: usize, by: u16) {
        self.0.borrow_mut().run_ahead(queue, by);
    }

    /// Sends all that is available; completions in the order `pick` gives: the number of frames
    /// waiting to the number of the next one to complete.
    pub fn send_waiting(&self, mut pick: impl FnMut(usize) -> usize) {
        let mut state = self.0.borrow_mut();
        let mut ids = Vec::new();
        while let Some(id) = state.next_available(TX) {
            ids.push(id);
        }
        for id in &ids {
            state.send(*id);
        }
        while !ids.is_empty() {
            let id = ids.remove(pick(ids.len()) % ids.len());
            state.complete(TX, &[(id, 0)]);
        }
    }

    /// Frames that were sent since the last call, without the header.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.0.borrow_mut().sent)
    }

    /// Whether the interrupt line is up.
    pub fn interrupt_is_up(&self) -> bool {
        self.0.borrow().interrupt != 0
    }

    /// Raises the line for no reason in the rings.
    pub fn raise_interrupt(&self, bits: u32) {
        self.0.borrow_mut().interrupt |= bits;
    }

    /// Interrupts raised so far.
    pub fn interrupt_count(&self) -> u64 {
        self.0.borrow().interrupts
    }

    /// Doorbells rung for a queue so far.
    pub fn doorbell_count(&self, queue: usize) -> u32 {
        self.0.borrow().queues[queue].doorbells
    }

    /// Buffers that the device has taken and not completed, and those it has not taken yet.
    pub fn owned_count(&self, queue: usize) -> usize {
        let state = self.0.borrow();
        state.queues[queue].held.len() + usize::from(state.waiting_count(queue))
    }

    /// Starts writing down what passes over ring memory.
    pub fn start_log(&self) {
        self.0.borrow_mut().log = Some(Vec::new());
    }

    /// What passed since [`start_log`](Self::start_log).
    pub fn take_log(&self) -> Vec<Access> {
        self.0.borrow_mut().log.take().unwrap_or_default()
    }

    /// Where the parts of a split queue lie, as offsets, and its size.
    pub fn layout(&self, queue: usize) -> (split::Layout, u16) {
        let state = self.0.borrow();
        (state.split_layout(queue), state.queues[queue].size)
    }

    /// Where the parts of a packed queue lie, as offsets, and its size.
    pub fn packed_layout(&self, queue: usize) -> (packed::Layout, u16) {
        let state = self.0.borrow();
        (state.packed_layout(queue), state.queues[queue].size)
    }

    /// Where the parts of a buffer that the device has taken lie: offset and length each.
    pub fn parts(&self, queue: usize, id: u16) -> Vec<(usize, usize)> {
        self.0.borrow().held(queue, id).parts.clone()
    }

    /// A 16-bit field of ring memory.
    pub fn peek16(&self, at: usize) -> u16 {
        self.0.borrow().get16(at)
    }

    /// Writes a 16-bit field of ring memory, as a hostile device does.
    pub fn poke16(&self, at: usize, value: u16) {
        self.0.borrow_mut().put16(at, value);
    }
}
