//! A hostile driver as a stream of bytes: what the fuzz target, the corpus replay and the
//! property tests go through.

use super::{NicOptions, QUEUE_SIZE_MAX, VirtioNet, WORK_MAX, register, status};
use crate::bus::{Bus, GuestMemory, NetworkSide, PlainMemory, Reception, Sent};
use crate::bytes::Bytes;
use crate::lance::{Counters, FRAME_BYTES_MAX, Width};
use crate::offload::{OffloadHeader, Offloads, SUPER_FRAME_BYTES_MAX};

/// Guest memory of the hostile driver.
pub const MEMORY_BYTES: usize = 1 << 16;
/// Most accesses to guest memory that one operation may make: for each descriptor the available index,
/// the ring's entry, the descriptor, its buffer, and two to return it.
const ACCESS_MAX: u64 = 6 * (WORK_MAX + 2 * QUEUE_SIZE_MAX as u64 + 2);
/// Place of the descriptors, the available and the used ring of a queue: of two pairs and the control queue.
const RINGS: [u32; 5] = [0x1000, 0x4000, 0x7000, 0xa000, 0xd000];
/// Number of the control queue of two pairs.
const CONTROL: usize = 4;
/// Most bytes that one operation may pass to the wire: a limit that one more frame crosses.
const BYTES_MAX: usize = WORK_MAX as usize * FRAME_BYTES_MAX + SUPER_FRAME_BYTES_MAX;

/// A wire that checks what it carries.
#[derive(Debug, Default)]
struct CheckedWire {
    busy: bool,
    offloads: Offloads,
    sent_bytes: usize,
}

impl CheckedWire {
    fn carry(&mut self, frame: &[u8], max_bytes: usize) -> Sent {
        assert!((14..=max_bytes).contains(&frame.len()));
        if self.busy {
            return Sent::Busy;
        }
        self.sent_bytes += frame.len();
        Sent::Taken
    }
}

impl NetworkSide for CheckedWire {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.carry(frame, FRAME_BYTES_MAX)
    }

    fn send_offloaded(&mut self, header: &OffloadHeader, frame: &[u8]) -> Sent {
        let OffloadHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset } = *header;
        assert!(self.offloads.checksum && flags == 1, "{header:?}");
        let sum_end = usize::from(csum_start) + usize::from(csum_offset) + 2;
        assert!(csum_start >= 14 && sum_end <= frame.len(), "{header:?}");
        if gso_type == 0 {
            assert_eq!((gso_size, hdr_len), (0, 0));
            return self.carry(frame, FRAME_BYTES_MAX);
        }
        assert!(self.offloads.has_segmentation() && [1, 4].contains(&gso_type), "{header:?}");
        let payload_bytes = frame.len().checked_sub(hdr_len.into()).expect("headers are in it");
        assert!(payload_bytes > 0 && hdr_len >= csum_start + 20 && csum_offset == 16);
        assert!(gso_size > 0 && payload_bytes.div_ceil(gso_size.into()) <= 1366, "{header:?}");
        self.carry(frame, SUPER_FRAME_BYTES_MAX)
    }
}

/// Invariants after every operation.
fn check(card: &VirtioNet, bus: &mut TestBus<'_>) {
    let sent_bytes = std::mem::take(&mut bus.wire.sent_bytes);
    assert!(sent_bytes <= BYTES_MAX, "{sent_bytes} bytes in one operation");
    let accesses = bus.memory.take_access_count();
    assert!(accesses <= ACCESS_MAX, "{accesses} accesses in one operation");
    let bits = card.read(register::STATUS, Width::Dword);
    let is_broken = bits & status::DEVICE_NEEDS_RESET != 0;
    assert_eq!(is_broken, card.fault().is_some());
    assert!(!is_broken || !card.can_transmit() && !card.has_demand() && !card.polls());
    assert!(bits & status::DRIVER_OK == 0 || bits & status::FEATURES_OK != 0);
    assert_eq!(card.irq(), card.read(register::INTERRUPT_STATUS, Width::Dword) != 0);
    assert!(!card.irq_tells_only_of_sent() || card.irq());
    let state = card.state(bus.memory);
    assert!((1..=card.pairs()).contains(&state.active_pairs), "{state}");
    bus.memory.take_access_count();
}

/// Result of [`run`].
#[derive(Debug, Clone, Copy)]
pub struct FuzzedRun {
    pub operation_count: u64,
    /// Of the card.
    pub counters: Counters,
}

