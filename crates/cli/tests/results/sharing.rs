//! Results that leave the database: import, documents as baselines, forms for CI systems. On the
//! simulated path, without privileges.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use crate::QUICK;
use crate::common::{
    Data, LONG, all_text, echo, fail, is_installed, json, run, run_within, succeed,
};
use serde_json::Value;

fn export(data: &Data, ids: &[&str]) -> String {
    succeed(data.wirepath(&[&["history", "export", "--format", "json"], ids].concat()))
}

#[test]
fn export_import_export_gives_the_same_bytes_and_nothing_is_imported_by_halves() {
    let (here, there) = (Data::new(), Data::new());
    succeed(here.wirepath(&[QUICK, &["--runs", "2"]].concat()));
    let exported = export(&here, &["--all"]);
    let file = here.file("history.json");
    fs::write(&file, &exported).unwrap();
    let said = succeed(there.wirepath(&["history", "import", &file]));
    assert!(said.contains("imported 2 experiments"), "{said}");
    assert_eq!(export(&there, &["--all"]), exported);
    let again = json(there.wirepath(&["history", "import", &file, "--json"]));
    assert_eq!((&again["imported"], &again["known_count"]), (&Value::Array(vec![]), &2.into()));
    assert_eq!(export(&there, &["--all"]), exported);
    assert!(succeed(there.wirepath(&["history", "check"])).contains("intact"));
    assert!(succeed(there.wirepath(&["history"])).contains("imported"));
    let said = fail(there.wirepath(&["report", "--format", "hlog"]), 1);
    assert!(said.contains("no histograms"), "{said}");

    // The first document is fine and new, the second is not.
    let mut list: Value = serde_json::from_str(&exported).unwrap();
    let broken = |change: &dyn Fn(&mut Value)| {
        let data = Data::new();
        let mut list = list.clone();
        change(&mut list[1]);
        let file = data.file("broken.json");
        fs::write(&file, list.to_string()).unwrap();
        let said = fail(data.wirepath(&["history", "import", &file]), 2);
        assert_eq!(
            json(data.wirepath(&["history", "--json"]))["experiments"],
            Value::Array(vec![])
        );
        said
    };
    let said = broken(&|one| one["schema"] = 99.into());
    assert!(
        said.contains("document 2") && said.contains("99") && said.contains("1 to 2"),
        "{said}"
    );
    let said = broken(&|one| one["arms"] = 7.into());
    assert!(said.contains("document 2") && said.contains("docs/results.md"), "{said}");
    // The same id with other content; the id of the first is new.
    list[0]["id"] = "20200101-000000-fake-aaaa".into();
    list[1]["blocks"] = 7.into();
    let file = there.file("changed.json");
    fs::write(&file, list.to_string()).unwrap();
    let said = fail(there.wirepath(&["history", "import", &file]), 1);
    assert!(said.contains("another content"), "{said}");
    assert_eq!(export(&there, &["--all"]), exported);
    list[1]["id"] = "last".into();
    fs::write(&file, list.to_string()).unwrap();
    assert!(fail(there.wirepath(&["history", "import", &file]), 1).contains("`last`"));
}

#[test]
fn documents_of_every_schema_are_exported_again_with_the_same_bytes() {
    let (old, new) = (Data::new(), Data::new());
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures/history-v1.db");
    fs::copy(fixture, old.path().join("history.db")).unwrap();
    let exported = export(&old, &["--all"]);
    let list: Value = serde_json::from_str(&exported).unwrap();
    let schemas: Vec<_> =
        list.as_array().unwrap().iter().map(|one| one["schema"].as_u64()).collect();
    assert_eq!(schemas, (1..=model::SCHEMA).map(|schema| Some(schema.into())).collect::<Vec<_>>());
    fs::write(old.file("all.json"), &exported).unwrap();
    succeed(new.wirepath(&["history", "import", &old.file("all.json")]));
    assert_eq!(export(&new, &["--all"]), exported);
}

