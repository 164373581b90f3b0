//! `wirepath history`: compare, export, prune, check, and damage to the database. On the simulated
//! path, without privileges except for the tests that mount a file system.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Data, LONG, Running, all_text, fail, is_installed, json, run, succeed, until};
use crate::{QUICK, QUICK_JSON};
use serde_json::Value;

fn measured(data: &Data, more: &[&str]) -> String {
    json(data.wirepath(&[&QUICK_JSON[..], more].concat()))["id"].as_str().unwrap().to_owned()
}

/// Ids of a series of `runs`, separated by commas.
fn series(data: &Data, runs: u32, more: &[&str]) -> String {
    let runs = runs.to_string();
    let doc = json(data.wirepath(&[&QUICK_JSON[..], &["--runs", &runs], more].concat()));
    let runs = doc["runs"].as_array().expect("the runs of the series");
    runs.iter().map(|run| run["id"].as_str().unwrap()).collect::<Vec<_>>().join(",")
}

#[test]
fn two_equal_series_are_compared_as_text_json_and_page() {
    let data = Data::new();
    let (old, new) = (series(&data, 5, &[]), series(&data, 5, &[]));
    let doc = json(data.wirepath(&["history", "compare", &old, &new, "--unit", "run", "--json"]));
    assert_eq!((&doc["comparison"], &doc["unit"]), (&3.into(), &"run".into()));
    for (side, ids) in [("old_runs", &old), ("new_runs", &new)] {
        let runs = doc[side].as_array().unwrap();
        let found: Vec<&str> = runs.iter().map(|run| run["id"].as_str().unwrap()).collect();
        assert_eq!(found.join(","), *ids);
    }
    assert_eq!(doc["same_machine"], true);
    let arms = doc["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 3, "a comparison leaves the control out");
    for arm in arms {
        let metric = &arm["metrics"]["rtt_ns_p50"];
        // The simulated machine has the same seed, so the figures are nearly equal.
        assert_eq!(metric["value"]["verdict"], "no-difference-shown", "{arm}");
        assert_eq!(metric["value"]["old_count"], 5);
        assert_eq!(metric["worth"].is_null(), arm["kind"] == "baseline");
    }
    let text = succeed(data.wirepath(&["history", "compare", &old, &new, "--unit", "run"]));
    for part in
        ["the same by its description", "no difference shown", "worth", "5 runs", "a day shifts"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let page = data.path().join("compare.html");
    succeed(data.wirepath(&["history", "compare", &old, &new, "--html", page.to_str().unwrap()]));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Before and now") && page.contains("role=\"img\""));
    assert!(!page.contains("<script") && !page.contains("href=\"/"), "a file of its own");
    // All ten by their common prefix; the same run on both sides is refused.
    let prefix = format!("{}*", &old[..2]);
    let said = fail(data.wirepath(&["history", "compare", &prefix, &prefix]), 2);
    assert!(said.contains("with itself"), "{said}");
    let said = fail(data.wirepath(&["history", "compare", "19990101*", &prefix]), 2);
    assert!(said.contains("no experiment id begins with `19990101*`"), "{said}");
}

