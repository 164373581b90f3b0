//! A receiver as its user has it: a program in plain C, `receiver.c`.

use std::path::Path;
use std::process::Command;

use testkit::is_installed;

/// Builds the receiver in a folder. Returns its path; `None` without a compiler, and the skip is reported.
///
/// - `options`: further options of the compiler.
pub(crate) fn build(folder: &Path, options: &[&str]) -> Option<String> {
    if !is_installed("cc") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../feed/tests/receiver/receiver.c");
    let program = folder.join("receiver");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).args(options);
    assert!(compiler.status().expect("a compiler").success(), "it builds");
    Some(program.to_str().expect("a plain path").to_owned())
}
