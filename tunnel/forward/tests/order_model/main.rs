//! Model check of the order restoration. Loom runs the protocol's own source through every
//! interleaving and every value that the memory model allows a load to return, within the bound on
//! preemptions. The unchanged protocol passes; with one of the choices of `src/sync.rs` weakened,
//! the fault is found.
#![allow(
    clippy::all,
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the source is compiled once per mutation, and no scenario uses all of it"
)]

#[path = "../../../../models/interleavings.rs"]
mod interleavings;
mod no_recheck;
mod relaxed_notify;
mod relaxed_publish;
mod right;

use std::sync::{Arc, Mutex};

/// Replaces `std::sync` under the model checker.
mod checked {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::{PoisonError, TryLockError};
    pub(crate) const BATCH_FRAMES_MAX: usize = 1;
}

/// Delivered frames: index, mark of the worker, and fate.
type Out = Arc<Mutex<Vec<(u32, u16, &'static str)>>>;

/// Mark of a worker, stored as the offset.
const WORKED: u16 = 7;

/// Scenarios over the `order` module in scope. Each is one iteration of a model; its assertions
/// must hold for every interleaving.
#[macro_export]
macro_rules! scenarios {
    () => {
        use self::order::{
            Admission, BatchTicket, Frame, FrameSink, FrameVerdict, Order, OrderSpec, Recycled,
        };

        struct Record($crate::Out);

        impl FrameSink for Record {
            fn forward(&mut self, frame: Frame) {
                let out = (frame.index(), frame.offset(), "forwarded");
                self.0.lock().expect("not poisoned").push(out);
            }

            fn recycle(&mut self, frame: Frame, why: Recycled) {
                let why = if why == Recycled::Late { "late" } else { "dropped" };
                let out = (frame.index(), frame.offset(), why);
                self.0.lock().expect("not poisoned").push(out);
            }
        }

        /// Source of frames 0, 1, 2…
        type Counted = Order<u32, Record>;

        /// Leaked: loom has no scoped threads.
        fn order() -> (&'static Counted, $crate::Out) {
            let out = $crate::Out::default();
            let spec = OrderSpec { lanes: 1, window_tickets: 2, stuck_after_ns: 5 };
            let order = Order::new(spec, 0, Record(out.clone())).expect("in range");
            (Box::leak(Box::new(order)), out)
        }

        fn token(order: &'static Counted) -> Option<BatchTicket<'static>> {
            let mut tokens = Vec::new();
            order.admit(&mut tokens, |next, intake| {
                while intake.room() > 0 {
                    intake.push(0, Frame::new(*next, 0, 60, 0)).expect("there is room");
                    *next += 1;
                }
            });
            tokens.pop()
        }

        fn work(token: &mut BatchTicket<'_>) {
            token.judge(|frame| FrameVerdict::Forward(frame.moved($crate::WORKED, 60)));
        }

        /// Two workers with a batch ticket each publish in any order and drain.
        pub fn both_publish() {
            let (order, out) = order();
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let mut token = token(order).expect("the window has room");
                    loom::thread::spawn(move || {
                        work(&mut token);
                        assert!(token.publish());
                        order.drain(0);
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().expect("no worker panics"));
            let holes = order.counters().hole_count;
            assert_eq!(holes, 0, "not as published: a frame has vanished");
            $crate::expect(&out, &[(0, 7, "forwarded"), (1, 7, "forwarded")]);
        }

        /// One of them drops its batch ticket instead.
        pub fn one_drops() {
            let (order, out) = order();
            let first = token(order).expect("the window has room");
            let mut second = token(order).expect("the window has room");
            let worker = loom::thread::spawn(move || {
                drop(first);
                order.drain(0);
            });
            work(&mut second);
            assert!(second.publish());
            order.drain(0);
            worker.join().expect("no worker panics");
            $crate::expect(&out, &[(0, 0, "dropped"), (1, 7, "forwarded")]);
        }

        /// Both run the whole loop until three frames have passed a window of two tickets, so that
        /// slots are reused.
        pub fn both_turn() {
            let (order, out) = order();
            let turn = move || {
                if let Some(mut token) = token(order) {
                    work(&mut token);
                    assert!(token.publish());
                }
                order.drain(0);
            };
            turn();
            let worker = loom::thread::spawn(turn);
            turn();
            worker.join().expect("no worker panics");
            let expected: Vec<_> =
                (0..order.counters().admitted_frames as u32).map(|i| (i, 7, "forwarded")).collect();
            assert!(expected.len() >= 2, "the first turn has the lock to itself");
            $crate::expect(&out, &expected);
        }

        /// A ticket times out while its worker publishes, and its slot comes up for reuse.
        pub fn one_times_out() {
            let (order, out) = order();
            let mut stuck = token(order).expect("the window has room");
            let mut second = token(order).expect("the window has room");
            let worker = loom::thread::spawn(move || {
                work(&mut stuck);
                let in_time = stuck.publish();
                order.drain(6);
                in_time
            });
            work(&mut second);
            assert!(second.publish());
            order.drain(0);
            order.drain(5);
            if let Some(mut third) = token(order) {
                work(&mut third);
                assert!(third.publish());
                order.drain(5);
            }
            let in_time = worker.join().expect("no worker panics");
            order.drain(5);
            let out = out.lock().expect("not poisoned").clone();
            let [forwarded, late] = ["forwarded", "late"].map(|why| {
                out.iter().filter(|(_, _, w)| *w == why).map(|o| (o.0, o.1)).collect::<Vec<_>>()
            });
            let books = order.counters();
            let first = if in_time { 0 } else { 1 };
            let all: Vec<_> = (first..books.admitted_frames as u32).map(|i| (i, 7)).collect();
            assert_eq!(forwarded, all, "stranded in the order, or out of order");
            assert_eq!(late, if in_time { vec![] } else { vec![(0, 7)] });
            assert_eq!(books.in_flight_frames(), 0);
            assert_eq!(books.timed_out_count, u64::from(!in_time));
        }
    };
}

/// Asserts the frames that came out; the message names the kind of fault.
fn expect(out: &Out, expected: &[(u32, u16, &'static str)]) {
    let out = out.lock().expect("not poisoned");
    assert!(out.len() >= expected.len(), "stranded in the order: {out:?} of {expected:?}");
    assert_eq!(*out, expected, "not as published");
}

/// The fault found in a scenario, if any.
fn check(scenario: fn()) -> Result<(), String> {
    interleavings::check(Some(3), scenario)
}

#[test]
fn two_publishing_workers_deliver_in_order_in_all_interleavings() {
    assert_eq!(check(right::both_publish), Ok(()));
}

#[test]
fn dropped_ticket_leaves_a_hole_in_all_interleavings() {
    assert_eq!(check(right::one_drops), Ok(()));
}

#[test]
fn whole_turns_deliver_in_order_in_all_interleavings() {
    assert_eq!(check(right::both_turn), Ok(()));
}

#[test]
fn time_out_during_publication_forwards_or_recycles_once_in_all_interleavings() {
    assert_eq!(check(right::one_times_out), Ok(()));
}

fn assert_caught(scenario: fn(), fault: &str) {
    let found = check(scenario).expect_err("the mutation must be caught");
    assert!(found.contains(fault), "unexpected fault: {found}");
}

#[test]
fn missing_recheck_strands_a_frame_and_is_caught() {
    assert_caught(no_recheck::both_publish, "stranded in the order");
}

#[test]
fn relaxed_publication_delivers_a_stale_slot_and_is_caught() {
    assert_caught(relaxed_publish::both_publish, "not as published");
}

#[test]
fn relaxed_notification_strands_a_frame_and_is_caught() {
    assert_caught(relaxed_notify::both_publish, "stranded in the order");
}
