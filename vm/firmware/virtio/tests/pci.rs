//! The driver over PCI: a function around the fake device, with structures where QEMU has them, and hostile ones.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use common::PLAIN;
use wirepath_virtio::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters};
use wirepath_virtio::mmio::register;
use wirepath_virtio::net::NetDriver;
use wirepath_virtio::pci::{Message, PciAccess, PciError, PciRegisters};
use wirepath_virtio::{Registers, StartError};

const WINDOW: std::ops::Range<u64> = 0x1000_0000..0x1010_0000;
/// BARs: 0 is I/O, 1 the MSI-X table, 4 and 5 one of 64 bits for the structures.
const SIZES: [u64; 6] = [0, 0x1000, 0, 0, 0x4000, 0];
const COMMON: u64 = 0;
const ISR: u64 = 0x1000;
const CONFIG: u64 = 0x2000;
const NOTIFY: u64 = 0x3000;
const NOTIFY_MULTIPLIER: u32 = 4;
const MSIX_AT: usize = 0x98;

/// A PCI function. Accesses outside of its BARs panic.
struct Function {
    config: RefCell<[u32; 64]>,
    registers: FakeRegisters,
    selected: Cell<u16>,
    /// Vector of each queue.
    vectors: RefCell<BTreeMap<u16, u16>>,
    /// Vectors of the device.
    vector_count: u16,
    notify_offset: u16,
    table: RefCell<[u32; 16]>,
}

/// Writes words of the configuration space.
fn put(config: &mut [u32; 64], at: usize, words: &[u32]) {
    config[at / 4..at / 4 + words.len()].copy_from_slice(words);
}

/// First word of the capability of a structure.
const fn structure(kind: u32, next: u32, len_bytes: u32) -> u32 {
    kind << 24 | len_bytes << 16 | next << 8 | 9
}

impl Function {
    fn new(registers: FakeRegisters) -> Function {
        let mut config = [0; 64];
        config[0] = 0x1000_1af4;
        config[1] = 1 << 20;
        config[4] = 1;
        config[8] = 4;
        config[13] = MSIX_AT as u32;
        // Two entries.
        put(&mut config, MSIX_AT, &[0x0001_8411, 1, 0]);
        put(
            &mut config,
            0x84,
            &[structure(2, 0x70, 20), 4, NOTIFY as u32, 0x1000, NOTIFY_MULTIPLIER],
        );
        put(&mut config, 0x70, &[structure(4, 0x60, 16), 4, CONFIG as u32, 0x1000]);
        put(&mut config, 0x60, &[structure(3, 0x50, 16), 4, ISR as u32, 0x1000]);
        put(&mut config, 0x50, &[structure(1, 0x40, 16), 4, COMMON as u32, 0x1000]);
        // Access by the configuration space, which is not used.
        put(&mut config, 0x40, &[structure(5, 0, 16), 0, 0, 0]);
        Function {
            config: RefCell::new(config),
            registers,
            selected: Cell::new(0),
            vectors: RefCell::default(),
            vector_count: 2,
            notify_offset: 1,
            table: RefCell::new([1; 16]),
        }
    }

    /// Changes a word of the configuration space.
    fn with(self, at: usize, word: u32) -> Function {
        self.config.borrow_mut()[at / 4] = word;
        self
    }

    /// BAR and offset of an address. Panics while memory is disabled.
    fn place(&self, address: u64) -> (usize, u64) {
        let config = self.config.borrow();
        assert_ne!(config[1] & 2, 0, "memory is disabled");
        for (number, len) in SIZES.into_iter().enumerate().filter(|(_, len)| *len > 0) {
            let high = if number == 4 { u64::from(config[9]) << 32 } else { 0 };
            let base = high | u64::from(config[4 + number] & !0xf);
            if (base..base + len).contains(&address) {
                return (number, address - base);
            }
        }
        panic!("no memory at {address:#x}");
    }

    /// Offset in the structures' BAR.
    fn structure(&self, address: u64) -> u64 {
        let (4, offset) = self.place(address) else { panic!("{address:#x} is in another BAR") };
        offset
    }
}

