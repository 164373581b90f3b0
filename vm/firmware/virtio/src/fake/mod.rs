//! A virtio-net device in plain memory, for tests on the host.
//!
//! By default it obeys the specification, and panics when the driver violates it: a ring that is
//! not aligned, a receive buffer that is too short, a descriptor that the device already has, an
//! index that jumps, a slot made available that the device still owns, flags that must be 0.

mod memory;
mod registers;
mod rings;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use self::rings::Queue;
use crate::mmio::{
    self, FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED, FEATURE_VERSION_1,
};
use crate::net::{self, FEATURE_MAC};
use crate::{packed, split};

/// Address of the shared memory for the device.
pub const BASE: u64 = 0x4000_0000;
/// Number of the receive queue.
pub const RX: usize = 0;
/// Number of the transmit queue.
pub const TX: usize = 1;

/// An access to ring memory, as the device observes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read of the field at this offset.
    Read(usize),
    /// Write of the field at this offset.
    Write(usize),
    /// Write barrier.
    WriteBarrier,
    /// Read barrier.
    ReadBarrier,
    /// Full barrier.
    FullBarrier,
    /// Doorbell of a queue.
    Doorbell(u32),
    /// Interrupt acknowledged.
    Acknowledge,
}

/// Behaviour of the device beyond the specification.
#[derive(Debug, Clone)]
pub struct Behaviour {
    pub offered: u64,
    /// Clear FEATURES_OK.
    pub refuse_features: bool,
    /// Reads of the status after a reset before it is 0.
    pub reset_reads: u32,
    /// Reads of the configuration during which its generation changes.
    pub config_changes: u32,
    pub queue_frames_max: u32,
    pub version: u32,
    /// Send frames as soon as the doorbell rings.
    pub sends_at_once: bool,
    pub silent: bool,
    /// Request no doorbells (without EVENT_IDX).
    pub no_notify: bool,
    /// With EVENT_IDX: take buffers without updating the position of the next doorbell.
    pub names_no_place: bool,
    /// Set DEVICE_NEEDS_RESET as soon as DRIVER_OK is set.
    pub fails_at_start: bool,
    /// Frames on the wire: delivered, oldest first, as soon as a doorbell shows receive buffers.
    pub arriving: VecDeque<Vec<u8>>,
    /// Causes that are added between the driver's read of the causes and its acknowledgement.
    pub causes_late: u32,
    /// The interrupt controller does not listen yet: an edge of the line is lost.
    pub is_deaf: bool,
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
            arriving: VecDeque::new(),
            causes_late: 0,
            is_deaf: false,
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
    /// The controller has seen the line rise.
    edge: bool,
    sent: Vec<Vec<u8>>,
    log: Option<Vec<Access>>,
}

/// The device side, and the test's handle on it.
#[derive(Clone)]
pub struct FakeDevice(Rc<RefCell<State>>);

pub struct FakeRegisters(Rc<RefCell<State>>);

pub struct FakeMemory(Rc<RefCell<State>>);

impl FakeDevice {
    /// Creates a device with its registers and memory for the driver.
    pub fn new(behaviour: Behaviour) -> (FakeDevice, FakeRegisters, FakeMemory) {
        FakeDevice::with_memory(behaviour, net::MEMORY_BYTES)
    }

    /// The same with shared memory of this length.
    pub fn with_memory(
        behaviour: Behaviour,
        len_bytes: usize,
    ) -> (FakeDevice, FakeRegisters, FakeMemory) {
        let state = Rc::new(RefCell::new(State {
            behaviour,
            memory: vec![0xa5; len_bytes],
            status: 0,
            reset_reads_left: 0,
            generation: 0,
            select: [0; 3],
            chosen: 0,
            queues: Default::default(),
            interrupt: 0,
            interrupts: 0,
            edge: false,
            sent: Vec::new(),
            log: None,
        }));
        (FakeDevice(state.clone()), FakeRegisters(state.clone()), FakeMemory(state))
    }

