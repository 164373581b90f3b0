//! Order restoration against a sequential oracle, and under several threads that drop, panic
//! and stop.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use wirepath_paths::tunnel::order::{
    Admission, BATCH_FRAMES_MAX, Books, Frame, LANE_COUNT_MAX, Order, OrderError, OrderSpec,
    Recycled, Sink, Token, Verdict, WINDOW_TICKETS_MAX, lane_of,
};

const SPEC: OrderSpec = OrderSpec { lanes: 1, window_tickets: 4, stuck_after_ns: 100 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Forwarded,
    Dropped,
    Late,
}

/// Writes down what comes out, by index of frame.
#[derive(Debug, Default)]
struct Record {
    out: Vec<(Fate, u32)>,
    flush_count: u64,
    room: Option<usize>,
}

impl Sink for Record {
    fn room_frames(&mut self) -> usize {
        self.room.unwrap_or(usize::MAX)
    }

    fn forward(&mut self, frame: Frame) {
        self.out.push((Fate::Forwarded, frame.index()));
        self.room = self.room.map(|room| room - 1);
    }

    fn recycle(&mut self, frame: Frame, why: Recycled) {
        let fate = if why == Recycled::Late { Fate::Late } else { Fate::Dropped };
        self.out.push((fate, frame.index()));
        self.room = self.room.map(|room| room - 1);
    }

    fn flush(&mut self) {
        self.flush_count += 1;
    }
}

fn frame(index: u32) -> Frame {
    Frame::new(index, 0, 60, 0)
}

/// A token with these frames in lane 0.
fn token<'a, X: Sink>(order: &'a Order<(), X>, indexes: &[u32]) -> Option<Token<'a>> {
    let mut tokens = Vec::new();
    order.admit(&mut tokens, |(), intake| {
        for index in indexes {
            let _ = intake.push(0, frame(*index));
        }
    });
    tokens.pop()
}

fn forwarded(record: &Record) -> Vec<u32> {
    record
        .out
        .iter()
        .filter(|(fate, _)| *fate == Fate::Forwarded)
        .map(|(_, index)| *index)
        .collect()
}

#[test]
fn frame_keeps_its_parts_to_the_last_bit() {
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

#[test]
fn order_of_no_lanes_or_an_odd_window_is_refused() {
    let refused = |lanes, window_tickets| {
        let spec = OrderSpec { lanes, window_tickets, stuck_after_ns: 0 };
        Order::new(spec, (), Record::default()).map(|_| ()).expect_err("out of range")
    };
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
            seen[lane_of(hash, lanes)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 0), "{lanes} lanes: {seen:?}");
    }
    assert_eq!(lane_of(u32::MAX, 0), 0);
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
fn full_window_refuses_and_goes_on_when_the_head_moves() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut tokens: Vec<_> = (0..4).map(|i| token(&order, &[i]).expect("there is room")).collect();
    assert!(token(&order, &[9]).is_none());
    assert_eq!(order.books().refused_count, 1);
    tokens.remove(0).publish();
    assert!(token(&order, &[9]).is_none(), "published is not let out");
    order.drain(0);
    assert!(token(&order, &[4]).is_some());
}

#[test]
fn batch_takes_no_more_than_its_frames_and_lanes_that_exist() {
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
    assert_eq!(order.books().ticket_count, 1);
}

#[test]
fn gate_that_is_held_is_not_waited_for() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut tokens = Vec::new();
    order.admit(&mut tokens, |(), _| {
        assert_eq!(order.admit(&mut Vec::new(), |(), _| {}), Admission::Busy);
    });
}

#[test]
fn dropped_token_is_a_hole_whose_frames_are_recycled_in_their_turn() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let first = token(&order, &[1]).expect("there is room");
    let second = token(&order, &[2, 3]).expect("there is room");
    let mut third = token(&order, &[4, 5]).expect("there is room");
    drop(second);
    third.judge(|f| if f.index() == 4 { Verdict::Drop } else { Verdict::Forward(f.moved(8, 9)) });
    third.judge(|f| {
        assert_eq!((f.index(), f.offset()), (5, 8), "what was dropped is not asked about again");
        Verdict::Forward(f)
    });
    third.publish();
    first.publish();
    order.drain(0);
    let books = order.books();
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
fn full_sink_stops_the_order_and_loses_nothing() {
    let order =
        Order::new(SPEC, (), Record { room: Some(3), ..Record::default() }).expect("in range");
    for indexes in [[1, 2], [3, 4]] {
        token(&order, &indexes).expect("there is room").publish();
    }
    assert_eq!(order.drain(0).forwarded_frames, 2);
    assert_eq!(order.drain(0).forwarded_frames, 0, "a ticket comes out whole");
    assert_eq!(order.books().in_flight_frames(), 2);
    assert!(order.visit(|record| record.room = None));
    assert_eq!(order.drain(0).forwarded_frames, 2);
    let (_, record) = order.into_parts();
    assert_eq!(forwarded(&record), [1, 2, 3, 4]);
}

