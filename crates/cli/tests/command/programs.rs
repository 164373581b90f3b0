//! Real servers and clients from Debian's packages.

use super::*;
use crate::common::is_installed;

/// Asserts that a run of two arms gave every figure in every trial.
fn assert_measured(outcome: &Value, figures: &[&str]) {
    assert_no_failure(outcome);
    for name in names(outcome) {
        for figure in figures.iter().chain(&["cpu_ns_per_packet", "server_cpu_ns"]) {
            assert!(median(outcome, name, figure) > 0.0, "{figure} of {name}");
        }
        assert_eq!(arm(outcome, name)["trials"], outcome["blocks"], "{name}");
    }
}

#[test]
fn redis_by_knobs() {
    if !is_installed("redis-server") || !is_installed("redis-benchmark") {
        return;
    }
    let data = Data::new();
    let server =
        "exec redis-server --port $WIREPATH_PORT --bind 0.0.0.0 --save '' --protected-mode no";
    let client = "redis-benchmark -h $WIREPATH_FAR -p $WIREPATH_PORT -t get -n 2000 -c 4 --csv";
    let args = [
        "--server",
        server,
        "--client",
        client,
        "--adapter",
        "redis-benchmark",
        "--switch",
        "tso=off",
        "--switch",
        "near:gro=on",
        "--keep-servers",
    ];
    let outcome = proven(&data, &args);
    assert_measured(&outcome, &["rps", "p50_ms", "p99_ms", "mean_ms"]);
    assert_eq!(
        outcome["judged"],
        serde_json::json!(["rps", "p50_ms", "p99_ms", "cpu_ns_per_packet"])
    );
    assert_eq!(names(&outcome)[2..], ["+tso=off", "+near:gro=on"]);
    assert_eq!(arm(&outcome, "baseline")["metrics"]["rps"]["unit"], "rps");
}

#[test]
fn nginx_by_command() {
    if !is_installed("nginx") || !is_installed("wrk") {
        return;
    }
    let data = Data::new();
    let folder = data.path().display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind}; "))
        .concat();
    let configuration = |name: &str, extra: &str| {
        let text = format!(
            "user root; daemon off; worker_processes 1; error_log stderr; pid {folder}/{name}.pid;\n\
             events {{}}\nhttp {{ access_log off; {temporary} {extra}\n\
             server {{ listen 8080; location / {{ return 200 hello; }} }} }}\n"
        );
        let file = data.file(name);
        fs::write(&file, text).unwrap();
        format!("{name}=exec nginx -c {file}")
    };
    let plain = configuration("plain", "");
    let unkept = configuration("unkept", "keepalive_timeout 0;");
    let args = [
        "--arm",
        &plain,
        "--arm",
        &unkept,
        "--ready",
        "tcp:8080",
        "--adapter",
        "wrk",
        "--metric",
        "rps",
        "--client",
        // Its own time-out of 2 s is shorter than a busy machine may take.
        "wrk -t 1 -c 1 -d 1 --timeout 30s --latency http://$WIREPATH_FAR:8080/",
    ];
    let outcome = proven(&data, &args);
    assert_measured(&outcome, &["rps", "p99_us"]);
    // A connection for each request. No verdict: a few blocks on a busy machine may be inconclusive.
    assert!(median(&outcome, "unkept", "rps") < median(&outcome, "plain", "rps"), "{outcome:#}");
}

/// One connection that sets a key and reads it again and again.
const MEMCACHED_CLIENT: &str = r#"
import os, socket, time
client = socket.create_connection((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])), 5)
stream = client.makefile("rb")
client.sendall(b"set k 0 0 5\r\nhello\r\n")
assert stream.readline() == b"STORED\r\n"
begun = time.perf_counter()
for _ in range(500):
    client.sendall(b"get k\r\n")
    lines = [stream.readline() for _ in range(3)]
    assert lines[1] == b"hello\r\n", lines
print("rps", 500 / (time.perf_counter() - begun))
"#;

#[test]
fn memcached_by_command() {
    if !is_installed("python3") {
        return;
    }
    if !is_installed("memcached") {
        return;
    }
    let data = Data::new();
    let client = script(&data, "client.py", MEMCACHED_CLIENT);
    let server = |name: &str, threads: &str| {
        format!("{name}=exec memcached -u root -l 0.0.0.0 -p $WIREPATH_PORT -t {threads}")
    };
    let (one, four) = (server("one", "1"), server("four", "4"));
    let metric = ["--metric", "rps=re:rps ([0-9.]+)"];
    let arms = ["--arm", &one, "--arm", &four, "--client", &client];
    assert_measured(&proven(&data, &[&arms[..], &metric].concat()), &["rps"]);
}

#[test]
fn a_name_server_by_environment() {
    if !is_installed("named") || !is_installed("dnsperf") {
        return;
    }
    let data = Data::new();
    let folder = data.path().display();
    let zone = "$TTL 60\n@ IN SOA ns root 1 60 60 60 60\n@ IN NS ns\nns IN A 10.0.0.1\n";
    fs::write(data.file("zone"), zone).unwrap();
    let configuration = format!(
        "options {{ directory \"{folder}\"; listen-on {{ any; }}; recursion no; pid-file none; \
         session-keyfile none; }};\ncontrols {{ }};\n\
         zone \"test\" {{ type primary; file \"zone\"; }};\n"
    );
    fs::write(data.file("named.conf"), configuration).unwrap();
    fs::write(data.file("queries"), "ns.test A\ntest NS\n".repeat(100)).unwrap();
    let server =
        format!("exec named -g -4 -n ${{THREADS:-1}} -p $WIREPATH_PORT -c {folder}/named.conf");
    let client = format!("dnsperf -s $WIREPATH_FAR -p $WIREPATH_PORT -d {folder}/queries -n 5");
    let args = [
        "--server",
        &server,
        "--arm",
        "two:THREADS=2",
        "--client",
        &client,
        "--adapter",
        "dnsperf",
        "--ready",
        "line:all zones loaded|running$",
        "--port",
        "5300",
    ];
    assert_measured(&proven(&data, &args), &["qps"]);
}
