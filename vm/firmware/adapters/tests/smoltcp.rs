//! `smoltcp` on the fake card.

mod common;

use adapters::SETTINGS;
use common::*;
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::phy::{Device, RxToken, TxToken};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{IpCidr, IpEndpoint};
use virtio::StartError;
use virtio::fake::{Behaviour, FakeDevice, RX, TX};
use virtio::mmio::status;
use virtio::net::Settings;

/// A stack that knows its peer's address.
struct Stack {
    device: FakeDevice,
    card: FakeCard,
    interface: Interface,
    sockets: SocketSet<'static>,
}

impl Stack {
    fn new(behaviour: Behaviour, settings: Settings) -> Stack {
        let (device, mut card) = card(behaviour, settings);
        let config = Config::new(OUR_MAC.into());
        let mut interface = Interface::new(config, &mut card, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(US.into(), 24)).expect("it is the first");
        });
        let mut stack = Stack { device, card, interface, sockets: SocketSet::new(vec![]) };
        assert!(stack.device.receive(&arp()));
        stack.settle();
        stack.device.send_waiting(|_| 0);
        assert!(stack.device.take_sent().iter().all(|frame| is_arp_reply(frame)));
        stack.settle();
        stack
    }

    /// Polls after each interrupt, as a task that sleeps until one comes.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if !self.device.take_edge() {
                return;
            }
            self.card.acknowledge().expect("the card works");
            self.poll();
        }
        panic!("interrupts do not end");
    }

    fn poll(&mut self) {
        let (card, sockets) = (&mut self.card, &mut self.sockets);
        while self.interface.poll(Instant::ZERO, card, sockets) != PollResult::None {}
    }

    /// Numbers of the echoes answered since the last call.
    fn answered(&self) -> Vec<u16> {
        self.device.take_sent().iter().map(|frame| pong(frame).0).collect()
    }
}

#[test]
fn pings_of_every_size_are_answered_with_every_kind_of_ring() {
    for settings in every() {
        let mut stack = Stack::new(Behaviour::default(), settings);
        for number in 0..600 {
            let data: Vec<u8> = (0..number % 1473).map(|at| at as u8).collect();
            assert!(stack.device.receive(&ping(number, &data)), "{settings:?}: the ring is dry");
            stack.settle();
            let sent = stack.device.take_sent();
            assert_eq!(sent.len(), 1, "{settings:?}: {number}");
            assert_eq!(pong(&sent[0]), (number, data), "{settings:?}");
        }
        assert_no_leak(&stack.device, &mut stack.card);
    }
}

#[test]
fn frames_that_wait_together_are_all_answered_and_their_buffers_shown_in_batches() {
    for settings in every() {
        let mut stack = Stack::new(Behaviour::default(), settings);
        let before = stack.card.driver().notify_stats().rx_shown_count;
        for number in 0..40 {
            assert!(stack.device.receive(&ping(number, b"together")));
        }
        stack.settle();
        assert_eq!(stack.answered(), (0..40).collect::<Vec<u16>>(), "{settings:?}");
        // Two of 16, and one when the ring is empty.
        let shown = stack.card.driver().notify_stats().rx_shown_count - before;
        assert_eq!(shown, 3, "{settings:?}");
        assert_no_leak(&stack.device, &mut stack.card);
    }
}

#[test]
fn small_rings_do_not_run_dry() {
    for settings in every() {
        let small = Behaviour { queue_frames_max: 4, ..Behaviour::default() };
        let mut stack = Stack::new(small, settings);
        for number in 0..100 {
            assert!(stack.device.receive(&ping(number, b"small")), "{settings:?}: {number}");
            stack.settle();
        }
        assert_eq!(stack.answered().len(), 100, "{settings:?}");
        assert_no_leak(&stack.device, &mut stack.card);
    }
}

#[test]
fn full_transmit_ring_leaves_requests_in_theirs_until_the_card_has_sent() {
    for settings in every() {
        let late = Behaviour { queue_frames_max: 8, sends_at_once: false, ..Behaviour::default() };
        let mut stack = Stack::new(late, settings);
        let mut received = 0..;
        for number in received.by_ref() {
            if !stack.device.receive(&ping(number, b"full")) {
                break;
            }
            stack.settle();
        }
        assert_eq!(stack.device.owned_count(TX), 8, "{settings:?}");
        assert!(stack.card.transmit(Instant::ZERO).is_none());
        let mut answered = Vec::new();
        while stack.device.owned_count(TX) > 0 {
            stack.device.send_waiting(|_| 0);
            // The interrupt for a frame sent is all that wakes the stack.
            stack.settle();
            answered.extend(stack.answered());
        }
        assert_eq!(answered, (0..16).collect::<Vec<u16>>(), "{settings:?}: it never recovers");
        stack.device.behave(|behaviour| behaviour.sends_at_once = true);
        assert!(stack.device.receive(&ping(99, b"later")));
        stack.settle();
        assert_eq!(stack.answered(), [99], "{settings:?}");
        assert_no_leak(&stack.device, &mut stack.card);
    }
}

