//! Replays the fuzzer's corpus, and runs operations at random.

use proptest::prelude::*;

use crate::lance::Counters;
use crate::virtio::fuzzing;

#[test]
fn corpus_of_hostile_drivers_holds() {
    let inputs = testkit::corpus::inputs("virtio_net");
    let runs: Vec<_> = inputs.iter().map(|bytes| fuzzing::run(bytes)).collect();
    let operations: u64 = runs.iter().map(|run| run.operation_count).sum();
    assert!(operations >= 100, "the corpus spells {operations} operations");
    // In each kind of ring one input has reached each of these.
    for reached in [
        |counters: &Counters| counters.tx_super_frame_count > 1,
        |counters: &Counters| counters.tx_bad_header_count > 1,
        |counters: &Counters| {
            counters.rx_merged_frame_count > 1 && counters.rx_super_frame_count > 0
        },
        |counters: &Counters| counters.rx_other_pair_count > 0 && counters.tx_other_pair_count > 0,
        |counters: &Counters| counters.control_command_count > 1,
    ] {
        let count = runs.iter().filter(|run| reached(&run.counters)).count();
        assert!(count >= 2, "{runs:#?}");
    }
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
        operations += fuzzing::run(&bytes).operation_count;
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
