//! `wirepath prove command`: the user's own programs as arms.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod feeds;
mod functions;
mod gate;
mod ipv6;
mod knobs;
mod one_client;
mod origins;
mod outputs;
mod own;
mod programs;
mod resume;
mod service;
mod trouble;

use std::fs;
use std::process::Command;

use common::{Data, json};
use serde_json::Value;

/// Arguments of every run: six blocks at most, whatever they show.
const SHORT: [&str; 4] = ["--max-blocks", "6", "--time", "100s"];

/// `wirepath prove command` with results in `data`.
fn prove(data: &Data, args: &[&str]) -> Command {
    let all = [&["prove", "command"], args, &SHORT].concat();
    let mut command = data.wirepath(&all);
    command.env("WIREPATH_STATE", data.file("state"));
    command
}

/// The outcome of a run that succeeds.
fn proven(data: &Data, args: &[&str]) -> Value {
    json(prove(data, &[args, &["--json"]].concat()))
}

fn arm<'a>(outcome: &'a Value, name: &str) -> &'a Value {
    let arms = outcome["arms"].as_array().expect("arms");
    arms.iter().find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("no {name} in {outcome}"))
}

fn names(outcome: &Value) -> Vec<&str> {
    let arms = outcome["arms"].as_array().expect("arms");
    arms.iter().map(|arm| arm["name"].as_str().expect("a name")).collect()
}

/// Value of a metric in each block that counts.
fn median(outcome: &Value, of: &str, metric: &str) -> f64 {
    let found = &arm(outcome, of)["metrics"][metric]["median"];
    found.as_f64().unwrap_or_else(|| panic!("no {metric} of {of}: {outcome:#}"))
}

fn failures(outcome: &Value, of: &str) -> Vec<String> {
    let failures = arm(outcome, of)["failures"].as_array().expect("failures");
    failures.iter().map(|why| why.as_str().expect("a reason").to_owned()).collect()
}

/// Asserts that every trial of all arms succeeded.
fn assert_no_failure(outcome: &Value) {
    for name in names(outcome) {
        assert_eq!(failures(outcome, name), [""; 0], "{name}");
    }
}

/// A script of Python in the folder of `data`.
fn script(data: &Data, name: &str, text: &str) -> String {
    let file = data.file(name);
    fs::write(&file, text).expect("a script");
    format!("python3 {file}")
}
