//! One test per rule of the order.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wirepath_forward::order::{
    Admission, BATCH_FRAMES_MAX, BatchTicket, Frame, FrameSink, FrameVerdict, LANE_COUNT_MAX,
    Order, OrderError, OrderSpec, Recycled, WINDOW_TICKETS_MAX, lane_index,
};

use super::{Fate, Record, SPEC, forwarded, frame, token};

#[test]
fn frame_fields_keep_their_full_width() {
    let all = Frame::new(0x00ff_ffff, 0xffff, 0xffff, 0xff);
    assert_eq!(
        (all.index(), all.offset(), all.len_bytes(), all.class()),
        (0xff_ffff, 0xffff, 0xffff, 0xff)
    );
    let some = Frame::new(0xff00_0001, 2, 3, 4);
    assert_eq!((some.index(), some.offset(), some.len_bytes(), some.class()), (1, 2, 3, 4));
    let moved = some.moved(0xfffe, 9).in_class(7);
    assert_eq!(
        (moved.index(), moved.offset(), moved.len_bytes(), moved.class()),
        (1, 0xfffe, 9, 7)
    );
}

fn refused(lanes: usize, window_tickets: usize) -> OrderError {
    let spec = OrderSpec { lanes, window_tickets, stuck_after_ns: 0 };
    Order::new(spec, (), Record::default()).map(drop).expect_err("out of range")
}

#[test]
fn order_of_no_lanes_or_an_odd_window_is_refused() {
    assert_eq!(refused(0, 4), OrderError::Lanes { found: 0 });
    assert_eq!(refused(LANE_COUNT_MAX + 1, 4), OrderError::Lanes { found: LANE_COUNT_MAX + 1 });
    for window in [0, 1, 3, 48, WINDOW_TICKETS_MAX * 2, usize::MAX] {
        assert_eq!(refused(1, window), OrderError::Window { found: window });
    }
}

#[test]
fn lane_of_a_hash_is_one_of_the_lanes_and_all_are_used() {
    for lanes in 1..=LANE_COUNT_MAX {
        let mut seen = vec![0; lanes];
        for hash in (0..=u32::MAX).step_by(0x0100_0001) {
            seen[lane_index(hash, lanes)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 0), "{lanes} lanes: {seen:?}");
    }
    assert_eq!(lane_index(u32::MAX, 0), 0);
}

#[test]
fn later_ticket_waits_for_the_earlier_one() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let first = token(&order, &[1, 2]).expect("there is room");
    let second = token(&order, &[3]).expect("there is room");
    assert!(second.publish());
    assert_eq!(order.drain(0).forwarded_frames, 0);
    assert!(first.publish());
    assert_eq!(order.drain(0).forwarded_frames, 3);
    let (_, record) = order.into_parts();
    assert_eq!(forwarded(&record), [1, 2, 3]);
    assert_eq!(record.flush_count, 1);
}

#[test]
fn full_window_refuses_frames_until_the_head_moves() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut tokens: Vec<_> = (0..4).map(|i| token(&order, &[i]).expect("there is room")).collect();
    assert!(token(&order, &[9]).is_none());
    assert_eq!(order.counters().refused_count, 1);
    tokens.remove(0).publish();
    assert!(token(&order, &[9]).is_none(), "published is not delivered");
    order.drain(0);
    assert!(token(&order, &[4]).is_some());
}

#[test]
fn intake_refuses_frames_beyond_the_batch_and_unknown_lanes() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut tokens = Vec::new();
    let admission = order.admit(&mut tokens, |(), intake| {
        assert_eq!(intake.push(1, frame(5)), Err(frame(5)));
        for index in 0..BATCH_FRAMES_MAX as u32 {
            assert_eq!(intake.room(), BATCH_FRAMES_MAX - index as usize);
            assert_eq!(intake.push(0, frame(index)), Ok(()));
        }
        assert_eq!(intake.push(0, frame(64)), Err(frame(64)));
    });
    assert_eq!(admission, Admission::Issued(1));
    assert_eq!(tokens[0].len(), 64);
    assert_eq!(tokens[0].frame(63), Some(frame(63)));
    assert_eq!(tokens[0].frame(64), None);
    assert_eq!(order.admit(&mut tokens, |(), _| {}), Admission::Issued(0));
    assert_eq!(order.counters().ticket_count, 1);
}

