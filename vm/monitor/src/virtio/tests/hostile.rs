//! Drivers that break the rules: the device says so, stops, and works again after a reset.

use super::driver::{NEXT, Station, TABLE, WRITES, frame};
use crate::bus::{GuestMemory, Reception};
use crate::virtio::{DriverFault, NicOptions, RX, TX, register, status};

/// Has `attack` done to a started card, which must then need a reset; returns the fault.
fn fault_after(attack: impl FnOnce(&mut Station)) -> DriverFault {
    let mut station = Station::started(NicOptions { event_idx: true, ..NicOptions::default() });
    attack(&mut station);
    let fault = station.card.fault().expect("the device has noticed");
    assert_ne!(station.get(register::STATUS) & status::DEVICE_NEEDS_RESET, 0);
    // The change of configuration interrupts.
    assert_eq!(station.get(register::INTERRUPT_STATUS) & 2, 2);
    assert!(station.card.state(&station.memory).to_string().contains("needs a reset"));
    // Nothing moves.
    let sent_count = station.wire.frames.len();
    station.kick();
    assert_eq!(station.receive(&frame(60)), Reception::Off);
    assert_eq!(station.wire.frames.len(), sent_count);
    // Until a reset.
    station.start();
    assert!(!station.card.irq() && station.card.fault().is_none());
    station.wire.frames.clear();
    station.put(0, &frame(60));
    station.kick();
    assert_eq!(station.wire.frames, [frame(60)]);
    fault
}

/// As [`fault_of`], of one chain in the transmit queue.
fn fault_of_chain(describe: impl FnOnce(&Station)) -> DriverFault {
    fault_after(|station| {
        describe(station);
        station.offer(TX, 0);
        station.kick();
    })
}

#[test]
fn index_that_jumps_needs_a_reset() {
    let fault = fault_after(|station| {
        for _ in 0..9 {
            station.offer(TX, 0);
        }
        station.kick();
    });
    assert_eq!(fault, DriverFault::Index { index: 9, next: 0 });
}

#[test]
fn descriptor_outside_the_table_needs_a_reset() {
    let fault = fault_after(|station| {
        station.offer(TX, 8);
        station.kick();
    });
    assert_eq!(fault, DriverFault::Descriptor(8));
    let buffer = Station::buffer(TX, 0).into();
    let fault = fault_of_chain(|station| station.describe(TX, 0, buffer, 72, NEXT, 9));
    assert_eq!(fault, DriverFault::Descriptor(9));
}

#[test]
fn chain_that_loops_needs_a_reset() {
    let buffer = Station::buffer(TX, 0).into();
    let fault = fault_of_chain(|station| {
        station.describe(TX, 0, buffer, 20, NEXT, 1);
        station.describe(TX, 1, buffer, 20, NEXT, 0);
    });
    assert_eq!(fault, DriverFault::Loop(8));
}

#[test]
fn buffers_outside_memory_need_a_reset() {
    for (address, len_bytes) in [(0xffff, 100), (0x1_0000, 100), (0xffff_fff0, 100)] {
        let fault = fault_of_chain(|station| station.describe(TX, 0, address, len_bytes, 0, 0));
        assert!(matches!(fault, DriverFault::Memory(_)), "{fault}");
    }
    for address in [1 << 32, u64::MAX] {
        let fault = fault_of_chain(|station| station.describe(TX, 0, address, 100, 0, 0));
        assert_eq!(fault, DriverFault::Address(address));
    }
}

#[test]
fn tables_that_are_nested_chained_or_not_whole_need_a_reset() {
    let table = Station::buffer(TX, 3);
    for (len_bytes, flags) in [(0, TABLE), (17, TABLE), (16, TABLE | NEXT)] {
        let fault =
            fault_of_chain(|station| station.describe(TX, 0, table.into(), len_bytes, flags, 1));
        assert_eq!(fault, DriverFault::Table { len_bytes });
    }
    let fault = fault_of_chain(|station| {
        station.describe(TX, 0, table.into(), 16, TABLE, 0);
        station.describe_at(table, table.into(), 16, TABLE, 0);
    });
    assert_eq!(fault, DriverFault::Table { len_bytes: 16 });
    // One that loops inside.
    let fault = fault_of_chain(|station| {
        station.describe(TX, 0, table.into(), 16, TABLE, 0);
        station.describe_at(table, Station::buffer(TX, 1).into(), 16, NEXT, 0);
    });
    assert_eq!(fault, DriverFault::Loop(8));
}

