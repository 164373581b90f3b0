//! A hostile guest as a stream of bytes: what the fuzz target, the corpus replay and the
//! property tests go through.

use crate::bytes::Bytes;

use super::{
    Bus, FRAME_BYTES_MAX, GuestMemory, Lance, NetworkSide, PlainMemory, Sent, WORK_MAX, Width,
    csr0, ports,
};

/// Guest memory of the hostile guest.
pub const MEMORY_BYTES: usize = 1 << 16;
/// Most accesses to guest memory that one operation may make: a pass over the transmit ring, of
/// whose descriptors each is read twice and written once, and in loopback the receive
/// descriptors of one-byte buffers that as many frames and one more can fill.
const ACCESS_MAX: u64 = 10 * WORK_MAX as u64 + 7 * (WORK_MAX as u64 + FRAME_BYTES_MAX as u64 + 4);

/// A wire that checks what it carries.
#[derive(Debug, Default)]
struct CheckedWire {
    frame_count: u64,
    busy: bool,
}

impl NetworkSide for CheckedWire {
    fn send(&mut self, frame: &[u8]) -> Sent {
        assert!(!frame.is_empty() && frame.len() <= FRAME_BYTES_MAX);
        if self.busy {
            return Sent::Busy;
        }
        self.frame_count += 1;
        Sent::Taken
    }
}

/// Invariants after every operation.
fn check(lance: &Lance, accesses: u64) {
    assert!(accesses <= ACCESS_MAX, "{accesses} accesses in one operation");
    let status = lance.read_csr(0);
    let has = |bits| status & bits != 0;
    if has(csr0::STOP) {
        assert!(!has(csr0::TXON | csr0::RXON | csr0::INIT | csr0::STRT));
    }
    assert_eq!(has(csr0::ERR), has(csr0::BABL | csr0::CERR | csr0::MISS | csr0::MERR));
    assert!(!lance.irq() || has(csr0::INTR));
    assert!(!has(csr0::TXON) || has(csr0::STRT));
    assert!(lance.rap() < 128);
}

/// Runs the operations that `bytes` spell; returns how many.
///
/// The first byte chooses the software style; each operation is a byte and its operands.
pub fn run(bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let memory = PlainMemory::new(MEMORY_BYTES);
    let mut wire = CheckedWire::default();
    let mut lance = Lance::new([0x02, b'w', b'p', 0, 0, 9]);
    let start = bytes.u8();
    // Most inputs shall get past the first gate.
    if start & 0x80 == 0 {
        lance.pci.write(4, Width::Word, 7);
    }
    let mut bus = Bus { memory: &memory, wire: &mut wire };
    csr(&mut lance, &mut bus, 58, u16::from(start & 3));
    let mut count = 0;
    while !bytes.0.is_empty() {
        operation(&mut lance, &mut bus, &mut bytes);
        check(&lance, memory.take_access_count());
        count += 1;
    }
    count
}

/// Writes a CSR as a driver does, whichever layout is in force.
fn csr(lance: &mut Lance, bus: &mut Bus<'_, PlainMemory, CheckedWire>, at: u8, value: u16) {
    let (rap, width) = match lance.port(ports::RAP_WORD, Width::Word) {
        Some(_) => (ports::RAP_WORD, Width::Word),
        None => (ports::RAP_DWORD, Width::Dword),
    };
    lance.write(bus, rap, width, u32::from(at));
    lance.write(bus, ports::RDP, width, u32::from(value));
}

