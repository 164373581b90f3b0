//! `wirepath history`: comparing, exporting, pruning, checking, and what happens to the file when
//! things go wrong around it. On the simulated path: no privileges, but for the two that
//! need a file system of their own.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Data, LONG, Running, all_text, fail, is_installed, json, run, skip, succeed, until};
use serde_json::Value;

const QUICK: [&str; 9] =
    ["prove", "fake", "--arms", "fast,harmful", "--max-blocks", "8", "--trial", "5ms", "--json"];

fn measured(data: &Data, more: &[&str]) -> String {
    json(data.wirepath(&[&QUICK[..], more].concat()))["id"].as_str().unwrap().to_owned()
}

#[test]
fn two_runs_of_the_same_thing_are_compared_as_text_json_and_page() {
    let data = Data::new();
    let (old, new) = (measured(&data, &[]), measured(&data, &[]));
    let doc = json(data.wirepath(&["history", "compare", &old, "last", "--json"]));
    assert_eq!((&doc["comparison"], &doc["old"]["id"]), (&1.into(), &old.clone().into()));
    assert_eq!(doc["new"]["id"], new.as_str());
    assert_eq!(doc["same_machine"], true);
    let arms = doc["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 3, "the control is no arm of a comparison");
    for arm in arms {
        let metric = &arm["metrics"]["rtt_ns_p50"];
        // The same seed of the simulated machine: the very same figures.
        assert_eq!(metric["value"]["verdict"], "no-difference-shown", "{arm}");
        assert_eq!(metric["worth"].is_null(), arm["kind"] == "baseline");
    }
    let text = succeed(data.wirepath(&["history", "compare", &old]));
    for part in ["the same by its description", "no difference shown", "worth", "A/A floor"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let page = data.path().join("compare.html");
    succeed(data.wirepath(&["history", "compare", &old, &new, "--html", page.to_str().unwrap()]));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Before and now") && page.contains("role=\"img\""));
    assert!(!page.contains("<script") && !page.contains("href=\"/"), "a file of its own");
}

#[test]
fn what_cannot_be_compared_ends_with_2_and_says_what_differs() {
    let data = Data::new();
    let (small, large) = (measured(&data, &[]), measured(&data, &["--size", "1400"]));
    let said = fail(data.wirepath(&["history", "compare", &small, &large]), 2);
    assert!(said.contains("frame size in bytes is 64") && said.contains("1400"), "{said}");
    let said = fail(data.wirepath(&["history", "compare", &large]), 2);
    assert!(said.contains("does not differ from itself"), "{said}");
    // Before anything is measured, and so nothing is stored.
    let said = fail(data.wirepath(&[&QUICK[..], &["--baseline", &large]].concat()), 2);
    assert!(said.contains("frame size"), "{said}");
    let rows = json(data.wirepath(&["history", "--json"]));
    assert_eq!(rows["experiments"].as_array().unwrap().len(), 2);
    fail(data.wirepath(&[&QUICK[..], &["--fail-on", "worse"]].concat()), 2);
}

/// Makes the stored experiment another one: multiplies the round trips of an arm.
fn falsify(data: &Data, id: &str, arm: &str, factor: f64, machine: Option<&str>) {
    let file = data.path().join("history.db");
    let mut doc = json(data.wirepath(&["report", id, "--json"]));
    for found in doc["arms"].as_array_mut().unwrap().iter_mut().filter(|a| a["name"] == arm) {
        let metric = &mut found["metrics"]["rtt_ns_p50"];
        let scaled = metric["median"].as_f64().unwrap() * factor;
        metric["median"] = scaled.into();
        for trial in metric["trials"].as_array_mut().unwrap() {
            *trial = (trial.as_f64().unwrap() * factor).into();
        }
    }
    if let Some(machine) = machine {
        doc["machine"]["id"] = machine.into();
    }
    let changed = rusqlite::Connection::open(file)
        .unwrap()
        .execute("UPDATE experiments SET outcome = ?2 WHERE id = ?1", (id, doc.to_string()));
    assert_eq!(changed, Ok(1));
}