#[test]
fn a_series_is_summed_up_and_names_its_ids() {
    let data = Data::new();
    let args = ["prove", "fake", "--arms", "fast", "--max-blocks", "8", "--trial", "5ms"];
    let output = run(data.wirepath(&[&args[..], &["--runs", "3", "--seed", "7"]].concat()));
    assert!(output.status.success(), "{}", all_text(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ratio over 3 runs") && text.contains("3 better"), "{text}");
    let said = String::from_utf8(output.stderr).unwrap();
    let rows = json(data.wirepath(&["history", "--json"]));
    let rows = rows["experiments"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(said.contains(row["id"].as_str().unwrap()), "{said}");
    }
    let seeds = rows.iter().map(|row| {
        json(data.wirepath(&["report", row["id"].as_str().unwrap(), "--json"]))["seed"].as_u64()
    });
    assert_eq!(seeds.collect::<Vec<_>>(), [Some(9), Some(8), Some(7)], "newest first");
}

#[test]
fn the_document_of_a_series_holds_every_run() {
    let data = Data::new();
    let args = [&QUICK_JSON[..], &["--runs", "2"]].concat();
    let doc = json(data.wirepath(&args));
    let runs = doc["runs"].as_array().unwrap();
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(1), Some(2)], "oldest first");
    for run in runs {
        let stored = json(data.wirepath(&["report", run["id"].as_str().unwrap(), "--json"]));
        assert_eq!(stored["arms"], run["arms"]);
    }
    // A user's own programs, each run in the same way.
    let own = ["prove", "command", "--arm", "a=echo x 1", "--arm", "b=echo x 2", "--json"];
    let more = ["--metric", "x_us=re:x ([0-9])", "--max-blocks", "6", "--runs", "2"];
    let doc = json(data.wirepath(&[&own[..], &more].concat()));
    let runs = doc["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let ratio = run["arms"][2]["metrics"]["x_us"]["ratio"].as_f64().unwrap();
        assert!((ratio - 2.0).abs() < 1e-9, "{run:#}");
    }
    let schema = json(data.wirepath(&["schema", "prove", "command", "runs"]));
    assert_eq!(schema["properties"]["runs"]["type"], "array", "{schema:#}");
}

#[test]
fn incomparable_runs_exit_with_2_and_name_the_difference() {
    let data = Data::new();
    let (small, large) = (measured(&data, &[]), measured(&data, &["--size", "1400"]));
    let said = fail(data.wirepath(&["history", "compare", &small, &large]), 2);
    assert!(said.contains("frame size in bytes is 64") && said.contains("1400"), "{said}");
    let said = fail(data.wirepath(&["history", "compare", &large]), 2);
    assert!(said.contains("with itself"), "{said}");
    // Refused before anything is measured, so nothing is stored.
    let said = fail(data.wirepath(&[&QUICK_JSON[..], &["--baseline", &large]].concat()), 2);
    assert!(said.contains("frame size"), "{said}");
    let rows = json(data.wirepath(&["history", "--json"]));
    assert_eq!(rows["experiments"].as_array().unwrap().len(), 2);
    fail(data.wirepath(&[&QUICK_JSON[..], &["--fail-on", "worse"]].concat()), 2);
}

/// Changes stored experiments: multiplies what an arm took, in itself and against its baseline.
fn falsify(data: &Data, ids: &str, arm: &str, factor: f64, machine: Option<&str>) {
    let file = data.path().join("history.db");
    for id in ids.split(',') {
        let mut doc = json(data.wirepath(&["report", id, "--json"]));
        for found in doc["arms"].as_array_mut().unwrap().iter_mut().filter(|a| a["name"] == arm) {
            let metric = &mut found["metrics"]["rtt_ns_p50"];
            for field in ["median", "ratio"] {
                if let Some(value) = metric[field].as_f64() {
                    metric[field] = (value * factor).into();
                }
            }
        }
        if let Some(machine) = machine {
            doc["machine"]["id"] = machine.into();
        }
        let changed = rusqlite::Connection::open(&file)
            .unwrap()
            .execute("UPDATE experiments SET outcome = ?2 WHERE id = ?1", (id, doc.to_string()));
        assert_eq!(changed, Ok(1));
    }
}

