//! Mergeable buffers in a split queue.

use super::driver::{SIZE, Station, WRITES, frame};
use crate::bus::{GuestMemory, Reception};
use crate::offload::tests::super_frame;
use crate::virtio::{NicOptions, RX};

const MERGED: NicOptions = NicOptions { mergeable: true, segmentation: true, ..NicOptions::PLAIN };

/// Posts a buffer of this length.
fn post(station: &mut Station, slot: u16, len_bytes: u32) {
    station.describe(RX, slot, Station::buffer(RX, slot).into(), len_bytes, WRITES, 0);
    station.offer(RX, slot);
}

/// Takes the buffers that were used; their bytes one after the other.
fn stored(station: &mut Station) -> (usize, Vec<u8>) {
    let (mut count, mut bytes) = (0, Vec::new());
    while let Some((slot, len)) = station.take_used(RX) {
        let begin = bytes.len();
        bytes.resize(begin + len as usize, 0);
        let at = Station::buffer(RX, slot as u16);
        station.memory.read(at, &mut bytes[begin..]).unwrap();
        count += 1;
    }
    (count, bytes)
}

#[test]
fn frame_fills_as_many_buffers_as_it_needs_and_says_how_many() {
    for event_idx in [false, true] {
        let mut station = Station::started(NicOptions { event_idx, ..MERGED });
        for round in 0..30 {
            for slot in 0..SIZE {
                post(&mut station, slot, 0x600);
            }
            let (header, tcp) = super_frame(round % 2 == 0, 300 * (1 + round % 30));
            assert_eq!(station.receive_offloaded(&header, &tcp), Reception::Stored, "{round}");
            let (count, bytes) = stored(&mut station);
            assert_eq!(count, (12 + tcp.len()).div_ceil(0x600));
            assert_eq!(usize::from(bytes[10]), count, "num_buffers");
            assert!(bytes[12..] == tcp, "{round}");
            station.start();
        }
        let counters = &station.card.counters;
        assert!(counters.rx_merged_frame_count > 20, "{counters:?}");
        assert!(counters.rx_merged_buffer_count > 2 * counters.rx_merged_frame_count);
    }
}

#[test]
fn frame_waits_for_the_buffers_that_are_missing_and_the_driver_notifies_of_them() {
    for event_idx in [false, true] {
        let mut station = Station::started(NicOptions { event_idx, ..MERGED });
        let arrived = frame(1000);
        for slot in 0..2 {
            post(&mut station, slot, 400);
            assert_eq!(station.receive(&arrived), Reception::Off);
            assert_eq!(station.take_used(RX), None);
            // Of the one behind those that are there.
            let (flags, event) = station.device_wish(RX);
            assert!(flags == 0 && (!event_idx || event == slot + 1), "{flags} {event}");
        }
        post(&mut station, 2, 400);
        assert_eq!(station.receive(&arrived), Reception::Stored);
        let (count, bytes) = stored(&mut station);
        assert!(count == 3 && bytes[12..] == arrived);
    }
}

#[test]
fn buffers_that_never_suffice_stay_and_the_frame_is_lost() {
    let mut station = Station::started(MERGED);
    for slot in 0..SIZE {
        post(&mut station, slot, 100);
    }
    assert_eq!(station.receive(&frame(1514)), Reception::Lost);
    assert_eq!(station.receive(&frame(800 - 12)), Reception::Stored);
    let (count, bytes) = stored(&mut station);
    assert_eq!((count, bytes.len()), (8, 800));
    assert_eq!(station.card.counters.rx_missed_count, 1);
}

#[test]
fn empty_buffers_and_short_ones_hold_header_and_frame_in_any_pieces() {
    let mut station = Station::started(MERGED);
    for (slot, len) in (0..).zip([0, 1, 0, 9, 5, 45, 0, 100]) {
        post(&mut station, slot, len);
    }
    assert_eq!(station.receive(&frame(60)), Reception::Stored);
    let (count, bytes) = stored(&mut station);
    assert_eq!((count, bytes[10]), (8, 8));
    assert!(bytes[12..] == frame(60));
}

#[test]
fn without_the_feature_a_frame_takes_one_buffer() {
    let mut station = Station::started(NicOptions::PLAIN);
    for slot in 0..SIZE {
        post(&mut station, slot, 400);
    }
    assert_eq!(station.receive(&frame(1000)), Reception::Lost);
    assert_eq!(station.receive(&frame(300)), Reception::Stored);
    assert_eq!(station.card.counters.rx_merged_frame_count, 0);
}