    /// Changes the behaviour.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.0.borrow_mut().behaviour);
    }

    /// Features chosen by the driver.
    pub fn chosen(&self) -> u64 {
        self.0.borrow().chosen
    }

    pub fn status(&self) -> u32 {
        self.0.borrow().status
    }

    /// Sets status bits, as a failed device does.
    pub fn set_status(&self, bits: u32) {
        self.0.borrow_mut().status |= bits;
    }

    /// Delivers a frame. Returns false if the driver has posted no buffer for it.
    pub fn receive(&self, frame: &[u8]) -> bool {
        self.0.borrow_mut().deliver(frame)
    }

    /// Takes the next receive buffer. Returns its descriptor for [`complete`](Self::complete).
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

    /// Writes any used element, valid or not, and publishes it. The id has 16 bits in a packed
    /// ring.
    pub fn forge_used(&self, queue: usize, id: u32, len_bytes: u32) {
        self.0.borrow_mut().write_used(queue, &[(id, len_bytes)]);
    }

    /// Advances the ring without completions: in a split ring the index, in a packed one elements
    /// with an unknown id.
    pub fn forge_index(&self, queue: usize, by: u16) {
        self.0.borrow_mut().run_ahead(queue, by);
    }

    /// Sends all available frames. `pick` gets the number of frames waiting and returns the
    /// position of the next one to complete.
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

    /// Frames sent since the last call, without the header.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.0.borrow_mut().sent)
    }

    /// True if the interrupt line is raised.
    pub fn interrupt_is_up(&self) -> bool {
        self.0.borrow().interrupt != 0
    }

    /// True if the controller has seen the line rise since the last call: it is edge triggered.
    pub fn take_edge(&self) -> bool {
        core::mem::take(&mut self.0.borrow_mut().edge)
    }

    /// Raises the line without a cause in the rings.
    pub fn raise_interrupt(&self, bits: u32) {
        self.0.borrow_mut().raise(bits);
    }

    /// Interrupts raised so far.
    pub fn interrupt_count(&self) -> u64 {
        self.0.borrow().interrupts
    }

    /// Doorbells rung for a queue so far.
    pub fn doorbell_count(&self, queue: usize) -> u32 {
        self.0.borrow().queues[queue].doorbells
    }

    /// Buffers taken and not completed, and those available but not yet taken.
    pub fn owned_count(&self, queue: usize) -> usize {
        let state = self.0.borrow();
        state.queues[queue].held.len() + usize::from(state.waiting_count(queue))
    }

    /// Starts recording accesses to ring memory.
    pub fn start_log(&self) {
        self.0.borrow_mut().log = Some(Vec::new());
    }

    /// Accesses recorded since [`start_log`](Self::start_log).
    pub fn take_log(&self) -> Vec<Access> {
        self.0.borrow_mut().log.take().unwrap_or_default()
    }

    /// Offsets of the parts of a split queue, and its size.
    pub fn layout(&self, queue: usize) -> (split::Layout, u16) {
        let state = self.0.borrow();
        (state.split_layout(queue), state.queues[queue].size)
    }

    /// Offsets of the parts of a packed queue, and its size.
    pub fn packed_layout(&self, queue: usize) -> (packed::Layout, u16) {
        let state = self.0.borrow();
        (state.packed_layout(queue), state.queues[queue].size)
    }

    /// Offset and length of each part of a buffer that the device has taken.
    pub fn parts(&self, queue: usize, id: u16) -> Vec<(usize, usize)> {
        self.0.borrow().held(queue, id).parts.clone()
    }

    /// Reads a 16-bit field of ring memory.
    pub fn peek16(&self, at: usize) -> u16 {
        self.0.borrow().get16(at)
    }

    /// Writes a 16-bit field of ring memory, as a hostile device does.
    pub fn poke16(&self, at: usize, value: u16) {
        self.0.borrow_mut().put16(at, value);
    }
}