#[test]
fn a_run_that_is_worse_than_its_baseline_ends_with_4_and_names_the_arm() {
    let data = Data::new();
    let old = measured(&data, &[]);
    let against = [&QUICK[..], &["--baseline", &old, "--fail-on"]].concat();
    // As it was: no failure, and the comparison is a part of the document.
    let doc = json(data.wirepath(&[&against[..], &["worse"]].concat()));
    assert_eq!(doc["comparison"]["old"]["id"], old.as_str());
    // The earlier run was a third faster in one arm: what runs now is worse.
    falsify(&data, &old, "fast", 0.66, None);
    for on in ["worse", "less-worth"] {
        let output = run(data.wirepath(&[&against[..], &[on]].concat()));
        assert_eq!(output.status.code(), Some(4), "{on}: {}", all_text(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("rtt_ns_p50 of fast") && said.contains(&old), "{said}");
        assert!(!said.contains("of harmful"), "{said}");
        serde_json::from_slice::<Value>(&output.stdout).expect("the result all the same");
    }
    let output = run(data.wirepath(&["history", "compare", &old, "--fail-on", "worse"]));
    assert_eq!(output.status.code(), Some(4));
    // Without being asked to fail it tells, and succeeds.
    let text = succeed(data.wirepath(&["history", "compare", &old]));
    assert!(text.contains("worse"), "{text}");
}

#[test]
fn another_machine_stands_first_and_a_baseline_of_another_needs_a_word() {
    let data = Data::new();
    let (old, _) = (measured(&data, &[]), measured(&data, &[]));
    falsify(&data, &old, "fast", 1.0, Some("elsewhere"));
    let text = succeed(data.wirepath(&["history", "compare", &old]));
    let at = text.find("NOT the same").expect("said");
    assert!(at < text.find("values:").unwrap(), "{text}");
    let against = [&QUICK[..], &["--baseline", &old]].concat();
    let said = fail(data.wirepath(&against), 2);
    assert!(said.contains("another machine") && said.contains("--any-machine"), "{said}");
    let doc = json(data.wirepath(&[&against[..], &["--any-machine"]].concat()));
    assert_eq!(doc["comparison"]["same_machine"], false);
}

#[test]
fn exports_hold_every_trial_in_every_form() {
    let data = Data::new();
    let (old, new) = (measured(&data, &[]), measured(&data, &[]));
    let csv = succeed(data.wirepath(&["history", "export", &old, "last"]));
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("experiment,started,path,load,"));
    let of = |id: &str| csv.lines().filter(|line| line.starts_with(id)).count();
    assert!(of(&old) > 8 * 4 && of(&old) == of(&new), "{} and {}", of(&old), of(&new));
    let doc = json(data.wirepath(&["report", "last", "--json"]));
    let first = doc["arms"][0]["metrics"]["rtt_ns_p50"]["trials"][0].as_f64().unwrap();
    let cell = format!(",baseline,baseline,,rtt_ns_p50,ns,lower,1,{first}");
    assert!(csv.contains(&cell), "{cell}");

    let all = data.path().join("all.json");
    let all_arg = all.to_str().unwrap();
    succeed(data.wirepath(&["history", "export", "--all", "--format", "json", "-o", all_arg]));
    let list: Value = serde_json::from_slice(&fs::read(&all).unwrap()).unwrap();
    assert_eq!(list[0]["id"], old.as_str(), "oldest first");
    assert_eq!(list[1], doc);

    assert!(!all.with_extension("json.part").exists());
    let table = data.path().join("all.parquet");
    let to = table.to_str().unwrap();
    succeed(data.wirepath(&["history", "export", "--all", "--format", "parquet", "-o", to]));
    let bytes = fs::read(&table).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let said = fail(data.wirepath(&["history", "export", "last", "-o", "/nonexistent/x"]), 1);
    assert!(said.contains("/nonexistent/x"), "{said}");
}

