//! Committed inputs of the fuzz targets.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns every input of a fuzz target.
///
/// # Panics
/// If the target has no corpus.
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|e| panic!("cannot read {}: {e}", folder.display()));
    entries
        .map(|entry| {
            fs::read((entry.expect("a readable folder")).path()).expect("the corpus holds files")
        })
        .collect()
}

/// Folder of a target's inputs: `fuzz/corpus` at the root, or that of a house.
fn folder(target: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let houses = fs::read_dir(&root).expect("the root of the sources");
    let houses = houses.map(|entry| entry.expect("a readable folder").path());
    let mut folders =
        houses.chain([root.clone()]).map(|house| house.join("fuzz/corpus").join(target));
    folders.find(|folder| folder.is_dir()).unwrap_or_else(|| panic!("{target} has no corpus"))
}

/// CPU time for one input, clock ticks of 10 ms. Linear work takes a hundredth of it, also without optimisation.
const INPUT_TICKS_MAX: u64 = 3000;
/// Length to which some inputs are repeated: work that grows with the square of it is far above the limit.
const LONG_BYTES: usize = 256 << 10;
const LONG_COUNT: usize = 3;

/// Runs a fuzz target's function on every input of its corpus, and on the longest ones repeated to 256 KiB.
///
/// # Panics
/// If an input does or takes more CPU time than any should, or if the corpus holds fewer than five.
pub fn replay(target: &str, mut body: impl FnMut(&[u8])) {
    let mut inputs = inputs(target);
    assert!(inputs.len() >= 5, "{target} has {} inputs", inputs.len());
    inputs.sort_by_key(Vec::len);
    let long = inputs.iter().rev().take(LONG_COUNT).filter(|input| !input.is_empty());
    let long: Vec<_> = long.map(|input| input.repeat(LONG_BYTES.div_ceil(input.len()))).collect();
    for input in inputs.iter().chain(&long) {
        let before = cpu_ticks();
        body(input);
        let ticks = cpu_ticks() - before;
        let len = input.len();
        assert!(ticks <= INPUT_TICKS_MAX, "{target}: {ticks} ticks for an input of {len} bytes");
    }
}

/// CPU time of this thread so far, user and system, clock ticks.
fn cpu_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").expect("this thread runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    // Fields 14 and 15, counted from the one behind the name, which is the third.
    fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum()
}