impl PciAccess for &Function {
    fn config_read32(&self, at: u8) -> u32 {
        assert!(at.is_multiple_of(4), "{at:#x}");
        self.config.borrow()[usize::from(at) / 4]
    }

    fn config_write32(&self, at: u8, value: u32) {
        let word = &mut self.config.borrow_mut()[usize::from(at) / 4];
        *word = match at {
            0x04 => *word & 0xffff_0000 | value & 0xffff,
            0x10 => *word,
            0x14 => value & !0xfff,
            0x20 => value & !0x3fff | 4,
            0x24 => value,
            0x18 | 0x1c => 0,
            _ if usize::from(at) == MSIX_AT => *word & 0x3fff_ffff | value & 0xc000_0000,
            _ => panic!("{at:#x} is not writable"),
        };
    }

    fn read8(&self, address: u64) -> u8 {
        match self.structure(address) {
            0x14 => self.registers.read32(register::STATUS) as u8,
            0x15 => self.registers.read32(register::CONFIG_GENERATION) as u8,
            ISR => {
                let causes = self.registers.read32(register::INTERRUPT_STATUS);
                self.registers.write32(register::INTERRUPT_ACK, causes);
                causes as u8
            }
            at @ CONFIG..NOTIFY => self.registers.read8(register::CONFIG + (at - CONFIG) as usize),
            at => panic!("no byte at {at:#x}"),
        }
    }

    fn read16(&self, address: u64) -> u16 {
        match self.structure(address) {
            0x18 => self.registers.read32(register::QUEUE_NUM_MAX) as u16,
            0x1a => *self.vectors.borrow().get(&self.selected.get()).unwrap_or(&0xffff),
            0x1c => self.registers.read32(register::QUEUE_READY) as u16,
            0x1e => self.selected.get() * self.notify_offset,
            at => panic!("no 16 bits at {at:#x}"),
        }
    }

    fn read32(&self, address: u64) -> u32 {
        match self.structure(address) {
            0x04 => self.registers.read32(register::DEVICE_FEATURES),
            at => panic!("no 32 bits at {at:#x}"),
        }
    }

    fn write8(&self, address: u64, value: u8) {
        match self.structure(address) {
            0x14 => self.registers.write32(register::STATUS, value.into()),
            at => panic!("no byte at {at:#x}"),
        }
    }

    fn write16(&self, address: u64, value: u16) {
        match self.structure(address) {
            0x10 => {}
            0x16 => {
                self.selected.set(value);
                self.registers.write32(register::QUEUE_SEL, value.into());
            }
            0x18 => self.registers.write32(register::QUEUE_NUM, value.into()),
            0x1a if value < self.vector_count => {
                self.vectors.borrow_mut().insert(self.selected.get(), value);
            }
            0x1a => {}
            0x1c => self.registers.write32(register::QUEUE_READY, value.into()),
            at @ NOTIFY..=0x4000 => {
                let expected = u64::from(value * self.notify_offset) * u64::from(NOTIFY_MULTIPLIER);
                assert_eq!(at - NOTIFY, expected, "doorbell of queue {value}");
                self.registers.write32(register::QUEUE_NOTIFY, value.into());
            }
            at => panic!("no 16 bits at {at:#x}"),
        }
    }

    fn write32(&self, address: u64, value: u32) {
        if let (1, offset) = self.place(address) {
            self.table.borrow_mut()[offset as usize / 4] = value;
            return;
        }
        let at = match self.structure(address) {
            0x00 => register::DEVICE_FEATURES_SEL,
            0x08 => register::DRIVER_FEATURES_SEL,
            0x0c => register::DRIVER_FEATURES,
            0x20 => register::QUEUE_DESC_LOW,
            0x24 => register::QUEUE_DESC_LOW + 4,
            0x28 => register::QUEUE_DRIVER_LOW,
            0x2c => register::QUEUE_DRIVER_LOW + 4,
            0x30 => register::QUEUE_DEVICE_LOW,
            0x34 => register::QUEUE_DEVICE_HIGH,
            at => panic!("no 32 bits at {at:#x}"),
        };
        self.registers.write32(at, value);
    }
}

