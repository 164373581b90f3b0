//! Sequence counts against an oracle with unlimited memory.

use std::collections::HashSet;

use proptest::prelude::*;
use wirepath_model::{Jitter, SequenceArrival, SequenceCounts};

/// The same book without any cleverness: 64-bit numbers in a set.
struct Oracle {
    window: u64,
    highest: Option<u64>,
    seen: HashSet<u64>,
}

impl Oracle {
    fn record(&mut self, sequence: u64) -> SequenceArrival {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            self.seen.insert(sequence);
            return SequenceArrival::New;
        };
        if sequence > highest {
            self.highest = Some(sequence);
            self.seen.insert(sequence);
            return SequenceArrival::New;
        }
        if highest - sequence >= self.window {
            return SequenceArrival::TooOld;
        }
        if self.seen.insert(sequence) {
            SequenceArrival::Reordered
        } else {
            SequenceArrival::Duplicate
        }
    }
}

/// Position of the next arrival relative to the highest so far.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => Just(1i64),
        3 => -6i64..6,
        2 => -300i64..300,
        1 => -70_000i64..70_000,
        1 => Just(0x7fff_ffff),
    ]
}

proptest! {
    #[test]
    fn book_agrees_with_one_that_forgets_nothing(
        first in any::<u32>(),
        steps in prop::collection::vec(step(), 1..600),
        window in prop_oneof![Just(64usize), Just(128), Just(256), Just(65_536)],
    ) {
        let mut book = SequenceCounts::with_window(window);
        let mut oracle = Oracle { window: window as u64, highest: None, seen: HashSet::new() };
        // Far from 0, so that late arrivals before the first have a number too.
        let mut sequence = (1 << 40) + u64::from(first);
        let mut counts = [0u64; 4];
        for step in std::iter::once(0).chain(steps) {
            let highest = oracle.highest.unwrap_or(sequence);
            sequence = highest.wrapping_add_signed(step);
            let expected = oracle.record(sequence);
            counts[expected as usize] += 1;
            prop_assert_eq!(book.record(sequence as u32), expected, "step {}", step);
            prop_assert_eq!(book.highest(), oracle.highest.map(|h| h as u32));
        }
        let [new, duplicated, reordered, too_old] = counts;
        prop_assert_eq!(book.first_arrival_count(), new + reordered);
        prop_assert_eq!(book.duplicated_count(), duplicated);
        prop_assert_eq!(book.reordered_count(), reordered);
        prop_assert_eq!(book.too_old_count(), too_old);
        prop_assert_eq!(book.received_count(), counts.iter().sum::<u64>());
    }

    #[test]
    fn books_balance_whatever_is_lost_doubled_or_swapped(
        fates in prop::collection::vec(0u8..10, 1..500),
        first in any::<u32>(),
    ) {
        let mut book = SequenceCounts::new();
        let (mut lost, mut doubled) = (0, 0);
        let mut wire = Vec::new();
        for (index, fate) in fates.iter().enumerate() {
            let seq = first.wrapping_add(index as u32);
            match fate {
                0 => lost += 1,
                1 => { doubled += 1; wire.extend([seq, seq]); }
                2 => { let place = wire.len().saturating_sub(3); wire.insert(place, seq); }
                _ => wire.push(seq),
            }
        }
        wire.iter().for_each(|&seq| { book.record(seq); });
        let delivery = book.delivery(fates.len() as u64);
        prop_assert!(delivery.balances());
        prop_assert_eq!(delivery.lost_count(), lost);
        prop_assert_eq!(delivery.duplicated_count, Some(doubled));
    }
}

#[test]
fn drops_and_duplicates_are_counted_exactly() {
    let mut book = SequenceCounts::new();
    for seq in 0..100_000u32 {
        match seq % 25 {
            7 => {}
            13 => {
                assert_eq!(book.record(seq), SequenceArrival::New);
                assert_eq!(book.record(seq), SequenceArrival::Duplicate);
            }
            _ => assert_eq!(book.record(seq), SequenceArrival::New),
        }
    }
    let delivery = book.delivery(100_000);
    assert_eq!((delivery.lost_count(), delivery.duplicated_count), (4_000, Some(4_000)));
    assert_eq!(delivery.reordered_count, 0);
}

#[test]
fn sequence_numbers_wrap() {
    let mut book = SequenceCounts::new();
    for step in 0..1000u32 {
        assert_eq!(book.record((u32::MAX - 499).wrapping_add(step)), SequenceArrival::New);
    }
    assert_eq!(book.record(u32::MAX), SequenceArrival::Duplicate);
    assert_eq!(book.highest(), Some(499));
}

#[test]
fn numbers_below_the_first_are_reordered() {
    let mut book = SequenceCounts::new();
    assert_eq!(book.highest(), None);
    assert_eq!(book.record(0), SequenceArrival::New);
    assert_eq!(book.record(u32::MAX), SequenceArrival::Reordered);
    assert_eq!(book.record(u32::MAX), SequenceArrival::Duplicate);
}

#[test]
fn jump_over_the_whole_window_clears_it() {
    let mut book = SequenceCounts::with_window(64);
    (0..64).for_each(|seq| assert_eq!(book.record(seq), SequenceArrival::New));
    assert_eq!(book.record(1_000_000), SequenceArrival::New);
    assert_eq!(book.record(1_000_000 - 63), SequenceArrival::Reordered);
    assert_eq!(book.record(1_000_000 - 64), SequenceArrival::TooOld);
}

#[test]
fn window_is_a_power_of_two_of_at_least_one_word() {
    assert_eq!(SequenceCounts::with_window(0).window(), 64);
    assert_eq!(SequenceCounts::with_window(100).window(), 128);
    assert_eq!(SequenceCounts::new().window(), 1 << 20);
}

#[test]
fn jitter_matches_the_integer_form_of_the_rfc() {
    let mut jitter = Jitter::default();
    assert_eq!(jitter.jitter_ns(), None);
    // Transits of 1000 and 2600 on clocks that share nothing: one difference of 1600.
    jitter.record(u64::MAX - 10, 5);
    assert_eq!(jitter.jitter_ns(), Some(0));
    jitter.record(100, 116 + 1600);
    assert_eq!(jitter.jitter_ns(), Some(100));
    // No further difference: 1600 - (1600 + 8) / 16 = 1500.
    jitter.record(200, 216 + 1600);
    assert_eq!(jitter.jitter_ns(), Some(93));
}

#[test]
fn steady_alternation_settles_at_its_own_size() {
    let mut jitter = Jitter::default();
    (0..1000u64).for_each(|step| jitter.record(step * 1000, step * 1000 + 500 * (step % 2)));
    assert!((490..=510).contains(&jitter.jitter_ns().unwrap()), "{jitter:?}");
}
