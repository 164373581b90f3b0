//! Several pairs of queues, and the control queue that chooses their number.

use super::driver::{NEXT, SIZE, Station, WRITES, frame};
use crate::bus::{GuestMemory, Reception, Sent};
use crate::lance::Width;
use crate::virtio::{DriverFault, NicOptions, PAIRS_MAX, RX, TX, register};

const TWO: NicOptions = NicOptions { pairs: 2, ..NicOptions::PLAIN };
const CONTROL: u16 = 4;
const COMMAND_AT: u32 = 0x3000;
const ANSWER_AT: u32 = 0x3800;

/// Has the card execute a command; returns the answer.
fn command(station: &mut Station, bytes: &[u8]) -> u8 {
    station.memory.write(COMMAND_AT, bytes).unwrap();
    station.memory.write(ANSWER_AT, &[0xee]).unwrap();
    station.describe(CONTROL, 0, COMMAND_AT.into(), bytes.len() as u32, NEXT, 1);
    station.describe(CONTROL, 1, ANSWER_AT.into(), 1, WRITES, 0);
    station.offer(CONTROL, 0);
    station.set(register::QUEUE_NOTIFY, CONTROL.into());
    assert_eq!(station.take_used(CONTROL), Some((0, 1)));
    let mut answer = [0];
    station.memory.read(ANSWER_AT, &mut answer).unwrap();
    answer[0]
}

/// A frame of UDP with this source port.
fn datagram(port: u16) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 7, 0, 26, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

/// Posts half of a queue's buffers each.
fn post(station: &mut Station) {
    for slot in 0..SIZE {
        let queue = RX + 2 * (slot % 2);
        station.describe(queue, slot, Station::buffer(queue, slot).into(), 100, WRITES, 0);
        station.offer(queue, slot);
    }
}

#[test]
fn configuration_has_the_number_of_pairs_and_there_are_as_many_queues() {
    for (pairs, queues, max) in [(0, 2, 1), (1, 2, 1), (2, 5, 2), (4, 9, 4), (99, 9, PAIRS_MAX)] {
        let mut station = Station::new(NicOptions { pairs, ..NicOptions::PLAIN });
        assert_eq!(station.card.read(0x108, Width::Word), u32::from(max));
        assert_eq!(station.card.read(0x108, Width::Dword), u32::from(max));
        let there = (0..20).filter(|&queue| {
            station.set(register::QUEUE_SEL, queue);
            station.get(register::QUEUE_NUM_MAX) > 0
        });
        assert_eq!(there.count(), queues, "{pairs}");
    }
}

#[test]
fn frames_of_both_transmit_queues_go_out_and_their_buffers_come_back() {
    let mut station = Station::started(TWO);
    for slot in 0..SIZE {
        let queue = TX + 2 * (slot % 2);
        let at = Station::buffer(queue, slot);
        station.memory.write(at, &[0; 12]).unwrap();
        station.memory.write(at + 12, &frame(60 + usize::from(slot))).unwrap();
        station.describe(queue, slot, at.into(), 72 + u32::from(slot), 0, 0);
        station.offer(queue, slot);
    }
    // Either notification has all of them sent.
    station.set(register::QUEUE_NOTIFY, 3);
    assert_eq!(station.wire.frames.len(), usize::from(SIZE));
    assert_eq!([1, 3].map(|queue| station.take_used(queue)), [Some((0, 0)), Some((1, 0))]);
    assert!(station.card.irq_tells_only_of_sent());
    assert_eq!(station.card.counters.tx_other_pair_count, 4);
    let state = station.card.state(&station.memory).to_string();
    assert!(state.contains("pair 2") && state.contains("1 of 2 pairs in use"), "{state}");
}

#[test]
fn busy_wire_is_tried_with_the_other_queue_next() {
    let mut station = Station::started(TWO);
    for queue in [1, 3] {
        let at = Station::buffer(queue, queue);
        station.memory.write(at, &[0; 100]).unwrap();
        station.describe(queue, queue, at.into(), 72, 0, 0);
        station.offer(queue, queue);
    }
    station.wire.busy = true;
    assert_eq!(crate::bus::NetworkSide::send(&mut station.wire, &[]), Sent::Busy);
    station.kick();
    assert!(station.card.has_demand());
    station.wire.busy = false;
    station.kick();
    assert!(!station.card.has_demand());
    assert_eq!(station.wire.frames.len(), 2);
}

