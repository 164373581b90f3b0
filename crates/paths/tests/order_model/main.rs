//! Model of the order restoration: loom runs the protocol's own source through every
//! interleaving and every value that the memory model allows a load to return (within the
//! bound on preemptions), and finds nothing; with one of the choices of `tunnel/sync.rs`
//! changed, it finds the fault.
#![allow(
    clippy::all,
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the source is compiled once for each mutation, and no scenario uses all of it"
)]

#[path = "../../../../models/interleavings.rs"]
mod interleavings;
mod no_recheck;
mod relaxed_knock;
mod relaxed_publish;
mod right;

use std::sync::{Arc, Mutex};

/// What stands for `std::sync` under the model checker.
mod checked {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::{PoisonError, TryLockError};
    pub(crate) const BATCH_FRAMES_MAX: usize = 1;
}

/// Frames as they came out: index, and the mark that their worker made.
type Out = Arc<Mutex<Vec<(u32, u16, &'static str)>>>;

/// The mark.
const WORKED: u16 = 7;

/// Scenarios over the `order` module next to it. Each runs in one iteration of a model and
/// ends in assertions that hold whatever the interleaving.
#[macro_export]
macro_rules! scenarios {
    () => {
        use self::order::{Admission, Frame, Order, OrderSpec, Recycled, Sink, Token, Verdict};

        struct Record($crate::Out);

        impl Sink for Record {
            fn forward(&mut self, frame: Frame) {
                let out = (frame.index(), frame.offset(), "forwarded");
                self.0.lock().expect("nobody panics with it").push(out);
            }

            fn recycle(&mut self, frame: Frame, why: Recycled) {
                let why = if why == Recycled::Late { "late" } else { "dropped" };
                let out = (frame.index(), frame.offset(), why);
                self.0.lock().expect("nobody panics with it").push(out);
            }
        }

        /// Source of frames 0, 1, 2…
        type Counted = Order<u32, Record>;

        /// Leaked, as threads of the model have no scope.
        fn order() -> (&'static Counted, $crate::Out) {
            let out = $crate::Out::default();
            let spec = OrderSpec { lanes: 1, window_tickets: 2, stuck_after_ns: 5 };
            let order = Order::new(spec, 0, Record(out.clone())).expect("it is in range");
            (Box::leak(Box::new(order)), out)
        }

        fn token(order: &'static Counted) -> Option<Token<'static>> {
            let mut tokens = Vec::new();
            order.admit(&mut tokens, |next, intake| {
                while intake.room() > 0 {
                    intake.push(0, Frame::new(*next, 0, 60, 0)).expect("there is room");
                    *next += 1;
                }
            });
            tokens.pop()
        }

        fn work(token: &mut Token<'_>) {
            token.judge(|frame| Verdict::Forward(frame.moved($crate::WORKED, 60)));
        }

        /// Two workers, each with a token, publish in any order and drain.
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
            let holes = order.books().hole_count;
            assert_eq!(holes, 0, "not as its worker wrote it: a frame has vanished");
            $crate::expect(&out, &[(0, 7, "forwarded"), (1, 7, "forwarded")]);
        }

        /// One of them drops its token instead.
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

        /// Both run the whole loop, until three frames are through a window of two tickets:
        /// slots are used again.
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
                (0..order.books().admitted_frames as u32).map(|i| (i, 7, "forwarded")).collect();
            assert!(expected.len() >= 2, "the first of two has the gate to itself");
            $crate::expect(&out, &expected);
        }

        /// A worker is passed while it publishes; its slot comes round again meanwhile.
        pub fn one_is_passed() {
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
            let out = out.lock().expect("nobody panics with it").clone();
            let of = |why| {
                out.iter().filter(|(_, _, w)| *w == why).map(|o| (o.0, o.1)).collect::<Vec<_>>()
            };
            let books = order.books();
            let first = if in_time { 0 } else { 1 };
            let all: Vec<_> = (first..books.admitted_frames as u32).map(|i| (i, 7)).collect();
            assert_eq!(of("forwarded"), all, "left in the order, or out of it");
            assert_eq!(of("late"), if in_time { vec![] } else { vec![(0, 7)] });
            assert_eq!(books.in_flight_frames(), 0);
            assert_eq!(books.passed_count, u64::from(!in_time));
        }
    };
}

/// What came out must be this. Says what kind of fault it is otherwise.
fn expect(out: &Out, expected: &[(u32, u16, &'static str)]) {
    let out = out.lock().expect("nobody panics with it");
    assert!(out.len() >= expected.len(), "left in the order: {out:?} of {expected:?}");
    assert_eq!(*out, expected, "not as its worker wrote it");
}

/// The fault found in a scenario, if any.
fn check(scenario: fn()) -> Result<(), String> {
    interleavings::check(Some(3), scenario)
}

#[test]
fn all_interleavings_of_two_publishing_workers_let_all_out_in_order() {
    assert_eq!(check(right::both_publish), Ok(()));
}

#[test]
fn all_interleavings_with_a_dropped_token_leave_a_hole_and_go_on() {
    assert_eq!(check(right::one_drops), Ok(()));
}

#[test]
fn all_interleavings_of_whole_turns_let_all_out_in_order() {
    assert_eq!(check(right::both_turn), Ok(()));
}

#[test]
fn all_interleavings_of_passing_and_publishing_forward_a_frame_once_or_recycle_it() {
    assert_eq!(check(right::one_is_passed), Ok(()));
}

fn assert_caught(scenario: fn(), fault: &str) {
    let found = check(scenario).expect_err("the mutation must be caught");
    assert!(found.contains(fault), "another fault than expected: {found}");
}

#[test]
fn without_the_second_look_a_frame_is_left_behind_and_the_model_says_so() {
    assert_caught(no_recheck::both_publish, "left in the order");
}

#[test]
fn relaxed_publishing_shows_a_stale_slot_and_the_model_says_so() {
    assert_caught(relaxed_publish::both_publish, "not as its worker wrote it");
}

#[test]
fn relaxed_knocks_leave_a_frame_behind_and_the_model_says_so() {
    assert_caught(relaxed_knock::both_publish, "left in the order");
}
