//! Runs that are killed or interrupted, and other programs whose ends die.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Data, LONG, Running, all_text, is_installed, own_links, succeed, until, wirepath};

/// Time that a command may take to stop: the current trial and the outcome.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// A run that lasts minutes unless it is ended.
pub(crate) fn prove(data: &Data, args: &[&str]) -> Running {
    let all = [&["prove"], args, &["--time", "300s", "--min-blocks", "100"]].concat();
    Running::start(data.wirepath(&all))
}

/// Ends a run while another program carries the load.
///
/// - `args`: arguments of `prove`, with the peer.
/// - `started_with`: part of the program's command line while it carries the load.
pub(crate) fn peers_die_with_the_run(args: &[&str], program: &str, started_with: &str) {
    if !is_installed(program) {
        return;
    }
    for signal in ["KILL", "INT"] {
        let links = own_links();
        let data = Data::new();
        let running = prove(&data, args);
        // Not the call that only prints its version.
        let is_it = |line: &str| line.contains(program) && line.contains(started_with);
        assert!(
            until(LONG * 2, || running.descendants().iter().any(|(_, line)| is_it(line))),
            "{program} was never run: {}",
            running.stderr()
        );
        let held = running.holdings();
        assert!(held.namespaces.len() >= 2);
        let output = running.end_by(signal, SOON);
        held.assert_gone();
        assert_eq!(own_links(), links);
        if signal == "INT" {
            assert_ne!(output.status.code(), None, "ended by itself: {}", all_text(&output));
        }
        assert!(!all_text(&output).contains("panicked"), "{}", all_text(&output));
        assert!(!run_report(&data).is_empty());
    }
}

fn run_report(data: &Data) -> String {
    // The kill may come before the end of the first trial; the experiment exists in any case.
    succeed(data.wirepath(&["history", "show", "last"]))
}

/// Runs an experiment with one other program, and kills each of its processes of an age.
///
/// - `server`: part of their command line.
/// - Returns the document.
fn experiment_with_dying(args: &[&str], server: &str, age: Duration) -> Value {
    let common = ["prove", "--time", "12s", "--min-blocks", "6", "--no-history", "--json"];
    let mut running = Running::start(wirepath(&[&common[..], args].concat()));
    let mut seen = BTreeMap::new();
    let ended = until(LONG, || {
        for (pid, line) in running.descendants() {
            let since = *seen.entry(pid).or_insert_with(Instant::now);
            if line.contains(server) && since.elapsed() > age {
                let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status();
            }
        }
        running.has_ended()
    });
    assert!(ended, "{args:?}: {}", running.stderr());
    let output = running.finish(LONG).expect("it ended");
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Asserts that a program whose far end is killed during its trials has failures that name the cause, and no figure.
///
/// - `experiment`: path, load, arm and duration of a trial.
/// - `server`: part of the far end's command line, the program first.
/// - `age`: time after which each far end is killed.
pub(crate) fn assert_dead_far_end_has_no_figure(
    program: &str,
    experiment: [&str; 4],
    server: &str,
    age: Duration,
) {
    if !is_installed(server.split(' ').next().expect("a word")) {
        return;
    }
    let [path, load, arm, trial] = experiment;
    let args = [path, "--load", load, "--arms", arm, "--trial", trial, "--peers", program];
    let document = experiment_with_dying(&args, server, age);
    let arms = document["arms"].as_array().expect("arms");
    let arm = arms.iter().find(|arm| arm["name"] == program).expect("the program");
    let failures = arm["failures"].as_array().expect("failures");
    assert!(!failures.is_empty(), "{program}: {arm}");
    for failure in failures {
        let why = failure.as_str().expect("a reason");
        let is_told = ["ended during the trial", "the client reports:", "the server reports:"]
            .iter()
            .any(|reason| why.contains(reason));
        assert!(why.starts_with(program) && is_told, "{why}");
    }
    for (name, metric) in arm["metrics"].as_object().expect("metrics") {
        assert!(metric["median"].is_null(), "{name}: {arm}");
    }
}
