//! Packed queues, with a driver over plain memory.

use super::driver::{MAC, NEXT, Recorder, TABLE, WRITES, frame};
use crate::bus::{Bus, GuestMemory, PlainMemory, Reception};
use crate::lance::Width;
use crate::offload::OffloadHeader;
use crate::virtio::{DriverFault, NicOptions, RX, TX, VirtioNet, register};

/// Descriptors of a queue; no power of two.
const SIZE: u16 = 5;
const RINGS: [u32; 2] = [0x1000, 0x2000];
const BUFFERS: [u32; 2] = [0x4000, 0x8000];
const BUFFER_BYTES: u32 = 0x800;
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A side's place: slot, and lap.
type RingPosition = [(u16, bool); 2];

struct Station {
    card: VirtioNet,
    memory: PlainMemory,
    wire: Recorder,
    next: RingPosition,
    seen: RingPosition,
}

fn advance(place: &mut (u16, bool), by: u16) {
    for _ in 0..by {
        *place = if place.0 + 1 == SIZE { (0, !place.1) } else { (place.0 + 1, place.1) };
    }
}

impl Station {
    fn started(event_idx: bool) -> Self {
        Station::with(NicOptions { event_idx, ..NicOptions::PLAIN })
    }

    fn with(options: NicOptions) -> Self {
        use register as r;
        let mut station = Station {
            card: VirtioNet::new(MAC, NicOptions { packed: true, ..options }),
            memory: PlainMemory::new(1 << 16),
            wire: Recorder::default(),
            next: [(0, true); 2],
            seen: [(0, true); 2],
        };
        station.set(r::STATUS, 3);
        for half in 0..2 {
            station.set(r::DEVICE_FEATURES_SEL, half);
            let offered = station.card.read(r::DEVICE_FEATURES, Width::Dword);
            station.set(r::DRIVER_FEATURES_SEL, half);
            station.set(r::DRIVER_FEATURES, offered);
        }
        station.set(r::STATUS, 11);
        for queue in [RX, TX] {
            let ring = RINGS[usize::from(queue)];
            station.set(r::QUEUE_SEL, queue.into());
            station.set(r::QUEUE_NUM, SIZE.into());
            station.set(r::QUEUE_DESC_LOW, ring);
            station.set(r::QUEUE_DRIVER_LOW, ring + 0x400);
            station.set(r::QUEUE_DEVICE_LOW, ring + 0x800);
            station.set(r::QUEUE_READY, 1);
        }
        station.set(r::STATUS, 15);
        assert!(station.card.is_packed() && station.card.can_transmit());
        station
    }

    fn set(&mut self, offset: u16, value: u32) {
        let mut bus = Bus { memory: &self.memory, wire: &mut self.wire };
        self.card.write(&mut bus, offset, Width::Dword, value);
    }