#[test]
fn command_sets_the_number_of_pairs_and_frames_spread_by_their_flow() {
    let mut station = Station::started(TWO);
    post(&mut station);
    for port in 0..4 {
        assert_eq!(station.receive(&datagram(port)), Reception::Stored);
    }
    assert_eq!(station.card.counters.rx_other_pair_count, 0, "one pair at first");
    assert_eq!(command(&mut station, &[4, 0, 2, 0]), 0);
    station.set(register::INTERRUPT_ACK, 1);
    for _ in 0..2 {
        // Both of a flow go to the same queue.
        let before = station.card.counters.rx_other_pair_count;
        let ports = (100..200).filter(|&port| {
            let other = station.card.counters.rx_other_pair_count;
            if station.receive(&datagram(port)) != Reception::Stored {
                post(&mut station);
                assert_eq!(station.receive(&datagram(port)), Reception::Stored);
            }
            station.card.counters.rx_other_pair_count > other
        });
        let others = ports.count() as u64;
        assert!((30..70).contains(&others), "{others}");
        assert_eq!(station.card.counters.rx_other_pair_count - before, others);
        while station.take_used(0).or_else(|| station.take_used(2)).is_some() {}
    }
    assert_eq!(command(&mut station, &[4, 0, 1, 0]), 0);
    // A reset begins with one pair again.
    command(&mut station, &[4, 0, 2, 0]);
    station.start();
    assert_eq!(station.card.state(&station.memory).active_pairs, 1);
    assert_eq!(station.card.counters.control_command_count, 3);
}

#[test]
fn commands_that_are_unknown_or_ask_for_too_much_are_refused() {
    let mut station = Station::started(TWO);
    for bytes in [
        &[4, 0, 0, 0][..],
        &[4, 0, 3, 0],
        &[4, 0, 0xff, 0xff],
        &[4, 1, 2, 0],
        &[0, 0, 1],
        &[4, 0, 2],
        &[4, 0, 2, 0, 0],
        &[4],
    ] {
        assert_eq!(command(&mut station, bytes), 1, "{bytes:?}");
    }
    assert_eq!(station.card.state(&station.memory).active_pairs, 1);
    assert_eq!(station.card.fault(), None);
}

#[test]
fn command_without_room_for_an_answer_or_in_the_wrong_order_needs_a_reset() {
    let offer = |descriptors: &[(u32, u16)]| {
        let mut station = Station::started(TWO);
        for (slot, &(len, flags)) in (0..).zip(descriptors) {
            station.describe(CONTROL, slot, COMMAND_AT.into(), len, flags, slot + 1);
        }
        station.offer(CONTROL, 0);
        station.set(register::QUEUE_NOTIFY, CONTROL.into());
        assert!(!station.card.can_transmit());
        station.card.fault().expect("the device has noticed")
    };
    assert_eq!(offer(&[(4, 0)]), DriverFault::Answer(1));
    assert_eq!(offer(&[(4, NEXT), (0, WRITES)]), DriverFault::Answer(2));
    let direction = DriverFault::Direction { queue: CONTROL };
    assert_eq!(offer(&[(1, WRITES | NEXT), (4, 0)]), direction);
}

#[test]
fn control_queue_is_the_third_if_pairs_are_not_negotiated() {
    let mut station = Station::new(TWO);
    station.set(register::STATUS, 3);
    // CTRL_VQ without MQ.
    for (half, bits) in [(0, 1 << 17), (1, 1)] {
        station.set(register::DRIVER_FEATURES_SEL, half);
        station.set(register::DRIVER_FEATURES, bits);
    }
    station.set(register::STATUS, 11);
    station.set(register::QUEUE_SEL, 2);
    station.set(register::QUEUE_NUM, SIZE.into());
    for (at, value) in [(0x80, 0xd000), (0x90, 0xd400), (0xa0, 0xd800)] {
        station.set(at, value);
    }
    station.set(register::QUEUE_READY, 1);
    station.set(register::STATUS, 15);
    station.memory.write(COMMAND_AT, &[4, 0, 2, 0]).unwrap();
    station.describe(2, 0, COMMAND_AT.into(), 4, NEXT, 1);
    station.describe(2, 1, ANSWER_AT.into(), 1, WRITES, 0);
    station.offer(2, 0);
    station.set(register::QUEUE_NOTIFY, 2);
    assert_eq!(station.take_used(2), Some((0, 1)));
    let mut answer = [0xee];
    station.memory.read(ANSWER_AT, &mut answer).unwrap();
    assert_eq!(answer, [1], "there is one pair");
}
