//! Recorded outcomes: tests/goldens/faults.md, and the overview of docs/internals/faults.md made of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::common::houses;
use crate::fault::Fault;
use crate::subject::Subject;

const HEAD: &str = "\
# Faults

Behaviour of each long-running command under faults. **goes on**: it still runs 700 ms later, does its work (it
answers, forwards, delivers or stores), ends with 0 on SIGINT, and its counters add up. `tunnel measure`, `probe
generate`, `guest run` and `vmnic run`, and `peer` and `serve` without descriptors or threads, only have to run
and to end. **exit N**: it ends by itself within 15 seconds, with an error message. Without address space to
map, a command may end at any allocation (SIGABRT), or go on if it needs none; in a control group without memory
it is killed when it next needs some. Those two strike at random only. No fault causes a panic, or leaves a
namespace, interface, program or process behind. Two at the same moment can: if the main process and the supervisor
of a user's program are both killed, what that program started lives on until the next `wirepath` with a program of
its own removes it.

**disk full**: a small disk of its own, without free space from then on. **permission lost**: the folder that it
reads becomes unreadable; commands started by root read it nevertheless, unless they dropped that capability.
**wall clock set**: a day ahead, then two days back, by a library between the command and the kernel; the
machine's clock is not changed. **no threads left**: its control group is at its limit (pids.max). A panicking
thread is tested in the tunnel's order (`tunnel/forward/src/order`); commands have no way to cause one. A CPU
goes offline in a Debian guest (`crates/cli/tests/tune_guest/hotplug.rs`): `peer`, `probe echo`, `feed listen`,
`feed replay`, `serve` and `tune apply` go on; `prove`, which pins its ends to CPUs, ends with 1 once its trials
fail, with the CPU in its message.

Recorded and checked by `cargo test -p wirepath --test faults` (`UPDATE=1` records again), which also strikes
with one to three faults at random moments: 25 seeded runs in `./test`, any number with
`WIREPATH_TEST_FAULTS=1000 WIREPATH_TEST_SEED=7`. Every outcome with its message:
`crates/cli/tests/goldens/faults.md`.

";

const GLANCE: &str = "\
## At a glance

**on**: goes on; **on, 1**: goes on, and ends with 1 on SIGINT; **0**, **1**: ends by itself with that status; **130**: says that it was interrupted; **–**: cannot
strike it, or is random.

";

/// Tests write one at a time.
static WRITING: Mutex<()> = Mutex::new(());

fn page_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/faults.md")
}

fn record_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/faults.md")
}

fn section(subject: Subject) -> String {
    format!("## {subject}\n")
}

/// True if outcomes are recorded instead of compared.
pub(crate) fn is_written() -> bool {
    std::env::var_os("UPDATE").is_some_and(|value| value == "1")
}

/// Asserts that a row is as recorded, or records it.
pub(crate) fn holds(subject: Subject, outcomes: &[String]) {
    let mut now = section(subject);
    now.push_str("\n| Fault | Outcome |\n|---|---|\n");
    for (fault, outcome) in Fault::ALL.iter().zip(outcomes) {
        if outcome != "–" {
            now.push_str(&format!("| {} | {} |\n", fault.title(), outcome.replace('|', "\\|")));
        }
    }
    let _writing = WRITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut sections = recorded();
    let own = Subject::ALL.iter().position(|s| *s == subject).expect("all are listed");
    if is_written() {
        assert!(houses::are_all_there(), "the page is written by a program with every house");
        sections[own] = now;
        let sections: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
        fs::write(record_file(), sections.join("\n")).expect("tests/goldens/faults.md");
        fs::write(page_file(), page(&sections)).expect("docs/internals/faults.md");
        return;
    }
    let then = sections[own].trim_end();
    assert!(then == now.trim_end(), "tests/goldens/faults.md has\n{then}\n\nbut now\n{now}");
}

/// Recorded sections in the order of [`Subject::ALL`]; empty without a record.
fn recorded() -> Vec<String> {
    let record = fs::read_to_string(record_file()).unwrap_or_default();
    Subject::ALL.iter().map(|subject| found(&record, *subject)).collect()
}

