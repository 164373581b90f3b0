//! A receiver as its user has it: a program in plain C, `receiver.c`. The file and the commands of its page.
#![allow(dead_code, reason = "every test program uses its own part of this")]

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

/// Page whose file and commands the tests run.
const PAGE: &str = include_str!("../../../docs/your-receiver.md");

/// Experiment file at the beginning of the page.
pub(crate) fn page_file() -> &'static str {
    assert!(PAGE.lines().count() <= 60, "a page of one screen");
    testkit::page_file(PAGE)
}

/// Arguments of the page's commands that have a text among them, as a shell reads them.
pub(crate) fn page_command(text: &str) -> String {
    let joined = PAGE.replace("\\\n", " ");
    let mut commands =
        joined.lines().filter_map(|line| line.strip_prefix("wirepath prove command "));
    let found = commands.find(|command| command.contains(text));
    found.unwrap_or_else(|| panic!("no command with {text} on the page")).to_owned()
}
