//! A hostile driver as a stream of bytes: what the fuzz target, the corpus replay and the
//! property tests go through.

use super::{NicOptions, QUEUE_SIZE_MAX, RX, TX, VirtioNet, WORK_MAX, register, status};
use crate::bus::{Bus, GuestMemory, NetworkSide, PlainMemory, Reception, Sent};
use crate::bytes::Bytes;
use crate::lance::{FRAME_BYTES_MAX, Width};

/// Guest memory of the hostile driver.
pub const MEMORY_BYTES: usize = 1 << 16;
/// Most accesses to guest memory that one operation may make: for each descriptor the available index,
/// the ring's entry, the descriptor, its buffer, and two to return it.
const ACCESS_MAX: u64 = 6 * (WORK_MAX + 2 * QUEUE_SIZE_MAX as u64 + 2);
/// Place of the descriptors, the available and the used ring of a queue.
const RINGS: [u32; 2] = [0x1000, 0x4000];

/// A wire that checks what it carries.
#[derive(Debug, Default)]
struct CheckedWire {
    busy: bool,
}

impl NetworkSide for CheckedWire {
    fn send(&mut self, frame: &[u8]) -> Sent {
        assert!((14..=FRAME_BYTES_MAX).contains(&frame.len()));
        if self.busy { Sent::Busy } else { Sent::Taken }
    }
}

/// Invariants after every operation.
fn check(card: &VirtioNet, memory: &PlainMemory) {
    let accesses = memory.take_access_count();
    assert!(accesses <= ACCESS_MAX, "{accesses} accesses in one operation");
    let bits = card.read(register::STATUS, Width::Dword);
    let is_broken = bits & status::DEVICE_NEEDS_RESET != 0;
    assert_eq!(is_broken, card.fault().is_some());
    assert!(!is_broken || !card.can_transmit() && !card.has_demand() && !card.polls());
    assert!(bits & status::DRIVER_OK == 0 || bits & status::FEATURES_OK != 0);
    assert_eq!(card.irq(), card.read(register::INTERRUPT_STATUS, Width::Dword) != 0);
    assert!(!card.irq_tells_only_of_sent() || card.irq());
}

/// Runs the operations that `bytes` spell; returns how many.
///
/// The first byte chooses what the device offers and whether a driver has started it.
pub fn run(bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let memory = PlainMemory::new(MEMORY_BYTES);
    let mut wire = CheckedWire::default();
    let start = bytes.u8();
    let options =
        NicOptions { event_idx: start & 1 != 0, polls: start & 2 != 0, packed: start & 0x40 != 0 };
    let mut card = VirtioNet::new([0x02, b'w', b'p', 0, 0, 9], options);
    let mut bus = Bus { memory: &memory, wire: &mut wire };
    // Most inputs shall get past the first gate.
    if start & 0x80 == 0 {
        begin(&mut card, &mut bus, start >> 2 & 7);
    }
    let mut count = 0;
    while !bytes.0.is_empty() {
        operation(&mut card, &mut bus, &mut bytes);
        check(&card, bus.memory);
        count += 1;
    }
    count
}

type TestBus<'a> = Bus<'a, PlainMemory, CheckedWire>;

fn set(card: &mut VirtioNet, bus: &mut TestBus<'_>, offset: u16, value: u32) {
    card.write(bus, offset, Width::Dword, value);
}

/// Starts the card as a driver does, with queues of `2 << log2` descriptors.
fn begin(card: &mut VirtioNet, bus: &mut TestBus<'_>, log2: u8) {
    use register as r;
    set(card, bus, r::STATUS, 0);
    for half in 0..2 {
        set(card, bus, r::DEVICE_FEATURES_SEL, half);
        let offered = card.read(r::DEVICE_FEATURES, Width::Dword);
        set(card, bus, r::DRIVER_FEATURES_SEL, half);
        set(card, bus, r::DRIVER_FEATURES, offered);
    }
    set(card, bus, r::STATUS, 11);
    for queue in [RX, TX] {
        let rings = RINGS[usize::from(queue)];
        set(card, bus, r::QUEUE_SEL, queue.into());
        set(card, bus, r::QUEUE_NUM, 2 << log2);
        set(card, bus, r::QUEUE_DESC_LOW, rings);
        set(card, bus, r::QUEUE_DRIVER_LOW, rings + 0x1000);
        set(card, bus, r::QUEUE_DEVICE_LOW, rings + 0x2000);
        set(card, bus, r::QUEUE_READY, 1);
    }
    set(card, bus, r::STATUS, 15);
}

