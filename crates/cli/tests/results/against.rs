//! `prove --against`: two builds of the program in one run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::common::{Data, all_text, fail, json, run};

const AGAINST: [&str; 9] = against("5ms");
/// Trials so long that a busy machine, too, starts a program within ten of them: what was started once is not decided.
const AGAINST_IN_STARTS: [&str; 9] = against("50ms");

/// With a seed, because the old program may differ from itself by chance, in 1 of 100 runs.
const fn against(trial: &'static str) -> [&'static str; 9] {
    ["prove", "fake", "--max-blocks", "12", "--trial", trial, "--seed", "7", "--against"]
}

/// A build that differs from this one: the program behind a script of the shell.
fn another_build(data: &Data, script: &str) -> PathBuf {
    let file = data.path().join("wirepath.old");
    let program = env!("CARGO_BIN_EXE_wirepath");
    fs::write(&file, format!("#!/bin/sh\nprogram={program}\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[test]
fn the_same_build_twice_is_not_worse() {
    let data = Data::new();
    let program = env!("CARGO_BIN_EXE_wirepath");
    let more = ["--arms", "fast", "--fail-on", "worse", "--json"];
    let doc = json(data.wirepath(&[&AGAINST[..], &[program], &more].concat()));
    let arms = doc["arms"].as_array().unwrap();
    let names: Vec<&str> = arms.iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["old", "old again", "new"]);
    for arm in arms {
        assert_eq!(arm["switches"], serde_json::json!(["fast"]), "{arm}");
        assert_eq!((&arm["trials"], &arm["failures"]), (&doc["blocks"], &serde_json::json!([])));
        assert!(arm["latency"]["rtt"]["count"].as_u64() > Some(0), "histograms arrive: {arm}");
    }
    assert_eq!(doc["gate"]["answer"], "no-worse");
    let against = doc["load"]["against"].as_str().unwrap();
    assert!(against.contains(program) && against.contains(env!("CARGO_PKG_VERSION")), "{against}");
}

#[test]
fn every_arm_has_a_process_of_its_own_which_is_started_anew() {
    let data = Data::new();
    let log = data.file("started");
    let old = another_build(&data, &format!("echo $$ >>{log}\nexec $program \"$@\""));
    // A start takes less than ten trials, also on a busy machine.
    let long = ["prove", "fake", "--max-blocks", "6", "--trial", "200ms", "--json", "--against"];
    let doc = json(data.wirepath(&[&long[..], &[old.to_str().unwrap()]].concat()));
    let started = fs::read_to_string(&log).unwrap().lines().count() as u64;
    let starts = doc["trust"]["starts"][0]["starts"].as_u64().unwrap();
    assert!((2..=6).contains(&starts), "{starts}");
    // The baseline's and the control's; the warm-up may have had starts of its own.
    assert!([2 * starts, 2 * starts + 2].contains(&started), "{started} of {starts}");
}

/// A build whose baseline has a switch on.
fn with_arms(switch: &str) -> String {
    format!(
        "sed -u 's/\"trial\":{{\"arm\":\\[\\]/\"trial\":{{\"arm\":[\"{switch}\"]/' | $program \"$@\""
    )
}

#[test]
fn a_slower_new_build_exits_with_4_and_a_faster_one_with_0() {
    let data = Data::new();
    let faster = another_build(&data, &with_arms("fast"));
    let output = run(data.wirepath(
        &[&AGAINST_IN_STARTS[..], &[faster.to_str().unwrap(), "--fail-on", "worse", "--json"]]
            .concat(),
    ));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("worse: rtt p50: new is") && said.contains("slower than old"), "{said}");
    let doc: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(doc["gate"]["answer"], "worse");
    assert_eq!(doc["arms"][2]["metrics"]["rtt_ns_p50"]["verdict"], "worse");
    let slower = another_build(&data, &with_arms("harmful"));
    let args =
        [&AGAINST_IN_STARTS[..], &[slower.to_str().unwrap(), "--fail-on", "worse", "--json"]]
            .concat();
    let doc = json(data.wirepath(&args));
    assert_eq!(doc["arms"][2]["metrics"]["rtt_ns_p50"]["verdict"], "better");
}

#[test]
fn programs_that_cannot_run_trials_are_refused_with_their_own_words() {
    let data = Data::new();
    let args = |file: &str, more: &[&str]| [&AGAINST[..], &[file], more].concat().join(" ");
    let refused =
        |args: String, code| fail(data.wirepath(&args.split(' ').collect::<Vec<_>>()), code);
    let older =
        another_build(&data, "echo \"error: unrecognized subcommand 'answer'\" >&2; exit 2");
    let said = refused(args(older.to_str().unwrap(), &[]), 2);
    assert!(said.contains("unrecognized subcommand") && said.contains("wirepath.old"), "{said}");
    assert!(said.contains("give a build that has `answer path fake`"), "{said}");
    let greeting = r#"{"wirepath":"9","exchange":99,"service":"path"}"#;
    let other = another_build(&data, &format!("echo '{greeting}'; sleep 1"));
    let said = refused(args(other.to_str().unwrap(), &[]), 2);
    assert!(said.contains("cannot run trials") && said.contains("version 99"), "{said}");
    assert!(refused(args("/nonexistent/wirepath", &[]), 2).contains("there is no program"));
    let program = env!("CARGO_BIN_EXE_wirepath");
    let said = refused(args(program, &["--arms", "fast,harmful"]), 2);
    assert!(said.contains("is not one arm"), "{said}");
    refused(args(program, &["--baseline", "last"]), 2);
}

#[test]
fn a_build_that_dies_on_the_way_fails_its_trials_and_ends_the_run() {
    let data = Data::new();
    // Each start reads a greeting and three calls: it opens its lab and runs one trial.
    let dying = another_build(&data, "sed -u 4q | $program \"$@\"");
    let output = run(data.wirepath(&[&AGAINST[..], &[dying.to_str().unwrap()]].concat()));
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    let said = all_text(&output);
    assert!(said.contains("given up") || said.contains("no measurement"), "{said}");
}
