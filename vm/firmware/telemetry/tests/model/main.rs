//! Model of one slot of the trace ring: loom runs its own source through all interleavings of a
//! recorder and a reader, and of two recorders, one of them a whole lap of the ring behind. Every
//! entry read is complete; without the fences, or if both recorders claim one slot, the model
//! finds an entry made of two halves.
#![allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the source is compiled once for each mutation, and no scenario uses all of it"
)]

#[path = "../../../../../models/interleavings.rs"]
mod interleavings;
mod not_taken;
mod right;
mod without_fences;

/// Scenarios over the modules `sync` and `slot` next to it.
#[macro_export]
macro_rules! scenarios {
    () => {
        fn slot() -> std::sync::Arc<slot::Slot> {
            let word = || sync::AtomicU64::new(0);
            std::sync::Arc::new(slot::Slot { stamp: word(), words: [word(), word()] })
        }

        fn assert_whole(slot: &slot::Slot, number: u64) -> bool {
            let words = slot.read(number);
            let is_whole = words.is_none_or(|words| words == $crate::words(number));
            assert!(is_whole, "entry {number} of two halves: {words:?}");
            words.is_some()
        }

        /// An entry is overwritten while it is read.
        pub(crate) fn read_while_written() {
            let slot = slot();
            assert!(slot.write(0, $crate::words(0)), "it is empty");
            let written = slot.clone();
            let recorder = loom::thread::spawn(move || written.write(1, $crate::words(1)));
            assert_whole(&slot, 0);
            assert_whole(&slot, 1);
            assert!(recorder.join().expect("no panic"), "there is no other writer");
            assert!(assert_whole(&slot, 1), "the last entry is gone");
        }

        /// Two recorders, one of them a whole lap of the ring behind.
        pub(crate) fn two_recorders() {
            let slot = slot();
            let written = slot.clone();
            let recorder = loom::thread::spawn(move || written.write(0, $crate::words(0)));
            let is_written = slot.write(1, $crate::words(1));
            assert_whole(&slot, 1);
            let first = recorder.join().expect("no panic");
            assert!(first || is_written, "both were refused");
            assert!(assert_whole(&slot, is_written.into()), "the last entry is gone");
        }
    };
}

/// Words of an entry with this number.
fn words(number: u64) -> [u64; 2] {
    [number + 10, number + 20]
}

/// Runs a scenario. Returns the fault found, if any.
fn check(scenario: fn()) -> Result<(), String> {
    interleavings::check(None, scenario)
}

fn assert_caught(scenario: fn()) {
    let found = check(scenario).expect_err("the mutation must be caught");
    assert!(found.contains("of two halves"), "another fault than expected: {found}");
}

#[test]
fn all_interleavings_read_complete_entries() {
    assert_eq!(check(right::read_while_written), Ok(()));
}

#[test]
fn all_interleavings_of_two_recorders_leave_a_complete_entry() {
    assert_eq!(check(right::two_recorders), Ok(()));
}

#[test]
fn interleavings_without_fences_read_an_entry_of_two_halves() {
    assert_caught(without_fences::read_while_written);
}

#[test]
fn interleavings_of_two_recorders_in_one_slot_leave_an_entry_of_two_halves() {
    assert_caught(not_taken::two_recorders);
}