#[test]
fn stuck_worker_is_waited_for_while_it_holds_up_nobody() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let alone = token(&order, &[1]).expect("there is room");
    order.drain(0);
    assert_eq!(order.drain(1_000_000).passed_count, 0);
    token(&order, &[2]).expect("there is room").publish();
    assert_eq!(order.drain(1_000_000).passed_count, 0, "the time runs from here");
    assert_eq!(order.drain(1_000_099).passed_count, 0);
    assert!(alone.publish());
    order.drain(1_000_100);
    assert_eq!(forwarded(&order.into_parts().1), [1, 2]);
}

#[test]
fn stuck_worker_is_passed_and_its_frames_come_out_late_and_unforwarded() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let stuck = token(&order, &[1, 2]).expect("there is room");
    token(&order, &[3]).expect("there is room").publish();
    order.drain(0);
    let drained = order.drain(100);
    assert_eq!((drained.passed_count, drained.forwarded_frames), (1, 1));
    // Several times round: the slot that it still has is left out.
    for index in 4..24 {
        token(&order, &[index]).expect("three slots are left").publish();
        order.drain(100);
    }
    let books = order.books();
    assert!(books.skipped_count >= 5, "{books:?}");
    assert_eq!((books.passed_count, books.in_flight_frames(), books.late_frames), (1, 2, 0));
    assert!(!stuck.publish());
    order.drain(101);
    for index in 24..40 {
        token(&order, &[index]).expect("all slots are there again").publish();
        order.drain(101);
    }
    assert_eq!(order.books().skipped_count, books.skipped_count, "its slot is used again");
    assert_eq!((order.books().late_frames, order.books().in_flight_frames()), (2, 0));
    let (_, record) = order.into_parts();
    assert_eq!(forwarded(&record), (3..40).collect::<Vec<_>>());
    assert!(record.out.contains(&(Fate::Late, 1)) && record.out.contains(&(Fate::Late, 2)));
}

#[test]
fn workers_that_are_all_lost_leave_a_refusing_order_and_no_endless_loop() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let mut lost: Vec<_> = (0..4).map(|i| token(&order, &[i]).expect("there is room")).collect();
    for now in 0..10 {
        order.drain(now * 100);
    }
    // The last holds up nobody, so it is still waited for.
    assert_eq!(order.books().passed_count, 3);
    assert!(token(&order, &[9]).is_none());
    assert!(lost.pop().expect("there are four").publish());
    order.drain(0);
    assert!(token(&order, &[4]).is_some());
    drop(lost);
    order.drain(0);
    assert_eq!((order.books().late_frames, order.books().in_flight_frames()), (3, 0));
}

#[test]
fn panic_while_taking_in_recycles_what_was_taken() {
    let order = Order::new(SPEC, (), Record::default()).expect("in range");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        order.admit(&mut Vec::new(), |(), intake| {
            intake.push(0, frame(1)).expect("there is room");
            panic!("on purpose");
        });
    }));
    assert!(panic.is_err());
    token(&order, &[2]).expect("the gate is open again").publish();
    order.drain(0);
    let (_, record) = order.into_parts();
    assert_eq!(record.out, [(Fate::Dropped, 1), (Fate::Forwarded, 2)]);
}

/// Panics at one frame.
struct Fragile(Record);

impl Sink for Fragile {
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
fn sink_that_panics_costs_the_rest_of_its_ticket_and_no_more() {
    let order = Order::new(SPEC, (), Fragile(Record::default())).expect("in range");
    for indexes in [&[11, 12, 13, 14][..], &[15]] {
        token(&order, indexes).expect("there is room").publish();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| order.drain(0))).is_err());
    order.drain(0);
    let books = order.books();
    assert_eq!((books.forwarded_frames, books.undelivered_frames), (3, 2));
    assert_eq!(books.in_flight_frames(), 0);
    assert_eq!(forwarded(&order.into_parts().1.0), [11, 12, 15]);
}

