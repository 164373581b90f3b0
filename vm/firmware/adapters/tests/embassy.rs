//! The driver of `embassy-net` on the fake card.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use adapters::{EmbassyCard, InterruptSignal, SETTINGS};
use common::*;
use embassy_net_driver::{Driver, HardwareAddress, LinkState, RxToken, TxToken};
use net::{Identity, Outcome};
use virtio::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters, TX};
use virtio::mmio::status;

/// Counts the times that the task was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The interrupt handler of a controller that triggers by edge.
fn interrupt(device: &FakeDevice, signal: &InterruptSignal) {
    if device.take_edge() {
        signal.raise();
    }
}

const IDENTITY: Identity = Identity { mac: OUR_MAC.0, ip: US };

/// Answers what has come, as `embassy-net` does: the answer is written while the request is read.
fn answer(card: &mut EmbassyCard<'_, FakeRegisters, FakeMemory>, cx: &mut Context<'_>) -> u32 {
    let mut count = 0;
    while let Some((request, room)) = card.receive(cx) {
        request.consume(|request| {
            if let Outcome::Answer { len_bytes, .. } = net::answer(request, &IDENTITY) {
                room.consume(len_bytes, |bytes| bytes.copy_from_slice(&request[..len_bytes]));
            }
        });
        count += 1;
    }
    count
}

#[test]
fn interrupt_wakes_the_task_that_polled_and_it_answers() {
    for settings in every() {
        let (signal, woken) = (InterruptSignal::new(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = &mut Context::from_waker(&waker);
        let (device, card) = card(Behaviour::default(), settings);
        let mut card = EmbassyCard::new(card, OUR_MAC.0, &signal);
        assert_eq!(card.hardware_address(), HardwareAddress::Ethernet(OUR_MAC.0));
        assert_eq!(card.capabilities().max_transmission_unit, 1514);
        assert_eq!(answer(&mut card, cx), 0);
        for number in 0..300 {
            let before = woken.0.load(Ordering::Relaxed);
            assert!(device.receive(&ping(number, b"wake up")), "{settings:?}");
            interrupt(&device, &signal);
            assert!(woken.0.load(Ordering::Relaxed) > before, "{settings:?}: {number}");
            assert_eq!(answer(&mut card, cx), 1, "{settings:?}: {number}");
            let sent = device.take_sent();
            assert_eq!(pong(&sent[0]), (number, b"wake up".to_vec()), "{settings:?}");
            interrupt(&device, &signal);
            answer(&mut card, cx);
        }
        assert_no_leak(&device, card.card());
    }
}

#[test]
fn task_that_waits_for_room_is_woken_when_the_card_has_sent() {
    for settings in every() {
        let (signal, woken) = (InterruptSignal::new(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = &mut Context::from_waker(&waker);
        let late = Behaviour { queue_frames_max: 4, sends_at_once: false, ..Behaviour::default() };
        let (device, card) = card(late, settings);
        let mut card = EmbassyCard::new(card, OUR_MAC.0, &signal);
        for _ in 0..4 {
            let room = card.transmit(cx).expect("the ring has room");
            room.consume(60, |bytes| bytes.fill(7));
        }
        assert!(card.transmit(cx).is_none(), "{settings:?}");
        assert_eq!(device.owned_count(TX), 4);
        let before = woken.0.load(Ordering::Relaxed);
        device.send_waiting(|_| 0);
        interrupt(&device, &signal);
        assert!(woken.0.load(Ordering::Relaxed) > before, "{settings:?}: it waits for ever");
        assert!(card.transmit(cx).is_some(), "{settings:?}");
        assert_no_leak(&device, card.card());
    }
}

#[test]
fn interrupt_before_the_first_poll_is_not_lost() {
    let signal = InterruptSignal::new();
    let behaviour =
        Behaviour { arriving: [ping(1, b"early")].into_iter().collect(), ..Behaviour::default() };
    let (device, card) = card(behaviour, SETTINGS);
    interrupt(&device, &signal);
    let mut card = EmbassyCard::new(card, OUR_MAC.0, &signal);
    let cx = &mut Context::from_waker(Waker::noop());
    assert_eq!(answer(&mut card, cx), 1);
    assert!(!device.interrupt_is_up(), "it was acknowledged");
    assert_eq!(device.take_sent().len(), 1);
}

#[test]
fn link_is_down_while_the_card_is_out_of_order() {
    let signal = InterruptSignal::new();
    let (device, card) = card(Behaviour::default(), SETTINGS);
    let mut card = EmbassyCard::new(card, OUR_MAC.0, &signal);
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(card.link_state(cx) == LinkState::Up);
    device.behave(|behaviour| behaviour.fails_at_start = true);
    for (fails, state) in [(true, LinkState::Down), (false, LinkState::Up)] {
        device.behave(|behaviour| behaviour.fails_at_start = fails);
        device.set_status(status::DEVICE_NEEDS_RESET);
        device.raise_interrupt(2);
        interrupt(&device, &signal);
        signal.raise();
        assert!(card.link_state(cx) == state, "fails: {fails}");
    }
    assert_eq!(card.card().restart_count(), 2);
    assert_no_leak(&device, card.card());
}