#[test]
fn runs_worse_than_their_baseline_exit_with_4_and_name_the_arm() {
    let data = Data::new();
    let old = series(&data, 5, &[]);
    let series = ["--runs", "5", "--baseline", &old, "--unit", "run", "--fail-on"];
    let against = [&QUICK_JSON[..], &series].concat();
    // Unchanged: no failure, and the document contains the comparison.
    let doc = json(data.wirepath(&[&against[..], &["worse"]].concat()));
    assert_eq!(doc["comparison"]["new_runs"].as_array().unwrap().len(), 5);
    // The earlier runs were a third faster in one arm, so the new ones are worse.
    falsify(&data, &old, "fast", 0.66, None);
    for on in ["worse", "less-worth"] {
        let output = run(data.wirepath(&[&against[..], &[on]].concat()));
        assert_eq!(output.status.code(), Some(4), "{on}: {}", all_text(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("worse: rtt p50: fast is"), "{said}");
        assert!(!said.contains("harmful"), "{said}");
        let doc = serde_json::from_slice::<Value>(&output.stdout).expect("the result all the same");
        assert_eq!(doc["comparison"]["gate"]["answer"], "worse");
    }
    // If the baseline was faster as well, the machine may be what changed.
    for arm in ["baseline", "harmful"] {
        falsify(&data, &old, arm, 0.66, None);
    }
    let said = run(data.wirepath(&[&against[..], &["worse"]].concat()));
    assert_eq!(said.status.code(), Some(5), "{}", all_text(&said));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("the baseline itself changed") && said.contains("--against"), "{said}");
    // A slower machine does not change the worth of an arm.
    let output = run(data.wirepath(&[&against[..], &["less-worth"]].concat()));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
}

#[test]
fn a_change_below_the_threshold_is_reported_and_does_not_fail() {
    let data = Data::new();
    let (old, new) = (series(&data, 5, &[]), series(&data, 5, &[]));
    falsify(&data, &old, "fast", 0.97, None);
    let compare = ["history", "compare", &old, &new, "--unit", "run", "--fail-on", "worse"];
    let text = succeed(data.wirepath(&compare));
    assert!(text.contains("1.03×") && text.contains("worse"), "{text}");
    let output = run(data.wirepath(&[&compare[..], &["--resolve", "2%"]].concat()));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
}

#[test]
fn a_threshold_on_too_few_runs_is_refused() {
    let data = Data::new();
    let old = series(&data, 4, &[]);
    let rows = || json(data.wirepath(&["history", "--json"]))["experiments"].clone();
    let before = rows();
    let against = ["--runs", "5", "--baseline", &old, "--fail-on", "worse"];
    let said = fail(data.wirepath(&[&QUICK_JSON[..], &against].concat()), 2);
    assert!(said.contains("at least 5 sessions a side") && said.contains("1 earlier"), "{said}");
    assert!(said.contains("--every 2h") && said.contains("--against"), "{said}");
    let by_run = [&QUICK_JSON[..], &against, &["--unit", "run"]].concat();
    let said = fail(data.wirepath(&by_run), 2);
    assert!(said.contains("at least 5 runs a side") && said.contains("4 earlier"), "{said}");
    assert_eq!(rows(), before, "refused before anything is measured");
    let new = measured(&data, &[]);
    let output = run(data.wirepath(&["history", "compare", &old, &new, "--fail-on", "worse"]));
    assert_eq!(output.status.code(), Some(5), "{}", all_text(&output));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("rtt p50: not decided: baseline against earlier"), "{said}");
    assert!(said.contains("the day cannot be told from the change"), "{said}");
    assert!(said.contains("4 sessions more before and 4 sessions more now"), "{said}");
    let accepted = ["--fail-on", "worse", "--accept-undecided"];
    let compare = [&["history", "compare", &old, &new][..], &accepted].concat();
    let output = run(data.wirepath(&compare));
    assert_eq!(output.status.code(), Some(0), "{}", all_text(&output));
    assert!(all_text(&output).contains("accepted with --accept-undecided: rtt p50: not decided"));
    // Without a threshold there are ratios, and no verdict.
    let doc = json(data.wirepath(&["history", "compare", &old, &new, "--json"]));
    let value = &doc["arms"][1]["metrics"]["rtt_ns_p50"]["value"];
    assert_eq!((&value["verdict"], &value["p"]), (&"inconclusive".into(), &Value::Null));
    let warned = doc["warnings"][0]["what"].as_str().unwrap();
    assert!(warned.contains("1 older and 1 newer sessions; 5 a side are needed"), "{warned}");
}

