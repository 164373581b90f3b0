//! Servers and clients that misbehave: the trial fails with its reason, the run goes on, and nothing is
//! left behind.

use std::thread;
use std::time::Duration;

use super::*;
use crate::common::{LONG, Running, all_text, is_installed, own_links, run_measured, until};

/// An experiment in which the second arm of two servers misbehaves.
fn beside_a_good_one(bad: &str, more: &[&str]) -> Value {
    let data = Data::new();
    let good = script(&data, "good.py", SERVER);
    let client = script(&data, "client.py", CLIENT);
    let (good_arm, bad_arm) =
        (format!("good={good}"), format!("bad={}", bad.replace("GOOD", &good)));
    let args =
        ["--arm", &good_arm, "--arm", &bad_arm, "--client", &client, "--metric", "rps=re:rps (.+)"];
    let quick = ["--ready-within", "4s", "--within", "5s", "--grace", "200ms"];
    let outcome = proven(&data, &[&args[..], &quick, more].concat());
    assert_eq!(failures(&outcome, "good"), [""; 0]);
    outcome
}

/// TCP echo server of many connections. It closes first, and does not set SO_REUSEADDR.
const SERVER: &str = r#"
import os, socket, sys, threading
server = socket.socket()
server.bind(("", int(os.environ["WIREPATH_PORT"])))
server.listen(64)
def serve(connection):
    data = connection.recv(64)
    connection.sendall(data)
    connection.close()
while True:
    threading.Thread(target=serve, args=[server.accept()[0]]).start()
"#;

/// Ten connections, one after the other.
const CLIENT: &str = r#"
import os, socket, time
begun = time.perf_counter()
for _ in range(10):
    client = socket.create_connection((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])), 3)
    client.sendall(b"x")
    assert client.recv(64) == b"x", "no echo"
    assert client.recv(64) == b"", "the server closes first"
print("rps", 10 / (time.perf_counter() - begun))
"#;

fn assert_fails(bad: &str, more: &[&str], says: &[&str]) {
    let outcome = beside_a_good_one(bad, more);
    let why = failures(&outcome, "bad");
    assert!(!why.is_empty(), "{bad}");
    for says in says {
        assert!(why.iter().all(|why| why.contains(says)), "{bad}: {says:?} in {why:?}");
    }
}

#[test]
fn a_server_that_never_listens_fails_its_trials_with_its_last_words() {
    if !is_installed("python3") {
        return;
    }
    let says = ["the server was not ready", "tcp", "warming up"];
    assert_fails("echo warming up; exec sleep 1000", &[], &says);
}

#[test]
fn a_server_that_ends_at_once_fails_its_trials_with_its_status() {
    if !is_installed("python3") {
        return;
    }
    assert_fails(
        "echo no config >&2; exit 3",
        &[],
        &["ended before it was ready", "3", "no config"],
    );
}

#[test]
fn a_server_that_dies_in_mid_trial_fails_it() {
    if !is_installed("python3") {
        return;
    }
    let dies = "GOOD & sleep 0.25; kill -9 $!; exit 7";
    let says = ["server"];
    let client = ["--warmup", "400ms"];
    assert_fails(dies, &client, &says);
}

#[test]
fn a_server_that_ignores_sigterm_a_daemon_and_closed_connections_do_no_harm() {
    if !is_installed("python3") {
        return;
    }
    for server in ["trap '' TERM; GOOD", "setsid sh -c 'GOOD &'", "GOOD & wait"] {
        let outcome = beside_a_good_one(server, &[]);
        assert_eq!(failures(&outcome, "bad"), [""; 0], "{server}");
        assert_eq!(arm(&outcome, "bad")["trials"], outcome["blocks"], "{server}");
    }
}

#[test]
fn clients_that_hang_fail_or_measure_nothing_are_failed_trials() {
    let data = Data::new();
    let metric = ["--metric", "rps=re:rps ([0-9]+)", "--within", "300ms"];
    let why = |bad: &str| {
        let bad = format!("bad={bad}");
        let args = [&["--arm", "good=echo rps 7", "--arm", &bad], &metric[..]].concat();
        let outcome = proven(&data, &args);
        assert_eq!(failures(&outcome, "good"), [""; 0]);
        assert_eq!(arm(&outcome, "bad")["reliability"]["baseline_failed"], 0);
        failures(&outcome, "bad").remove(0)
    };
    let hangs = why("echo begun; exec sleep 1000");
    assert!(hangs.contains("did not end within 300 ms") && hangs.contains("begun"), "{hangs}");
    let fails = why("echo out of luck >&2; exit 9");
    assert!(fails.contains("9") && fails.contains("out of luck"), "{fails}");
    let silent = why("true");
    assert!(silent.contains("rps"), "{silent}");
    let other = why("echo rps none");
    assert!(other.contains("rps none"), "{other}");
}

