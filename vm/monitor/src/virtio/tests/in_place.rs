//! Frames that stay in guest memory.

use std::collections::VecDeque;

use super::driver::{NEXT, SIZE, Station, WRITES, frame};
use crate::bus::{GuestMemory, InPlace, Posted};
use crate::virtio::{NicOptions, RX, TX, register, status};

const PLAIN: NicOptions = NicOptions::PLAIN;

/// A back end that has guest memory, as lists of addresses.
#[derive(Debug, Default)]
pub(super) struct GuestFrames {
    pub(super) sending: VecDeque<(u32, u32)>,
    pub(super) sent: VecDeque<u32>,
    pub(super) receiving: VecDeque<u32>,
    pub(super) received: VecDeque<(u32, u32)>,
    pub(super) cancel_count: u32,
}

impl InPlace for GuestFrames {
    fn post_send(&mut self, at: u32, len_bytes: u32) -> Posted {
        if len_bytes > 2048 {
            return Posted::Refused;
        }
        self.sending.push_back((at, len_bytes));
        Posted::Taken
    }

    fn take_sent(&mut self) -> Option<u32> {
        self.sent.pop_front()
    }

    fn post_receive(&mut self, at: u32) -> Posted {
        if at < 0x1000 {
            return Posted::Refused;
        }
        self.receiving.push_back(at);
        Posted::Taken
    }

    fn take_received(&mut self) -> Option<(u32, u32)> {
        self.received.pop_front()
    }

    fn cancel(&mut self) {
        self.cancel_count += 1;
        self.receiving.clear();
        self.received.clear();
    }
}

fn station() -> Station {
    let mut station = Station::new(PLAIN);
    station.wire.place = Some(GuestFrames::default());
    station.start();
    station
}

fn place(station: &mut Station) -> &mut GuestFrames {
    station.wire.place.as_mut().unwrap()
}

fn exchange(station: &mut Station) {
    station.card.exchange(&station.memory, station.wire.place.as_mut().unwrap());
}

#[test]
fn frame_is_posted_where_it_is_and_its_chain_comes_back_when_it_is_sent_in_any_order() {
    let mut station = station();
    for slot in 0..3 {
        station.put(slot, &frame(60 + usize::from(slot)));
    }
    station.kick();
    let at = [0, 1, 2].map(|slot| Station::buffer(TX, slot) + 12);
    assert_eq!(place(&mut station).sending, [(at[0], 60), (at[1], 61), (at[2], 62)]);
    // Nothing was copied, and nothing is returned before it is sent.
    assert!(station.wire.frames.is_empty());
    exchange(&mut station);
    assert!(station.take_used(TX).is_none() && !station.card.irq());
    place(&mut station).sent.extend([at[2], at[0]]);
    exchange(&mut station);
    assert_eq!([station.take_used(TX), station.take_used(TX)], [Some((2, 0)), Some((0, 0))]);
    assert!(station.take_used(TX).is_none() && station.card.irq_tells_only_of_sent());
    let counters = station.card.counters;
    assert_eq!((counters.tx_frame_count, counters.in_place_frame_count), (3, 3));
}

#[test]
fn received_frame_stays_where_the_back_end_put_it_and_gets_a_header() {
    let mut station = station();
    // Header and room in one buffer, and in two.
    station.post(0);
    station.describe(RX, 4, 0x8000, 12, WRITES | NEXT, 5);
    station.describe(RX, 5, 0x8100, 1514, WRITES, 0);
    station.offer(RX, 4);
    exchange(&mut station);
    let first = Station::buffer(RX, 0);
    assert_eq!(place(&mut station).receiving, [first + 12, 0x8100]);
    station.memory.write(0x8100, &frame(64)).unwrap();
    place(&mut station).received.extend([(0x8100, 64), (first + 12, 1514)]);
    exchange(&mut station);
    assert_eq!([station.take_used(RX), station.take_used(RX)], [Some((4, 76)), Some((0, 1526))]);
    let (mut header, mut found) = ([9; 12], [0; 64]);
    station.memory.read(0x8000, &mut header).unwrap();
    station.memory.read(0x8100, &mut found).unwrap();
    assert_eq!((header, found.to_vec()), ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], frame(64)));
    assert!(station.card.irq() && !station.card.irq_tells_only_of_sent());
    assert_eq!(station.card.counters.in_place_frame_count, 2);
}

#[test]
fn reset_withdraws_buffers_and_what_is_sent_afterwards_is_returned_to_no_queue() {
    let mut station = station();
    station.post(0);
    station.put(0, &frame(60));
    station.kick();
    exchange(&mut station);
    let before = place(&mut station).cancel_count;
    station.start();
    assert!(place(&mut station).cancel_count > before && place(&mut station).receiving.is_empty());
    // A frame of the first life is sent, and one arrives that was on its way.
    let (sent, received) = (Station::buffer(TX, 0) + 12, Station::buffer(RX, 0) + 12);
    place(&mut station).sent.push_back(sent);
    place(&mut station).received.push_back((received, 60));
    exchange(&mut station);
    assert!(station.take_used(TX).is_none() && station.take_used(RX).is_none());
    assert!(!station.card.irq());
}

#[test]
fn driver_notifies_of_buffers_only_while_the_back_end_has_few() {
    let mut station = station();
    exchange(&mut station);
    assert_eq!(station.device_wish(RX).0, 0);
    for slot in 0..SIZE / 2 {
        station.post(slot);
    }
    exchange(&mut station);
    assert_eq!(station.device_wish(RX).0, 1);
    // No more than a queue are posted, however often a hostile driver offers one.
    for _ in 0..5 {
        (0..SIZE).for_each(|_| station.offer(RX, 0));
        exchange(&mut station);
    }
    assert!(place(&mut station).receiving.len() <= usize::from(SIZE));
}

#[test]
fn frames_in_pieces_and_buffers_without_room_need_a_reset() {
    for (queue, first, second) in [
        (TX, (0x8000, 40), (0x8100, 40)),
        (RX, (0x8000, 500), (0x8400, 1500)),
        (RX, (0x8000, 8), (0x8400, 1518)),
        (RX, (0x8000, 12), (0x8400, 1513)),
        (RX, (0x8000, 12), (0x0400, 1514)),
    ] {
        let mut station = station();
        let writes = if queue == RX { WRITES } else { 0 };
        station.describe(queue, 0, first.0, first.1, NEXT | writes, 1);
        station.describe(queue, 1, second.0, second.1, writes, 0);
        station.offer(queue, 0);
        station.kick();
        exchange(&mut station);
        let bits = station.get(register::STATUS);
        assert!(bits & status::DEVICE_NEEDS_RESET != 0, "{queue} {first:x?} {second:x?}");
    }
}