#[test]
fn a_change_is_told_from_days_by_runs_of_several_sessions() {
    let data = Data::new();
    let doc = json(data.wirepath(&[&QUICK_JSON[..], &["--runs", "5"]].concat()));
    let side = |name: &str, day: u32, apart: u32, factor: f64| {
        let mut runs = doc["runs"].as_array().expect("the runs of the series").clone();
        for (at, run) in runs.iter_mut().enumerate() {
            run["id"] = format!("{name}{at}").into();
            run["started"] =
                format!("2026-11-{:02}T08:{at:02}:00Z", day + apart * at as u32).into();
            let fast = run["arms"].as_array_mut().unwrap().iter_mut().find(|a| a["name"] == "fast");
            let median = &mut fast.expect("the arm")["metrics"]["rtt_ns_p50"]["median"];
            *median = (median.as_f64().unwrap() * factor).into();
        }
        let file = data.file(&format!("{name}.json"));
        fs::write(&file, Value::from(runs).to_string()).unwrap();
        file
    };
    let (old, new) = (side("old", 1, 1, 1.0), side("new", 11, 1, 1.3));
    let compare = ["history", "compare", &old, &new, "--fail-on", "worse"];
    let output = run(data.wirepath(&compare));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    // The same figures within one hour.
    let new = side("near", 11, 0, 1.3);
    let compare = ["history", "compare", &old, &new, "--fail-on", "worse"];
    let output = run(data.wirepath(&compare));
    assert_eq!(output.status.code(), Some(5), "{}", all_text(&output));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("from the change; 4 sessions more now can decide it"), "{said}");
}

