//! Replays the fuzzer's corpus, and runs operations at random.

use proptest::prelude::*;

use crate::virtio::fuzzing;

#[test]
fn corpus_of_hostile_drivers_holds() {
    let operations: u64 =
        testkit::corpus::inputs("virtio_net").iter().map(|bytes| fuzzing::run(bytes)).sum();
    assert!(operations >= 100, "the corpus spells {operations} operations");
}

/// Numbers that look random, from a seed: 32-bit xorshift.
fn next(state: &mut u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state
}

#[test]
fn a_hundred_thousand_random_operations_break_nothing() {
    let (mut state, mut operations) = (0x2545_f491, 0);
    while operations < 100_000 {
        let bytes: Vec<u8> = (0..4000).map(|_| (next(&mut state) >> 11) as u8).collect();
        operations += fuzzing::run(&bytes);
    }
}

proptest! {
    #[test]
    fn hostile_streams_of_operations_break_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        fuzzing::run(&bytes);
    }
}
