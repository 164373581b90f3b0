//! The functions of the header against the fake device, and what they refuse.

use core::ffi::c_void;
use std::cell::RefCell;
use std::ops::Range;
use std::ptr::{null, null_mut};

use virtio::Memory;
use virtio::fake::{Behaviour, FakeDevice, TX};
use virtio::mmio::{MAGIC, status};
use virtio::net::pool_frames;

use super::*;
use crate::memory::WpvMemory;

const RING_FRAMES: u16 = 8;
const SETTINGS: WpvSettings = WpvSettings {
    ring_frames: RING_FRAMES,
    event_idx: 0,
    packed: 0,
    indirect: 0,
    tx_interrupts: 1,
};
const NO_FRAME: WpvFrame = WpvFrame { bytes: null_mut(), number: 0, len_bytes: 0 };

thread_local! {
    /// Calls of the hooks: true for those that write back, and the range by addresses.
    static HOOKED: RefCell<Vec<(bool, Range<usize>)>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn clean(start: *mut c_void, len_bytes: usize) {
    let range = start.addr()..start.addr() + len_bytes;
    HOOKED.with_borrow_mut(|calls| calls.push((true, range)));
}

unsafe extern "C" fn invalidate(start: *mut c_void, len_bytes: usize) {
    let range = start.addr()..start.addr() + len_bytes;
    HOOKED.with_borrow_mut(|calls| calls.push((false, range)));
}

/// A card on the fake device, with hooks for caches.
fn started(behaviour: Behaviour, settings: WpvSettings) -> (FakeDevice, WpvCard) {
    let len_bytes = wpv_memory_bytes(settings.ring_frames);
    let (device, registers, mut memory) = FakeDevice::with_memory(behaviour, len_bytes);
    let start = memory.with_bytes(0..len_bytes, |bytes| bytes.as_mut_ptr());
    // SAFETY: the device keeps the memory where it is, and lives as long as the card.
    let dma = unsafe { Dma::new(start, len_bytes, memory.address()) };
    let (clean, invalidate) = (Some(clean as _), Some(invalidate as _));
    let shared = SharedMemory { dma, start, clean, invalidate };
    let driver = NetDriver::start(Window::Fake(registers), shared, settings.settings());
    (device, WpvCard { driver: driver.expect("the device starts") })
}

fn taken(card: &mut WpvCard) -> (WpvError, WpvFrame) {
    let mut frame = NO_FRAME;
    // SAFETY: both are of this test alone.
    (unsafe { wpv_rx_take(card, &mut frame) }, frame)
}

fn free_frame(card: &mut WpvCard) -> (WpvError, WpvFrame) {
    let mut frame = NO_FRAME;
    // SAFETY: both are of this test alone.
    (unsafe { wpv_frame_take(card, &mut frame) }, frame)
}

fn rx_post(card: &mut WpvCard, number: u16) -> WpvError {
    // SAFETY: the card is of this test alone.
    unsafe { wpv_rx_post(card, number) }
}

fn frame_free(card: &mut WpvCard, number: u16) -> WpvError {
    // SAFETY: the card is of this test alone.
    unsafe { wpv_frame_free(card, number) }
}

fn tx_post(card: &mut WpvCard, number: u16, len_bytes: usize) -> WpvError {
    // SAFETY: the card is of this test alone.
    unsafe { wpv_tx_post(card, number, len_bytes) }
}

fn kick(card: &mut WpvCard) {
    // SAFETY: the card is of this test alone.
    unsafe { wpv_rx_kick(card) };
    // SAFETY: the card is of this test alone.
    unsafe { wpv_tx_kick(card) };
}

fn reaped(card: &mut WpvCard) -> (WpvError, u16) {
    let mut count = 0;
    // SAFETY: both are of this test alone.
    (unsafe { wpv_tx_reap(card, &mut count) }, count)
}

fn frame_bytes(frame: &WpvFrame) -> &'static mut [u8] {
    // SAFETY: the test holds the frame, and no other slice of it is in use.
    unsafe { core::slice::from_raw_parts_mut(frame.bytes, FRAME_BYTES_MAX) }
}