fn operation(
    lance: &mut Lance,
    bus: &mut Bus<'_, PlainMemory, CheckedWire>,
    bytes: &mut Bytes<'_>,
) {
    let op = bytes.u8();
    let width = [Width::Byte, Width::Word, Width::Dword, Width::Word][usize::from(op >> 4) & 3];
    match op & 0x0f {
        0 => {
            let (offset, value) = (bytes.u8(), bytes.u32());
            lance.write(bus, offset & 0x3f, width, value);
        }
        1 => {
            let offset = bytes.u8();
            lance.read(offset & 0x3f, width);
        }
        2 => {
            let (at, value) = (bytes.u8(), bytes.u16());
            csr(lance, bus, at, value);
        }
        3 => {
            let value = u16::from(bytes.u8());
            csr(lance, bus, 0, if op & 0x80 == 0 { value } else { value << 8 });
        }
        4 => {
            let at = u32::from(bytes.u16());
            let fill = [bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8()];
            for i in 0..=u32::from(op >> 4) {
                // Past the end of memory nothing is written.
                let _ = bus.memory.write(at + 4 * i, &fill);
            }
        }
        5 => descriptor(bus.memory, op >> 4, bytes),
        6 => init_block(lance, bus, op >> 4, bytes),
        7 => {
            let (len, kind) = (usize::from(bytes.u16()) % (FRAME_BYTES_MAX + 16), bytes.u8());
            let mut frame = vec![kind; len];
            let destination = match kind & 3 {
                0 => [0xff; 6],
                1 => [0x02, b'w', b'p', 0, 0, 9],
                2 => [0x01, 0, 0x5e, 0, 0, kind],
                _ => [kind & !1; 6],
            };
            let head = len.min(6);
            frame[..head].copy_from_slice(&destination[..head]);
            let _ = lance.receive(bus.memory, &frame);
        }
        8 => lance.poll(bus),
        9 => lance.demand(bus),
        10 => {
            let (at, value) = (bytes.u8(), bytes.u32());
            lance.pci.write(at, width, value);
        }
        11 => {
            let at = bytes.u8();
            lance.pci.read(at, width);
            let address = u64::from(bytes.u32());
            assert!(lance.pci.decode_memory(address).is_none_or(|offset| offset < 32));
            assert!(lance.pci.decode_port(address as u16).is_none_or(|offset| offset < 32));
        }
        12 if op >> 4 == 0 => lance.hard_reset(),
        12 => bus.wire.busy = op & 0x10 != 0,
        13 => {
            let (at, value) = (bytes.u8(), bytes.u16());
            if lance.port(ports::RAP_WORD, Width::Word).is_some() {
                lance.write(bus, ports::RAP_WORD, Width::Word, u32::from(at));
                lance.write(bus, ports::BDP_WORD, Width::Word, u32::from(value));
            } else {
                lance.write(bus, ports::RAP_DWORD, Width::Dword, u32::from(at));
                lance.write(bus, ports::BDP_DWORD, Width::Dword, u32::from(value));
            }
        }
        14 => {
            let at = bytes.u8();
            lance.read_csr(at);
        }
        _ => csr(lance, bus, 0, csr0::TDMD | csr0::INEA),
    }
}

/// Writes a descriptor, or a run of the same, where `init_block` puts rings.
fn descriptor(memory: &PlainMemory, run: u8, bytes: &mut Bytes<'_>) {
    let (slot, status, count) = (bytes.u16(), bytes.u16(), bytes.u16());
    let buffer = bytes.u32();
    let swapped = slot & 0x8000 != 0;
    let short = slot & 0x4000 != 0;
    for i in 0..=u32::from(run) * 8 {
        let slot = u32::from(slot & 0x3ff) + i;
        let words = if short {
            [buffer & 0xff_ffff | u32::from(status & 0xff00) << 16, u32::from(count), 0, 0]
        } else {
            let control = u32::from(status) << 16 | u32::from(count);
            if swapped { [0, control, buffer, 0] } else { [buffer, control, 0, 0] }
        };
        let size = if short { 8 } else { 16 };
        for (k, word) in words.into_iter().take(size / 4).enumerate() {
            let at = RINGS + slot * size as u32 + 4 * k as u32;
            let _ = memory.write(at, &word.to_le_bytes());
        }
    }
}

/// Where the rings of [`init_block`] lie: transmit, then receive 0x1000 behind.
const RINGS: u32 = 0x8000;

/// Writes an initialization block and, mostly, has the device read it and start.
fn init_block(
    lance: &mut Lance,
    bus: &mut Bus<'_, PlainMemory, CheckedWire>,
    kind: u8,
    bytes: &mut Bytes<'_>,
) {
    const AT: u16 = 0x100;
    let (mode, codes, high) = (bytes.u16(), bytes.u8(), bytes.u8());
    // Near, at or past the end of memory when asked for.
    let base = if kind & 8 == 0 { RINGS } else { u32::from(bytes.u16()) << 4 };
    let (tx, rx) = (base, base + 0x1000);
    let (tx_code, rx_code) = (codes & 0x0f, codes >> 4);
    let mut block = [0; 28];
    block[..2].copy_from_slice(&mode.to_le_bytes());
    if lance.read_csr(58) & 0x0100 != 0 {
        block[2] = rx_code << 4;
        block[3] = tx_code << 4;
        block[4..10].copy_from_slice(&[0x02, b'w', b'p', 0, 0, 9]);
        block[12..20].fill(high);
        block[20..24].copy_from_slice(&rx.to_le_bytes());
        block[24..].copy_from_slice(&tx.to_le_bytes());
    } else {
        block[2..8].copy_from_slice(&[0x02, b'w', b'p', 0, 0, 9]);
        block[8..16].fill(high);
        block[16..20].copy_from_slice(&(rx | u32::from(rx_code) << 29).to_le_bytes());
        block[20..24].copy_from_slice(&(tx | u32::from(tx_code) << 29).to_le_bytes());
    }
    let _ = bus.memory.write(u32::from(AT), &block);
    csr(lance, bus, 0, csr0::STOP);
    csr(lance, bus, 1, AT);
    csr(lance, bus, 2, if kind & 4 == 0 { 0 } else { u16::from(high) << 8 });
    csr(lance, bus, 0, csr0::INIT);
    csr(lance, bus, 0, csr0::STRT | csr0::INEA);
}
