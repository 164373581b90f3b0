//! The user's own receiver as the subject of `prove command`: its flags one by one, and two of them by turns on a group
//! that is there.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::common::{Data, LONG, Running, Spaces, clean, json, wirepath};

#[path = "../receiver/mod.rs"]
mod program;

const GROUP: &str = "239.77.5.1";
/// Quotes of each trial.
const QUOTES: u64 = 400;

/// `wirepath prove command` with these arguments, at most six blocks, and its document.
fn proven(data: &Data, args: &[&str]) -> Value {
    let limits = ["--max-blocks", "6", "--time", "100s", "--no-history", "--json"];
    let mut command = wirepath(&[&["prove", "command"], args, &limits].concat());
    command.env("WIREPATH_STATE", data.file("state"));
    command.current_dir(data.path());
    json(command)
}

fn arms(outcome: &Value) -> Vec<(&str, &Value)> {
    let arms = outcome["arms"].as_array().expect("arms").iter();
    let arms: Vec<(&str, &Value)> =
        arms.map(|arm| (arm["name"].as_str().expect("a name"), arm)).collect();
    for (name, arm) in &arms {
        assert_eq!(arm["failures"], serde_json::json!([]), "{name}: {arm:#}");
    }
    arms
}

/// Values of a figure in each block that counts.
fn trials(arm: &Value, metric: &str) -> Vec<f64> {
    let trials = arm["metrics"][metric]["trials"].as_array();
    let trials = trials.unwrap_or_else(|| panic!("no {metric} in {arm:#}"));
    trials.iter().map(|value| value.as_f64().expect("a value")).collect()
}

/// A command of the page as a shell runs it, with other names for its interface, at most six blocks, and its document.
fn proven_by_page(data: &Data, text: &str, names: &[(&str, &str)]) -> Value {
    let mut line = program::page_command(text);
    for (name, own) in names {
        line = line.replace(name, own);
    }
    let line = format!("exec \"$0\" prove command {line} \"$@\"");
    let limits = ["--max-blocks", "6", "--time", "100s", "--no-history", "--json"];
    let shell = ["-c", &line, env!("CARGO_BIN_EXE_wirepath")];
    let mut command = clean(Command::new("sh"), &[&shell[..], &limits].concat());
    command.env("WIREPATH_STATE", data.file("state")).current_dir(data.path());
    json(command)
}

#[test]
fn the_file_of_the_page_gives_a_table_of_its_flags() {
    let data = Data::new();
    if program::build(data.path(), &[]).is_none() {
        return;
    }
    fs::write(data.file("receiver.toml"), program::page_file()).expect("a file");
    let outcome = proven_by_page(&data, "receiver.toml", &[]);
    for (name, arm) in arms(&outcome) {
        for figure in ["p99_us", "p999_us", "within_1us_share", "server_cpu_ns"] {
            assert!(arm["metrics"][figure]["median"].as_f64() > Some(0.0), "{figure} of {name}");
        }
    }
}

#[test]
fn the_command_of_the_page_lets_receivers_take_turns_on_a_live_group() {
    let (spaces, data) = (Spaces::new(), Data::new());
    if program::build(data.path(), &[]).is_none() {
        return;
    }
    let sender = ["feed", "replay", "--synthetic", "--rate", "4000", "--to", "239.77.5.1:10000"];
    let group = Running::start(spaces.near(&[&sender[..], &["-i", "va", "--json"]].concat()));
    let place = format!("netns:{}@vb", spaces.far);
    let names = [("this@eth1", &*place), ("eth1", "vb")];
    let outcome = proven_by_page(&data, "--beside", &names);
    for (name, arm) in arms(&outcome) {
        assert!(trials(arm, "count_count").iter().all(|count| *count == 2000.0), "{name}: {arm:#}");
        assert!(!trials(arm, "missing_count").is_empty(), "{name}: {arm:#}");
    }
    assert!(group.end_by("INT", LONG).status.success());
}

#[test]
fn flags_of_an_unchanged_receiver_give_their_table_and_the_book_is_exact() {
    let data = Data::new();
    if program::build(data.path(), &[]).is_none() {
        return;
    }
    let file = format!(
        r#"
server = "./receiver $N $C $R $Q $B -N {QUOTES} {GROUP} $WIREPATH_PORT $WIREPATH_INTERFACE"
feed = "$WIREPATH feed replay --synthetic --rate 2000 --burst 20 -c {QUOTES} --to {GROUP}:$WIREPATH_PORT -i $WIREPATH_INTERFACE"
switches = ["env:N=-n", "env:C=-c 1", "env:R=-r 80", "env:Q=-q", "env:B=-b 8388608"]
arms = "alone"
metrics = ["p99_us=server:json:/p99_us lower", "p999_us=server:json:/p999_us lower",
    "within_1us_share=server:json:/within_1us higher", "server_cpu_ns",
    "received_count=server:json:/count higher", "udp_buffer_error_count"]
"#
    );
    fs::write(data.file("flags.toml"), file).expect("a file");
    let outcome = proven(&data, &["flags.toml"]);
    let arms = arms(&outcome);
    let names: Vec<&str> = arms.iter().map(|(name, _)| *name).collect();
    let flags = ["env:N=-n", "env:C=-c 1", "env:R=-r 80", "env:Q=-q", "env:B=-b 8388608"];
    assert_eq!(names, [&["baseline", "baseline again"], &flags[..]].concat());
    for (name, arm) in &arms {
        for figure in ["p99_us", "p999_us", "within_1us_share", "server_cpu_ns"] {
            assert!(arm["metrics"][figure]["median"].as_f64() > Some(0.0), "{figure} of {name}");
        }
        // Datagrams that the receiver did not count were dropped by its full socket.
        let (received, lost) =
            (trials(arm, "received_count"), trials(arm, "udp_buffer_error_count"));
        assert!(!received.is_empty());
        for (received, lost) in received.iter().zip(lost) {
            assert_eq!(received + lost, QUOTES as f64, "{name}: {received} and {lost}");
        }
    }
    // The busy loop takes its CPU for as long as the feed lasts.
    let cpu = |name: &str| {
        let arm = arms.iter().find(|(of, _)| *of == name).expect("an arm").1;
        arm["metrics"]["server_cpu_ns"]["median"].as_f64().expect("a median")
    };
    assert!(cpu("env:N=-n") > 2.0 * cpu("env:Q=-q"), "{outcome:#}");
}

