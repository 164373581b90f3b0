//! Replays the fuzzer's corpus, so that what it once found stays found.

use std::fs;
use std::path::Path;

use crate::vmnic::lance::fuzzing;

#[test]
fn corpus_of_hostile_guests_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/lance");
    let mut operations = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed").flatten() {
        operations += fuzzing::run(&fs::read(entry.path()).expect("a corpus holds files"));
    }
    assert!(operations >= 500, "{} spells {operations} operations", folder.display());
}