#[test]
fn frames_pass_both_ways() {
    for (packed, indirect, event_idx) in [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 0)] {
        let settings = WpvSettings { packed, indirect, event_idx, ..SETTINGS };
        let (device, mut card) = started(Behaviour::default(), settings);
        assert_eq!(taken(&mut card).0, WpvError::Empty);
        for turn in 0..100_u8 {
            let frame = [turn; 200];
            assert!(device.receive(&frame));
            let (error, received) = taken(&mut card);
            assert_eq!((error, received.len_bytes), (WpvError::Ok, 200));
            assert_eq!(frame_bytes(&received)[..200], frame);
            // Every other one is sent back in place, the rest posted again.
            if turn % 2 == 0 {
                assert_eq!(rx_post(&mut card, received.number), WpvError::Ok);
                let (error, sent) = free_frame(&mut card);
                assert_eq!(error, WpvError::Ok);
                frame_bytes(&sent)[..200].fill(turn);
                assert_eq!(tx_post(&mut card, sent.number, 200), WpvError::Ok);
            } else {
                assert_eq!(tx_post(&mut card, received.number, 200), WpvError::Ok);
            }
            kick(&mut card);
            assert_eq!(device.take_sent(), [frame]);
            assert_eq!(reaped(&mut card), (WpvError::Ok, 1));
        }
        assert_eq!(card.driver.ledger().total(), pool_frames(RING_FRAMES) as u32);
    }
}

#[test]
fn number_of_a_frame_that_the_caller_does_not_hold_is_refused() {
    let (device, mut card) = started(Behaviour::default(), SETTINGS);
    assert!(device.receive(&[1; 60]));
    let number = taken(&mut card).1.number;
    assert_eq!(rx_post(&mut card, number), WpvError::Ok);
    for number in [number, pool_frames(RING_FRAMES) as u16, u16::MAX] {
        assert_eq!(rx_post(&mut card, number), WpvError::Frame);
        assert_eq!(frame_free(&mut card, number), WpvError::Frame);
        assert_eq!(tx_post(&mut card, number, 60), WpvError::Frame);
    }
    assert_eq!(card.driver.ledger().held_count, 0);
}

#[test]
fn full_ring_and_wrong_length_leave_the_frame_with_the_caller() {
    let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
    let (_device, mut card) = started(behaviour, SETTINGS);
    let (_, frame) = free_frame(&mut card);
    for len_bytes in [0, FRAME_BYTES_MAX + 1, usize::MAX] {
        assert_eq!(tx_post(&mut card, frame.number, len_bytes), WpvError::Length);
    }
    for _ in 0..RING_FRAMES {
        let (_, other) = free_frame(&mut card);
        assert_eq!(tx_post(&mut card, other.number, 60), WpvError::Ok);
    }
    assert_eq!(free_frame(&mut card).0, WpvError::Ok, "the pool is not empty");
    assert_eq!(tx_post(&mut card, frame.number, 60), WpvError::Full);
    assert_eq!(frame_free(&mut card, frame.number), WpvError::Ok);
    assert_eq!(reaped(&mut card), (WpvError::Ok, 0));
}

#[test]
fn fault_of_the_device_is_a_number_and_a_restart_ends_it() {
    let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
    let (device, mut card) = started(behaviour, SETTINGS);
    let (_, frame) = free_frame(&mut card);
    assert_eq!(tx_post(&mut card, frame.number, 60), WpvError::Ok);
    kick(&mut card);
    device.forge_used(TX, 77, 0);
    assert_eq!(reaped(&mut card), (WpvError::Fault, 0));
    device.forge_index(TX, 300);
    for _ in 0..2 {
        assert_eq!(reaped(&mut card), (WpvError::Restart, 0));
    }
    device.set_status(status::DEVICE_NEEDS_RESET);
    // SAFETY: the card is of this test alone.
    assert_eq!(unsafe { wpv_needs_restart(&mut card) }, 1);
    // SAFETY: the card is of this test alone.
    assert_eq!(unsafe { wpv_restart(&mut card) }, WpvError::Ok);
    assert!(device.receive(&[5; 60]));
    assert_eq!(taken(&mut card).0, WpvError::Ok);
    device.behave(|behaviour| behaviour.refuse_features = true);
    // SAFETY: the card is of this test alone.
    assert_eq!(unsafe { wpv_restart(&mut card) }, WpvError::Features);
}