/// First and last sequence of a domain, and the messages between them that a book counts.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
    count: u64,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Last line of a file, which is JSON.
fn last_line(file: &str) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The part of the witness's book that a receiver's range covers.
fn in_range(book: &Value, domain: &str, range: &Range) -> Range {
    let domains = book["domains"].as_array().expect("domains");
    let own = domains.iter().find(|of| of["domain"] == domain).expect("the receiver's domain");
    assert!(number(&own["first"]) <= range.first && number(&own["highest"]) >= range.last, "{own}");
    assert_eq!((&own["restart_count"], &book["gap_beyond_count"]), (&0.into(), &0.into()));
    let gaps = book["gaps"].as_array().expect("gaps").iter();
    let missing = gaps
        .filter(|gap| gap["domain"] == domain && number(&gap["first"]) > range.first)
        .filter(|gap| number(&gap["first"]) < range.last)
        .map(|gap| number(&gap["missing_count"]))
        .sum::<u64>();
    Range { count: range.last - range.first + 1 - missing, ..*range }
}

#[test]
fn receivers_take_turns_on_a_live_group_and_their_books_agree_with_the_witness() {
    let (spaces, data) = (Spaces::new(), Data::new());
    if program::build(data.path(), &[]).is_none() {
        return;
    }
    let to = format!("{GROUP}:10000");
    // One of a hundred is lost on the way, for receivers and witness alike.
    let sender = ["feed", "replay", "--synthetic", "--rate", "2000", "--drop-a", "1%"];
    let sender = [&sender[..], &["--to", &to, "-i", "va", "--json"]].concat();
    let group = Running::start(spaces.near(&sender));
    let receiver = format!("./receiver -b 8388608 -N {QUOTES}");
    let arm = |name: &str, flags: &str| {
        let place = format!("{GROUP} 10000 $WIREPATH_INTERFACE");
        format!("{name}={receiver} {flags} {place} | tee {name}-$WIREPATH_TRIAL.json")
    };
    let (plain, quiet) = (arm("plain", ""), arm("quiet", "-q"));
    let witness = format!(
        "$WIREPATH feed listen {to} -i $WIREPATH_INTERFACE --receive-buffer 8388608 --json | \
         tee -i book-$WIREPATH_TRIAL.json"
    );
    let place = format!("netns:{}", spaces.far);
    let args = ["--place", &place, "--arm", &plain, "--arm", &quiet];
    let beside = ["--beside", &witness, "--beside-ready", "line:Ctrl-C ends"];
    let figures = [
        "--metric",
        "p99_us=json:/p99_us lower",
        "--metric",
        "count_count=json:/count higher",
        "--metric",
        "sent_count=beside:json:/delivered_count higher",
    ];
    let outcome = proven(&data, &[&args[..], &beside, &figures].concat());
    for (name, arm) in arms(&outcome) {
        let (received, seen) = (trials(arm, "count_count"), trials(arm, "sent_count"));
        assert!(received.iter().all(|count| *count == QUOTES as f64), "{name}: {received:?}");
        assert!(received.iter().zip(&seen).all(|(one, all)| one <= all), "{name}: {seen:?}");
    }
    let (mut trials, mut missing) = (0, 0);
    for entry in fs::read_dir(data.path()).expect("a folder") {
        let file = entry.expect("an entry").file_name().into_string().expect("a plain name");
        let Some((name, number_of)) = file.split_once('-').filter(|(name, _)| *name != "book")
        else {
            continue;
        };
        let own = last_line(&data.file(&file));
        let range = Range {
            first: number(&own["first"]),
            last: number(&own["last"]),
            count: number(&own["in_sequence"]),
        };
        let book = last_line(&data.file(&format!("book-{number_of}")));
        assert_eq!(range, in_range(&book, "TWSE 06", &range), "{name} {number_of}: {book:#}");
        trials += 1;
        missing += range.last - range.first + 1 - range.count;
    }
    // Three arms in each block and the one before them.
    let expected = 3 * (number(&outcome["blocks"]) + 1);
    assert!(trials >= expected && missing > 0, "{trials} trials, {missing} missing");
    assert!(group.end_by("INT", LONG).status.success());
}