#[test]
fn pruning_says_first_what_it_would_do_and_then_does_that() {
    let data = Data::new();
    let ids: Vec<String> = (0..4).map(|_| measured(&data, &[])).collect();
    fail(data.wirepath(&["history", "prune"]), 2);
    let listed = || {
        let rows = json(data.wirepath(&["history", "--json"]));
        rows["experiments"].as_array().unwrap().len()
    };
    let text = succeed(data.wirepath(&["history", "prune", "--keep", "1"]));
    assert!(text.contains("would remove 3") && text.contains("--yes") && text.contains(&ids[0]));
    assert!(!text.contains(&ids[3]), "the newest stays");
    assert_eq!(listed(), 4, "nothing was done");
    let none = succeed(data.wirepath(&["history", "prune", "--older-than", "1d", "--yes"]));
    assert!(none.contains("nothing to remove"));
    let before = fs::metadata(data.path().join("history.db")).unwrap().len();
    let doc = json(data.wirepath(&["history", "prune", "--keep", "1", "--yes", "--json"]));
    assert_eq!(doc["experiments"].as_array().unwrap().len(), 3);
    assert_eq!(listed(), 1);
    assert!(fs::metadata(data.path().join("history.db")).unwrap().len() < before, "room is back");
    assert!(succeed(data.wirepath(&["history", "check"])).contains("whole (1 experiments)"));
}

#[test]
fn a_run_under_way_is_not_pruned() {
    let data = Data::new();
    let long = ["prove", "fake", "--arms", "fast", "--trial", "20ms", "--time", "60s"];
    let running = Running::start(data.wirepath(&long));
    let rows = || {
        let output = run(data.wirepath(&["history", "--json"]));
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        rows["experiments"].as_array().map_or(0, Vec::len)
    };
    assert!(until(LONG, || rows() == 1));
    let said = succeed(data.wirepath(&["history", "prune", "--keep", "0", "--yes"]));
    assert!(said.contains("nothing to remove"), "{said}");
    running.end_by("INT", LONG);
}

#[test]
fn checking_finds_what_was_damaged_and_where() {
    let data = Data::new();
    let ids: Vec<String> = (0..5).map(|_| measured(&data, &[])).collect();
    assert!(succeed(data.wirepath(&["history", "check"])).contains("whole"));
    let raw = rusqlite::Connection::open(data.path().join("history.db")).unwrap();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    let damage = [
        "UPDATE experiments SET outcome = x'00' WHERE id = ?1",
        "UPDATE experiments SET path = 'elsewhere' WHERE id = ?1",
        "DELETE FROM trials WHERE experiment = ?1 AND ordinal = 3",
        "UPDATE segments SET histogram = x'0011' WHERE experiment = ?1 AND ordinal = 5",
        "UPDATE trials SET arm = 'nobody' WHERE experiment = ?1 AND ordinal = 2",
    ];
    for (id, damage) in ids.iter().zip(damage) {
        assert!(raw.execute(damage, [id]).unwrap() > 0, "{damage}");
    }
    drop(raw);
    let output = run(data.wirepath(&["history", "check"]));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    for (id, what) in ids.iter().zip([
        "cannot be read",
        "its path is elsewhere, and fake in its header",
        "trial 3 is missing",
        "trial 5 of experiment",
        "no arm of it",
    ]) {
        let line = said.lines().find(|line| line.starts_with(id.as_str()) && line.contains(what));
        assert!(line.is_some(), "{what} of {id} in {said}");
    }
    assert!(said.contains("belongs to nothing"), "orphaned segments: {said}");
}

#[test]
fn many_writers_and_readers_at_once_lose_nothing() {
    let data = Data::new();
    let writers: Vec<Running> = (0..6)
        .map(|seed| {
            let seed = seed.to_string();
            Running::start(data.wirepath(&[&QUICK[..], &["--seed", &seed]].concat()))
        })
        .collect();
    // One is killed in mid-write; readers come and go meanwhile.
    let killed =
        Running::start(data.wirepath(&["prove", "fake", "--trial", "1ms", "--time", "60s"]));
    for _ in 0..5 {
        let output = run(data.wirepath(&["history", "--json"]));
        assert!(output.status.success(), "{}", all_text(&output));
    }
    killed.signal("KILL");
    for writer in writers {
        let output = writer.finish(2 * LONG).expect("it ends");
        assert!(output.status.success(), "{}", all_text(&output));
        let doc: Value = serde_json::from_slice(&output.stdout).unwrap();
        let stored = json(data.wirepath(&["report", doc["id"].as_str().unwrap(), "--json"]));
        assert_eq!(stored, doc);
    }
    assert!(succeed(data.wirepath(&["history", "check"])).contains("whole"));
}