#[test]
fn filling_a_lane_equals_single_pushes() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut tokens = Vec::new();
    order.admit(&mut tokens, |(), intake| {
        assert_eq!(intake.push(0, frame(0)), Ok(()));
        let mut lane = intake.lane(0);
        for index in 1..BATCH_FRAMES_MAX as u32 {
            assert_eq!(lane.push(frame(index)), Ok(()));
        }
        assert_eq!(lane.push(frame(99)), Err(frame(99)));
        drop(lane);
        assert_eq!((intake.room(), intake.push(0, frame(99))), (0, Err(frame(99))));
        for beyond in [1, LANE_COUNT_MAX] {
            assert_eq!(intake.lane(beyond).push(frame(99)), Err(frame(99)), "no such lane");
        }
    });
    assert_eq!(tokens.len(), 1);
    tokens.drain(..).for_each(|token| assert!(token.publish()));
    // A partial batch and an empty one.
    for count in [3, 0] {
        order.admit(&mut tokens, |(), intake| {
            let mut lane = intake.lane(0);
            (0..count).for_each(|index| lane.push(frame(100 + index)).expect("there is room"));
        });
    }
    assert_eq!(tokens.iter().map(BatchTicket::len).collect::<Vec<_>>(), [3]);
    tokens.drain(..).for_each(|token| assert!(token.publish()));
    order.drain(0);
    drop(tokens);
    let expected: Vec<_> = (0..BATCH_FRAMES_MAX as u32).chain(100..103).collect();
    assert_eq!(forwarded(&order.into_parts().1), expected);
}

#[test]
fn full_window_refuses_a_filler_and_a_panic_loses_no_frame() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let taken = catch_unwind(AssertUnwindSafe(|| {
        order.admit(&mut Vec::new(), |(), intake| {
            let mut lane = intake.lane(0);
            lane.push(frame(7)).expect("there is room");
            panic!("while it fills");
        });
    }));
    assert!(taken.is_err());
    let tokens: Vec<_> = (1..4).map(|n| token(&order, &[n]).expect("there is room")).collect();
    order.admit(&mut Vec::new(), |(), intake| {
        assert_eq!(intake.lane(0).push(frame(9)), Err(frame(9)), "the window is full");
    });
    tokens.into_iter().for_each(|token| assert!(token.publish()));
    order.drain(0);
    let out = order.into_parts().1.out;
    assert_eq!(out[0], (Fate::Dropped, 7));
    assert_eq!(out.len(), 4);
}

#[test]
fn held_ingress_lock_returns_busy() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut tokens = Vec::new();
    order.admit(&mut tokens, |(), _| {
        assert_eq!(order.admit(&mut Vec::new(), |(), _| {}), Admission::Busy);
    });
}

#[test]
fn dropped_ticket_is_a_hole_and_its_frames_are_recycled_in_turn() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let first = token(&order, &[1]).expect("there is room");
    let second = token(&order, &[2, 3]).expect("there is room");
    let mut third = token(&order, &[4, 5]).expect("there is room");
    drop(second);
    third.judge(|f| {
        if f.index() == 4 { FrameVerdict::Drop } else { FrameVerdict::Forward(f.moved(8, 9)) }
    });
    third.judge(|f| {
        assert_eq!((f.index(), f.offset()), (5, 8), "a dropped frame is not judged again");
        FrameVerdict::Forward(f)
    });
    third.publish();
    first.publish();
    order.drain(0);
    let books = order.counters();
    assert_eq!((books.hole_count, books.dropped_frames, books.in_flight_frames()), (1, 3, 0));
    let expected = [
        (Fate::Forwarded, 1),
        (Fate::Dropped, 2),
        (Fate::Dropped, 3),
        (Fate::Dropped, 4),
        (Fate::Forwarded, 5),
    ];
    assert_eq!(order.into_parts().1.out, expected);
}

#[test]
fn full_sink_stops_delivery_and_loses_nothing() {
    let order =
        Order::new(SPEC, (), Record { room: Some(3), ..Record::default() }).expect("in range");
    for indexes in [[1, 2], [3, 4]] {
        token(&order, &indexes).expect("there is room").publish();
    }
    assert_eq!(order.drain(0).forwarded_frames, 2);
    assert_eq!(order.drain(0).forwarded_frames, 0, "a ticket is delivered whole");
    assert_eq!(order.counters().in_flight_frames(), 2);
    assert!(order.visit(|record| record.room = None));
    assert_eq!(order.drain(0).forwarded_frames, 2);
    let (_, record) = order.into_parts();
    assert_eq!(forwarded(&record), [1, 2, 3, 4]);
}

#[test]
fn stuck_worker_does_not_time_out_while_it_blocks_no_other() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let alone = token(&order, &[1]).expect("there is room");
    order.drain(0);
    assert_eq!(order.drain(1_000_000).timed_out_count, 0);
    token(&order, &[2]).expect("there is room").publish();
    assert_eq!(order.drain(1_000_000).timed_out_count, 0, "the time starts here");
    assert_eq!(order.drain(1_000_099).timed_out_count, 0);
    assert!(alone.publish());
    order.drain(1_000_100);
    assert_eq!(forwarded(&order.into_parts().1), [1, 2]);
}

