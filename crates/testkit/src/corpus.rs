//! Committed inputs of the fuzz targets.

use std::fs;
use std::path::Path;

/// Returns every input of a fuzz target.
///
/// # Panics
/// If the target has no corpus in `fuzz/corpus`.
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|e| panic!("cannot read {}: {e}", folder.display()));
    let read = |entry: fs::DirEntry| fs::read(entry.path()).expect("the corpus holds files");
    entries.map(|entry| read(entry.expect("a readable folder"))).collect()
}

/// Runs a fuzz target's function on every input of its corpus.
///
/// # Panics
/// If an input does, or if the corpus holds fewer than five.
pub fn replay(target: &str, mut body: impl FnMut(&[u8])) {
    let inputs = inputs(target);
    inputs.iter().for_each(|bytes| body(bytes));
    assert!(inputs.len() >= 5, "{target} has {} inputs", inputs.len());
}