#[test]
fn latest_change_of_a_history_is_found_and_fails_if_it_is_one_for_the_worse() {
    let data = Data::new();
    let one = json(data.wirepath(&[&QUICK_JSON[..], &["--no-history"]].concat()));
    let run_of_day = |day: u32| {
        let mut run = one.clone();
        run["id"] = format!("202611{day:02}-080000-fake-0001").into();
        run["started"] = format!("2026-11-{day:02}T08:00:00Z").into();
        for arm in run["arms"].as_array_mut().unwrap() {
            // Up to 1.5 % of noise, and a step in one arm.
            let step = if arm["name"] == "fast" && day > 15 { 1.2 } else { 1.0 };
            let factor = step * (1.0 + f64::from(day * 7 % 4) * 0.005);
            if let Some(median) = arm["metrics"]["rtt_ns_p50"]["median"].as_f64() {
                arm["metrics"]["rtt_ns_p50"]["median"] = (median * factor).into();
            }
        }
        run
    };
    let file = data.file("days.json");
    fs::write(&file, Value::from((1..=24).map(run_of_day).collect::<Vec<_>>()).to_string())
        .unwrap();
    succeed(data.wirepath(&["history", "import", &file]));
    let page = data.file("watch.html");
    let output = run(data.wirepath(&["history", "watch", "--fail-on", "worse", "--html", &page]));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    assert!(
        all_text(&output).contains("worse: rtt p50: fast is 20 % slower than earlier"),
        "{}",
        all_text(&output)
    );
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("20261116-080000-fake-0001") && !page.contains("<script"), "{page}");
    let text = succeed(data.wirepath(&["history", "watch", "--path", "fake"]));
    assert!(text.contains("1 with a change") && text.contains("2026-11-16"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    testkit::note(&text);
    let doc = json(data.wirepath(&["history", "watch", "--json"]));
    assert_eq!((&doc["watch"], &doc["series"][0]["changes"][0]["at"]), (&1.into(), &15.into()));
    let more = ["--unit", "day", "--resolve", "30%", "--fail-on", "worse"];
    succeed(data.wirepath(&[&["history", "watch"][..], &more].concat()));
    let few = ["history", "watch", "2026111*", "--fail-on", "worse"];
    let output = run(data.wirepath(&few[..]));
    assert_eq!(output.status.code(), Some(0), "{}", all_text(&output));
    let few = ["history", "watch", "2026112*", "--fail-on", "worse"];
    let output = run(data.wirepath(&few[..]));
    assert_eq!(output.status.code(), Some(5), "{}", all_text(&output));
    assert!(all_text(&output).contains("5 sessions of 10"), "{}", all_text(&output));
    fail(data.wirepath(&["history", "watch", "--path", "none"]), 2);
}

#[test]
fn another_machine_is_reported_first_and_needs_any_machine_as_a_baseline() {
    let data = Data::new();
    let (old, _) = (measured(&data, &[]), measured(&data, &[]));
    falsify(&data, &old, "fast", 1.0, Some("elsewhere"));
    let text = succeed(data.wirepath(&["history", "compare", &old]));
    let at = text.find("NOT the same").expect("said");
    assert!(at < text.find("values:").unwrap(), "{text}");
    let against = [&QUICK_JSON[..], &["--baseline", &old]].concat();
    let said = fail(data.wirepath(&against), 2);
    assert!(said.contains("another machine") && said.contains("--any-machine"), "{said}");
    let doc = json(data.wirepath(&[&against[..], &["--any-machine"]].concat()));
    assert_eq!(doc["comparison"]["same_machine"], false);
}

#[test]
fn exports_contain_every_trial_in_every_format() {
    let data = Data::new();
    let (old, new) = (measured(&data, &[]), measured(&data, &[]));
    let csv = succeed(data.wirepath(&["history", "export", &old, "last"]));
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("experiment,started,path,load,"));
    let line_count = |id: &str| csv.lines().filter(|line| line.starts_with(id)).count();
    assert!(
        line_count(&old) > 8 * 4 && line_count(&old) == line_count(&new),
        "{} and {}",
        line_count(&old),
        line_count(&new)
    );
    let doc = json(data.wirepath(&["report", "last", "--json"]));
    let first = doc["arms"][0]["metrics"]["rtt_ns_p50"]["trials"][0].as_f64().unwrap();
    let cell = format!(",baseline,baseline,,rtt_ns_p50,ns,lower,1,{first}");
    assert!(csv.contains(&cell), "{cell}");

    let all = data.path().join("all.json");
    let all_arg = all.to_str().unwrap();
    succeed(data.wirepath(&["history", "export", "--all", "--format", "json", "--out", all_arg]));
    let list: Value = serde_json::from_slice(&fs::read(&all).unwrap()).unwrap();
    assert_eq!(list[0]["id"], old.as_str(), "oldest first");
    assert_eq!(list[1], doc);

    assert!(!all.with_extension("json.part").exists());
    let said = fail(data.wirepath(&["history", "export", "last", "--out", "/nonexistent/x"]), 1);
    assert!(said.contains("/nonexistent/x"), "{said}");
}

#[test]
fn prune_lists_experiments_first_and_removes_them_with_yes() {
    let data = Data::new();
    let ids: Vec<String> = (0..4).map(|_| measured(&data, &[])).collect();
    fail(data.wirepath(&["history", "prune"]), 2);
    let listed = || {
        let rows = json(data.wirepath(&["history", "--json"]));
        rows["experiments"].as_array().unwrap().len()
    };
    let text = succeed(data.wirepath(&["history", "prune", "--keep-last", "1"]));
    assert!(text.contains("would remove 3") && text.contains("--yes") && text.contains(&ids[0]));
    assert!(!text.contains(&ids[3]), "the newest stays");
    assert_eq!(listed(), 4, "nothing was done");
    let none = succeed(data.wirepath(&["history", "prune", "--older-than", "1d", "--yes"]));
    assert!(none.contains("nothing to remove"));
    let before = fs::metadata(data.path().join("history.db")).unwrap().len();
    let doc = json(data.wirepath(&["history", "prune", "--keep-last", "1", "--yes", "--json"]));
    assert_eq!(doc["experiments"].as_array().unwrap().len(), 3);
    assert_eq!(listed(), 1);
    assert!(fs::metadata(data.path().join("history.db")).unwrap().len() < before, "room is back");
    assert!(succeed(data.wirepath(&["history", "check"])).contains("intact (1 experiment)"));
}

