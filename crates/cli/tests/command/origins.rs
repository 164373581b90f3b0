//! Figures of the server's output, of a file that it writes, and of a program beside the trials.

use super::*;
use crate::common::{all_text, fail, is_installed, run};

/// UDP echo server that reports the requests of each 300 as they come, and all of them at its end, also in a file.
const COUNTING: &str = r#"
import json, os, signal, socket, sys
count = 0
def end(*_):
    if report := os.environ.get("REPORT"):
        open(report, "w").write(json.dumps({"all": {"count": count}}))
    print(json.dumps({"count": count, "p99": "1.5ms"}), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", int(os.environ["WIREPATH_PORT"])))
print("start 7", flush=True)
while True:
    data, client = server.recvfrom(2048)
    server.sendto(data, client)
    count += 1
    if count % 300 == 0:
        print("batch", count, flush=True)
"#;

/// 300 requests, each of which is answered once.
const REQUESTS: &str = r#"
import os, socket
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(10)
client.connect((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])))
for number in range(300):
    client.send(b"%d" % number)
    assert client.recv(64) == b"%d" % number
"#;

/// Arguments of an experiment with the server and the client.
fn args(data: &Data) -> Vec<String> {
    let (server, client) =
        (script(data, "server.py", COUNTING), script(data, "client.py", REQUESTS));
    let server = format!("exec {server}");
    ["--server", &server, "--client", &client, "--ready", "udp", "--arm", "b:X=1"]
        .map(str::to_owned)
        .into()
}

fn with<'a>(args: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    [&args.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat()
}

#[test]
fn figures_come_from_the_servers_output_and_file_after_its_end_and_from_the_program_beside() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (args, report) = (args(&data), data.file("report.json"));
    let report_metric = format!("file_count=file:{report}:json:/all/count lower");
    let env = format!("REPORT={report}");
    let [a, b] = ["baseline", "b"].map(|name| format!("{name}:{env}"));
    let beside = "trap 'echo asked 5; exit 0' INT; echo watching; while :; do sleep 0.05; done";
    let metrics = [
        "--metric",
        "count_count=server:json:/count lower",
        "--metric",
        "p99_us=server:json:/p99",
        "--metric",
        "batch_count=server:re:batch ([0-9]+)",
        "--metric",
        &report_metric,
        "--metric",
        "asked_count=beside:re:asked ([0-9]+)",
        "--beside",
        beside,
        "--beside-ready",
        "line:watching",
        "--arm",
        &a,
        "--arm",
        &b,
    ];
    let outcome = proven(&data, &with(&args, &metrics));
    assert_no_failure(&outcome);
    for name in names(&outcome) {
        for metric in ["count_count", "file_count", "batch_count"] {
            assert_eq!(median(&outcome, name, metric), 300.0, "{metric} of {name}");
        }
        assert_eq!(median(&outcome, name, "p99_us"), 1500.0);
        assert_eq!(median(&outcome, name, "asked_count"), 5.0);
    }
}

#[test]
fn a_kept_servers_output_is_the_part_of_the_trial() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let args = args(&data);
    let more = ["--keep-servers", "--grace", "1s", "--metric"];
    let batch = ["batch_count=server:re:batch ([0-9]+)"];
    let outcome = proven(&data, &with(&args, &[&more[..], &batch].concat()));
    assert_no_failure(&outcome);
    let trials = &arm(&outcome, "b")["metrics"]["batch_count"]["trials"];
    let counts: Vec<f64> =
        trials.as_array().expect("trials").iter().filter_map(Value::as_f64).collect();
    // It counts on from trial to trial until it is started anew.
    assert!(counts.len() >= 6 && counts.iter().all(|count| count % 300.0 == 0.0), "{counts:?}");
    assert!(counts.iter().any(|count| *count != counts[0]), "{counts:?}");
    // Printed before the trials: not of them.
    let start = ["--metric", "start_count=server:re:start ([0-9]+)", "--keep-servers"];
    let output = run(prove(&data, &with(&args, &[&start[..], &["--grace", "100ms"]].concat())));
    let said = all_text(&output);
    assert!(!output.status.success() && said.contains("no match"), "{said}");
}

#[test]
fn a_file_that_is_missing_or_of_an_earlier_trial_fails_the_trial() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (args, report) = (args(&data), data.file("report.json"));
    let metric = format!("file_count=file:{report}:json:/all/count lower");
    let said = |args: &[&str]| {
        let output = run(prove(&data, args));
        assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
        all_text(&output)
    };
    let missing = said(&with(&args, &["--metric", &metric]));
    assert!(missing.contains("report.json") && missing.contains("before it ends"), "{missing}");
    fs::write(&report, "{\"all\": {\"count\": 300}}").expect("a file");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let old = said(&with(&args, &["--metric", &metric]));
    assert!(old.contains("older than the trial"), "{old}");
}

#[test]
fn a_program_beside_that_ends_early_or_fails_fails_the_trial() {
    let data = Data::new();
    let metric = ["--metric", "score=re:score ([0-9]+) higher", "--place", "this@lo"];
    let arms = ["--arm", "a=sleep 0.2; echo score 1", "--arm", "b=sleep 0.2; echo score 2"];
    for (beside, says) in [
        ("echo gone; exit 0", "gone"),
        ("trap 'exit 9' INT; echo bad; while :; do sleep 0.05; done", "exit status: 9"),
    ] {
        let args = [&metric[..], &arms, &["--beside", beside, "--beside-ready", "sleep:50"]];
        let output = run(prove(&data, &args.concat()));
        let said = all_text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("program beside") && said.contains(says), "{said}");
    }
}

#[test]
fn figures_of_programs_that_the_experiment_lacks_are_refused_with_the_remedy() {
    let data = Data::new();
    let arms = ["--arm", "a=true", "--arm", "b=true"];
    let refused = |more: &[&str]| fail(prove(&data, &[&arms[..], more].concat()), 2);
    assert!(refused(&["--metric", "p_us=server:json:/p"]).contains("leave out server:"));
    let client = ["--client", "true", "--metric", "p_us=beside:json:/p"];
    assert!(refused(&client).contains("add --beside"));
    assert!(refused(&["--beside", "true"]).contains("--place"));
    assert!(refused(&["--beside-ready", "tcp:1", "--client", "true"]).contains("add --beside"));
    let feed = ["--feed", "true", "--adapter", "wrk"];
    assert!(refused(&feed).contains("--adapter reads a client's output"));
    let of_client = ["--feed", "true", "--metric", "client_wall_ns"];
    assert!(refused(&of_client).contains("--feed has none"));
    assert!(refused(&["--feed", " "]).contains("is empty"));
    assert!(refused(&["--place", "netns:x", "--feed", "true"]).contains("needs a wire"));
    assert!(refused(&["--place", "there"]).contains("netns:NAME"));
}