#[test]
fn slow_lane_does_not_hold_up_another() {
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

/// One step of the sequential test.
#[derive(Debug, Clone)]
enum Step {
    Admit(Vec<usize>),
    Settle { which: usize, dropped: u64, publish: bool },
    Drain { later_ns: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(0usize..2, 0..5).prop_map(Step::Admit),
        4 => (any::<usize>(), any::<u64>(), prop::bool::weighted(0.8))
            .prop_map(|(which, dropped, publish)| Step::Settle { which, dropped, publish }),
        3 => (0u64..80).prop_map(|later_ns| Step::Drain { later_ns }),
    ]
}

/// What the order has to do, said as plainly as can be.
#[derive(Default)]
struct Oracle {
    lanes: [OracleLane; 2],
    out: Vec<(Fate, u32)>,
}

#[derive(Default)]
struct OracleLane {
    /// Tickets from head to tail: `None` for one that nobody got.
    tickets: VecDeque<Option<Ticket>>,
    head: u64,
    /// Slots whose worker was passed; `Some` once it has come back.
    lost: BTreeMap<u64, Option<Vec<u32>>>,
    stuck: Option<(u64, u64)>,
}

struct Ticket {
    frames: Vec<u32>,
    /// `None` until settled.
    dropped: Option<u64>,
}

impl OracleLane {
    /// The ticket that a new batch gets, unless the window is full. Asked at every admission.
    fn reserve(&mut self) -> Option<u64> {
        loop {
            let ticket = self.head + self.tickets.len() as u64;
            if ticket - self.head >= 4 {
                return None;
            }
            if !self.lost.contains_key(&(ticket % 4)) {
                return Some(ticket);
            }
            self.tickets.push_back(None);
        }
    }

    fn drain(&mut self, now_ns: u64, out: &mut Vec<(Fate, u32)>) {
        self.lost.retain(|_, frames| match frames {
            Some(frames) => {
                out.extend(frames.iter().map(|index| (Fate::Late, *index)));
                false
            }
            None => true,
        });
        while let Some(ticket) = self.tickets.front() {
            match ticket {
                Some(Ticket { frames, dropped: Some(dropped) }) => {
                    out.extend(frames.iter().enumerate().map(|(at, index)| {
                        let kept = dropped & 1 << at == 0;
                        (if kept { Fate::Forwarded } else { Fate::Dropped }, *index)
                    }));
                }
                Some(_) => {
                    if self.tickets.len() < 2 {
                        return;
                    }
                    let since = match self.stuck {
                        Some((ticket, since)) if ticket == self.head => since,
                        _ => now_ns,
                    };
                    self.stuck = Some((self.head, since));
                    if now_ns - since < 100 {
                        return;
                    }
                    self.lost.insert(self.head % 4, None);
                }
                None => {}
            }
            self.tickets.pop_front();
            self.head += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..Default::default() })]

    #[test]
    fn whatever_one_thread_does_the_order_does_as_the_oracle(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let spec = OrderSpec { lanes: 2, ..SPEC };
        let order = Order::new(spec, (), Record::default()).expect("in range");
        let mut oracle = Oracle::default();
        let (mut next, mut now_ns) = (0, 0);
        let mut held: Vec<(usize, Token<'_>)> = Vec::new();
        for step in steps {
            match step {
                Step::Admit(lanes) => {
                    let tickets: Vec<_> = oracle.lanes.iter_mut().map(OracleLane::reserve).collect();
                    let mut batches = [vec![], vec![]];
                    let mut tokens = Vec::new();
                    order.admit(&mut tokens, |(), intake| {
                        for lane in lanes {
                            let taken = intake.push(lane, frame(next)).is_ok();
                            assert_eq!(taken, tickets[lane].is_some());
                            if taken {
                                batches[lane].push(next);
                                next += 1;
                            }
                        }
                    });
                    let mut tokens = tokens.into_iter();
                    for (lane, frames) in batches.into_iter().enumerate() {
                        if frames.is_empty() {
                            continue;
                        }
                        let token = tokens.next().expect("each lane with frames gets a token");
                        prop_assert_eq!(Some(token.ticket()), tickets[lane]);
                        oracle.lanes[lane].tickets.push_back(Some(Ticket { frames, dropped: None }));
                        held.push((lane, token));
                    }
                    prop_assert!(tokens.next().is_none());
                }
                Step::Settle { which, dropped, publish } => {
                    if held.is_empty() {
                        continue;
                    }
                    let (lane, mut token) = held.swap_remove(which % held.len());
                    let lane = &mut oracle.lanes[lane];
                    let ticket = token.ticket();
                    let mut at = 0;
                    token.judge(|frame| {
                        at += 1;
                        if dropped & 1 << (at - 1) == 0 { Verdict::Forward(frame) } else { Verdict::Drop }
                    });
                    let in_time = ticket >= lane.head;
                    if in_time {
                        let entry = lane.tickets[(ticket - lane.head) as usize].as_mut();
                        entry.expect("it was given out").dropped =
                            Some(if publish { dropped } else { u64::MAX });
                    } else {
                        let frames: Vec<u32> =
                            (0..token.len()).filter_map(|at| token.frame(at)).map(Frame::index).collect();
                        *lane.lost.get_mut(&(ticket % 4)).expect("it was passed") = Some(frames);
                    }
                    if publish {
                        prop_assert_eq!(token.publish(), in_time);
                    } else {
                        drop(token);
                    }
                }
                Step::Drain { later_ns } => {
                    now_ns += later_ns;
                    order.drain(now_ns);
                    for lane in &mut oracle.lanes {
                        lane.drain(now_ns, &mut oracle.out);
                    }
                }
            }
        }
        drop(held);
        let books = order.books();
        let (_, record) = order.into_parts();
        prop_assert_eq!(&record.out, &oracle.out);
        let of = |fate| record.out.iter().filter(|(f, _)| *f == fate).count() as u64;
        prop_assert_eq!(books.forwarded_frames, of(Fate::Forwarded));
        prop_assert_eq!(books.dropped_frames, of(Fate::Dropped));
        prop_assert_eq!(books.late_frames, of(Fate::Late));
        prop_assert_eq!(books.admitted_frames, u64::from(next));
        prop_assert_eq!(books.in_flight_frames(), u64::from(next) - record.out.len() as u64);
    }
}

/// A source of so many frames, for the tests with threads: frame `n` goes to lane `n % lanes`.
struct Numbered {
    next: u32,
    end: u32,
}

/// Checks the order as it goes, lane by lane, and that no frame comes out twice.
struct Check {
    lanes: u32,
    last: Vec<Option<u32>>,
    seen: Vec<bool>,
    disorder_count: u64,
    twice_count: u64,
}

impl Check {
    fn new(lanes: u32, frames: u32) -> Check {
        Check {
            lanes,
            last: vec![None; lanes as usize],
            seen: vec![false; frames as usize],
            disorder_count: 0,
            twice_count: 0,
        }
    }

    fn see(&mut self, index: u32) {
        let seen = &mut self.seen[index as usize];
        self.twice_count += u64::from(*seen);
        *seen = true;
    }
}

impl Sink for Check {
    fn forward(&mut self, frame: Frame) {
        let index = frame.index();
        let last = &mut self.last[(index % self.lanes) as usize];
        self.disorder_count += u64::from(last.is_some_and(|last| last >= index));
        *last = Some(index);
        self.see(index);
    }

    fn recycle(&mut self, frame: Frame, _: Recycled) {
        self.see(frame.index());
    }
}

/// Fills tokens with the next frames of the source, a batch of varying size each.
fn admit<'a>(order: &'a Order<Numbered, Check>, lanes: u32, tokens: &mut Vec<Token<'a>>) -> bool {
    let mut more = true;
    order.admit(tokens, |source, intake| {
        let batch = 1 + (source.next as usize).wrapping_mul(7) % BATCH_FRAMES_MAX;
        for _ in 0..batch.min(intake.room()) {
            if source.next == source.end {
                break;
            }
            intake.push((source.next % lanes) as usize, frame(source.next)).expect("there is room");
            source.next += 1;
        }
        more = source.next < source.end;
    });
    more
}

