//! Several threads that drop, panic and stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use wirepath_paths::tunnel::order::{
    Admission, BATCH_FRAMES_MAX, Books, Frame, Order, OrderSpec, Recycled, Sink, Token, Verdict,
};

use super::frame;

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
