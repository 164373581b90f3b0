//! Work that guest and host leave to each other: checksums, and segments of TCP.

use super::driver::{NEXT, Station, frame};
use crate::bus::{GuestMemory, Reception};
use crate::offload::tests::super_frame;
use crate::offload::{NEEDS_CHECKSUM, OffloadHeader, Offloads, TCP_V4};
use crate::virtio::{NicOptions, RX, TX, register, status};

const SUMS: NicOptions = NicOptions { checksum: true, ..NicOptions::PLAIN };
const SEGMENTS: NicOptions = NicOptions { segmentation: true, ..NicOptions::PLAIN };

/// Sends a frame behind this header, in as many buffers as it takes.
fn send(station: &mut Station, header: OffloadHeader, frame: &[u8]) {
    let mut whole = Vec::from(header.to_bytes());
    whole.extend([0; 2]);
    whole.extend(frame);
    let pieces: Vec<&[u8]> = whole.chunks(0x700).collect();
    for (slot, piece) in (0..).zip(&pieces) {
        let at = Station::buffer(TX, slot);
        station.memory.write(at, piece).unwrap();
        let is_last = usize::from(slot) + 1 == pieces.len();
        let flags = if is_last { 0 } else { NEXT };
        station.describe(TX, slot, at.into(), piece.len() as u32, flags, slot + 1);
    }
    station.offer(TX, 0);
    station.kick();
    assert_eq!(station.take_used(TX), Some((0, 0)));
    assert_eq!(station.card.fault(), None);
}

fn checksum_left(start: u16, offset: u16) -> OffloadHeader {
    let flags = NEEDS_CHECKSUM;
    OffloadHeader { flags, csum_start: start, csum_offset: offset, ..OffloadHeader::FINISHED }
}

#[test]
fn super_frame_goes_to_the_host_whole_with_its_header() {
    let mut station = Station::started(SEGMENTS);
    for is_v4 in [true, false] {
        let (header, frame) = super_frame(is_v4, 12_000);
        // The length of the headers is no more than a hint.
        send(&mut station, OffloadHeader { hdr_len: 9, ..header }, &frame);
        assert_eq!(station.wire.headers.pop(), Some(header));
        assert!(station.wire.frames.pop() == Some(frame));
    }
    let counters = &station.card.counters;
    assert_eq!((counters.tx_super_frame_count, counters.tx_checksum_left_count), (2, 2));
}

#[test]
fn hostile_headers_are_dropped_and_counted_and_the_next_frame_goes_out() {
    let mut station = Station::started(SEGMENTS);
    let (good, frame) = super_frame(true, 3000);
    let hostile = [
        OffloadHeader { gso_size: 0, ..good },
        OffloadHeader { gso_size: 1, ..good },
        OffloadHeader { gso_type: TCP_V4 | 0x80, ..good },
        OffloadHeader { gso_type: 5, ..good },
        OffloadHeader { gso_type: 77, ..good },
        OffloadHeader { flags: 0, ..good },
        OffloadHeader { csum_start: 3060, ..good },
        OffloadHeader { csum_start: u16::MAX, csum_offset: u16::MAX, ..good },
        checksum_left(3052, 1),
        checksum_left(0, 0),
    ];
    for header in hostile {
        send(&mut station, header, &frame);
    }
    assert!(station.wire.frames.is_empty());
    assert_eq!(station.card.counters.tx_bad_header_count, hostile.len() as u64);
    assert_eq!(station.card.counters.tx_frame_count, 0);
    send(&mut station, good, &frame);
    assert_eq!(station.wire.headers, [good]);
    // One that is to stay whole is no longer than a wire's.
    send(&mut station, checksum_left(34, 16), &super_frame(true, 5000).1);
    assert_eq!((station.wire.frames.len(), station.card.counters.tx_dropped_count), (1, 1));
}

