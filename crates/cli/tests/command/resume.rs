//! A run that was killed goes on where it was.

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
    let of = |name: &&str| {
        let trials = arm(outcome, name)["metrics"]["p50_us"]["trials"].as_array().expect("trials");
        serde_json::json!([name, trials[..6]])
    };
    let arms: Vec<Value> = names(outcome).iter().map(of).collect();
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
    assert!(output.status.success(), "{output:?}");
    let changed = format!("other={FIGURES}; true");
    let other = [&experiment(&one, &changed)[..], &["--resume", "last"]].concat();
    let said = fail(prove(&data, &other), 2);
    assert!(said.contains("differs"), "{said}");
    // The same arguments, and more time.
    let same = [&args[..], &["--resume", "last"]].concat();
    let resumed = run(prove(&data, &same));
    assert!(resumed.status.success(), "{resumed:?}");
    assert!(data.trial_count() >= 21);
    let other_path = ["prove", "fake", "--max-blocks", "6", "--trial", "1ms"];
    run(data.wirepath(&other_path));
    let said = fail(prove(&data, &["--resume", "last"]), 2);
    assert!(said.contains("not of `prove command`"), "{said}");
}
