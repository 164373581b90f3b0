//! A virtio-net device in plain memory, for tests on the host.
//!
//! It obeys the specification until told otherwise, and panics when the driver breaks it: a ring
//! that is not aligned, a receive buffer that is too short, a descriptor that the device has
//! already, an index that jumps, flags that must be 0.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::vec::Vec;
use std::{assert, assert_eq, vec};

use crate::mmio::{self, FEATURE_EVENT_IDX, FEATURE_VERSION_1, register, status};
use crate::net::{self, FEATURE_MAC, HEADER_BYTES};
use crate::split::{AVAIL_NO_INTERRUPT, Layout, USED_NO_NOTIFY, need_event};
use crate::{Memory, Registers};

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
    /// DEVICE_NEEDS_RESET as soon as DRIVER_OK is set.
    pub fails_at_start: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            offered: FEATURE_VERSION_1 | FEATURE_EVENT_IDX | FEATURE_MAC | 0xff,
            refuse_features: false,
            reset_reads: 0,
            config_changes: 0,
            queue_frames_max: 256,
            version: mmio::VERSION,
            sends_at_once: true,
            silent: false,
            no_notify: false,
            fails_at_start: false,
        }
    }
}

#[derive(Default, Clone)]
struct FakeQueue {
    size: u16,
    ready: bool,
    addresses: [u64; 3],
    /// Available index up to which the device has taken.
    taken: u16,
    /// Used index.
    used: u16,
    /// Descriptors that the device has.
    owned: Vec<u16>,
    doorbells: u32,
}

struct State {
    behaviour: Behaviour,
    memory: Vec<u8>,
    status: u32,
    reset_reads_left: u32,
    generation: u32,
    select: [u32; 3],
    chosen: u64,
    queues: [FakeQueue; 2],
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
        let (at, len, writable) = state.descriptor(RX, id);
        assert!(writable, "receive buffer {id} may not be written to");
        assert!(len >= 1526, "receive buffer of {len} bytes");
        let written = HEADER_BYTES + frame.len();
        assert!(written <= len, "the test's frame is too long");
        state.memory[at..at + HEADER_BYTES].fill(0);
        state.memory[at + HEADER_BYTES..at + written].copy_from_slice(frame);
        state.complete(RX, id, written as u32);
        true
    }

    /// Takes the next receive buffer and returns its descriptor, for [`complete`](Self::complete).
    pub fn take_available(&self, queue: usize) -> Option<u16> {
        self.0.borrow_mut().next_available(queue)
    }

    /// Completes a descriptor that the device has, with this length.
    pub fn complete(&self, queue: usize, id: u16, len_bytes: u32) {
        self.0.borrow_mut().complete(queue, id, len_bytes);
    }

    /// Writes any used element, right or wrong, and moves the index.
    pub fn forge_used(&self, queue: usize, id: u32, len_bytes: u32) {
        self.0.borrow_mut().write_used(queue, id, len_bytes);
    }

    /// Moves the used index without elements.
    pub fn forge_index(&self, queue: usize, by: u16) {
        let mut state = self.0.borrow_mut();
        state.queues[queue].used = state.queues[queue].used.wrapping_add(by);
        let (at, used) = (state.used_index(queue), state.queues[queue].used);
        state.put16(at, used);
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
            state.complete(TX, id, 0);
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

    /// Descriptors that the device has taken and not completed, and those it has not taken yet.
    pub fn owned_count(&self, queue: usize) -> usize {
        let state = self.0.borrow();
        let available = state.get16(state.avail_index(queue));
        state.queues[queue].owned.len()
            + usize::from(available.wrapping_sub(state.queues[queue].taken))
    }

    /// Starts writing down what passes over ring memory.
    pub fn start_log(&self) {
        self.0.borrow_mut().log = Some(Vec::new());
    }

    /// What passed since [`start_log`](Self::start_log).
    pub fn take_log(&self) -> Vec<Access> {
        self.0.borrow_mut().log.take().unwrap_or_default()
    }

    /// Where the parts of a queue lie, as offsets.
    pub fn layout(&self, queue: usize) -> (Layout, u16) {
        let state = self.0.borrow();
        (state.layout(queue), state.queues[queue].size)
    }

    /// A 16-bit field of ring memory.
    pub fn peek16(&self, at: usize) -> u16 {
        self.0.borrow().get16(at)
    }
}

