//! Threads that drop, panic and stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use wirepath_forward::order::{
    Admission, BATCH_FRAMES_MAX, BatchTicket, Frame, FrameSink, FrameVerdict, Order, OrderCounters,
    OrderSpec, Recycled,
};

use super::frame;

/// A source of `end` frames; frame `n` goes to lane `n % lanes`.
struct Numbered {
    next: u32,
    end: u32,
}

/// Checks on delivery that each lane is in order and that no frame is delivered twice.
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

impl FrameSink for Check {
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

/// Admits the next frames of the source in batches of varying size.
fn admit<'a>(
    order: &'a Order<Numbered, Check>,
    lanes: u32,
    tokens: &mut Vec<BatchTicket<'a>>,
) -> bool {
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

/// Maps frame numbers evenly to 0 to 99, so that any percentage of them can be selected.
fn spread_percent(index: u32) -> u32 {
    (index.wrapping_mul(0x9e37_79b9) >> 16) % 100
}

/// Runs three workers over an order; each drops `drop_percent` of its frames.
///
/// There is no drain after the last worker has finished, so a stranded frame shows in the counters.
fn stress(lanes: u32, frames: u32, drop_percent: u32, act: impl Fn(Frame) + Sync) -> OrderCounters {
    const TURNS_MAX: u64 = 200_000_000;
    // Never times out, however little CPU time a worker gets.
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
                        assert!(turns < TURNS_MAX, "stalled: {:?}", order.counters());
                        if tokens.is_empty() {
                            order.drain(0);
                            thread::yield_now();
                            continue;
                        }
                        for mut token in tokens.drain(..) {
                            token.judge(|frame| {
                                act(frame);
                                if spread_percent(frame.index()) < drop_percent {
                                    FrameVerdict::Drop
                                } else {
                                    FrameVerdict::Forward(frame)
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
        // A worker that panics settles its batch ticket without a drain; another worker's next turn
        // drains it.
        order.drain(0);
    }
    let books = order.counters();
    let (source, check) = order.into_parts();
    assert_eq!(source.next, frames, "not all frames were admitted");
    assert_eq!((check.disorder_count, check.twice_count), (0, 0));
    assert_eq!(books.admitted_frames, u64::from(frames));
    assert_eq!(books.in_flight_frames(), 0, "{books:?}");
    assert_eq!(check.seen.iter().filter(|seen| **seen).count(), frames as usize);
    assert_eq!((books.late_frames, books.undelivered_frames, books.timed_out_count), (0, 0, 0));
    books
}

#[test]
fn threads_keep_order_and_exact_counters_at_any_drop_rate() {
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
fn panicking_worker_leaves_a_hole_and_the_others_continue() {
    let books = stress(1, 100_000, 0, |frame| assert_ne!(frame.index(), 5000, "on purpose"));
    assert_eq!(books.hole_count, 1);
    assert!((1..=BATCH_FRAMES_MAX as u64).contains(&books.dropped_frames), "{books:?}");
}

#[test]
fn two_panicking_workers_leave_holes_and_the_third_continues() {
    let books = stress(3, 100_000, 0, |frame| {
        assert!(!matches!(frame.index(), 5000 | 60_001), "on purpose");
    });
    // A worker holds up to three batch tickets and also drops those that it has not started.
    assert!((2..=6).contains(&books.hole_count), "{books:?}");
}

#[test]
fn stopped_worker_times_out_and_the_others_continue() {
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
    let books = order.counters();
    // The clock advances with each drain, so the other two may time out as well.
    assert!(books.timed_out_count >= 1, "{books:?}");
    assert_eq!(
        order.admit(&mut Vec::new(), |source, _| assert_eq!(source.next, FRAMES)),
        Admission::Issued(0)
    );
    assert!(!stopped.pop().expect("it has a ticket").publish());
    drop(stopped);
    order.drain(0);
    let books = order.counters();
    assert!(books.late_frames >= 1 && books.skipped_count >= 1, "{books:?}");
    assert_eq!(books.in_flight_frames(), 0, "{books:?}");
    let (_, check) = order.into_parts();
    assert_eq!((check.disorder_count, check.twice_count), (0, 0));
    assert!(check.seen.iter().all(|seen| *seen));
}
