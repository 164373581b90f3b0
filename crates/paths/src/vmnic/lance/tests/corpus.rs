//! Replays the fuzzer's corpus, so that what it once found stays found.

use crate::inputs;
use crate::vmnic::lance::fuzzing;

#[test]
fn corpus_of_hostile_guests_holds() {
    let operations: u64 = inputs::of("lance").iter().map(|bytes| fuzzing::run(bytes)).sum();
    assert!(operations >= 500, "the corpus spells {operations} operations");
}