/// Runs the operations that `bytes` spell.
///
/// The first byte chooses what the device offers and whether a driver has started it; by its sixth bit a second byte
/// follows, for offloads, mergeable buffers and pairs of queues.
pub fn run(bytes: &[u8]) -> FuzzedRun {
    let mut bytes = Bytes(bytes);
    let memory = PlainMemory::new(MEMORY_BYTES);
    let mut wire = CheckedWire::default();
    let start = bytes.u8();
    let more = if start & 0x20 != 0 { bytes.u8() } else { 0 };
    let options = NicOptions {
        event_idx: start & 1 != 0,
        polls: start & 2 != 0,
        packed: start & 0x40 != 0,
        checksum: more & 1 != 0,
        segmentation: more & 2 != 0,
        mergeable: more & 4 != 0,
        pairs: if more & 8 != 0 { 2 } else { 1 },
    };
    let (checksum, segments) = (more & 3 != 0, more & 2 != 0);
    wire.offloads = Offloads { checksum, tcp_v4: segments, tcp_v6: segments };
    let mut card = VirtioNet::new([0x02, b'w', b'p', 0, 0, 9], options);
    let mut bus = Bus { memory: &memory, wire: &mut wire };
    // Most inputs shall get past the first gate.
    if start & 0x80 == 0 {
        begin(&mut card, &mut bus, start >> 2 & 7);
    }
    let mut operation_count = 0;
    while !bytes.0.is_empty() {
        operation(&mut card, &mut bus, &mut bytes);
        check(&card, &mut bus);
        operation_count += 1;
    }
    FuzzedRun { operation_count, counters: card.counters }
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
    for (queue, rings) in (0..).zip(RINGS) {
        set(card, bus, r::QUEUE_SEL, queue);
        if card.read(r::QUEUE_NUM_MAX, Width::Dword) == 0 {
            break;
        }
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
        12 if op & 0x80 != 0 => command(card, bus, op, bytes),
        12 => {
            card.rearm(bus.memory);
        }
        13 if op & 0x80 != 0 => super_frame(bus.memory, op, bytes),
        13 => card.demand(bus),
        14 => set(card, bus, register::INTERRUPT_ACK, bytes.u8().into()),
        _ => receive(card, bus.memory, op, bytes),
    }
}

/// Queue of an operation: of the first pair, or by another bit of its byte, of the second pair.
fn chosen_queue(op: u8) -> usize {
    usize::from(op >> 4 & 1) + if op & 0x20 != 0 { 2 } else { 0 }
}

/// Writes a descriptor of a queue, of any kind.
fn descriptor(memory: &PlainMemory, op: u8, bytes: &mut Bytes<'_>) {
    let (slot, flags, next) = (bytes.u8(), bytes.u8(), bytes.u8());
    // A chain of commands by flags that no descriptor has.
    let rings = RINGS[if flags & 0x18 == 0x18 { CONTROL } else { chosen_queue(op) }];
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
    let ring = RINGS[chosen_queue(op)] + 0x1000;
    let (slot, head, index) = (bytes.u8(), bytes.u8(), bytes.u8());
    let _ = memory.write(ring + 4 + 2 * u32::from(slot), &[head, op >> 7]);
    let high = if op & 0x40 != 0 { 0xff } else { 0 };
    let _ = memory.write(ring + 2, &[index, high]);
}

/// Offers a command to the control queue, in either kind of ring, and notifies of it.
fn command(card: &mut VirtioNet, bus: &mut TestBus<'_>, op: u8, bytes: &mut Bytes<'_>) {
    let (slot, index) = (bytes.u8() & 0x1f, bytes.u8());
    let _ = bus.memory.write(0x200, &[bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8()]);
    let lap = if op & 0x40 != 0 { 0x80 } else { 0 };
    let ring = RINGS[CONTROL];
    for (at, address, len, flags) in [(slot, 2, 4, 1), (slot + 1, 3, 1, 2)] {
        let next = [flags | lap, 0, slot + 1, 0];
        // A packed ring has the two words in the other order.
        let [f0, f1, n0, n1] = next;
        let end = if card.is_packed() { [n0, n1, f0, f1] } else { next };
        let mut words = [0; 16];
        (words[1], words[8]) = (address, len);
        words[12..].copy_from_slice(&end);
        let _ = bus.memory.write(ring + 16 * u32::from(at), &words);
    }
    let _ = bus.memory.write(ring + 0x1004 + 2 * u32::from(index), &[slot, 0]);
    let _ = bus.memory.write(ring + 0x1002, &[index.wrapping_add(1), 0]);
    set(card, bus, register::QUEUE_NOTIFY, CONTROL as u32);
}

/// Writes the headers of a frame of TCP, with one byte of them changed, to where descriptors may point.
fn super_frame(memory: &PlainMemory, op: u8, bytes: &mut Bytes<'_>) {
    let (len, gso_size) = (bytes.u16(), bytes.u16());
    let mut frame = vec![1, 1, 54, 0];
    frame.extend(gso_size.to_le_bytes());
    frame.extend([34, 0, 16, 0, 0, 0]);
    frame.extend([2; 12]);
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0; 12]);
    frame.extend([0x50, 0, 0, 0, 0, 0, 0, 0]);
    let (at, value) = (usize::from(bytes.u8()), bytes.u8());
    if let Some(byte) = frame.get_mut(at) {
        *byte = value;
    }
    let _ = memory.write(if op & 0x40 != 0 { 0x300 } else { 0x8000 }, &frame);
}

/// Receives a frame; in half of the cases one that leaves work.
fn receive(card: &mut VirtioNet, memory: &PlainMemory, op: u8, bytes: &mut Bytes<'_>) {
    let len = bytes.u16();
    let (header, mut frame) = match op & 0x80 {
        0 => (OffloadHeader::FINISHED, vec![0x5a; usize::from(len & 0x1fff)]),
        _ => {
            let fields = [0; 10].map(|_| bytes.u8());
            (OffloadHeader::from_bytes(&fields), vec![0x5a; len.into()])
        }
    };
    if let (0x80, Some(start)) = (op & 0x80, frame.get_mut(..54)) {
        let ip = [8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6];
        start[12..24].copy_from_slice(&ip);
        (start[26], start[46]) = (op, 0x50);
    }
    let before = card.counters.rx_frame_count;
    let received = card.receive(memory, &header, &frame);
    let stored = card.counters.rx_frame_count - before;
    assert_eq!(stored == 1, received == Reception::Stored && card.fault().is_none());
}