fn operation(card: &mut VirtioNet, bus: &mut TestBus<'_>, bytes: &mut Bytes<'_>) {
    let op = bytes.u8();
    let width = [Width::Dword, Width::Word, Width::Byte, Width::Dword][usize::from(op >> 4) & 3];
    match op & 0x0f {
        0 => {
            let (offset, value) = (bytes.u16() & 0x1ff, bytes.u32());
            card.write(bus, offset, width, value);
        }
        1 => {
            card.read(bytes.u16() & 0x1ff, width);
        }
        2 => begin(card, bus, op >> 4 & 7),
        3 => {
            let (at, value) = (bytes.u16(), bytes.u32());
            // Past the end of memory nothing is written.
            let _ = bus.memory.write(at.into(), &value.to_le_bytes());
        }
        4 | 5 => descriptor(bus.memory, op, bytes),
        6 | 7 => available(bus.memory, op, bytes),
        8 => set(card, bus, register::QUEUE_NOTIFY, (op >> 4).into()),
        9 => set(card, bus, register::STATUS, bytes.u8().into()),
        10 => bus.wire.busy = op & 0x10 != 0,
        11 => card.poll(bus),
        12 => {
            card.rearm(bus.memory);
        }
        13 => card.demand(bus),
        14 => set(card, bus, register::INTERRUPT_ACK, bytes.u8().into()),
        _ => receive(card, bus.memory, usize::from(bytes.u16() & 0x1fff)),
    }
}

/// Writes a descriptor of a queue, of any kind.
fn descriptor(memory: &PlainMemory, op: u8, bytes: &mut Bytes<'_>) {
    let rings = RINGS[usize::from(op >> 4 & 1)];
    let (slot, flags, next) = (bytes.u8(), bytes.u8(), bytes.u8());
    let (address, len_bytes) = (bytes.u16(), bytes.u16());
    let mut words = [0; 16];
    words[..4].copy_from_slice(&u32::from(address).to_le_bytes());
    // Of the other lap, in a packed queue.
    words[15] = if flags & 0xc0 == 0xc0 { 0x80 } else { 0 };
    // Beyond 32 bits, and long, when asked for.
    words[4] = u8::from(op & 0x40 != 0);
    words[8..10].copy_from_slice(&len_bytes.to_le_bytes());
    words[11] = if op & 0x80 != 0 { 0xff } else { 0 };
    words[12] = flags & 7;
    words[14] = next;
    let _ = memory.write(rings + 16 * u32::from(slot), &words);
}

/// Writes an entry of an available ring, and an index that may jump.
fn available(memory: &PlainMemory, op: u8, bytes: &mut Bytes<'_>) {
    let ring = RINGS[usize::from(op >> 4 & 1)] + 0x1000;
    let (slot, head, index) = (bytes.u8(), bytes.u8(), bytes.u8());
    let _ = memory.write(ring + 4 + 2 * u32::from(slot), &[head, op >> 7]);
    let high = if op & 0x20 != 0 { 0xff } else { 0 };
    let _ = memory.write(ring + 2, &[index, high]);
}

fn receive(card: &mut VirtioNet, memory: &PlainMemory, len: usize) {
    let before = card.counters.rx_frame_count;
    let received = card.receive(memory, &vec![0x5a; len]);
    let stored = card.counters.rx_frame_count - before;
    assert_eq!(stored == 1, received == Reception::Stored && card.fault().is_none());
}
