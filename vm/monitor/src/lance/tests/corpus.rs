//! Replays the fuzzer's corpus, so that what it once found stays found.

use crate::lance::fuzzing;

#[test]
fn corpus_of_hostile_guests_holds() {
    let operations: u64 =
        testkit::corpus::inputs("lance").iter().map(|bytes| fuzzing::run(bytes)).sum();
    assert!(operations >= 500, "the corpus spells {operations} operations");
}