#[test]
fn stuck_worker_times_out_and_its_frames_are_recycled_as_late() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let stuck = token(&order, &[1, 2]).expect("there is room");
    token(&order, &[3]).expect("there is room").publish();
    order.drain(0);
    let drained = order.drain(100);
    assert_eq!((drained.timed_out_count, drained.forwarded_frames), (1, 1));
    // Several rounds of the window, which skip the slot that it still holds.
    for index in 4..24 {
        token(&order, &[index]).expect("three slots are left").publish();
        order.drain(100);
    }
    let books = order.counters();
    assert!(books.skipped_count >= 5, "{books:?}");
    assert_eq!((books.timed_out_count, books.in_flight_frames(), books.late_frames), (1, 2, 0));
    assert!(!stuck.publish());
    order.drain(101);
    for index in 24..40 {
        token(&order, &[index]).expect("all slots are free again").publish();
        order.drain(101);
    }
    assert_eq!(order.counters().skipped_count, books.skipped_count, "its slot is in use again");
    assert_eq!((order.counters().late_frames, order.counters().in_flight_frames()), (2, 0));
    let (_, record) = order.into_parts();
    assert_eq!(forwarded(&record), (3..40).collect::<Vec<_>>());
    assert!(record.out.contains(&(Fate::Late, 1)) && record.out.contains(&(Fate::Late, 2)));
}

#[test]
fn order_with_all_workers_stuck_refuses_frames_and_does_not_loop() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut lost: Vec<_> = (0..4).map(|i| token(&order, &[i]).expect("there is room")).collect();
    for now in 0..10 {
        order.drain(now * 100);
    }
    // The last blocks no other, so it does not time out.
    assert_eq!(order.counters().timed_out_count, 3);
    assert!(token(&order, &[9]).is_none());
    assert!(lost.pop().expect("there are four").publish());
    order.drain(0);
    assert!(token(&order, &[4]).is_some());
    drop(lost);
    order.drain(0);
    assert_eq!((order.counters().late_frames, order.counters().in_flight_frames()), (3, 0));
}

#[test]
fn panic_during_admission_recycles_the_admitted_frames() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        order.admit(&mut Vec::new(), |(), intake| {
            intake.push(0, frame(1)).expect("there is room");
            panic!("on purpose");
        });
    }));
    assert!(panic.is_err());
    token(&order, &[2]).expect("the lock is free again").publish();
    order.drain(0);
    let (_, record) = order.into_parts();
    assert_eq!(record.out, [(Fate::Dropped, 1), (Fate::Forwarded, 2)]);
}

/// Panics at one frame.
struct Fragile(Record);

impl FrameSink for Fragile {
    fn forward(&mut self, frame: Frame) {
        assert_ne!(frame.index(), 13, "on purpose");
        self.0.forward(frame);
    }

    fn recycle(&mut self, frame: Frame, why: Recycled) {
        assert_ne!(frame.index(), 13, "on purpose");
        self.0.recycle(frame, why);
    }
}

#[test]
fn panicking_sink_loses_only_the_rest_of_its_ticket() {
    let order = Order::new(SPEC, (), Fragile(Record::default())).expect("in range");
    for indexes in [&[11, 12, 13, 14][..], &[15]] {
        token(&order, indexes).expect("there is room").publish();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| order.drain(0))).is_err());
    order.drain(0);
    let books = order.counters();
    assert_eq!((books.forwarded_frames, books.undelivered_frames), (3, 2));
    assert_eq!(books.in_flight_frames(), 0);
    assert_eq!(forwarded(&order.into_parts().1.0), [11, 12, 15]);
}

#[test]
fn slow_lane_does_not_block_another() {
    let spec = OrderSpec { lanes: 2, ..SPEC };
    let order = Order::new(spec, (), Record::default()).expect("in range");
    let mut tokens = Vec::new();
    for index in 0..3 {
        order.admit(&mut tokens, |(), intake| {
            intake.push(0, frame(index)).expect("there is room");
            intake.push(1, frame(10 + index)).expect("there is room");
        });
    }
    let slow = tokens.remove(0);
    tokens.into_iter().for_each(|token| assert!(token.publish()));
    order.drain(0);
    assert!(slow.publish());
    order.drain(0);
    assert_eq!(forwarded(&order.into_parts().1), [10, 11, 12, 0, 1, 2]);
}