#[test]
fn programs_that_fail_alike_in_every_arm_end_the_run_after_the_warm_up_with_one_line() {
    let data = Data::new();
    let args = ["prove", "command", "--arm", "a=echo no such host >&2; exit 3"];
    let other = ["--arm", "b=echo no such host >&2; exit 3", "--time", "300s"];
    let mut command = data.wirepath(&[&args[..], &other].concat());
    command.env("WIREPATH_STATE", data.file("state"));
    let output = Running::start(command).finish(LONG).expect("it does not use the time");
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    assert!(output.stdout.is_empty(), "{}", all_text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains("no such host"), "{said}");
    assert_eq!(data.trial_count(), 3);
}

#[test]
fn a_metric_that_is_missing_once_is_one_failed_trial() {
    let data = Data::new();
    let folder = data.path().to_owned();
    let two =
        "two=if [ $WIREPATH_TRIAL -gt 9 ] && mkdir once 2>/dev/null; then :; else echo rps 7; fi";
    let mut command = prove(
        &data,
        &["--arm", "one=echo rps 7", "--arm", two, "--metric", "rps=re:rps ([0-9]+)", "--json"],
    );
    command.current_dir(folder);
    let outcome = json(command);
    assert_eq!(failures(&outcome, "two").len(), 1, "{outcome:#}");
    let trials = arm(&outcome, "two")["metrics"]["rps"]["trials"].as_array().unwrap();
    assert_eq!(trials.iter().filter(|value| value.is_null()).count(), 1, "{trials:?}");
}

#[test]
fn gigabytes_of_output_are_read_and_the_figure_at_their_end_counts() {
    let data = Data::new();
    let two = "two=head -c 300000000 /dev/zero; echo; echo rps 9";
    let args =
        ["--arm", "one=echo rps 7", "--arm", two, "--metric", "rps=re:rps ([0-9]+)", "--json"];
    let (output, peak_bytes) = run_measured(prove(&data, &args));
    assert!(output.status.success(), "{}", all_text(&output));
    let outcome = serde_json::from_slice(&output.stdout).unwrap();
    assert_no_failure(&outcome);
    assert_eq!(median(&outcome, "two", "rps"), 9.0);
    // Several trials of 300 MB each; 8 MiB of each are kept.
    assert!(peak_bytes < 200 << 20, "{peak_bytes}");
}

#[test]
fn a_killed_run_leaves_no_process_namespace_or_interface() {
    if !is_installed("python3") {
        return;
    }
    let links = own_links();
    let data = Data::new();
    let server = script(&data, "good.py", SERVER);
    let client = script(&data, "client.py", CLIENT);
    let args = ["--server", &server, "--arm", "x:X=1", "--client", &client, "--keep-servers"];
    let seed = std::process::id() as u64;
    let mut random = model::Random::new(seed, 0);
    for _ in 0..10 {
        let moment = Duration::from_secs_f64(0.6 * random.unit());
        let mut running = Running::start(prove(&data, &args));
        // A lab, a server and a client or its successor.
        let busy = || running.holdings().namespaces.len() >= 2 && !running.descendants().is_empty();
        assert!(until(LONG, busy), "{}", running.stderr());
        thread::sleep(moment);
        assert!(!running.has_ended(), "seed {seed}, {moment:?}: {}", running.stderr());
        let held = running.holdings();
        running.end_by("KILL", LONG);
        held.assert_gone();
        assert!(until(LONG, || control_groups().is_empty()), "{:?}", control_groups());
    }
    assert_eq!(own_links(), links);
}

/// Control groups of programs whose `wirepath` has ended.
fn control_groups() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix("wirepath-").and_then(|rest| rest.split('-').next());
            let owner = owner.and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
                found.push(name);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found
}
