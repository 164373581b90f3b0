//! Model of a ring between two sides. Loom runs the source of both ends through every interleaving
//! and every value that the memory model allows a load to return: no slot has two sides in it and
//! no entry is out of order. With a weakened ordering of `src/sync.rs` it finds the fault. The
//! kernel's end is symmetric.
#![expect(unsafe_code, reason = "the rings share memory, and their model does")]
#![allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the source is compiled once for each mutation, and no scenario uses all of it"
)]

#[path = "../../../../models/interleavings.rs"]
mod interleavings;
mod mmap;
mod relaxed_observe;
mod relaxed_publish;
mod right;

/// Replacement of `src/sync.rs` under the model checker, without the orderings.
mod checked {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

    /// A slot that notices when two sides are in it.
    #[derive(Debug)]
    pub(crate) struct Cell<T>(pub(crate) loom::cell::UnsafeCell<T>);

    impl<T: Copy> Cell<T> {
        pub(crate) unsafe fn write(&self, entry: T) {
            // SAFETY: the model checker panics first when another side is in the slot.
            self.0.with_mut(|at| unsafe { at.write(entry) });
        }

        pub(crate) unsafe fn read(&self) -> T {
            // SAFETY: as above; the slot is initialised from the start.
            self.0.with(|at| unsafe { at.read() })
        }
    }
}

/// Slots of the ring.
const SIZE: u32 = 2;
/// How often each side tries: round once, and across the wrap of the index.
const TURNS: u64 = 3;

/// The scenario over the `ring` module next to it: entries through fewer slots, published and
/// released in groups of a given size.
#[macro_export]
macro_rules! scenario {
    () => {
        pub(crate) fn pass(batch: u64) {
            use self::ring::{Consumer, Layout, Producer};
            use $crate::mmap::{Mapping, PLACES};

            let [producer, consumer, flags, slots] = PLACES;
            let layout = Layout { producer, consumer, flags, slots };
            let mapping = std::sync::Arc::new(Mapping::starting_at(u32::MAX));
            let mut producer = Producer::<u64>::new(mapping.clone(), layout, $crate::SIZE);
            let mut consumer = Consumer::<u64>::new(mapping, layout, $crate::SIZE);
            // No side waits for the other: a side that finds no room, or no entry, ends its turn.
            let other = loom::thread::spawn(move || {
                let mut pushed = 0;
                for turn in 1..=$crate::TURNS {
                    pushed += u64::from(producer.push(pushed).is_ok());
                    if turn % batch == 0 {
                        producer.publish();
                    }
                }
                producer.publish();
                pushed
            });
            let mut taken = 0;
            let mut take = |consumer: &mut Consumer<u64>| {
                let Some(entry) = consumer.take() else { return false };
                assert_eq!(entry, taken, "out of order");
                taken += 1;
                true
            };
            for turn in 1..=$crate::TURNS {
                take(&mut consumer);
                if turn % batch == 0 {
                    consumer.release();
                }
            }
            let pushed = other.join().expect("it does not panic");
            while take(&mut consumer) {}
            assert_eq!(taken, pushed, "lost, or never put in");
        }
    };
}

/// The fault found, if any, with `batch` entries published and released at a time.
fn check(pass: fn(u64), batch: u64) -> Result<(), String> {
    interleavings::check(None, move || pass(batch))
}

#[test]
fn all_interleavings_pass_every_entry_once_and_in_order() {
    for batch in [1, 2] {
        assert_eq!(check(right::pass, batch), Ok(()), "{batch} at a time");
    }
}

fn assert_caught(pass: fn(u64)) {
    let found = check(pass, 1).expect_err("the mutation must be caught");
    assert!(found.contains("Causality violation"), "another fault than expected: {found}");
}

#[test]
fn an_index_stored_before_its_slots_puts_two_sides_into_one_and_the_model_says_so() {
    assert_caught(relaxed_publish::pass);
}

#[test]
fn slots_used_before_the_index_is_read_have_two_sides_in_one_and_the_model_says_so() {
    assert_caught(relaxed_observe::pass);
}