#[test]
fn caches_are_written_back_before_the_card_reads_and_dropped_before_the_caller_does() {
    let (device, mut card) = started(Behaviour::default(), SETTINGS);
    assert!(device.receive(&[1; 300]));
    HOOKED.take();
    let (_, frame) = taken(&mut card);
    let start = frame.bytes.addr();
    assert_eq!(HOOKED.take().last(), Some(&(false, start..start + 300)));
    assert_eq!(tx_post(&mut card, frame.number, 300), WpvError::Ok);
    let calls = HOOKED.take();
    assert!(!calls.contains(&(false, start..start + 300)), "what the caller wrote is kept");
    let whole = calls.iter().position(|call| *call == (true, start..start + FRAME_BYTES_MAX));
    let header = calls.iter().position(|call| *call == (true, start - 12..start));
    assert!(whole.is_some() && header.is_some(), "{calls:?}");
    kick(&mut card);
    let calls = HOOKED.take();
    assert!(calls.iter().any(|(is_clean, _)| *is_clean), "the index is written back: {calls:?}");
    let (_, free) = free_frame(&mut card);
    HOOKED.take();
    assert_eq!(frame_free(&mut card, free.number), WpvError::Ok);
    let start = free.bytes.addr();
    assert_eq!(HOOKED.take(), [(true, start..start + FRAME_BYTES_MAX)]);
}

#[test]
fn null_pointers_are_refused() {
    let (none, mut frame) = (null_mut::<WpvCard>(), NO_FRAME);
    let (_device, mut card) = started(Behaviour::default(), SETTINGS);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_restart(none) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_mac(none, &mut [0; 6]) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_rx_take(none, &mut frame) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_frame_take(none, &mut frame) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_tx_reap(none, null_mut()) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_rx_post(none, 0) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_tx_post(none, 0, 60) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_rx_take(&mut card, null_mut()) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_frame_take(&mut card, null_mut()) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_mac(&mut card, null_mut()) }, WpvError::Argument);
    // SAFETY: null is what is tried.
    assert_eq!(unsafe { wpv_tx_reap(&mut card, null_mut()) }, WpvError::Ok);
    assert_eq!(card.driver.ledger().held_count, 0);
}

/// Memory as a C program has it: state, shared memory, and a page for registers.
#[repr(C, align(4096))]
struct Place {
    shared: [u8; 53_248],
    registers: [u32; 1024],
    state: [u8; 8192],
}

impl Place {
    /// Registers of virtio-mmio that keep what is written to them.
    fn new(magic: u32, version: u32, device: u32) -> Box<Place> {
        let mut place = Box::new(Place { shared: [0; _], registers: [0; _], state: [0; _] });
        place.registers[..3].copy_from_slice(&[magic, version, device]);
        place
    }

    fn memory(&mut self) -> WpvMemory {
        WpvMemory {
            state: self.state.as_mut_ptr().cast(),
            state_bytes: self.state.len(),
            shared: self.shared.as_mut_ptr().cast(),
            shared_bytes: self.shared.len(),
            shared_address: self.shared.as_ptr().addr() as u64,
            clean: None,
            invalidate: None,
        }
    }

    /// Starts a card, with the memory changed.
    fn start(&mut self, change: impl FnOnce(&mut WpvMemory)) -> WpvError {
        let (mut memory, mut card) = (self.memory(), null_mut());
        change(&mut memory);
        let registers = self.registers.as_mut_ptr().cast();
        // SAFETY: all of it is of this test alone.
        unsafe { wpv_start_mmio(&mut card, &memory, &SETTINGS, registers) }
    }
}