#[test]
fn a_running_experiment_is_not_pruned() {
    let data = Data::new();
    let long = ["prove", "fake", "--arms", "fast", "--trial", "20ms", "--time", "60s"];
    let running = Running::start(data.wirepath(&long));
    let rows = || {
        let output = run(data.wirepath(&["history", "--json"]));
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        rows["experiments"].as_array().map_or(0, Vec::len)
    };
    assert!(until(LONG, || rows() == 1));
    let said = succeed(data.wirepath(&["history", "prune", "--keep-last", "0", "--yes"]));
    assert!(said.contains("nothing to remove"), "{said}");
    running.end_by("INT", LONG);
}

#[test]
fn check_finds_damage_and_its_place() {
    let data = Data::new();
    let ids: Vec<String> = (0..5).map(|_| measured(&data, &[])).collect();
    assert!(succeed(data.wirepath(&["history", "check"])).contains("intact"));
    let raw = rusqlite::Connection::open(data.path().join("history.db")).unwrap();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    let damage = [
        "UPDATE experiments SET outcome = x'00' WHERE id = ?1",
        "UPDATE experiments SET path = 'elsewhere' WHERE id = ?1",
        "DELETE FROM trials WHERE experiment = ?1 AND ordinal = 3",
        "UPDATE segments SET histogram = x'0011' WHERE experiment = ?1 AND ordinal = 5",
        "UPDATE trials SET arm = 'unknown' WHERE experiment = ?1 AND ordinal = 2",
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
        "which is not an arm of its experiment",
    ]) {
        let line = said.lines().find(|line| line.starts_with(id.as_str()) && line.contains(what));
        assert!(line.is_some(), "{what} of {id} in {said}");
    }
    assert!(said.contains("refers to a missing row"), "orphaned segments: {said}");
}

#[test]
fn concurrent_writers_and_readers_lose_nothing() {
    let data = Data::new();
    let writers: Vec<Running> =
        (0..6).map(|_| Running::start(data.wirepath(&QUICK_JSON))).collect();
    // One is killed during a write while readers come and go.
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
    assert!(succeed(data.wirepath(&["history", "check"])).contains("intact"));
}