#[test]
fn buffers_of_the_wrong_direction_need_a_reset() {
    let buffer = Station::buffer(TX, 0).into();
    let fault = fault_of_chain(|station| station.describe(TX, 0, buffer, 72, WRITES, 0));
    assert_eq!(fault, DriverFault::Direction { queue: TX });
    let fault = fault_after(|station| {
        station.describe(RX, 0, buffer, 2000, 0, 0);
        station.offer(RX, 0);
        assert_eq!(station.receive(&frame(60)), Reception::Off);
    });
    assert_eq!(fault, DriverFault::Direction { queue: RX });
}

#[test]
fn frame_shorter_than_its_header_needs_a_reset_and_one_of_no_wire_is_dropped() {
    let buffer = Station::buffer(TX, 0).into();
    let fault = fault_of_chain(|station| station.describe(TX, 0, buffer, 11, 0, 0));
    assert_eq!(fault, DriverFault::Header(11));
    let mut station = Station::started(NicOptions::default());
    for (slot, len_bytes) in [(0, 12), (1, 25), (2, 12 + 4097), (3, u32::MAX)] {
        station.describe(TX, slot, buffer, len_bytes, 0, 0);
        station.offer(TX, slot);
    }
    station.kick();
    assert!(station.wire.frames.is_empty() && station.card.fault().is_none());
    assert_eq!(station.card.counters.tx_dropped_count, 4);
}

#[test]
fn queues_of_no_layout_need_a_reset() {
    use register as r;
    for (register, value) in [
        (r::QUEUE_NUM, 0),
        (r::QUEUE_NUM, 7),
        (r::QUEUE_NUM, 512),
        (r::QUEUE_DESC_LOW, 0x1008),
        (r::QUEUE_DRIVER_LOW, 0x1401),
        (r::QUEUE_DEVICE_LOW, 0x1802),
        (r::QUEUE_DESC_HIGH, 1),
        (r::QUEUE_DEVICE_LOW, 0xffff_fff0),
    ] {
        fault_after(|station| {
            station.set(r::QUEUE_SEL, TX.into());
            station.set(r::QUEUE_READY, 0);
            station.set(register, value);
            station.set(r::QUEUE_READY, 1);
            assert_eq!(station.get(r::QUEUE_READY), 0, "{register:#x} {value:#x}");
        });
    }
}

#[test]
fn queues_that_do_not_exist_are_not_there() {
    let mut station = Station::started(NicOptions::default());
    for queue in [2, 0xffff, u32::MAX] {
        station.set(register::QUEUE_SEL, queue);
        station.set(register::QUEUE_READY, 1);
        station.set(register::QUEUE_NUM, 8);
        station.set(register::QUEUE_NOTIFY, queue);
        assert_eq!(
            [station.get(register::QUEUE_NUM_MAX), station.get(register::QUEUE_READY)],
            [0; 2]
        );
    }
    assert!(station.card.fault().is_none());
}

#[test]
fn buffer_too_short_for_a_frame_stays_and_the_frame_is_lost() {
    let mut station = Station::started(NicOptions::default());
    station.describe(RX, 0, Station::buffer(RX, 0).into(), 60, WRITES, 0);
    station.offer(RX, 0);
    assert_eq!(station.receive(&frame(60)), Reception::Lost);
    assert!(station.take_used(RX).is_none() && station.card.fault().is_none());
    let mut none = [0; 60];
    station.memory.read(Station::buffer(RX, 0), &mut none).unwrap();
    assert_eq!(none, [0; 60]);
}
