//! Starts and restarts while frames arrive.

use std::collections::VecDeque;

use telemetry::Counter;
use virtio::fake::{Behaviour, TX};
use virtio::mmio::status;

use super::bench::{Bench, every_arm, ping, pong_sequence};

fn arriving(sequences: impl IntoIterator<Item = u16>) -> VecDeque<Vec<u8>> {
    sequences.into_iter().map(ping).collect()
}

/// Numbers of the echoes answered since the last call; the announcement is skipped.
fn answered(bench: &Bench) -> Vec<u16> {
    let sent = bench.device.take_sent();
    sent.iter().filter(|frame| frame[12..14] == [8, 0]).map(|frame| pong_sequence(frame)).collect()
}

#[test]
fn every_arm_answers_frames_that_arrive_during_its_start() {
    for arm in every_arm() {
        let behaviour = Behaviour { arriving: arriving(1..=3), ..Behaviour::default() };
        let mut bench = Bench::with(&arm, behaviour);
        bench.responder.announce();
        bench.settle();
        assert_eq!(answered(&bench), [1, 2, 3], "{arm}");
        assert!(bench.device.receive(&ping(4)), "{arm}");
        bench.settle();
        assert_eq!(answered(&bench), [4], "{arm}");
        bench.assert_no_leak();
    }
}

/// The line rises once and stays up, because nothing acknowledges the card: the first version of the
/// firmware never answered when a frame arrived during its start.
#[test]
fn controller_that_listens_after_the_start_misses_the_card_until_it_is_reset() {
    for arm in every_arm().filter(|arm| !arm.contains("poll-mode")) {
        let behaviour =
            Behaviour { arriving: arriving([1]), is_deaf: true, ..Behaviour::default() };
        let mut bench = Bench::with(&arm, behaviour);
        bench.device.behave(|behaviour| behaviour.is_deaf = false);
        bench.responder.announce();
        for sequence in 2..10 {
            assert!(bench.device.receive(&ping(sequence)), "{arm}");
            bench.settle();
        }
        assert_eq!(answered(&bench), [], "{arm}");
        assert!(bench.device.interrupt_is_up(), "{arm}");
    }
}

#[test]
fn rings_that_are_full_at_the_start_drain() {
    for arm in every_arm().step_by(7) {
        let small = Behaviour {
            arriving: arriving(0..40),
            queue_frames_max: 4,
            sends_at_once: false,
            ..Behaviour::default()
        };
        let mut bench = Bench::with(&arm, small);
        bench.responder.announce();
        for _ in 0..40 {
            bench.settle();
            bench.device.send_waiting(|_| 0);
        }
        bench.settle();
        assert_eq!(bench.count(Counter::RxPackets), 40, "{arm}");
        let refused = bench.count(Counter::TxRefused);
        assert_eq!(answered(&bench).len() as u64 + refused, 40, "{arm}");
        assert_eq!(bench.device.owned_count(TX), 0, "{arm}");
        bench.device.behave(|behaviour| behaviour.sends_at_once = true);
        assert!(bench.device.receive(&ping(40)), "{arm}");
        bench.settle();
        assert_eq!(answered(&bench), [40], "{arm}");
        bench.assert_no_leak();
    }
}

#[test]
fn arms_answer_after_each_of_200_resets_under_a_flood() {
    // Every switch is on in half of these.
    for arm in every_arm().step_by(41) {
        let mut bench = Bench::new(&arm);
        for turn in 0..200 {
            // Some arrive before the reset, some during it, and one afterwards.
            for _ in 0..turn % 5 {
                bench.device.receive(&ping(1));
            }
            bench.device.behave(|behaviour| {
                behaviour.arriving = arriving(2..2 + turn % 7);
                behaviour.fails_at_start = turn % 10 == 9;
            });
            bench.device.set_status(status::DEVICE_NEEDS_RESET);
            bench.device.raise_interrupt(2);
            bench.settle();
            if turn % 10 == 9 {
                // It failed again, and says so.
                bench.device.behave(|behaviour| behaviour.fails_at_start = false);
                bench.device.raise_interrupt(2);
                bench.settle();
            }
            bench.device.take_sent();
            assert!(bench.device.receive(&ping(1000 + turn)), "{arm}: {turn}");
            bench.settle();
            assert_eq!(answered(&bench), [1000 + turn], "{arm}: {turn}");
        }
        // A card that is polled is also found to be reset by its rings.
        let restarts = bench.count(Counter::Restarts);
        let is_right = if arm.contains("poll-mode") { restarts >= 220 } else { restarts == 220 };
        assert!(is_right, "{arm}: {restarts} restarts");
        bench.assert_no_leak();
    }
}