#[test]
fn a_database_of_version_1_is_migrated_completely() {
    let data = Data::new();
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures/history-v1.db");
    fs::copy(fixture, data.path().join("history.db")).unwrap();
    let finished = json(data.wirepath(&["report", "20261122-052930-fake-40ac", "--json"]));
    assert_eq!((&finished["blocks"], &finished["machine"]["cpu"]), (&6.into(), &"a CPU".into()));
    assert_eq!(finished["arms"][2]["metrics"]["rtt_ns_p50"]["verdict"], "better");
    let killed = json(data.wirepath(&["report", "20261122-052930-fake-f63c", "--json"]));
    assert_eq!(killed["ended"], "unfinished");
    assert!(succeed(data.wirepath(&["history", "check"])).contains("intact (2 experiments)"));
    let raw = rusqlite::Connection::open(data.path().join("history.db")).unwrap();
    let version: u32 = raw.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
    // New experiments are stored beside the old ones and can be compared with them.
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

/// Runs a shell script in its own mount namespace; `$0` is the program.
fn in_own_mounts(data: &Data, script: &str) -> Option<std::process::Output> {
    if !is_installed("unshare") {
        return None;
    }
    let able = Command::new("unshare").args(["-m", "true"]).output().ok()?;
    if !able.status.success() {
        testkit::skip("root", "a mount namespace needs root");
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
fn a_full_disk_is_reported_and_earlier_trials_are_intact() {
    let data = Data::new();
    let script = "mount -t tmpfs -o size=600k none $D; \
        code=0; \"$0\" --data-dir $D prove fake --trial 1ms --min-blocks 190 --time 60s >/dev/null || code=$?; \
        echo \"code $code\"; df $D | tail -1 >&2; \
        \"$0\" --data-dir $D history check; \"$0\" --data-dir $D history show last | tail -1; \
        code=0; \"$0\" --data-dir $D history export last --out $D/e.csv || code=$?; echo \"export $code\"; ls $D";
    let Some(output) = in_own_mounts(&data, script) else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("code 1") && err.contains("no space left"), "{out}{err}");
    assert!(out.contains("intact (1 experiment)"), "{out}{err}");
    assert!(out.contains("rtt_ns"), "the trials are there: {out}");
    assert!(out.contains("export 1") && !out.contains("e.csv"), "no half export: {out}{err}");
}

#[test]
fn a_read_only_directory_refuses_writers_and_serves_readers() {
    let data = Data::new();
    let old = measured(&data, &[]);
    measured(&data, &[]);
    let script = format!(
        "mount --bind $D $D; mount -o remount,ro,bind $D; \
         code=0; \"$0\" --data-dir $D prove fake --trial 1ms --max-blocks 6 >/dev/null || code=$?; \
         echo \"code $code\"; \"$0\" --data-dir $D history; \"$0\" --data-dir $D history check; \
         \"$0\" --data-dir $D history compare {old} last; \
         code=0; \"$0\" --data-dir $D history prune --keep-last 1 --yes || code=$?; echo \"prune $code\""
    );
    let Some(output) = in_own_mounts(&data, &script) else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("code 1") && out.contains("prune 1"), "{out}{err}");
    assert!(err.contains("cannot write results to"), "{err}");
    assert!(out.contains(&old) && out.contains("intact (2 experiments)"), "{out}{err}");
    // The database is unchanged.
    assert!(succeed(data.wirepath(&["history", "check"])).contains("intact (2 experiments)"));
}

#[test]
fn history_of_a_full_disk_is_read_and_a_run_there_says_that_it_is_full() {
    let data = Data::new();
    measured(&data, &[]);
    fs::copy(data.path().join("history.db"), data.path().join("clean.db")).unwrap();
    // A run that was killed leaves trials in the log alone.
    let mut command = data.wirepath(&["prove", "fake", "--trial", "1ms", "--time", "60s"]);
    command.args(["--min-blocks", "1000"]);
    let running = Running::start(command);
    let before = data.trial_count();
    assert!(until(LONG, || data.trial_count() >= before + 20), "{}", running.stderr());
    running.end_by("KILL", LONG);
    let log = fs::metadata(data.path().join("history.db-wal")).expect("a log").len();
    assert!(log > 0);
    let script = "mkdir $D/full $D/log; \
        mount -t tmpfs -o size=2m none $D/log; cp $D/history.db $D/history.db-wal $D/log/; \
        mount -t tmpfs -o size=2m none $D/full; cp $D/clean.db $D/full/history.db; \
        for at in full log; do dd if=/dev/zero of=$D/$at/fill bs=1k 2>/dev/null || true; \
        \"$0\" --data-dir $D/$at history list; \"$0\" --data-dir $D/$at history show last --json >$D/$at.json; \
        \"$0\" --data-dir $D/$at report last --csv $D/$at.csv; \
        code=0; \"$0\" --data-dir $D/$at prove fake --trial 1ms --max-blocks 6 >/dev/null || code=$?; \
        echo \"code $code\"; done";
    let Some(output) = in_own_mounts(&data, script) else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out.matches("code 1").count(), 2, "{out}{err}");
    assert_eq!(err.matches("no space left on the disk").count(), 2, "{out}{err}");
    assert!(!err.contains("Error code"), "{err}");
    let shown = fs::read_to_string(data.path().join("log.json")).unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["ended"], "unfinished", "the killed run is read from the log");
    // Only now: reading folds the log of a run that was killed into the file.
    let stored = data.trial_count();
    let arms = shown["arms"].as_array().unwrap();
    let trials: u64 = arms.iter().map(|arm| arm["trials"].as_u64().unwrap()).sum();
    assert!(trials > 0 && trials <= stored, "{trials} of {stored}");
    assert!(fs::metadata(data.path().join("full.csv")).unwrap().len() > 100);
}