impl State {
    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.memory[at], self.memory[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.memory[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.memory[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn offset(&self, address: u64, len: usize) -> usize {
        let at = address.checked_sub(BASE).expect("the address lies below our memory") as usize;
        assert!(at + len <= self.memory.len(), "the address lies behind our memory");
        at
    }

    fn layout(&self, queue: usize) -> Layout {
        let [descriptors, available, used] = self.queues[queue].addresses;
        Layout {
            descriptors: self.offset(descriptors, 0),
            available: self.offset(available, 0),
            used: self.offset(used, 0),
            end: 0,
        }
    }

    fn avail_index(&self, queue: usize) -> usize {
        self.layout(queue).avail_index()
    }

    fn used_index(&self, queue: usize) -> usize {
        self.layout(queue).used_index()
    }

    fn event_idx(&self) -> bool {
        self.chosen & FEATURE_EVENT_IDX != 0
    }

    fn log(&mut self, access: Access) {
        if let Some(log) = &mut self.log {
            log.push(access);
        }
    }

    /// The next descriptor that the driver has made available.
    fn next_available(&mut self, queue: usize) -> Option<u16> {
        if !self.queues[queue].ready {
            return None;
        }
        let (layout, size) = (self.layout(queue), self.queues[queue].size);
        let (taken, published) = (self.queues[queue].taken, self.get16(layout.avail_index()));
        let waiting = published.wrapping_sub(taken);
        assert!(waiting <= size, "the available index jumped by {waiting}");
        if waiting == 0 {
            return None;
        }
        let id = self.get16(layout.avail_slot(taken & (size - 1)));
        assert!(id < size, "descriptor {id} is made available");
        assert!(!self.queues[queue].owned.contains(&id), "descriptor {id} is ours already");
        self.queues[queue].owned.push(id);
        self.queues[queue].taken = taken.wrapping_add(1);
        if self.event_idx() {
            // The next doorbell is wanted when the driver adds the next one.
            let at = layout.avail_event(size);
            let event = self.queues[queue].taken;
            self.put16(at, event);
        }
        Some(id)
    }

    fn descriptor(&self, queue: usize, id: u16) -> (usize, usize, bool) {
        let at = self.layout(queue).descriptors + 16 * usize::from(id);
        let mut address = [0; 8];
        address.copy_from_slice(&self.memory[at..at + 8]);
        let len = usize::from(self.get16(at + 8)) | usize::from(self.get16(at + 10)) << 16;
        let flags = self.get16(at + 12);
        assert_eq!(flags & !2, 0, "descriptor {id} has flags {flags}");
        (self.offset(u64::from_le_bytes(address), len), len, flags & 2 != 0)
    }

    fn send(&mut self, id: u16) {
        let (at, len, writable) = self.descriptor(TX, id);
        assert!(!writable && len >= HEADER_BYTES, "send buffer {id}");
        assert!(self.memory[at..at + HEADER_BYTES].iter().all(|byte| *byte == 0), "header");
        let frame = self.memory[at + HEADER_BYTES..at + len].to_vec();
        self.sent.push(frame);
    }

    fn complete(&mut self, queue: usize, id: u16, len_bytes: u32) {
        let owned = &mut self.queues[queue].owned;
        let index = owned.iter().position(|owned| *owned == id).expect("the device has it");
        owned.swap_remove(index);
        self.write_used(queue, id.into(), len_bytes);
    }

    fn write_used(&mut self, queue: usize, id: u32, len_bytes: u32) {
        let (layout, size) = (self.layout(queue), self.queues[queue].size);
        let old = self.queues[queue].used;
        let slot = layout.used_slot(old & (size - 1));
        self.put32(slot, id);
        self.put32(slot + 4, len_bytes);
        let new = old.wrapping_add(1);
        self.queues[queue].used = new;
        self.put16(layout.used_index(), new);
        let flags = self.get16(layout.avail_flags());
        let wanted = if self.event_idx() {
            assert_eq!(flags, 0, "flags must be 0 with EVENT_IDX");
            need_event(self.get16(layout.used_event(size)), new, old)
        } else {
            flags & AVAIL_NO_INTERRUPT == 0
        };
        if wanted && !self.behaviour.silent {
            self.interrupt |= 1;
            self.interrupts += 1;
        }
    }

    fn reset(&mut self) {
        self.status = 0;
        self.chosen = 0;
        self.interrupt = 0;
        self.reset_reads_left = self.behaviour.reset_reads;
        for queue in &mut self.queues {
            *queue = FakeQueue { doorbells: queue.doorbells, ..FakeQueue::default() };
        }
    }

    fn write(&mut self, at: usize, value: u32) {
        let selected = self.select[2] as usize;
        match at {
            register::DEVICE_FEATURES_SEL => self.select[0] = value,
            register::DRIVER_FEATURES_SEL => self.select[1] = value,
            register::QUEUE_SEL => self.select[2] = value,
            register::DRIVER_FEATURES => {
                assert_eq!(self.status & status::FEATURES_OK, 0, "features after FEATURES_OK");
                let shift = 32 * self.select[1];
                self.chosen = self.chosen & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            register::STATUS if value == 0 => self.reset(),
            register::STATUS => {
                let refused = self.behaviour.refuse_features
                    || self.chosen & !self.behaviour.offered != 0
                    || self.chosen & FEATURE_VERSION_1 == 0;
                self.status = if refused { value & !status::FEATURES_OK } else { value };
                if value & status::DRIVER_OK != 0 && self.behaviour.fails_at_start {
                    self.status |= status::DEVICE_NEEDS_RESET;
                }
            }
            register::QUEUE_NUM => self.queues[selected].size = value as u16,
            register::QUEUE_READY => {
                let queue = &mut self.queues[selected];
                queue.ready = value == 1;
                let [descriptors, available, used] = queue.addresses;
                assert!(descriptors.is_multiple_of(16), "descriptor table");
                assert!(available.is_multiple_of(2), "available ring");
                assert!(used.is_multiple_of(4), "used ring");
                let no_notify = u16::from(self.behaviour.no_notify) * USED_NO_NOTIFY;
                let flags = self.layout(selected).used_flags();
                self.put16(flags, no_notify);
            }
            register::QUEUE_DESC_LOW..=register::QUEUE_DEVICE_HIGH => {
                let part = (at - register::QUEUE_DESC_LOW) / 16;
                let shift = if at % 16 == 4 { 32 } else { 0 };
                let address = &mut self.queues[selected].addresses[part];
                *address = *address & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            register::QUEUE_NOTIFY => {
                self.log(Access::Doorbell(value));
                self.queues[value as usize].doorbells += 1;
                if value as usize == TX && self.behaviour.sends_at_once {
                    while let Some(id) = self.next_available(TX) {
                        self.send(id);
                        self.complete(TX, id, 0);
                    }
                }
            }
            register::INTERRUPT_ACK => {
                self.log(Access::Acknowledge);
                self.interrupt &= !value;
            }
            _ => panic!("register {at:#x} is not to be written"),
        }
    }

    fn read(&mut self, at: usize) -> u32 {
        match at {
            register::MAGIC => mmio::MAGIC,
            register::VERSION => self.behaviour.version,
            register::DEVICE_ID => net::DEVICE_NET,
            register::DEVICE_FEATURES => (self.behaviour.offered >> (32 * self.select[0])) as u32,
            register::QUEUE_NUM_MAX => self.behaviour.queue_frames_max,
            register::QUEUE_READY => self.queues[self.select[2] as usize].ready.into(),
            register::INTERRUPT_STATUS => self.interrupt,
            register::CONFIG_GENERATION => self.generation,
            register::STATUS => match self.reset_reads_left {
                0 => self.status,
                _ => {
                    self.reset_reads_left -= 1;
                    status::DRIVER_OK
                }
            },
            _ => panic!("register {at:#x} is not to be read"),
        }
    }
}

impl Registers for FakeRegisters {
    fn read8(&self, at: usize) -> u8 {
        let mut state = self.0.borrow_mut();
        if state.behaviour.config_changes > 0 {
            state.behaviour.config_changes -= 1;
            state.generation += 1;
        }
        // 52:54:00:12:34:56, but halfway through a change the bytes are of no use.
        let byte = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56][at - register::CONFIG];
        if state.behaviour.config_changes > 0 { !byte } else { byte }
    }

    fn read32(&self, at: usize) -> u32 {
        assert!(at < register::CONFIG, "the MAC address is read in bytes");
        self.0.borrow_mut().read(at)
    }

    fn write32(&self, at: usize, value: u32) {
        self.0.borrow_mut().write(at, value);
    }
}

impl Memory for FakeMemory {
    fn len_bytes(&self) -> usize {
        self.0.borrow().memory.len()
    }

    fn address(&self) -> u64 {
        BASE
    }

    fn read16(&self, at: usize) -> u16 {
        assert!(at.is_multiple_of(2), "{at:#x}");
        let mut state = self.0.borrow_mut();
        state.log(Access::Read(at));
        state.get16(at)
    }

    fn read32(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4), "{at:#x}");
        let mut state = self.0.borrow_mut();
        state.log(Access::Read(at));
        u32::from(state.get16(at)) | u32::from(state.get16(at + 2)) << 16
    }

    fn write16(&self, at: usize, value: u16) {
        assert!(at.is_multiple_of(2), "{at:#x}");
        let mut state = self.0.borrow_mut();
        state.log(Access::Write(at));
        state.put16(at, value);
    }

    fn write32(&self, at: usize, value: u32) {
        let mut state = self.0.borrow_mut();
        state.log(Access::Write(at));
        state.put32(at, value);
    }

    fn write64(&self, at: usize, value: u64) {
        let mut state = self.0.borrow_mut();
        state.log(Access::Write(at));
        state.put32(at, value as u32);
        state.put32(at + 4, (value >> 32) as u32);
    }

    fn with_bytes<T>(&mut self, range: Range<usize>, work: impl FnOnce(&mut [u8]) -> T) -> T {
        work(&mut self.0.borrow_mut().memory[range])
    }

    fn copy(&mut self, from: usize, to: usize, len_bytes: usize) {
        self.0.borrow_mut().memory.copy_within(from..from + len_bytes, to);
    }

    fn write_barrier(&self) {
        self.0.borrow_mut().log(Access::WriteBarrier);
    }

    fn read_barrier(&self) {
        self.0.borrow_mut().log(Access::ReadBarrier);
    }

    fn full_barrier(&self) {
        self.0.borrow_mut().log(Access::FullBarrier);
    }
}
