//! A run that was killed goes on where it was.

use std::path::Path;

use super::*;
use crate::common::{LONG, Running, fail, run, until};

/// Figures that depend on the arm and the number of the trial alone.
const FIGURES: &str = "sleep 0.04; echo p50_us $((1000 + \
                       (WIREPATH_TRIAL * 7919 + ${#WIREPATH_ARM} * 31) % 97))";

fn experiment<'a>(one: &'a str, two: &'a str) -> Vec<&'a str> {
    vec!["--arm", one, "--arm", two, "--metric", "p50_us=re:p50_us ([0-9]+)"]
}

/// The seed, and the figures of each arm in the first six blocks: a noisy block is repeated.
fn substance(outcome: &Value) -> Value {
    let arms: Vec<Value> = names(outcome)
        .iter()
        .map(|name| {
            let trials =
                arm(outcome, name)["metrics"]["p50_us"]["trials"].as_array().expect("trials");
            serde_json::json!([name, trials[..6]])
        })
        .collect();
    serde_json::json!([outcome["seed"], arms])
}

#[test]
fn a_killed_run_that_is_resumed_has_the_outcome_of_an_uninterrupted_one() {
    let (one, two) = (format!("one={FIGURES}"), format!("other={FIGURES}"));
    let args = [&experiment(&one, &two)[..], &["--seed", "7"]].concat();
    let whole = proven(&Data::new(), &args);
    for kept in [2, 11] {
        let data = Data::new();
        let running = Running::start(prove(&data, &args));
        assert!(until(LONG, || data.trial_count() >= kept), "{}", running.stderr());
        running.end_by("KILL", LONG);
        let id = json(data.wirepath(&["history", "list", "--json"]))["experiments"][0]["id"].take();
        let id = id.as_str().unwrap();
        let stored = data.trial_count();
        assert!((kept..21).contains(&stored), "{stored}");
        // The stored experiment is enough.
        let resumed = proven(&data, &["--resume", id]);
        assert_eq!(resumed["id"], id);
        assert_eq!(substance(&resumed), substance(&whole), "{kept} trials were kept");
        assert!(data.trial_count() >= 21);
        let said = fail(prove(&data, &["--resume", id]), 2);
        assert!(said.contains("reached its end"), "{said}");
    }
}

#[test]
fn an_experiment_that_differs_is_not_resumed() {
    let (one, two) = (format!("one={FIGURES}"), format!("other={FIGURES}"));
    let args = experiment(&one, &two);
    let data = Data::new();
    let running = Running::start(prove(&data, &args));
    assert!(until(LONG, || data.trial_count() >= 7), "{}", running.stderr());
    let output = running.end_by("INT", LONG);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let changed = format!("other={FIGURES}; true");
    let other = [&experiment(&one, &changed)[..], &["--resume", "last"]].concat();
    let said = fail(prove(&data, &other), 2);
    assert!(said.contains("differs"), "{said}");
    // Another resolution would be chosen after the figures were seen.
    let finer = [&args[..], &["--resume", "last", "--resolve", "2%"]].concat();
    let said = fail(prove(&data, &finer), 2);
    assert!(said.contains("it resolves 5%"), "{said}");
    // The same arguments, and more time.
    let same = [&args[..], &["--resume", "last", "--resolve", "5"]].concat();
    let resumed = run(prove(&data, &same));
    assert!(resumed.status.success(), "{resumed:?}");
    assert!(data.trial_count() >= 21);
    let other_path = ["prove", "fake", "--max-blocks", "6", "--trial", "1ms"];
    run(data.wirepath(&other_path));
    let said = fail(prove(&data, &["--resume", "last"]), 2);
    assert!(said.contains("not of `prove command`"), "{said}");
}

