//! A driver that keeps to the rules.

use super::driver::{MAC, NEXT, SIZE, Station, TABLE, frame};
use crate::bus::{Bus, GuestMemory, Reception};
use crate::lance::Width;
use crate::virtio::{NicOptions, RX, TX, register, status};

const PLAIN: NicOptions = NicOptions::PLAIN;
const EVENTS: NicOptions = NicOptions { event_idx: true, ..PLAIN };

#[test]
fn identity_and_configuration_are_those_of_a_network_card() {
    let station = Station::new(PLAIN);
    assert_eq!(station.get(register::MAGIC), 0x7472_6976);
    assert_eq!([station.get(register::VERSION), station.get(register::DEVICE_ID)], [2, 1]);
    let mac: Vec<u32> = (0..6).map(|i| station.card.read(0x100 + i, Width::Byte)).collect();
    assert_eq!(mac, MAC.map(u32::from));
    // Registers have one width.
    assert_eq!(station.card.read(register::MAGIC, Width::Byte), 0xff);
}

#[test]
fn features_that_were_not_offered_or_lack_version_1_are_refused() {
    for (half, bits) in [(0, 1 << 29), (0, 1), (1, 4), (0, 1 << 5)] {
        let mut station = Station::new(PLAIN);
        // VERSION_1 alone is missing from the last.
        station.set(register::DRIVER_FEATURES_SEL, 1);
        station.set(register::DRIVER_FEATURES, u32::from(bits != 1 << 5));
        station.set(register::DRIVER_FEATURES_SEL, half);
        station.set(register::DRIVER_FEATURES, bits);
        station.set(register::STATUS, 11);
        assert_eq!(station.get(register::STATUS), 3, "half {half}, bits {bits:#x}");
        // Without FEATURES_OK there is neither a queue nor a start.
        station.set(register::QUEUE_NUM, 8);
        station.set(register::QUEUE_READY, 1);
        station.set(register::STATUS, 15);
        assert_eq!(station.get(register::QUEUE_READY), 0);
        assert_eq!(station.get(register::STATUS) & status::DRIVER_OK, 0);
    }
}

#[test]
fn frames_go_out_in_order_and_their_buffers_come_back() {
    let mut station = Station::started(PLAIN);
    for round in 0..5 {
        let frames: Vec<Vec<u8>> = (0..SIZE).map(|i| frame(60 + usize::from(i) * 100)).collect();
        for (slot, frame) in (0..).zip(&frames) {
            station.put(slot, frame);
        }
        station.kick();
        assert_eq!(station.wire.frames, frames, "round {round}");
        station.wire.frames.clear();
        for slot in 0..SIZE {
            assert_eq!(station.take_used(TX), Some((slot.into(), 0)));
        }
        assert_eq!(station.take_used(TX), None);
        assert!(station.card.irq_tells_only_of_sent());
        station.set(register::INTERRUPT_ACK, 1);
        assert!(!station.card.irq());
    }
    assert_eq!(station.card.counters.tx_frame_count, 5 * u64::from(SIZE));
}

#[test]
fn header_and_frame_may_be_split_anywhere_and_be_a_table() {
    let sent = frame(200);
    let mut whole = vec![0; 12];
    whole.extend(&sent);
    for cut in [1, 11, 12, 13, 100, 211] {
        for table in [false, true] {
            let mut station = Station::started(PLAIN);
            let (first, second) = (Station::buffer(TX, 0), Station::buffer(TX, 1));
            station.memory.write(first, &whole[..cut]).unwrap();
            station.memory.write(second, &whole[cut..]).unwrap();
            let rest = (whole.len() - cut) as u32;
            if table {
                let at = Station::buffer(TX, 3);
                station.describe_at(at, first.into(), cut as u32, NEXT, 1);
                station.describe_at(at + 16, second.into(), rest, 0, 0);
                station.describe(TX, 5, at.into(), 32, TABLE, 0);
            } else {
                station.describe(TX, 5, first.into(), cut as u32, NEXT, 7);
                station.describe(TX, 7, second.into(), rest, 0, 0);
            }
            station.offer(TX, 5);
            station.kick();
            assert_eq!(station.wire.frames, std::slice::from_ref(&sent), "{cut} {table}");
            assert_eq!(station.take_used(TX), Some((5, 0)));
        }
    }
}

#[test]
fn busy_wire_keeps_the_frame_and_sends_it_later() {
    let mut station = Station::started(PLAIN);
    station.wire.busy = true;
    station.put(0, &frame(60));
    station.kick();
    assert!(station.card.has_demand() && station.take_used(TX).is_none());
    station.wire.busy = false;
    let mut bus = Bus { memory: &station.memory, wire: &mut station.wire };
    station.card.demand(&mut bus);
    assert!(!station.card.has_demand());
    assert_eq!((station.wire.frames.len(), station.take_used(TX)), (1, Some((0, 0))));
}

#[test]
fn received_frame_has_a_header_and_interrupts() {
    let mut station = Station::started(PLAIN);
    let arrived = frame(1514);
    assert_eq!(station.receive(&arrived), Reception::Off);
    station.post(3);
    assert_eq!(station.receive(&arrived), Reception::Stored);
    assert!(station.card.irq() && !station.card.irq_tells_only_of_sent());
    assert_eq!(station.take_used(RX), Some((3, 1526)));
    let mut found = vec![0; 1526];
    station.memory.read(Station::buffer(RX, 3), &mut found).unwrap();
    assert_eq!(found[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(found[12..], arrived);
    assert_eq!(station.receive(&arrived), Reception::Off);
}

#[test]
fn driver_that_wants_no_interrupt_gets_none() {
    let mut station = Station::started(PLAIN);
    station.wish(TX, 1, 0);
    station.put(0, &frame(60));
    station.kick();
    assert!(!station.card.irq() && station.card.masks_tx_interrupt());
    // With EVENT_IDX the flag means nothing, and the event decides.
    let mut station = Station::started(EVENTS);
    station.wish(TX, 1, 1);
    station.put(0, &frame(60));
    station.kick();
    assert!(!station.card.irq());
    station.put(1, &frame(60));
    station.kick();
    assert!(station.card.irq());
}

#[test]
fn device_asks_for_the_next_notification_but_not_while_it_polls() {
    for options in [PLAIN, EVENTS].map(|options| NicOptions { polls: true, ..options }) {
        let mut station = Station::started(options);
        let wants = |station: &Station, next| {
            let (flags, event) = station.device_wish(TX);
            flags == 0 && (event == next || !options.event_idx)
        };
        station.put(0, &frame(60));
        station.kick();
        assert!(wants(&station, 1));
        station.put(1, &frame(60));
        let mut bus = Bus { memory: &station.memory, wire: &mut station.wire };
        station.card.poll(&mut bus);
        assert!(station.wire.frames.len() == 2 && !wants(&station, 2));
        // One that comes before the device stops is found by the last look.
        station.put(2, &frame(60));
        assert!(station.card.rearm(&station.memory) && wants(&station, 2));
    }
}

#[test]
fn device_asks_to_be_notified_of_buffers_only_without_any() {
    for options in [PLAIN, EVENTS] {
        let mut station = Station::started(options);
        station.post(0);
        assert_eq!(station.receive(&frame(60)), Reception::Stored);
        let before = station.device_wish(RX);
        assert_eq!(before, (u16::from(!options.event_idx), 0));
        assert_eq!(station.receive(&frame(60)), Reception::Off);
        assert_eq!(station.device_wish(RX), (0, u16::from(options.event_idx)));
    }
}