#[test]
fn socket_sends_and_receives_datagrams() {
    let mut stack = Stack::new(Behaviour::default(), SETTINGS);
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 4 * 1472]);
    let socket = stack.sockets.add(udp::Socket::new(buffer(), buffer()));
    let socket = stack.sockets.get_mut::<udp::Socket<'_>>(socket);
    socket.bind(7).expect("the port is free");
    let peer = IpEndpoint::new(THEM.into(), 4000);
    for len in [0, 1, 1472] {
        socket.send_slice(&vec![7; len], peer).expect("there is room");
    }
    stack.poll();
    let sizes: Vec<usize> = stack.device.take_sent().iter().map(Vec::len).collect();
    assert_eq!(sizes, [42, 43, 1514]);
    assert_no_leak(&stack.device, &mut stack.card);
}

#[test]
fn token_that_is_dropped_returns_its_frame() {
    let (device, mut card) = card(Behaviour::default(), SETTINGS);
    for number in 0..300 {
        assert!(device.receive(&ping(number, b"unread")), "{number}");
        assert!(card.receive(Instant::ZERO).is_some());
        assert!(card.receive(Instant::ZERO).is_none());
    }
    assert_no_leak(&device, &mut card);
    assert!(device.take_sent().is_empty());
}

#[test]
fn answer_is_sent_whether_it_is_written_while_the_request_is_read_or_later() {
    let (device, mut card) = card(Behaviour::default(), SETTINGS);
    assert!(device.receive(&ping(1, b"request")));
    let (request, room) = card.receive(Instant::ZERO).expect("one has come");
    request.consume(|bytes| room.consume(bytes.len(), |to| to.copy_from_slice(bytes)));
    assert_eq!(device.take_sent(), [ping(1, b"request")]);
    assert!(device.receive(&ping(2, b"request")));
    let (request, room) = card.receive(Instant::ZERO).expect("one has come");
    let copy = request.consume(<[u8]>::to_vec);
    room.consume(copy.len(), |to| to.copy_from_slice(&copy));
    assert_eq!(device.take_sent(), [ping(2, b"request")]);
    assert!(card.receive(Instant::ZERO).is_none());
    assert_no_leak(&device, &mut card);
}

#[test]
fn card_that_needs_a_reset_gets_one_and_one_that_fails_again_is_tried_again() {
    for settings in every() {
        let mut stack = Stack::new(Behaviour::default(), settings);
        assert!(stack.device.receive(&ping(1, b"lost")));
        stack.device.set_status(status::DEVICE_NEEDS_RESET);
        stack.device.raise_interrupt(2);
        stack.settle();
        assert_eq!(stack.card.restart_count(), 1);
        stack.device.take_sent();
        assert!(stack.device.receive(&ping(2, b"again")), "{settings:?}");
        stack.settle();
        assert_eq!(stack.answered(), [2], "{settings:?}");
        // The ring names more frames than the device has: nothing in it can be trusted.
        stack.device.forge_index(RX, 1000);
        stack.device.raise_interrupt(1);
        stack.settle();
        assert_eq!(stack.card.restart_count(), 2, "{settings:?}");
        stack.device.behave(|behaviour| behaviour.fails_at_start = true);
        stack.device.set_status(status::DEVICE_NEEDS_RESET);
        stack.device.raise_interrupt(2);
        let failed = stack.card.acknowledge();
        assert!(matches!(failed, Err(StartError::Failed { .. })), "{failed:?}");
        assert!(stack.card.receive(Instant::ZERO).is_none());
        assert!(stack.card.transmit(Instant::ZERO).is_none());
        stack.device.behave(|behaviour| behaviour.fails_at_start = false);
        stack.card.acknowledge().expect("it starts this time");
        assert!(stack.device.receive(&ping(3, b"again")), "{settings:?}");
        stack.settle();
        assert_eq!(stack.answered(), [3], "{settings:?}");
        assert_no_leak(&stack.device, &mut stack.card);
    }
}

#[test]
fn frames_of_invalid_length_are_skipped_and_their_buffers_shown_again() {
    let mut stack = Stack::new(Behaviour::default(), SETTINGS);
    for len in [0, 5, 5000] {
        let id = stack.device.take_available(RX).expect("it is there");
        stack.device.complete(RX, id, len);
    }
    assert!(stack.device.receive(&ping(1, b"valid")));
    stack.settle();
    assert_eq!(stack.answered(), [1]);
    assert_no_leak(&stack.device, &mut stack.card);
}