/// The line stays up when the first cause is acknowledged, so the edge of the second never comes.
#[test]
fn reset_that_is_needed_while_another_cause_is_acknowledged_is_found() {
    for arm in every_arm().step_by(3) {
        let mut bench = Bench::new(&arm);
        assert!(bench.device.receive(&ping(1)), "{arm}");
        bench.device.set_status(status::DEVICE_NEEDS_RESET);
        bench.device.behave(|behaviour| behaviour.causes_late = 2);
        bench.device.raise_interrupt(1);
        bench.settle();
        assert_eq!(bench.count(Counter::Restarts), 1, "{arm}");
        bench.device.take_sent();
        assert!(bench.device.receive(&ping(2)), "{arm}");
        bench.settle();
        assert_eq!(answered(&bench), [2], "{arm}");
        bench.assert_no_leak();
    }
}

/// Without that, each frame of a full receive ring waited for 10 ms: seconds with interrupts masked.
#[test]
fn frames_polled_on_a_card_that_needs_a_reset_time_out_once() {
    for arm in ["", "packed", "quiet,rx-task"] {
        let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(arm, late);
        (0..200).for_each(|sequence| assert!(bench.device.receive(&ping(sequence)), "{arm}"));
        // It fails while the frames are handled: its interrupt for that is masked.
        bench.device.set_status(status::DEVICE_NEEDS_RESET);
        bench.settle();
        assert_eq!(bench.count(Counter::TxPollTimeouts), 1, "{arm}");
        assert_eq!(bench.count(Counter::Restarts), 1, "{arm}");
        bench.device.behave(|behaviour| behaviour.sends_at_once = true);
        assert!(bench.device.receive(&ping(500)), "{arm}");
        bench.settle();
        assert_eq!(answered(&bench), [500], "{arm}");
        bench.assert_no_leak();
    }
}

/// VIRTIO_NET_F_STATUS is not negotiated, so the driver takes the link to be up (5.1.4.2): a change only
/// interrupts.
#[test]
fn link_that_goes_down_and_up_interrupts_every_arm_and_restarts_none() {
    for arm in every_arm().step_by(3) {
        let mut bench = Bench::new(&arm);
        for turn in 0..5 {
            // Down: nothing arrives. Up again: with the interrupt comes the first frame.
            bench.device.raise_interrupt(2);
            bench.settle();
            bench.device.raise_interrupt(2);
            assert!(bench.device.receive(&ping(turn)), "{arm}: {turn}");
            bench.settle();
            assert_eq!(answered(&bench), [turn], "{arm}");
        }
        assert_eq!(bench.count(Counter::Restarts), 0, "{arm}");
        bench.assert_no_leak();
    }
}

/// The transmit ring is full of announcements that the device has not sent when the first requests come.
#[test]
fn transmit_ring_that_is_full_before_the_first_frame_refuses_it_and_recovers() {
    for arm in every_arm().filter(|arm| arm.contains("async-tx")).step_by(5) {
        let small = Behaviour { queue_frames_max: 4, sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(&arm, small);
        (0..6).for_each(|_| bench.responder.announce());
        assert_eq!(bench.device.owned_count(TX), 4, "{arm}");
        assert_eq!(bench.count(Counter::TxRefused), 2, "{arm}");
        assert!(bench.device.receive(&ping(1)), "{arm}");
        bench.settle();
        assert_eq!(bench.count(Counter::TxRefused), 3, "{arm}");
        bench.device.send_waiting(|_| 0);
        bench.settle();
        assert_eq!(answered(&bench), [], "{arm}");
        assert!(bench.device.receive(&ping(2)), "{arm}");
        bench.settle();
        bench.device.send_waiting(|_| 0);
        assert_eq!(answered(&bench), [2], "{arm}");
        bench.settle();
        bench.assert_no_leak();
    }
}

/// A reset while frames wait to be sent and the ring is full: the frames are lost, the buffers are not.
#[test]
fn reset_with_a_full_transmit_ring_empties_it() {
    for arm in every_arm().filter(|arm| arm.contains("async-tx")).step_by(5) {
        let late = Behaviour { queue_frames_max: 4, sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(&arm, late);
        (0..6).for_each(|_| bench.responder.announce());
        bench.device.set_status(status::DEVICE_NEEDS_RESET);
        bench.device.raise_interrupt(2);
        bench.settle();
        assert_eq!(bench.count(Counter::Restarts), 1, "{arm}");
        assert_eq!(bench.device.owned_count(TX), 0, "{arm}");
        bench.device.behave(|behaviour| behaviour.sends_at_once = true);
        for sequence in 0..10 {
            assert!(bench.device.receive(&ping(sequence)), "{arm}");
            bench.settle();
        }
        assert_eq!(answered(&bench), (0..10).collect::<Vec<u16>>(), "{arm}");
        bench.assert_no_leak();
    }
}
