//! Exit codes of `prove command --fail-on worse`, by programs that print constants: never a matter of timing.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::arm;
use crate::common::{Data, LONG, Running, all_text, json, run, until};

/// Nine blocks, unless more are needed.
const NINE: [&str; 2] = ["--max-blocks", "9"];

fn prove(data: &Data, args: &[&str]) -> Command {
    let mut command = data.wirepath(&[&["prove", "command", "--time", "100s"], args].concat());
    command.env("WIREPATH_STATE", data.file("state"));
    command
}

/// Runs two arms that print a line each, by one metric.
///
/// - Returns the exit code, the messages and the document.
fn gate(data: &Data, [old, new]: [&str; 2], metric: &str, more: &[&str]) -> (i32, String, Value) {
    let (old, new) = (format!("a={old}"), format!("b={new}"));
    let arms = ["--arm", &old, "--arm", &new, "--metric", metric, "--fail-on", "worse", "--json"];
    let limits = if more.contains(&"--max-blocks") { &[][..] } else { &NINE };
    let output = run(prove(data, &[&arms[..], limits, more].concat()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().expect("it ended"), said, document)
}

const TIME: &str = "x_ms=re:x ([0-9.]+)";
const LOST: &str = "lost=json:/lost lower";

#[test]
fn equal_programs_pass_with_0_and_slower_ones_fail_with_4() {
    let data = Data::new();
    let (code, said, document) = gate(&data, ["echo x 100", "echo x 100"], TIME, &[]);
    assert_eq!((code, &document["gate"]["answer"]), (0, &"no-worse".into()), "{said}");
    let (code, said, document) = gate(&data, ["echo x 100", "echo x 120"], TIME, &[]);
    assert_eq!((code, &document["gate"]["answer"]), (4, &"worse".into()), "{said}");
    assert!(said.contains("worse: b is 20 % slower than a"), "{said}");
    // The same change is allowed by a coarser resolution.
    let wider = ["--resolve", "25"];
    let (code, said, _) = gate(&data, ["echo x 100", "echo x 120"], TIME, &wider);
    assert_eq!(code, 0, "{said}");
    let (code, said, _) = gate(&data, ["echo x 120", "echo x 100"], TIME, &[]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn the_resolution_is_checked_and_part_of_the_result_and_its_earlier_name_is_refused() {
    let data = Data::new();
    let (_, said, document) =
        gate(&data, ["echo x 100", "echo x 100"], TIME, &["--resolve", "0.5%"]);
    assert_eq!(
        (&document["resolve"], &document["gate"]["threshold"]),
        (&1.005.into(), &1.005.into()),
        "{said}"
    );
    assert_eq!(document["load"]["resolve"], "0.5%");
    for (options, wanted) in [
        (["--resolve", "0"], "such as 2% or 0.5%"),
        (["--resolve", "60%"], "up to 50"),
        (["--threshold", "2"], "--threshold 2 is now --resolve 2"),
    ] {
        let (code, said, _) = gate(&data, ["echo x 1", "echo x 1"], TIME, &options);
        assert!(code == 2 && said.contains(wanted), "{options:?}: {said}");
    }
}

#[test]
fn what_is_not_decided_ends_with_5_and_its_reason_unless_that_is_accepted() {
    let data = Data::new();
    // Whole milliseconds cannot show 5 % of one.
    let (code, said, document) = gate(&data, ["echo x 1", "echo x 1"], TIME, &[]);
    assert_eq!((code, &document["gate"]["answer"]), (5, &"not-decided".into()), "{said}");
    assert!(said.contains("Not decided: b against a: the figures come in steps"), "{said}");
    let accept = ["--accept-undecided"];
    let (code, said, _) = gate(&data, ["echo x 1", "echo x 1"], TIME, &accept);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("accepted with --accept-undecided: Not decided"), "{said}");
    // Every form of the stored result says the same.
    let report = |format: &str| {
        let output = run(data.wirepath(&["report", "last", "--format", format]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let sentence = "too coarse";
    let junit = report("junit");
    assert!(
        junit.contains("<skipped message=\"Not decided") && junit.contains(sentence),
        "{junit}"
    );
    let markdown = report("markdown");
    assert!(markdown.contains("**Not decided") && markdown.contains(sentence), "{markdown}");
    let github = report("github");
    assert!(github.contains("::warning title=") && github.contains(sentence), "{github}");
    let page = data.file("page.html");
    assert!(run(data.wirepath(&["report", "last", "--html", &page])).status.success());
    assert!(fs::read_to_string(&page).unwrap().contains(sentence));
    for list in [&["history"][..], &["history", "show"]] {
        let text = all_text(&run(data.wirepath(list)));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(sentence), "{list:?}: {text}");
    }
}

#[test]
fn losses_from_zero_fail_and_no_losses_pass() {
    let data = Data::new();
    let (none, lossy) = ("echo '{\"lost\":0}'", "echo '{\"lost\":44}'");
    let more = ["--max-blocks", "24", "--min-blocks", "24"];
    let (code, said, document) = gate(&data, [none, lossy], LOST, &more);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("lost: b has 44 more a trial than a"), "{said}");
    let lost = &arm(&document, "b")["metrics"]["lost"];
    assert_eq!((&lost["verdict"], &lost["ratio"]), (&"worse".into(), &Value::Null));
    assert_eq!(lost["difference"]["mean"], 44.0);
    let (code, said, _) = gate(&data, [none, none], LOST, &more);
    assert_eq!(code, 0, "{said}");
    let (code, said, _) = gate(&data, [lossy, none], LOST, &more);
    assert_eq!(code, 0, "{said}");
    // Eight trials without a loss do not exclude one in every fifth.
    let (code, said, _) = gate(&data, [none, none], LOST, &["--max-blocks", "8"]);
    assert_eq!(code, 5, "{said}");
}

#[test]
fn time_below_the_resolution_of_the_program_is_good() {
    let data = Data::new();
    // Whole milliseconds: mostly 0, and 7.
    let (fast, slow) = ("echo x $((WIREPATH_TRIAL % 4 / 3))", "echo x 7");
    let (code, said, _) = gate(&data, [slow, fast], TIME, &[]);
    assert_eq!(code, 0, "{said}");
    let (code, said, document) = gate(&data, [fast, slow], TIME, &[]);
    assert_eq!(code, 4, "{said}");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("below the resolution of the program"), "{warnings}");
}

#[test]
fn figure_that_an_arm_never_gives_is_not_decided() {
    let data = Data::new();
    let (code, said, _) = gate(&data, ["echo x 100", "echo nothing"], TIME, &[]);
    assert_eq!(code, 4, "every trial fails: {said}");
    let below = ["echo x -1", "echo x -2"];
    let (code, said, _) = gate(&data, below, "x=re:x (\\S+) lower", &[]);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("values below 0 have no ratio"), "{said}");
}

#[test]
fn series_of_runs_is_one_family_and_each_run_has_its_answer() {
    let data = Data::new();
    let (code, said, document) = gate(&data, ["echo x 100", "echo x 130"], TIME, &["--runs", "2"]);
    assert_eq!(code, 4, "{said}");
    let answers: Vec<&Value> =
        document["runs"].as_array().unwrap().iter().map(|run| &run["gate"]["answer"]).collect();
    assert_eq!(answers, ["worse", "worse"]);
    let (code, said, _) = gate(&data, ["echo x 100", "echo x 100"], TIME, &["--runs", "2"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn interrupted_run_ends_with_130_with_and_without_a_gate() {
    for more in [&["--fail-on", "worse"][..], &[]] {
        let data = Data::new();
        let args = ["prove", "command", "--arm", "a=sleep 0.02", "--arm", "b=sleep 0.02"];
        let limits = ["--time", "1h", "--min-blocks", "100", "--max-blocks", "1000"];
        let running = Running::start(data.wirepath(&[&args[..], &limits, more].concat()));
        assert!(
            until(LONG, || {
                let text = all_text(&run(data.wirepath(&["history", "list"])));
                text.contains(" trials") && !text.contains(" 0 blocks")
            }),
            "{}",
            running.stderr()
        );
        let output = running.end_by("INT", LONG);
        assert_eq!(output.status.code(), Some(130), "{more:?}: {}", all_text(&output));
        assert!(all_text(&output).contains("error: interrupted"), "{}", all_text(&output));
    }
}

#[test]
fn control_runs_the_command_of_the_baseline_under_its_name() {
    let data = Data::new();
    let log = data.file("log");
    let script = format!("echo $WIREPATH_ARM >>{log}; echo x 100");
    let arms = [format!("a={script}"), format!("b={script}")];
    let args = ["--arm", &arms[0], "--arm", &arms[1], "--metric", TIME, "--json"];
    let document = json(prove(&data, &[&args[..], &NINE].concat()));
    assert_eq!(document["arms"][1]["name"], "a again");
    let text = fs::read_to_string(&log).unwrap();
    let count = |name: &str| text.lines().filter(|line| *line == name).count();
    assert_eq!(count("a"), 2 * count("b"), "{text}");
    assert_eq!(count("a again"), 0);
}
