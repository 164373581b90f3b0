//! Knobs of `tune` as switches, in a lab and in existing namespaces.

use super::*;
use crate::common::{LONG, Running, Spaces, enter, fail, is_installed, succeed, until};

/// A client that needs no server, and logs the settings of the far end.
fn logs(data: &Data, interface: &str) -> (String, String) {
    let log = data.file("log");
    let setup =
        format!("echo $WIREPATH_ARM $(ethtool -k {interface} | grep tx-tcp-segmentation:) >>{log}");
    (setup, log)
}

/// Distinct lines of the log.
fn seen(log: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        fs::read_to_string(log).expect("a log").lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    lines
}

const METRIC: [&str; 4] = ["--arm", "base=echo rps 5", "--metric", "rps=re:rps ([0-9]+)"];

#[test]
fn a_knob_is_set_for_the_trials_of_its_arms_and_no_longer() {
    if !is_installed("ethtool") {
        return;
    }
    let data = Data::new();
    let (setup, log) = logs(&data, "wp-far");
    let switches = ["--switch", "tso=off", "--switch", "gro=off", "--arms", "alone"];
    let outcome = proven(&data, &[&METRIC[..], &switches, &["--setup", &setup]].concat());
    assert_no_failure(&outcome);
    assert_eq!(
        seen(&log),
        [
            // The control runs under the name of the baseline.
            "base tx-tcp-segmentation: on",
            "gro=off tx-tcp-segmentation: on",
            "tso=off tx-tcp-segmentation: off",
        ]
    );
    // The GRO of a veth is off.
    assert_eq!(arm(&outcome, "gro=off")["metrics"]["rps"]["verdict"], "not-effective");
    assert_ne!(arm(&outcome, "tso=off")["metrics"]["rps"]["verdict"], "not-effective");
    let of_host = ["--switch", "governor=performance"];
    let said = fail(prove(&data, &[&METRIC[..], &of_host, &["--check"]].concat()), 2);
    assert!(said.contains("governor") && said.contains("not on the lab"), "{said}");
}

#[test]
fn knobs_of_existing_namespaces_are_set_through_the_journal_and_restored() {
    if !is_installed("ethtool") {
        return;
    }
    let (spaces, data) = (Spaces::new(), Data::new());
    let before = (spaces.near_link(), spaces.far_link(), features(&spaces));
    let (setup, log) = logs(&data, "vb");
    let (near, far) = (format!("netns:{}", spaces.near), format!("netns:{}", spaces.far));
    let place = ["--near", &near, "--far", &far, "--setup", &setup, "--arms", "alone"];
    let switches = ["--switch", "tso=off", "--switch", "near:gso=off"];
    let args = [&METRIC[..], &place, &switches].concat();
    let outcome = proven(&data, &args);
    assert_no_failure(&outcome);
    assert!(seen(&log).contains(&"tso=off tx-tcp-segmentation: off".to_owned()));
    assert_eq!((spaces.near_link(), spaces.far_link(), features(&spaces)), before);
    assert!(outcome["machine"]["nic"].as_str().unwrap().contains(&spaces.far), "{outcome:#}");

    // Killed while the knob is set: the guard restores it.
    let slow = ["--arm", "base=sleep 0.2; echo rps 5", "--metric", METRIC[3]];
    let running = Running::start(prove(&data, &[&slow[..], &place, &switches].concat()));
    assert!(until(LONG, || features(&spaces) != before.2), "{}", running.stderr());
    running.end_by("KILL", LONG);
    assert!(until(LONG, || features(&spaces) == before.2), "{}", features(&spaces));
}

fn features(spaces: &Spaces) -> String {
    let features = |name: &str, link: &str| succeed(enter(name, &["ethtool", "-k", link]));
    features(&spaces.near, "va") + &features(&spaces.far, "vb")
}

#[test]
fn the_best_set_of_switches_is_found_and_measured() {
    let data = Data::new();
    let score = "base=echo score $((1000 + ${A:-0} * 500 + ${B:-0} * 300 - ${C:-0} * 100 + \
                 WIREPATH_TRIAL % 7))";
    let switches = ["A=1", "B=1", "C=1", "D=1"].map(|name| format!("env:{name}"));
    let mut args = vec!["--arm", score, "--metric", "score=re:score ([0-9]+) higher"];
    args.extend(switches.iter().flat_map(|switch| ["--switch", switch.as_str()]));
    args.extend(["--arms", "best", "--seed", "3", "--json", "--time", "40s"]);
    let mut command = data.wirepath(&[&["prove", "command"], &args[..]].concat());
    command.env("WIREPATH_STATE", data.file("state"));
    let outcome = json(command);
    assert_eq!(outcome["search"]["set"], serde_json::json!(["env:A=1", "env:B=1"]), "{outcome:#}");
    let members = outcome["members"].as_array().unwrap();
    assert!(members.iter().all(|member| member["verdict"] == "better"), "{members:?}");
}