#[test]
fn what_is_no_card_is_refused_by_its_kind() {
    for (magic, version, device, error) in [
        (0, 2, 1, WpvError::NotVirtio),
        (MAGIC, 1, 1, WpvError::Legacy),
        (MAGIC, 2, 0, WpvError::NotNet),
        (MAGIC, 2, 2, WpvError::NotNet),
        (MAGIC, 2, 1, WpvError::Features),
    ] {
        assert_eq!(Place::new(magic, version, device).start(|_| ()), error);
    }
    // Both halves of the features have bit 0; no queue.
    let mut place = Place::new(MAGIC, 2, 1);
    place.registers[4] = 1;
    assert_eq!(place.start(|_| ()), WpvError::Queue);
}

/// Error of a start with the memory changed.
fn refused(change: fn(&mut WpvMemory)) -> WpvError {
    Place::new(MAGIC, 2, 1).start(change)
}

#[test]
fn memory_that_does_not_suffice_is_refused() {
    assert_eq!(refused(|memory| memory.state = null_mut()), WpvError::Argument);
    assert_eq!(
        refused(|memory| memory.state = memory.state.wrapping_byte_add(8)),
        WpvError::Argument
    );
    assert_eq!(refused(|memory| memory.state_bytes = wpv_state_bytes() - 1), WpvError::Memory);
    assert_eq!(refused(|memory| memory.shared = null_mut()), WpvError::Argument);
    assert_eq!(refused(|memory| memory.shared_bytes = 50_623), WpvError::Memory);
    assert_eq!(
        refused(|memory| memory.shared = memory.shared.wrapping_byte_add(64)),
        WpvError::Memory
    );
    assert_eq!(refused(|memory| memory.shared_address += 64), WpvError::Memory);
    assert_eq!(refused(|memory| memory.shared_address = !4095), WpvError::Memory);
    assert_eq!(refused(|memory| memory.clean = Some(clean)), WpvError::Argument);
}

#[test]
fn packed_rings_without_coherent_caches_are_refused() {
    let mut place = Place::new(MAGIC, 2, 1);
    let memory = WpvMemory { clean: Some(clean), invalidate: Some(invalidate), ..place.memory() };
    let settings = WpvSettings { packed: 1, ..SETTINGS };
    let (mut card, registers) = (null_mut(), place.registers.as_mut_ptr().cast());
    // SAFETY: all of it is of this test alone.
    let error = unsafe { wpv_start_mmio(&mut card, &memory, &settings, registers) };
    assert_eq!((error, card), (WpvError::Coherence, null_mut()));
    // SAFETY: null is what is tried.
    let error = unsafe { wpv_start_mmio(&mut card, null(), &settings, registers) };
    assert_eq!(error, WpvError::Argument);
}

#[test]
fn pci_function_that_is_no_card_is_refused() {
    let mut place = Place::new(0xffff_ffff, 0, 0);
    let message = WpvMessage { address: 0, data: 0 };
    let pci = WpvPci {
        config: place.registers.as_mut_ptr().cast(),
        window_start: 0,
        window_end: 0,
        virtual_offset: 0,
        message_count: 0,
        messages: [message; 2],
    };
    let (memory, mut card) = (place.memory(), null_mut());
    // SAFETY: all of it is of this test alone.
    let error = unsafe { wpv_start_pci(&mut card, &memory, &SETTINGS, &pci) };
    assert_eq!(error, WpvError::NotVirtio);
    place.registers[0] = 0x1041_1af4;
    // SAFETY: all of it is of this test alone.
    let error = unsafe { wpv_start_pci(&mut card, &memory, &SETTINGS, &pci) };
    assert!(matches!(error, WpvError::PciBar | WpvError::PciWindow), "{error:?}");
    let pci = WpvPci { config: null_mut(), ..pci };
    // SAFETY: null is what is tried.
    let error = unsafe { wpv_start_pci(&mut card, &memory, &SETTINGS, &pci) };
    assert_eq!((error, card), (WpvError::Argument, null_mut()));
}