#[test]
fn without_the_feature_a_header_means_nothing() {
    let mut station = Station::started(NicOptions::PLAIN);
    let (header, _) = super_frame(true, 100);
    send(&mut station, header, &frame(200));
    assert_eq!((station.wire.frames.len(), station.wire.headers.len()), (1, 0));
    let mut station = Station::started(SUMS);
    let (header, tcp) = super_frame(true, 3000);
    send(&mut station, header, &tcp);
    assert!(station.wire.frames.is_empty());
    assert_eq!(station.card.counters.tx_bad_header_count, 1);
    let sum = checksum_left(34, 16);
    send(&mut station, sum, &tcp);
    assert_eq!(station.wire.headers, [sum]);
}

#[test]
fn features_that_need_another_are_refused_without_it() {
    let options = NicOptions { pairs: 2, ..SEGMENTS };
    for (bits, is_valid) in [
        (1 << 11, false),
        (1 << 12, false),
        (1 << 11 | 1 << 12 | 1, true),
        (1 << 7, false),
        (1 << 8 | 1, false),
        (1 << 7 | 1 << 1, true),
        (1 << 22, false),
        (1 << 22 | 1 << 17, true),
        (1 << 17, true),
    ] {
        let mut station = Station::new(options);
        station.set(register::DRIVER_FEATURES_SEL, 1);
        station.set(register::DRIVER_FEATURES, 1);
        station.set(register::DRIVER_FEATURES_SEL, 0);
        station.set(register::DRIVER_FEATURES, bits);
        station.set(register::STATUS, 11);
        let is_ok = station.get(register::STATUS) & status::FEATURES_OK != 0;
        assert_eq!(is_ok, is_valid, "{bits:#x}");
    }
}

#[test]
fn driver_gets_what_it_accepts_and_nothing_else() {
    let (left, tcp) = super_frame(true, 1400);
    let sum = OffloadHeader { gso_type: 0, gso_size: 0, hdr_len: 0, ..left };
    let valid = OffloadHeader { flags: 2, ..OffloadHeader::FINISHED };
    for (options, takes) in [(NicOptions::PLAIN, [0, 0]), (SUMS, [1, 0]), (SEGMENTS, [1, 1])] {
        let mut station = Station::started(options);
        let accepted = station.card.accepted_offloads();
        assert_eq!([accepted.checksum, accepted.tcp_v4].map(u64::from), takes);
        for (slot, header) in [(0, sum), (1, left), (2, valid)] {
            station.post(slot);
            station.receive_offloaded(&header, &tcp);
        }
        let counters = &station.card.counters;
        assert_eq!(counters.rx_super_frame_count, takes[1]);
        assert_eq!(counters.rx_checksum_left_count, takes[0] + takes[1]);
        assert_eq!(counters.rx_malformed_count, 2 - takes[0] - takes[1]);
        // The last of them is stored in every case, and its flag only for a driver that asked for it.
        let (slot, _) = std::iter::from_fn(|| station.take_used(RX)).last().unwrap();
        let mut flags = [0];
        station.memory.read(Station::buffer(RX, slot as u16), &mut flags).unwrap();
        assert_eq!(u64::from(flags[0]), 2 * takes[0]);
        station.set(register::STATUS, 0);
        assert_eq!(station.card.accepted_offloads(), Offloads::default());
    }
}

#[test]
fn received_super_frame_needs_a_buffer_for_all_of_it() {
    let mut station = Station::started(SEGMENTS);
    let (header, tcp) = super_frame(true, 4000);
    station.post(0);
    assert_eq!(station.receive_offloaded(&header, &tcp), Reception::Lost);
    assert_eq!(station.card.counters.rx_missed_count, 1);
    assert_eq!(station.receive(&frame(60)), Reception::Stored);
    // A chain of three.
    for slot in 1..4 {
        let flags = if slot < 3 { 2 | NEXT } else { 2 };
        station.describe(RX, slot, Station::buffer(RX, slot).into(), 0x700, flags, slot + 1);
    }
    station.offer(RX, 1);
    assert_eq!(station.receive_offloaded(&header, &tcp), Reception::Stored);
    assert_eq!(station.take_used(RX), Some((0, 72)));
    assert_eq!(station.take_used(RX), Some((1, 12 + tcp.len() as u32)));
    let mut found = [0; 12];
    station.memory.read(Station::buffer(RX, 1), &mut found).unwrap();
    assert_eq!((&found[..10], found[10]), (&header.to_bytes()[..], 1));
}
