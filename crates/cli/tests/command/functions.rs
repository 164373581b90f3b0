//! The function whose CPU time goes with a verdict: programs that print constants, so that the verdict is no matter of timing,
//! and burn CPU time by their own clock.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Data, LONG, is_installed, run_within, succeed};

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

__attribute__((noinline)) void turn(double ms, volatile unsigned *sum) {
    for (double until = used() + ms; used() < until;)
        for (int i = 0; i < 300000; i++) *sum += i;
}

__attribute__((noinline)) void burn_checksum(double ms, volatile unsigned *sum) {
    for (double until = used() + ms; used() < until;)
        for (int i = 0; i < 300000; i++) *sum += i * i;
}

int main(int count, char **words) {
    volatile unsigned sum = 0;
    turn(20, &sum);
    burn_checksum(atof(words[1]), &sum);
    printf("x %s\n", words[2]);
    return 0;
}
"#;

/// Compiles the program; returns its file. `None` without a compiler.
fn compile(folder: &Path, flags: &[&str]) -> Option<String> {
    if !is_installed("cc") {
        return None;
    }
    fs::create_dir_all(folder).unwrap();
    let source = folder.join("source.c");
    fs::write(&source, SOURCE).unwrap();
    let program = folder.join("burner");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).args([&program, &source]).args(flags);
    succeed(compiler);
    Some(program.display().to_string())
}

/// The outcome of a comparison of two programs with these arguments, and its text; `None` where nothing is sampled.
fn compared(data: &Data, [old, new]: [&str; 2]) -> Option<(Value, String)> {
    let metric = ["--metric", "x_ms=re:x ([0-9.]+)", "--time", "90s"];
    let command = data.wirepath(&[&["compare", old, new], &metric[..], &["--json"]].concat());
    let output = run_within(LONG * 8, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!([0, 4, 5].contains(&output.status.code().expect("it ended")), "{said}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("a document");
    if !outcome["arms"].as_array().unwrap().iter().all(|arm| arm["samples"].is_object()) {
        testkit::skip("cgroup", "the kernel gives no samples of control groups");
        return None;
    }
    let id = outcome["id"].as_str().unwrap();
    let shown = succeed(data.wirepath(&["report", id]));
    Some((outcome, shown.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Samples of each function of an arm.
fn count(outcome: &Value, arm: &str, function: &str) -> f64 {
    let functions = &super::arm(outcome, arm)["samples"]["functions"];
    let of = functions.as_array().unwrap().iter().find(|of| of["function"] == function);
    of.map_or(0.0, |of| of["sample_count"].as_f64().unwrap())
}

#[test]
fn the_function_that_burns_twice_as_much_is_named_and_equal_arms_name_none() {
    let data = Data::new();
    let Some(program) = compile(&data.path().join("named"), &[]) else { return };
    let [old, new, equal] =
        ["80 100", "160 130", "80 130"].map(|words| format!("{program} {words}"));
    let Some((outcome, shown)) = compared(&data, [&old, &new]) else { return };
    assert!(shown.contains("new is 30 % slower than old"), "{shown}");
    let sentence = "CPU time: `burn_checksum` takes ";
    assert!(shown.contains(sentence), "{shown}\n{outcome:#}");
    let samples = &super::arm(&outcome, "new")["samples"];
    assert_eq!(samples["trial_count"], super::arm(&outcome, "new")["trials"]);
    let [grown, same] = ["burn_checksum", "turn"].map(|name| {
        // The baseline ran twice in each block.
        2.0 * count(&outcome, "new", name)
            / (count(&outcome, "old", name) + count(&outcome, "old again", name))
    });
    assert!((1.4..2.9).contains(&grown) && (0.6..1.6).contains(&same), "{grown} {same}");
    let full = succeed(data.wirepath(&["report", outcome["id"].as_str().unwrap(), "-v"]));
    let (_, table) = full.split_once("CPU time by function").expect("a table");
    assert!(table.contains("burn_checksum"), "{full}");
    // The same verdict of the constants, and the same work.
    let Some((outcome, shown)) = compared(&data, [&old, &equal]) else { return };
    assert!(shown.contains("new is 30 % slower than old"), "{shown}");
    assert!(!shown.contains("CPU time:") && count(&outcome, "new", "turn") > 0.0, "{shown}");
}

#[test]
fn a_program_without_names_gives_its_own() {
    let data = Data::new();
    let Some(program) = compile(&data.path().join("stripped"), &["-s"]) else { return };
    let [old, new] = ["60 100", "160 130"].map(|words| format!("{program} {words}"));
    let Some((_, shown)) = compared(&data, [&old, &new]) else { return };
    assert!(shown.contains("CPU time: `burner` (no function names) takes "), "{shown}");
}
