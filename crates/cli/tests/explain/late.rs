//! `wirepath explain --late` and `doctor --pid`: a program of others is examined, and what holds it up is named.

#[path = "../../../host/tests/planted/quota.rs"]
mod quota;

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use self::quota::Quota;
use crate::common::{LONG, Running, Spaces, enter, fail, json, until, wirepath};

/// Spins on the last CPU.
const SPIN: &str =
    "import os\nos.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\nwhile True: pass";
/// Takes the last CPU for 2 of each 5 ms.
const HOG: &str = "import os, time\nopen('/proc/self/comm', 'w').write('wp-hog')\n\
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\n\
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\nwhile True:\n    end = time.monotonic() + 0.002\n    \
    while time.monotonic() < end: pass\n    time.sleep(0.003)";

fn python(program: &str) -> Running {
    let mut python = Command::new("python3");
    python.args(["-c", program]);
    Running::start(python)
}

/// Causes that held up a program within two seconds.
fn late(program: &Running) -> Value {
    let pid = program.pid().to_string();
    // An interpreter that starts has other work than its program.
    thread::sleep(Duration::from_millis(500));
    json(wirepath(&["explain", "--pid", &pid, "--late", "--time", "2s", "--json"]))
}

/// Interruptions of a cause, by its name and detail.
fn count(document: &Value, cause: &str, detail: &str) -> u64 {
    let rows = document["causes"].as_array().expect("a list");
    let own = rows.iter().filter(|row| row["cause"] == cause && row["detail"] == detail);
    own.map(|row| row["count"].as_u64().expect("a count")).sum()
}

#[test]
fn task_that_takes_the_cpu_of_a_program_is_named_and_its_twin_has_none() {
    let _lab = testkit::alone();
    let program = python(SPIN);
    let twin = late(&program);
    let hog = python(HOG);
    let document = late(&program);
    assert!(count(&document, "preemption", "wp-hog") >= 50, "{document:#}");
    assert_eq!(count(&twin, "preemption", "wp-hog"), 0, "{twin:#}");
    assert_eq!(document["thread"], program.pid());
    let rows = document["causes"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(document["count"], sum, "{document:#}");
    assert!(document["sum_ns"].as_u64() <= document["watched_ns"].as_u64(), "{document:#}");
    drop(hog);
}

#[test]
fn quota_that_stops_a_program_is_named_with_its_remedy_and_its_twin_has_none() {
    let _lab = testkit::alone();
    let quota = match Quota::of_a_twentieth() {
        Ok(quota) => quota,
        Err(why) => return testkit::skip("cgroup", why.to_string()),
    };
    let program = python(SPIN);
    let twin = late(&program);
    quota.enter(program.pid());
    let document = late(&program);
    assert!(count(&document, "throttling", "") >= 20, "{document:#}");
    assert_eq!(count(&twin, "throttling", ""), 0, "{twin:#}");
    let remedy = document["remedy"].as_str().expect("a remedy");
    assert!(remedy.contains("cpu.max"), "{remedy}");
}

#[test]
fn causes_of_a_cpu_add_up_to_its_interruptions() {
    let _lab = testkit::alone();
    let cpu = sys::affinity::allowed_cpus().unwrap()[0].to_string();
    let args = ["explain", "--late", "--cpu", &cpu, "--time", "600ms", "--over", "500ns", "--json"];
    let document = json(wirepath(&args));
    assert_eq!(document["untraced"], Value::Null);
    assert!(document["watched_ns"].as_u64().unwrap() >= 600_000_000, "{document}");
    let rows = document["causes"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(document["count"], sum, "{document}");
    // Somewhat more than half a second does not pass without a timer or another task.
    assert!(rows.iter().any(|row| row["cause"] != "unknown"), "{document}");
}

#[test]
fn program_or_cpu_that_is_not_there_is_one_error_that_names_it() {
    let spaces = Spaces::new();
    let cases: [(&[&str], &str); 10] = [
        (&["explain", "--late"], "--pid, --port"),
        (&["explain", "--late", "--cpu", "1000"], "CPU 1000"),
        (&["explain", "--late", "--pid", "4000000000"], "no process 4000000000"),
        (&["explain", "--late", "--netns", &spaces.far, "--port", "9"], "port 9"),
        (&["explain", "eth0", "--late", "--pid", "1"], "cannot be used with"),
        (&["feed", "noise", "--cpu", "0"], "explain --late --cpu"),
        (&["doctor", "--pid", "4000000000"], "no process 4000000000"),
        (&["doctor", "--netns", &spaces.far, "--port", "9"], "port 9"),
        (&["doctor", "--unit", "no-such-unit"], "no-such-unit"),
        (&["doctor", "--pid", "1", "--port", "9"], "cannot be used with"),
    ];
    for (args, words) in cases {
        let said = fail(wirepath(args), 2);
        assert!(said.contains(words) && said.lines().count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn program_is_examined_in_its_own_namespace_by_its_id_and_by_its_port() {
    let spaces = Spaces::new();
    let serve = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.77.0.2', 9100))\n\
                 while True: s.recv(100)";
    let server = Running::start(enter(&spaces.far, &["python3", "-c", serve]));
    let by_port = ["doctor", "--netns", &spaces.far, "--port", "9100", "--json"];
    assert!(
        until(LONG, || crate::common::run(wirepath(&by_port)).status.success()),
        "{}",
        server.stderr()
    );
    let pid = server.pid().to_string();
    for args in [&by_port[..], &["doctor", "--pid", &pid, "--json"]] {
        let document = json(wirepath(args));
        let facts = document["facts"].as_array().expect("a list");
        let own =
            facts.iter().find(|fact| fact["cause"] == "not-pinned").expect("a fact on the program");
        let text = own["text"].as_str().expect("text");
        assert!(text.contains("python3 (process") && text.contains("SCHED_OTHER"), "{text}");
        assert!(document["about"].as_str().unwrap().contains("of namespace"), "{document:#}");
    }
    let without = json(wirepath(&["doctor", "--netns", &spaces.far, "--json"]));
    assert!(!without["passed"].as_array().unwrap().contains(&"not-pinned".into()), "{without:#}");
}