/// Evenly spread over the numbers, so that any share of them can be chosen.
fn spread_percent(index: u32) -> u32 {
    (index.wrapping_mul(0x9e37_79b9) >> 16) % 100
}

/// Three workers take frames through an order; each drops its share of them.
///
/// Nobody drains after the last worker is done, so a frame left behind is found by the books.
fn stress(lanes: u32, frames: u32, drop_percent: u32, act: impl Fn(Frame) + Sync) -> Books {
    const TURNS_MAX: u64 = 200_000_000;
    // No worker is stuck here, however little it gets of the CPU.
    let spec = OrderSpec { lanes: lanes as usize, window_tickets: 16, stuck_after_ns: u64::MAX };
    let source = Numbered { next: 0, end: frames };
    let order = Order::new(spec, source, Check::new(lanes, frames)).expect("in range");
    let panics: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (order, act) = (&order, &act);
                scope.spawn(move || {
                    let mut tokens = Vec::new();
                    let (mut more, mut turns) = (true, 0);
                    while more {
                        more = admit(order, lanes, &mut tokens);
                        turns += 1;
                        assert!(turns < TURNS_MAX, "stalled: {:?}", order.books());
                        if tokens.is_empty() {
                            order.drain(0);
                            thread::yield_now();
                            continue;
                        }
                        for mut token in tokens.drain(..) {
                            token.judge(|frame| {
                                act(frame);
                                if spread_percent(frame.index()) < drop_percent {
                                    Verdict::Drop
                                } else {
                                    Verdict::Forward(frame)
                                }
                            });
                            token.publish();
                        }
                        order.drain(0);
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| usize::from(worker.join().is_err())).sum()
    });
    if panics > 0 {
        // Who panics with a token settles it and drains no more; somebody's next turn does.
        order.drain(0);
    }
    let books = order.books();
    let (source, check) = order.into_parts();
    assert_eq!(source.next, frames, "all was taken in");
    assert_eq!((check.disorder_count, check.twice_count), (0, 0));
    assert_eq!(books.admitted_frames, u64::from(frames));
    assert_eq!(books.in_flight_frames(), 0, "{books:?}");
    assert_eq!(check.seen.iter().filter(|seen| **seen).count(), frames as usize);
    assert_eq!((books.late_frames, books.undelivered_frames, books.passed_count), (0, 0, 0));
    books
}