    fn write(&self, at: u32, address: u32, len_bytes: u32, id: u16, flags: u16) {
        let mut bytes = Vec::from(u64::from(address).to_le_bytes());
        bytes.extend(len_bytes.to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        self.memory.write(at, &bytes).unwrap();
    }

    /// Makes the next slot available.
    fn offer(&mut self, queue: u16, address: u32, len_bytes: u32, id: u16, flags: u16) {
        let place = &mut self.next[usize::from(queue)];
        let at = RINGS[usize::from(queue)] + 16 * u32::from(place.0);
        let lap = if place.1 { AVAILABLE } else { USED };
        advance(place, 1);
        self.write(at, address, len_bytes, id, flags | lap);
    }

    /// Takes the next used element of a chain of `slots`: its id and length.
    fn take(&mut self, queue: u16, slots: u16) -> Option<(u16, u32)> {
        let place = &mut self.seen[usize::from(queue)];
        let at = RINGS[usize::from(queue)] + 16 * u32::from(place.0);
        let word = self.memory.load_u32(at + 12).unwrap();
        let bits = (word >> 16) as u16 & (AVAILABLE | USED);
        if bits != if place.1 { AVAILABLE | USED } else { 0 } {
            return None;
        }
        advance(place, slots);
        Some((word as u16, self.memory.load_u32(at + 8).unwrap()))
    }

    /// Writes header and frame to a buffer; returns its address and length.
    fn fill(&self, slot: u16, frame: &[u8]) -> (u32, u32) {
        let at = BUFFERS[usize::from(TX)] + u32::from(slot) * BUFFER_BYTES;
        self.memory.write(at, &[0; 12]).unwrap();
        self.memory.write(at + 12, frame).unwrap();
        (at, 12 + frame.len() as u32)
    }

    fn receive(&mut self, frame: &[u8]) -> Reception {
        self.card.receive(&self.memory, &OffloadHeader::FINISHED, frame)
    }

    fn kick(&mut self) {
        self.set(register::QUEUE_NOTIFY, TX.into());
    }

    /// Sets the driver's event suppression.
    fn wish(&self, queue: u16, flags: u16, word: u16) {
        let wish = u32::from(flags) << 16 | u32::from(word);
        self.memory.store_u32(RINGS[usize::from(queue)] + 0x400, wish).unwrap();
    }
}

#[test]
fn frames_go_out_in_order_over_many_laps_and_their_ids_come_back() {
    let mut station = Station::started(false);
    for round in 0..7u16 {
        let frames: Vec<Vec<u8>> = (0..3).map(|i| frame(60 + i * 300)).collect();
        for (slot, frame) in (0..).zip(&frames) {
            let (at, len) = station.fill(slot, frame);
            station.offer(TX, at, len, 10 + slot, 0);
        }
        station.kick();
        assert_eq!(station.wire.frames, frames, "round {round}");
        station.wire.frames.clear();
        assert_eq!([0; 3].map(|_| station.take(TX, 1)), [10, 11, 12].map(|id| Some((id, 0))));
        assert_eq!(station.take(TX, 1), None);
        assert!(station.card.irq_tells_only_of_sent());
        station.set(register::INTERRUPT_ACK, 1);
    }
}

#[test]
fn chains_and_tables_are_one_frame_each() {
    let mut station = Station::started(false);
    let sent = frame(200);
    for round in 0..6 {
        let (at, len) = station.fill(0, &sent);
        station.offer(TX, at, 20, 0, NEXT);
        // The id is in the last descriptor.
        station.offer(TX, at + 20, len - 20, 7, 0);
        let table = BUFFERS[usize::from(TX)] + 3 * BUFFER_BYTES;
        station.write(table, at, 12, 0, 0);
        station.write(table + 16, at + 12, len - 12, 0, 0);
        station.offer(TX, table, 32, 8, TABLE);
        station.kick();
        assert_eq!(station.wire.frames, [sent.clone(), sent.clone()], "round {round}");
        station.wire.frames.clear();
        assert_eq!(station.take(TX, 2), Some((7, 0)));
        assert_eq!(station.take(TX, 1), Some((8, 0)));
    }
    assert_eq!(station.card.fault(), None);
}

#[test]
fn received_frames_come_with_their_length_and_without_buffers_they_wait() {
    let mut station = Station::started(false);
    assert_eq!(station.receive(&frame(60)), Reception::Off);
    for round in 0..6 {
        for id in 0..2 {
            station.offer(RX, BUFFERS[0] + u32::from(id) * BUFFER_BYTES, BUFFER_BYTES, id, WRITES);
        }
        for id in 0..2u16 {
            let frame = frame(100 + usize::from(id));
            assert_eq!(station.receive(&frame), Reception::Stored, "{round}");
            assert_eq!(station.take(RX, 1), Some((id, 12 + frame.len() as u32)));
            let mut stored = vec![0; frame.len()];
            let at = BUFFERS[0] + u32::from(id) * BUFFER_BYTES + 12;
            station.memory.read(at, &mut stored).unwrap();
            assert_eq!(stored, frame);
        }
        assert_eq!(station.receive(&frame(60)), Reception::Off);
    }
}

/// Sends a frame. Returns true if the card interrupted.
fn send(station: &mut Station) -> bool {
    let (at, len) = station.fill(0, &frame(60));
    station.offer(TX, at, len, 0, 0);
    station.kick();
    let irq = station.card.irq();
    station.set(register::INTERRUPT_ACK, 1);
    irq
}

/// The card's event suppression of its transmit queue.
fn wish(station: &Station) -> u32 {
    station.memory.load_u32(RINGS[1] + 0x800).unwrap()
}

#[test]
fn interrupts_and_notifications_follow_the_wishes_of_either_side() {
    for event_idx in [false, true] {
        let mut station = Station::started(event_idx);
        station.wish(TX, 1, 0);
        assert!(!send(&mut station), "disabled");
        station.wish(TX, 0, 0);
        assert!(send(&mut station), "enabled");
        // At slot 3, which the fourth frame fills; without EVENT_IDX each interrupts.
        station.wish(TX, 2, 0x8003);
        assert_eq!(send(&mut station), !event_idx);
        assert!(send(&mut station));
        // The device wants a notification of the next slot, and none while it polls.
        assert_eq!(wish(&station), if event_idx { 2 << 16 | 0x8004 } else { 0 });
        let mut bus = Bus { memory: &station.memory, wire: &mut station.wire };
        station.card.poll(&mut bus);
        assert_eq!(wish(&station) >> 16, 1);
        assert!(!station.card.rearm(&station.memory));
        assert_eq!(wish(&station) >> 16, if event_idx { 2 } else { 0 });
    }
}

/// The fault of a card that was offered buffers: address, length, flags.
fn fault(offers: &[(u32, u32, u16)]) -> DriverFault {
    let mut station = Station::started(false);
    for &(address, len_bytes, flags) in offers {
        station.offer(TX, address, len_bytes, 0, flags);
    }
    station.kick();
    assert!(!station.card.can_transmit());
    station.card.fault().expect("the device has noticed")
}

#[test]
fn chains_that_break_a_rule_need_a_reset() {
    let at = BUFFERS[usize::from(TX)];
    assert_eq!(fault(&[(at, 20, NEXT); SIZE as usize]), DriverFault::Loop(SIZE));
    assert_eq!(fault(&[(at, 72, WRITES)]), DriverFault::Direction { queue: TX });
    assert_eq!(fault(&[(at, 17, TABLE)]), DriverFault::Table { len_bytes: 17 });
    assert_eq!(fault(&[(at, 16, TABLE | NEXT)]), DriverFault::Table { len_bytes: 16 });
    assert_eq!(fault(&[(at, 16 * 6, TABLE)]), DriverFault::Loop(SIZE));
    assert_eq!(fault(&[(at, 5, 0)]), DriverFault::Header(5));
    assert!(matches!(fault(&[(0xffff, 100, 0)]), DriverFault::Memory(_)));
}

#[test]
fn buffers_of_a_merged_frame_are_shown_together_over_many_laps() {
    let mut station = Station::with(NicOptions { mergeable: true, ..NicOptions::PLAIN });
    for round in 0..11u16 {
        let arrived = frame(500 + usize::from(round));
        // A chain of two, and two single ones.
        station.offer(RX, BUFFERS[0], 100, 0, WRITES | NEXT);
        station.offer(RX, BUFFERS[0] + 0x100, 100, 10, WRITES);
        assert_eq!(station.receive(&arrived), Reception::Off, "too few");
        station.offer(RX, BUFFERS[0] + 0x200, 200, 11, WRITES);
        assert_eq!(station.receive(&arrived), Reception::Off, "too few");
        assert_eq!(station.take(RX, 2), None, "{round}");
        station.offer(RX, BUFFERS[0] + 0x300, 400, 12, WRITES);
        assert_eq!(station.receive(&arrived), Reception::Stored, "{round}");
        let rest = 12 + arrived.len() as u32 - 400;
        assert_eq!(station.take(RX, 2), Some((10, 200)));
        assert_eq!(station.take(RX, 1), Some((11, 200)));
        assert_eq!(station.take(RX, 1), Some((12, rest)));
        let mut stored = Vec::new();
        for (at, len) in [(0, 100), (0x100, 100), (0x200, 200), (0x300, rest)] {
            let mut part = vec![0; len as usize];
            station.memory.read(BUFFERS[0] + at, &mut part).unwrap();
            stored.extend(part);
        }
        assert_eq!(stored[10..12], [3, 0], "three buffers");
        assert!(stored[12..] == arrived, "{round}");
    }
    // All five slots are too small: the frame is lost, and the buffers stay.
    for id in 0..SIZE {
        station.offer(RX, BUFFERS[0], 20, id, WRITES);
    }
    assert_eq!(station.receive(&frame(500)), Reception::Lost);
    assert_eq!(station.receive(&frame(60)), Reception::Stored);
    assert_eq!(station.card.counters.rx_missed_count, 1);
}