#[test]
fn output_on_a_full_disk_leaves_the_earlier_file_whole() {
    let data = Data::new();
    measured(&data, &[]);
    let script = "mkdir $D/small; mount -t tmpfs -o size=2m none $D/small; cd $D/small; \
        for file in page.html table.csv all.csv doctor.html; do echo earlier >$file; done; \
        chmod 640 page.html; dd if=/dev/zero of=fill bs=4k 2>/dev/null || true; \
        try() { code=0; \"$@\" >/dev/null || code=$?; echo \"code $code\"; }; \
        try \"$0\" --data-dir $D report last --html page.html; \
        try \"$0\" --data-dir $D report last --csv table.csv; \
        try \"$0\" --data-dir $D history export --all --out all.csv; \
        try \"$0\" doctor --html doctor.html; \
        cat page.html table.csv all.csv doctor.html; rm fill; \
        \"$0\" --data-dir $D report last --html page.html 2>/dev/null; stat -c 'mode %a' page.html; ls -A";
    let Some(output) = in_own_mounts(&data, script) else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out.matches("code 1\n").count(), 4, "{out}{err}");
    assert_eq!(out.matches("earlier\n").count(), 4, "{out}{err}");
    assert!(err.contains("cannot write page.html: no space left on its disk"), "{err}");
    assert!(out.ends_with("mode 640\nall.csv\ndoctor.html\npage.html\ntable.csv\n"), "{out}{err}");
}

#[test]
fn a_name_and_a_note_stay_with_the_result_and_find_it() {
    let data = Data::new();
    let titled = ["--name", "engines of the new host", "--note", "after the update"];
    let text = succeed(data.wirepath(&[QUICK, &titled].concat()));
    assert!(text.starts_with("engines of the new host\nafter the update\n"), "{text}");
    succeed(data.wirepath(QUICK));
    let list = succeed(data.wirepath(&["history", "list", "--name", "New Host"]));
    assert!(
        list.contains("engines of the new host") && list.contains("after the update"),
        "{list}"
    );
    let named = json(data.wirepath(&["history", "list", "--name", "New Host", "--json"]));
    let rows = named["experiments"].as_array().expect("a list");
    assert_eq!((rows.len(), &rows[0]["title"]), (1, &"engines of the new host".into()));
    let outcome = json(data.wirepath(&["report", rows[0]["id"].as_str().unwrap(), "--json"]));
    assert_eq!((&outcome["name"], &outcome["note"]), (&titled[1].into(), &titled[3].into()));
    let none = succeed(data.wirepath(&["history", "list", "--name", "100%"]));
    assert!(none.contains("no experiment matches"), "{none}");
    for bad in ["", "two\nlines", &"x".repeat(201)] {
        let said = fail(data.wirepath(&[QUICK, &["--name", bad]].concat()), 2);
        assert!(said.contains("--name: give one line of 1 to 200 characters"), "{said}");
    }
}

#[test]
fn a_result_fits_one_screen_and_v_prints_all_figures() {
    let data = Data::new();
    let brief = succeed(data.wirepath(QUICK));
    assert!(brief.lines().count() <= 40 && !brief.contains("A/A floor"), "{brief}");
    let full = succeed(data.wirepath(&["report", "last", "-v"]));
    assert!(full.contains("A/A floor") && full.contains("\nmachine  "), "{full}");
    let sentence = brief.lines().nth(1).expect("a sentence");
    assert!(full.contains(sentence) && sentence.contains("% faster"), "{brief}");
}