#[test]
fn a_database_of_version_1_is_brought_up_to_date_with_all_that_is_in_it() {
    let data = Data::new();
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures/history-v1.db");
    fs::copy(fixture, data.path().join("history.db")).unwrap();
    let finished = json(data.wirepath(&["report", "20261122-052930-fake-40ac", "--json"]));
    assert_eq!((&finished["blocks"], &finished["machine"]["cpu"]), (&6.into(), &"a CPU".into()));
    assert_eq!(finished["arms"][2]["metrics"]["rtt_ns_p50"]["verdict"], "better");
    let killed = json(data.wirepath(&["report", "20261122-052930-fake-f63c", "--json"]));
    assert_eq!(killed["ended"], "unfinished");
    assert!(succeed(data.wirepath(&["history", "check"])).contains("whole (2 experiments)"));
    let raw = rusqlite::Connection::open(data.path().join("history.db")).unwrap();
    let version: u32 = raw.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
    // New experiments beside the old ones, and both can be compared.
    succeed(data.wirepath(&[
        "prove",
        "fake",
        "--arms",
        "fast",
        "--max-blocks",
        "6",
        "--trial",
        "5ms",
    ]));
    succeed(data.wirepath(&["history", "compare", "20261122-052930-fake-40ac", "last"]));
}

/// Runs a script of the shell in a mount namespace of its own; `$0` is the program.
fn in_own_mounts(data: &Data, script: &str) -> Option<std::process::Output> {
    if !is_installed("unshare") {
        return None;
    }
    let able = Command::new("unshare").args(["-m", "true"]).output().ok()?;
    if !able.status.success() {
        skip("a mount namespace needs root");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &format!("set -e; mount --make-rprivate /; {script}")])
        .arg(env!("CARGO_BIN_EXE_wirepath"))
        .env("D", data.path())
        .env_remove("WIREPATH_DATA");
    Some(run(command))
}

#[test]
fn a_full_disk_is_said_and_what_was_saved_before_is_whole() {
    let data = Data::new();
    let script = "mount -t tmpfs -o size=600k none $D; \
        code=0; \"$0\" --data-dir $D prove fake --trial 1ms --min-blocks 190 --time 60s >/dev/null || code=$?; \
        echo \"code $code\"; df $D | tail -1 >&2; \
        \"$0\" --data-dir $D history check; \"$0\" --data-dir $D history show last | tail -1; \
        code=0; \"$0\" --data-dir $D history export last -o $D/e.csv || code=$?; echo \"export $code\"; ls $D";
    let Some(output) = in_own_mounts(&data, script) else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("code 1") && err.contains("no room left"), "{out}{err}");
    assert!(out.contains("whole (1 experiments)"), "{out}{err}");
    assert!(out.contains("rtt_ns"), "the trials are there: {out}");
    assert!(out.contains("export 1") && !out.contains("e.csv"), "no half export: {out}{err}");
}

#[test]
fn a_read_only_directory_is_said_to_writers_and_serves_readers() {
    let data = Data::new();
    let old = measured(&data, &[]);
    measured(&data, &[]);
    let script = format!(
        "mount --bind $D $D; mount -o remount,ro,bind $D; \
         code=0; \"$0\" --data-dir $D prove fake --trial 1ms --max-blocks 6 >/dev/null || code=$?; \
         echo \"code $code\"; \"$0\" --data-dir $D history; \"$0\" --data-dir $D history check; \
         \"$0\" --data-dir $D history compare {old} last; \
         code=0; \"$0\" --data-dir $D history prune --keep 1 --yes || code=$?; echo \"prune $code\""
    );
    let Some(output) = in_own_mounts(&data, &script) else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("code 1") && out.contains("prune 1"), "{out}{err}");
    assert!(err.contains("cannot write results to"), "{err}");
    assert!(out.contains(&old) && out.contains("whole (2 experiments)"), "{out}{err}");
    // And nothing of it was changed.
    assert!(succeed(data.wirepath(&["history", "check"])).contains("whole (2 experiments)"));
}
