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
ahead, then two days back, by a library between the command and the kernel; the machine's clock is left alone. **no
threads left**: it is in a control group that has as many as it may (pids.max). Of a
thread that panics: the tunnel's order is tested with one (`crates/paths/src/tunnel/order`), commands have no way
to make one. A CPU is taken away in a Debian guest (`crates/cli/tests/tune_guest/hotplug.rs`): `peer`, `probe echo`, `feed
listen`, `feed replay`, `serve` and `tune apply` go on; `prove`, which places its ends on CPUs, ends with 1 once its trials
fail, and says that it could not pin them there.

Written and checked by `cargo test -p wirepath --test faults` (`UPDATE=1` writes it anew), which also strikes
with one to three faults at random moments: 50 seeded runs in `./test`, any number with
`WIREPATH_TEST_FAULTS=1000 WIREPATH_TEST_SEED=7`.

## For long

`WIREPATH_TEST_SOAK=3600 cargo test -p wirepath --test soak -- --nocapture` keeps five commands running for an hour, and
beside them has every path prove something in turn, pings by each engine, and faults: reloads, stops, MTU changes, near
ends that are killed. Nothing may grow after the first quarter, and the books close. 22 November 2026, a virtual machine
of 2 CPUs (AMD EPYC, Linux 6.18) with other work, debug build, 1,002 rounds:

| Command | Memory after a quarter | after the hour | Descriptors |
|---|---|---|---|
| peer | 14.2 MB | 14.2 MB | 6, 6 |
| feed listen | 24.0 MB | 24.1 MB | 8, 8 |
| tunnel run | 79.6 MB | 79.6 MB | 16, 16 |
| serve | 8.6 MB | 8.6 MB | 6, 6 |
| feed replay | 10.6 MB | 10.6 MB | 6, 6 |

";

const GLANCE: &str = "\
## At a glance

**on**: goes on; **on, 1**: goes on, and ends with 1 when asked; **0**, **1**: ends by itself with that status; **–**: cannot
happen to it, or is left to chance.

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
        fs::write(file(), whole(&sections)).expect("docs/faults.md");
        return;
    }
    let then = sections[own].trim_end();
    assert!(then == now.trim_end(), "docs/faults.md says\n{then}\n\nbut now\n{now}");
}

/// The page of all commands' sections; empty ones are left out.
fn whole(sections: &[String]) -> String {
    let sections: Vec<_> = sections.iter().filter(|section| !section.is_empty()).collect();
    let texts: Vec<&str> = sections.iter().map(|section| section.as_str()).collect();
    format!("{HEAD}{}\n{}", at_a_glance(&texts), texts.join("\n"))
}

/// Commands by faults, a word each.
fn at_a_glance(sections: &[&str]) -> String {
    let faults: Vec<_> = Fault::ALL
        .into_iter()
        .filter(|fault| sections.iter().any(|section| outcome(section, *fault).is_some()))
        .collect();
    let row = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let heads = std::iter::once("").chain(faults.iter().map(|fault| fault.title())).collect();
    let mut table = row(heads);
    table.push_str(&format!("|{}\n", "---|".repeat(faults.len() + 1)));
    for section in sections {
        let name = section.lines().next().and_then(|head| head.strip_prefix("## "));
        let words = faults.iter().map(|fault| outcome(section, *fault).map_or("–", word));
        table.push_str(&row(name.into_iter().chain(words).collect()));
    }
    format!("{GLANCE}{table}")
}

/// An outcome in a word, as [`GLANCE`] explains it.
fn word(outcome: &str) -> &'static str {
    match outcome {
        "goes on" => "on",
        "killed" => "killed",
        "exit 0" => "0",
        _ if outcome.starts_with("goes on; ") => "on, 1",
        _ => "1",
    }
}

fn outcome(section: &str, fault: Fault) -> Option<&str> {
    let row = format!("| {} | ", fault.title());
    section.lines().find_map(|line| line.strip_prefix(&row)?.strip_suffix(" |"))
}

/// Whether the table says that a command ends by itself under a fault.
pub(crate) fn ends(subject: Subject, fault: Fault) -> bool {
    let said = fs::read_to_string(file()).unwrap_or_default();
    let section = found(&said, subject);
    outcome(&section, fault).is_none_or(|outcome| !outcome.starts_with("goes on"))
}

/// Asserts that all commands are there, and that the overview says what their sections do.
pub(crate) fn is_whole() {
    let said = fs::read_to_string(file()).expect("docs/faults.md");
    let sections = Subject::ALL.map(|subject| found(&said, subject));
    for (subject, section) in Subject::ALL.iter().zip(&sections) {
        assert!(!section.is_empty(), "{subject} is not in docs/faults.md; run with UPDATE=1");
    }
    let now = whole(&sections);
    if is_written() {
        fs::write(file(), now).expect("docs/faults.md");
        return;
    }
    assert!(said == now, "docs/faults.md is not what its sections make; run with UPDATE=1");
}

/// A command's part of the table, or nothing.
fn found(said: &str, subject: Subject) -> String {
    let head = section(subject);
    let Some(begin) = said.find(&head) else { return String::new() };
    let rest = &said[begin..];
    let end = rest[head.len()..].find("\n## ").map_or(rest.len(), |at| at + head.len() + 1);
    format!("{}\n", rest[..end].trim_end())
}