/// Id of the newest experiment, if there is one.
fn last_id(data: &Data) -> String {
    let list = json(data.wirepath(&["history", "list", "--json"]));
    list["experiments"][0]["id"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_search_that_is_killed_goes_on_and_finds_the_same() {
    let score = "base=sleep 0.02; echo score $((1000 + ${A:-0} * 500 + ${B:-0} * 300 - ${C:-0} * 100 + \
                 WIREPATH_TRIAL % 7))";
    let mut args = vec!["--arm", score, "--metric", "score=re:score ([0-9]+) higher"];
    args.extend(["--switch", "env:A=1", "--switch", "env:B=1", "--switch", "env:C=1"]);
    args.extend(["--arms", "best", "--seed", "3", "--time", "100s"]);
    let prove = |data: &Data, args: &[&str]| {
        let mut command = data.wirepath(&[&["prove", "command"], args].concat());
        command.env("WIREPATH_STATE", data.file("state"));
        command
    };
    let whole = json(prove(&Data::new(), &[&args[..], &["--json"]].concat()));
    let data = Data::new();
    let end = |running: Running| {
        running.end_by("KILL", LONG);
        let id = last_id(&data);
        // It can be looked at.
        run(data.wirepath(&["history", "show", &id]));
        id
    };
    let running = Running::start(prove(&data, &args));
    assert!(until(LONG, || data.trial_count() >= 8), "{}", running.stderr());
    let search = end(running);
    let running = Running::start(prove(&data, &["--resume", &search]));
    assert!(until(LONG, || ![&search, ""].contains(&&*last_id(&data))), "{}", running.stderr());
    // The set is stored with the experiment that measures it; the search itself is no longer stored.
    let measuring = end(running);
    let said = fail(prove(&data, &["--resume", &search]), 2);
    assert!(said.contains(&search), "{said}");
    let resumed = json(prove(&data, &["--resume", &measuring, "--json"]));
    assert_eq!(resumed["search"], whole["search"]);
    assert_eq!(resumed["search"]["set"], serde_json::json!(["env:A=1", "env:B=1"]), "{resumed:#}");
}

/// Gives the results and their folder to a user.
fn give(data: &Data, uid: u32) {
    for entry in std::fs::read_dir(data.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("history.db") {
            std::os::unix::fs::chown(path, Some(uid), None).unwrap();
        }
    }
    std::os::unix::fs::chown(data.path(), Some(uid), None).unwrap();
}

#[test]
fn stored_commands_of_another_user_are_not_run_and_own_ones_are_shown() {
    let data = Data::new();
    let mark = data.file("mark");
    let is_marked = || Path::new(&mark).exists();
    let (one, two) = (format!("one={FIGURES}"), format!("other={FIGURES}; touch {mark}"));
    let args = experiment(&one, &two);
    let running = Running::start(prove(&data, &args));
    assert!(until(LONG, || data.trial_count() >= 7 && is_marked()), "{}", running.stderr());
    running.end_by("KILL", LONG);
    std::fs::remove_file(&mark).unwrap();
    give(&data, 65_534);
    let stored = data.trial_count();
    let said = fail(prove(&data, &["--resume", "last"]), 2);
    for part in ["stored commands", "user 65534", "chown 0", "give the same commands again"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!is_marked() && data.trial_count() == stored, "a stored command ran: {said}");
    give(&data, 0);
    let resumed = run(prove(&data, &["--resume", "last"]));
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success() && is_marked(), "{said}");
    let shown = said.find("touch ").expect("the command is shown");
    assert!(said[..shown].contains("goes on with its stored commands"), "{said}");
}

#[test]
fn commands_given_again_resume_results_of_another_user_and_imported_ones_are_not_resumed() {
    let (one, two) = (format!("one={FIGURES}"), format!("other={FIGURES}"));
    let args = experiment(&one, &two);
    let data = Data::new();
    let running = Running::start(prove(&data, &args));
    assert!(until(LONG, || data.trial_count() >= 7), "{}", running.stderr());
    running.end_by("INT", LONG);
    // A document of a stranger may say that it was interrupted.
    let document = run(data.wirepath(&["report", "last", "--json"])).stdout;
    let (theirs, here) = (data.file("theirs.json"), Data::new());
    std::fs::write(&theirs, document).unwrap();
    run(here.wirepath(&["history", "import", &theirs]));
    let said = fail(prove(&here, &["--resume", "last"]), 2);
    assert!(said.contains("it was imported"), "{said}");
    give(&data, 65_534);
    let resumed = run(prove(&data, &[&args[..], &["--resume", "last"]].concat()));
    assert!(resumed.status.success(), "{resumed:?}");
    assert!(data.trial_count() >= 21);
}