#[test]
fn a_document_in_a_file_is_a_baseline_like_stored_runs() {
    let data = Data::new();
    let runs = succeed(data.wirepath(&[QUICK, &["--runs", "5", "--json"]].concat()));
    let file = data.file("main.json");
    fs::write(&file, &runs).unwrap();
    let elsewhere = Data::new();
    let more =
        ["--runs", "5", "--baseline", &file, "--unit", "run", "--fail-on", "worse", "--json"];
    let doc = json(elsewhere.wirepath(&[QUICK, &more].concat()));
    assert_eq!(doc["comparison"]["old_runs"].as_array().map(Vec::len), Some(5));
    // A comparison of a file with a file needs no database.
    let said = fail(Data::new().wirepath(&["history", "compare", &file, &file]), 2);
    assert!(said.contains("with itself"), "{said}");
    let said = fail(elsewhere.wirepath(&[QUICK, &["--baseline", "no/such"]].concat()), 2);
    assert!(said.contains("cannot read no/such"), "{said}");
}

/// A command of `contrib/ci` as in a CI job, with results in `data`.
fn ci(data: &Data, program: &str) -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_wirepath")).parent().expect("a folder");
    let mut command = Command::new(program);
    command
        .env("PATH", format!("{}:{}", built.display(), env::var("PATH").expect("a path")))
        .env("WIREPATH_OUT", data.path().join("out"))
        .env("GITHUB_STEP_SUMMARY", data.file("step"))
        .env("WIREPATH_LOCKS", data.path());
    command
}

const CI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/ci");

