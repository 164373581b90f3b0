//! docs/faults.md, written by the tests and held to them.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::fault::Fault;
use crate::subject::Subject;

const HEAD: &str = "\
# Faults

What each long-running command does when something happens to it. **goes on**: it still runs 700 ms later,
ends with 0 when asked, and its books are whole. **exit N**: it ends by itself within 15 seconds, with the
message shown. Without address space to map, a command may end at any allocation (SIGABRT), or go on if it
needs none; in a control group without memory it is killed when it next needs some. Those two are struck at random
only. Whatever happens, no panic, and no namespace, interface, program or process is left behind.

**disk full**: a small disk of its own, with no room from then on. **permission lost**: the folder that it reads is
closed to all; commands that root starts read it all the same, unless they gave up that right. **wall clock set**: a day
ahead, then two days back, by a library between the command and the kernel; the machine's clock is left alone. Of a
thread that panics: the tunnel's order is tested with one (`crates/paths/src/tunnel/order`), commands have no way
to make one. CPUs are not unplugged: a test would have to take one from the machine.

Written and checked by `cargo test -p wirepath --test faults` (`UPDATE=1` writes it anew), which also strikes
with one to three faults at random moments: 50 seeded runs in `./test`, any number with
`WIREPATH_TEST_FAULTS=1000 WIREPATH_TEST_SEED=7`.

";

/// One test writes at a time.
static WRITING: Mutex<()> = Mutex::new(());

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md")
}

fn section(subject: Subject) -> String {
    format!("## {subject}\n")
}

/// Whether what happens is written down, and not held to what was.
pub(crate) fn is_written() -> bool {
    std::env::var_os("UPDATE").is_some_and(|value| value == "1")
}

/// Asserts that a row is what the table says, or writes it.
pub(crate) fn holds(subject: Subject, outcomes: &[String]) {
    let mut now = section(subject);
    now.push_str("\n| Fault | What happens |\n|---|---|\n");
    for (fault, outcome) in Fault::ALL.iter().zip(outcomes) {
        if outcome != "–" {
            now.push_str(&format!("| {} | {} |\n", fault.title(), outcome.replace('|', "\\|")));
        }
    }
    let _writing = WRITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let said = fs::read_to_string(file()).unwrap_or_default();
    let mut sections: Vec<String> = Subject::ALL.iter().map(|s| found(&said, *s)).collect();
    let own = Subject::ALL.iter().position(|s| *s == subject).expect("all are listed");
    if is_written() {
        sections[own] = now;
        sections.retain(|section| !section.is_empty());
        fs::write(file(), format!("{HEAD}{}", sections.join("\n"))).expect("docs/faults.md");
        return;
    }
    let then = sections[own].trim_end();
    assert!(then == now.trim_end(), "docs/faults.md says\n{then}\n\nbut now\n{now}");
}

/// Whether the table says that a command ends by itself under a fault.
pub(crate) fn ends(subject: Subject, fault: Fault) -> bool {
    let said = fs::read_to_string(file()).unwrap_or_default();
    let row = format!("| {} | ", fault.title());
    let section = found(&said, subject);
    let outcome = section.lines().find_map(|line| line.strip_prefix(&row));
    outcome.is_none_or(|outcome| !outcome.starts_with("goes on"))
}

pub(crate) fn has(subject: Subject) -> bool {
    fs::read_to_string(file()).is_ok_and(|said| !found(&said, subject).is_empty())
}

/// A command's part of the table, or nothing.
fn found(said: &str, subject: Subject) -> String {
    let head = section(subject);
    let Some(begin) = said.find(&head) else { return String::new() };
    let rest = &said[begin..];
    let end = rest[head.len()..].find("\n## ").map_or(rest.len(), |at| at + head.len() + 1);
    format!("{}\n", rest[..end].trim_end())
}
