//! Committed inputs of fuzz targets, for tests that replay them. Included with `#[path]`.

use std::fs;
use std::path::Path;
use std::vec::Vec;

/// Reads all inputs of a target.
pub(crate) fn of(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is committed");
    let read = |entry: fs::DirEntry| fs::read(entry.path()).expect("a corpus holds files");
    entries.map(|entry| read(entry.expect("a folder that can be read"))).collect()
}