#[test]
fn script_of_ci_jobs_ends_with_4_and_leaves_every_form() {
    let data = Data::new();
    let out = data.path().join("out");
    let mut command = ci(&data, &format!("{CI}/prove.sh"));
    command.args([
        "command",
        "--arm",
        "a=echo x 100",
        "--arm",
        "b=echo x 200",
        "--max-blocks",
        "8",
    ]);
    command.args(["--metric", "x_us=re:x ([0-9]+)", "--seed", "1"]);
    let output = run(command);
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    assert!(all_text(&output).contains("::error title="), "{}", all_text(&output));
    for file in
        ["result.json", "report.html", "summary.md", "junit.xml", "bencher.json", "metrics.txt"]
    {
        assert!(fs::metadata(out.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    let junit = fs::read_to_string(out.join("junit.xml")).unwrap();
    assert!(
        junit.contains("<failure type=\"worse\"") && junit.contains("slower than a"),
        "{junit}"
    );
    assert_eq!(fs::read(data.file("step")).unwrap(), fs::read(out.join("summary.md")).unwrap());
}

/// The script of the action's first step: what follows `run: |`, as far as it is indented.
fn script_of_action() -> String {
    let text = fs::read_to_string(format!("{CI}/action.yml")).expect("the action");
    let (_, rest) = text.split_once("      run: |\n").expect("a script");
    let lines: Vec<&str> = rest.lines().map_while(|line| line.strip_prefix("        ")).collect();
    assert!(lines.len() > 2, "{text}");
    lines.join("\n")
}

/// Runs of which one must decide.
const RUNS_MAX: usize = 5;
/// Longest time of the experiment of a job.
const CI_TIME: Duration = Duration::from_secs(100);

/// Runs a CI job that compares two servers, which work for so many microseconds a request.
///
/// - Returns the exit code, all output, and the verdict on the median round trip.
fn compared_in_ci(mut command: Command, data: &Data, [old, new]: [u32; 2]) -> (i32, String, Value) {
    let file = |name: &str, text: &str| {
        let file = data.file(name);
        fs::write(&file, text).expect("a script");
        format!("exec python3 {file}")
    };
    let (echo, ping) = (file("echo.py", echo::SERVER), file("ping.py", echo::PING));
    command
        .env("WIREPATH_AGAINST", format!("{echo} {old}"))
        .env("WIREPATH_SERVER", format!("{echo} {new}"))
        .env("WIREPATH_CLIENT", ping)
        .env("WIREPATH_METRIC", format!("{}\n", echo::METRIC));
    let output = run_within(CI_TIME + LONG, command);
    let said = all_text(&output);
    let text = fs::read(data.path().join("out/result.json")).expect("a result");
    let outcome: Value = serde_json::from_slice(&text).expect("a document");
    let arms = outcome["arms"].as_array().expect("arms");
    let names: Vec<&Value> = arms.iter().map(|arm| &arm["name"]).collect();
    assert_eq!(names, ["old", "old again", "new"], "{said}");
    (output.status.code().expect("it ended"), said, arms[2]["metrics"]["p50_us"]["verdict"].clone())
}

#[test]
fn ci_jobs_compare_a_branch_with_the_old_server() {
    if !is_installed("python3") {
        return;
    }
    let time = format!("{}s", CI_TIME.as_secs());
    let limits = ["--ready", "udp", "--max-blocks", "8", "--time", &time];
    // On a busy machine a run may find that the old server differs from itself, or no difference of the round
    // trip, and then decides nothing.
    let is_found_worse = |_| {
        let data = Data::new();
        let mut command = ci(&data, &format!("{CI}/prove.sh"));
        command.arg("command").args(limits);
        let (code, said, verdict) = compared_in_ci(command, &data, [0, 400]);
        let is_worse = verdict == "worse";
        assert!(is_worse || verdict == "inconclusive", "{said}");
        match code {
            4 => assert!(said.contains("slower than old"), "{said}"),
            code => {
                assert!(code == 5 && said.to_lowercase().contains("not decided"), "{code}: {said}")
            }
        }
        is_worse && code == 4
    };
    assert!((0..RUNS_MAX).any(is_found_worse), "no verdict in {RUNS_MAX} runs");
    let same = Data::new();
    // By the action, whose words come as one text.
    let mut command = ci(&same, "bash");
    let experiment = format!("command {}", limits.join(" "));
    command.args(["-euc", &script_of_action()]);
    command.env("GITHUB_ACTION_PATH", CI).env("RUNNER_TEMP", same.path());
    // A false alarm of a few per cent is no difference of this size.
    command.env("EXPERIMENT", experiment).env("RESOLVE", "50").env("ACCEPT_UNDECIDED", "false");
    let (code, said, _) = compared_in_ci(command, &same, [400, 400]);
    assert_ne!(code, 4, "{said}");
}

#[test]
fn live_ladders_are_of_an_unfinished_run_and_the_result_is_not() {
    let data = Data::new();
    let text = succeed(data.wirepath(&[QUICK, &["--live"]].concat()));
    assert_eq!(
        text.matches("So far: ").count(),
        2 * 7,
        "of both metrics after each of 8 blocks but the last: {text}"
    );
    let result = text.rsplit("So far: ").next().expect("the result");
    assert!(result.contains("fast") && result.contains("better"), "{text}");
    let said = fail(data.wirepath(&[QUICK, &["--live", "--json"]].concat()), 2);
    assert!(said.contains("--live"), "{said}");
}

#[test]
fn a_stored_run_is_printed_in_every_form() {
    let data = Data::new();
    succeed(data.wirepath(QUICK));
    for (format, part) in [
        ("markdown", "| **worse** |"),
        ("github", "::error title="),
        ("junit", "<failure type=\"worse\""),
        ("bencher", "rtt_ns_p50_ratio"),
        ("openmetrics", "# EOF"),
        ("hlog", "Tag=fast/rtt,"),
    ] {
        let text = succeed(data.wirepath(&["report", "last", "--format", format]));
        assert!(text.contains(part), "{format}: {text}");
    }
    let said = fail(data.wirepath(&["report", "--format", "junit", "--json"]), 2);
    assert!(said.contains("exclude each other"), "{said}");
}