fn function() -> (FakeDevice, Function, FakeMemory) {
    let (device, registers, memory) = FakeDevice::new(Behaviour::default());
    (device, Function::new(registers), memory)
}

/// Error of opening a function with one word of its configuration space changed.
fn refused(at: usize, word: u32) -> Option<PciError> {
    let (_device, function, _memory) = function();
    let function = function.with(at, word);
    PciRegisters::open(&function, WINDOW).err()
}

/// Frames both ways, and a restart.
fn exchange(device: &FakeDevice, driver: &mut NetDriver<PciRegisters<&Function>, FakeMemory>) {
    for turn in 0..600_u16 {
        let frame = [turn as u8; 100];
        assert!(device.receive(&frame));
        let _ = driver.take_interrupt();
        let received = driver.rx_take().expect("it came").expect("it is good");
        driver.tx_post(received.frame, received.len_bytes).expect("there is room");
        driver.tx_kick();
        assert_eq!(device.take_sent(), [frame]);
        assert_eq!(driver.tx_reap(), (1, None));
        driver.rx_refill();
        driver.rx_kick();
        if turn == 300 {
            driver.restart().expect("the device starts");
        }
    }
}

#[test]
fn frames_pass_over_pci_both_ways_and_after_a_restart() {
    for settings in common::every() {
        let (device, function, memory) = function();
        let registers = PciRegisters::open(&function, WINDOW).expect("it is a card");
        let mut driver = NetDriver::start(registers, memory, settings).expect("it starts");
        assert_eq!(driver.mac(), Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        exchange(&device, &mut driver);
    }
}

#[test]
fn causes_of_the_pin_are_acknowledged_by_reading_them() {
    let (device, function, memory) = function();
    let registers = PciRegisters::open(&function, WINDOW).expect("it is a card");
    let driver = NetDriver::start(registers, memory, PLAIN).expect("it starts");
    assert!(driver.take_interrupt().is_spurious());
    assert!(device.receive(&[0; 60]));
    assert!(driver.take_interrupt().used);
    assert!(!device.interrupt_is_up() && driver.take_interrupt().is_spurious());
}

#[test]
fn bars_get_aligned_addresses_of_the_window_and_those_with_one_keep_it() {
    let (_device, function, _memory) = function();
    let function = function.with(0x14, 0xc000_0000);
    PciRegisters::open(&function, WINDOW).expect("it is a card");
    let config = *function.config.borrow();
    assert_eq!((config[5], config[8], config[9]), (0xc000_0000, 0x1000_0004, 0));
    assert_eq!(config[1] & 7, 6, "memory and bus master, as before no I/O");
}

#[test]
fn messages_are_written_to_the_table_and_named_for_both_queues() {
    let messages = [(0x802_0040, 80), (0x1_0000_0040, 81)];
    let [rx, tx] = messages.map(|(address, data)| Message { address, data });
    for (tx, vectors, entry_1) in [(Some(tx), [0, 1], [0x40, 1, 81, 0]), (None, [0, 0], [1; 4])] {
        let (device, function, memory) = function();
        let mut registers = PciRegisters::open(&function, WINDOW).expect("it is a card");
        registers.use_messages(rx, tx).expect("it has two");
        let mut driver = NetDriver::start(registers, memory, PLAIN).expect("it starts");
        exchange(&device, &mut driver);
        let found: Vec<u16> = function.vectors.borrow().values().copied().collect();
        assert_eq!(found, vectors);
        assert_eq!(function.table.borrow()[..4], [0x802_0040, 0, 80, 0]);
        assert_eq!(function.table.borrow()[4..8], entry_1);
        assert_eq!(function.config.borrow()[MSIX_AT / 4] >> 30, 0b10, "enabled, not masked");
    }
}

#[test]
fn vector_that_the_device_refuses_fails_the_start() {
    let (_device, function, memory) = function();
    let function = Function { vector_count: 1, ..function };
    let mut registers = PciRegisters::open(&function, WINDOW).expect("it is a card");
    let message = Message { address: 0x802_0040, data: 80 };
    registers.use_messages(message, Some(message)).expect("it has two");
    let refused = NetDriver::start(registers, memory, PLAIN).err();
    assert_eq!(refused, Some(StartError::QueueRefused { queue: 1 }));
}

#[test]
fn doorbell_beyond_its_structure_fails_the_start() {
    let (_device, function, memory) = function();
    let function = Function { notify_offset: 0x400, ..function };
    let registers = PciRegisters::open(&function, WINDOW).expect("it is a card");
    let refused = NetDriver::start(registers, memory, PLAIN).err();
    assert_eq!(refused, Some(StartError::QueueRefused { queue: 1 }));
}

#[test]
fn functions_that_are_no_virtio_card_are_refused() {
    for (id, vendor, device) in
        [(u32::MAX, 0xffff, 0xffff), (0x1042_1af4, 0x1af4, 0x1042), (0x1041_8086, 0x8086, 0x1041)]
    {
        assert_eq!(refused(0, id), Some(PciError::NotVirtioNet { vendor, device }));
    }
    assert_eq!(refused(0, 0x1041_1af4), None);
}

#[test]
fn structures_that_exceed_their_bar_are_not_used() {
    let common = PciError::Capability { name: "common configuration" };
    // BAR, offset and length; the last pair overflows 32 bits.
    for (at, word) in [
        (0x54, 6),
        (0x54, 0),
        (0x54, 2),
        (0x58, 0x3fd0),
        (0x58, 2),
        (0x5c, 0x37),
        (0x58, u32::MAX - 3),
    ] {
        assert_eq!(refused(at, word), Some(common), "{word:#x} at {at:#x}");
    }
    let notification = PciError::Capability { name: "notification structure" };
    assert_eq!(refused(0x8c, 0x3001), Some(notification), "odd");
    assert_eq!(refused(0x84, 0x0210_7009), Some(notification), "without a multiplier");
    assert_eq!(refused(0x6c, 0), Some(PciError::Capability { name: "interrupt status" }));
    assert_eq!(refused(0x7c, 5), Some(PciError::Capability { name: "device configuration" }));
}

#[test]
fn list_of_capabilities_may_end_anywhere_but_not_loop() {
    let endless = PciError::Capability { name: "end of the list of capabilities" };
    assert_eq!(refused(0x40, 0x0510_9809), Some(endless));
    let none = PciError::Capability { name: "notification structure" };
    for (at, word) in [(4, 0), (0x34, 0), (0x34, 0x3c)] {
        assert_eq!(refused(at, word), Some(none));
    }
    // At the very end of the space there is no room for one.
    assert!(refused(0x34, 0xfc).is_some());
}

#[test]
fn bars_without_room_or_with_impossible_sizes_are_refused() {
    let cases = [(0x1000_0000..0x1000_4000, 0x4000), (0..0, 0x1000), (1 << 32..2 << 32, 0x1000)];
    for (window, needed_bytes) in cases {
        let (_device, function, _memory) = function();
        let error = PciRegisters::open(&function, window.clone()).err();
        assert_eq!(error, Some(PciError::Window { needed_bytes }), "{window:x?}");
    }
    assert_eq!(refused(0x24, u32::MAX), None, "an address of 64 bits is kept");
}

#[test]
fn function_without_enough_messages_says_so() {
    let message = Message { address: 0x802_0040, data: 80 };
    for (word, needed_entries, tx) in [(0x0000_8411, 2, Some(message)), (0x07ff_8411, 1, None)] {
        let (_device, function, _memory) = function();
        let function = function.with(MSIX_AT, word);
        let mut registers = PciRegisters::open(&function, WINDOW).expect("it is a card");
        let error = registers.use_messages(message, tx).err();
        assert_eq!(error, Some(PciError::Msix { needed_entries }), "{word:#x}");
    }
}