fn page(sections: &[String]) -> String {
    let texts: Vec<&str> = sections.iter().map(String::as_str).collect();
    format!("{HEAD}{}{}", long_runs(), at_a_glance(&texts))
}

/// Figures that the soak recorded.
fn long_runs() -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/soak.json");
    let text = fs::read_to_string(file).expect("tests/goldens/soak.json");
    let run: serde_json::Value = serde_json::from_str(&text).expect("written by the soak");
    let text = |name: &str| run[name].as_str().unwrap_or_else(|| panic!("no {name}: {run}"));
    let count = |at: &serde_json::Value, name: &str| {
        at[name].as_u64().unwrap_or_else(|| panic!("no {name}: {run}"))
    };
    let rows = run["rows"].as_array().expect("rows").iter().map(|row| {
        let mb = |name| count(row, name) as f64 / 1e6;
        format!(
            "| {} | {:.1} MB | {:.1} MB | {}, {} |\n",
            row["command"].as_str().expect("a name"),
            mb("warm_bytes"),
            mb("end_bytes"),
            count(row, "warm_descriptor_count"),
            count(row, "end_descriptor_count"),
        )
    });
    format!(
        "\
## Long runs

`WIREPATH_TEST_SOAK=3600 cargo test -p wirepath --test soak -- --nocapture` runs five commands for an hour, and
beside them experiments on every path in turn, pings by each engine, and faults: reloads, stops, MTU changes, links
that go down, killed near ends. Nothing may grow after the first quarter, and the counters must add up. With
`UPDATE=1` it records its figures in `crates/cli/tests/goldens/soak.json`, from which this table is made: {date}, commit
{commit}, {cpu_count} CPUs ({cpu}), Linux {kernel}, {build} build, {seconds} seconds, {rounds} rounds.

| Command | Memory after a quarter | at the end | Descriptors |
|---|---|---|---|
{rows}
",
        date = text("date"),
        commit = text("commit"),
        cpu_count = count(&run, "cpu_count"),
        cpu = text("cpu"),
        kernel = text("kernel"),
        build = text("build"),
        seconds = count(&run, "seconds"),
        rounds = count(&run, "round_count"),
        rows = rows.collect::<String>(),
    )
}

/// Table of commands by faults.
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

/// Short form of an outcome, explained in [`GLANCE`].
fn word(outcome: &str) -> &'static str {
    match outcome {
        "goes on" => "on",
        "killed" => "killed",
        "exit 0" => "0",
        _ if outcome.starts_with("goes on; ") => "on, 1",
        _ if outcome.starts_with("exit 130") => "130",
        _ => "1",
    }
}

fn outcome(section: &str, fault: Fault) -> Option<&str> {
    let row = format!("| {} | ", fault.title());
    section.lines().find_map(|line| line.strip_prefix(&row)?.strip_suffix(" |"))
}

/// True if the record says that a command ends by itself under a fault.
pub(crate) fn ends(subject: Subject, fault: Fault) -> bool {
    let record = fs::read_to_string(record_file()).unwrap_or_default();
    let section = found(&record, subject);
    outcome(&section, fault).is_none_or(|outcome| !outcome.starts_with("goes on"))
}

/// Asserts that every command has a record, and that the overview matches it.
pub(crate) fn is_whole() {
    if !houses::are_all_there() {
        return;
    }
    let sections = recorded();
    for (subject, section) in Subject::ALL.iter().zip(&sections) {
        assert!(
            !section.is_empty(),
            "{subject} is not in tests/goldens/faults.md; run with UPDATE=1"
        );
    }
    let now = page(&sections);
    if is_written() {
        fs::write(page_file(), now).expect("docs/internals/faults.md");
        return;
    }
    let written = fs::read_to_string(page_file()).expect("docs/internals/faults.md");
    assert!(
        written == now,
        "docs/internals/faults.md does not match the record; run with UPDATE=1"
    );
}

/// Section of a command in the record; empty without one.
fn found(record: &str, subject: Subject) -> String {
    let head = section(subject);
    let Some(begin) = record.find(&head) else { return String::new() };
    let rest = &record[begin..];
    let end = rest[head.len()..].find("\n## ").map_or(rest.len(), |at| at + head.len() + 1);
    format!("{}\n", rest[..end].trim_end())
}