#[test]
fn threads_keep_the_order_and_the_books_whatever_share_they_drop() {
    const FRAMES: u32 = 1_000_000;
    for percent in [0, 1, 50, 99, 100] {
        for lanes in [1, 3] {
            let books = stress(lanes, FRAMES, percent, |_| {});
            let dropped = (0..FRAMES).filter(|i| spread_percent(*i) < percent).count() as u64;
            assert_eq!(books.dropped_frames, dropped, "{percent} % in {lanes} lanes");
            assert_eq!(books.forwarded_frames, u64::from(FRAMES) - dropped);
            if percent == 100 {
                assert_eq!(books.hole_count, books.ticket_count);
            }
        }
    }
}

#[test]
fn worker_that_panics_leaves_a_hole_and_the_rest_goes_on() {
    let books = stress(1, 100_000, 0, |frame| assert_ne!(frame.index(), 5000, "on purpose"));
    assert_eq!(books.hole_count, 1);
    assert!((1..=BATCH_FRAMES_MAX as u64).contains(&books.dropped_frames), "{books:?}");
}

#[test]
fn two_workers_that_panic_leave_two_holes_and_the_third_goes_on() {
    let books = stress(3, 100_000, 0, |frame| {
        assert!(!matches!(frame.index(), 5000 | 60_001), "on purpose");
    });
    // A worker has up to three tokens, and drops those that it has not begun as well.
    assert!((2..=6).contains(&books.hole_count), "{books:?}");
}

#[test]
fn worker_that_stops_is_passed_and_the_rest_goes_on() {
    const FRAMES: u32 = 50_000;
    let spec = OrderSpec { lanes: 1, window_tickets: 8, stuck_after_ns: 1000 };
    let source = Numbered { next: 0, end: FRAMES };
    let order = Order::new(spec, source, Check::new(1, FRAMES)).expect("in range");
    let mut stopped = Vec::new();
    assert!(admit(&order, 1, &mut stopped));
    let clock_ns = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut tokens = Vec::new();
                while admit(&order, 1, &mut tokens) || !tokens.is_empty() {
                    tokens.drain(..).for_each(|token| {
                        token.publish();
                    });
                    order.drain(clock_ns.fetch_add(10, Ordering::Relaxed));
                }
            });
        }
    });
    let books = order.books();
    // The clock here runs with the turns, so the other two may be passed as well.
    assert!(books.passed_count >= 1, "{books:?}");
    assert_eq!(
        order.admit(&mut Vec::new(), |source, _| assert_eq!(source.next, FRAMES)),
        Admission::Issued(0)
    );
    assert!(!stopped.pop().expect("it has a token").publish());
    drop(stopped);
    order.drain(0);
    let books = order.books();
    assert!(books.late_frames >= 1 && books.skipped_count >= 1, "{books:?}");
    assert_eq!(books.in_flight_frames(), 0, "{books:?}");
    let (_, check) = order.into_parts();
    assert_eq!((check.disorder_count, check.twice_count), (0, 0));
    assert!(check.seen.iter().all(|seen| *seen));
}
