//! `wirepath fleet` over namespaces of our own.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use common::star::{Star, right_meshes, seeds};
use common::{
    Data, LONG, Running, all_text, enter, fail, get, has_thread, json, run, succeed, until,
};
use serde_json::Value;

/// The program with its results and its machine-wide lock in a folder of the test: a fleet measures alone.
fn wirepath(data: &Data, args: &[&str]) -> Command {
    let mut command = common::wirepath(args);
    command.env("WIREPATH_DATA", data.path()).env("WIREPATH_LOCKS", data.path());
    command
}

#[test]
fn mesh_names_the_host_whose_receiver_holds_packets_back_and_no_other() {
    let (star, data) = (Star::new(6, Some(3)), Data::new());
    let (on, html) = (star.on(), data.file("mesh.html"));
    let args = ["fleet", "mesh", "--on", &on, "--rounds", "3", "-c", "20", "--seed", "7"];
    let args = [&args[..], &["--html", &html, "--json"]].concat();
    let output = run(wirepath(&data, &args));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let named: Vec<&Value> = document["suspects"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|suspect| suspect["named"] == true)
        .collect();
    let slowed = format!("netns:{}", star.names[3]);
    assert_eq!(named.len(), 1, "{document:#}");
    assert_eq!(
        (&named[0]["host"], &named[0]["other"]),
        (&Value::from(slowed.as_str()), &Value::Null)
    );
    assert!(named[0]["sign"]["slow"].as_f64() > Some(1.1), "{document:#}");
    assert_eq!(document["pairs"].as_array().map(Vec::len), Some(15));
    let page = fs::read_to_string(&html).expect("the page");
    assert!(page.contains(&format!("host {slowed} is slow")), "{page}");
}

#[test]
#[ignore = "takes ten minutes; .ci/nightly runs it"]
fn mesh_of_eight_names_the_slow_host_and_the_lossy_link_in_each_seed_and_nothing_without_them() {
    let mut right = [0, 0];
    for is_faulty in [true, false] {
        let (mut star, data) = (Star::new(8, is_faulty.then_some(3)), Data::new());
        let mut expected = BTreeSet::new();
        if is_faulty {
            star.make_lossy(1, 6);
            expected.insert(format!("{},", star.names[3]));
            expected.insert(format!("{},{}", star.names[1], star.names[6]));
        }
        let on = star.on();
        right[usize::from(is_faulty)] = right_meshes(&expected, |seed| {
            wirepath(&data, &["fleet", "mesh", "--on", &on, "-c", "100", "--seed", seed, "--json"])
        });
    }
    assert_eq!(right, [seeds(); 2], "clean, with both faults");
}

#[test]
fn watched_mesh_serves_what_it_names_and_ends_at_a_signal() {
    let (star, data) = (Star::new(5, Some(1)), Data::new());
    let (on, html) = (star.on(), data.file("mesh.html"));
    let args = ["fleet", "mesh", "--on", &on, "-c", "20", "--rounds", "1", "--html", &html];
    let watch = ["--watch", "--every", "10ms", "--listen", "0", "--json"];
    let mut watching = Running::start(wirepath(&data, &[&args[..], &watch].concat()));
    watching.await_stderr(&format!("host netns:{} is slow", star.names[1]));
    let metrics = get(&watching.stderr(), "/metrics");
    let named = format!("named{{host=\"netns:{}\",other=\"\",sign=\"slow\"}} 1", star.names[1]);
    assert!(metrics.contains(&named), "{metrics}");
    let counts = ["rtt_seconds", "sent_datagrams_total", "host_ratio"].map(|name| {
        let begin = format!("wirepath_mesh_{name}{{");
        metrics.lines().filter(|line| line.starts_with(&begin)).count()
    });
    assert_eq!(counts, [10, 10, 5], "{metrics}");
    assert!(fs::read_to_string(&html).is_ok_and(|page| page.contains("is slow")));
    let holdings = watching.holdings();
    let ended = watching.end_by("INT", LONG);
    holdings.assert_gone();
    let document: Value = serde_json::from_slice(&ended.stdout).expect("a document");
    let suspects = document["suspects"].as_array().expect("a list");
    let code = if suspects.iter().any(|of| of["named"] == true) { 4 } else { 0 };
    assert_eq!(ended.status.code(), Some(code), "{}", all_text(&ended));
}

#[test]
fn echoes_of_a_mesh_answer_pings_of_their_run_alone() {
    let (star, data) = (Star::new(2, None), Data::new());
    let on = star.on();
    let mesh = ["fleet", "mesh", "--on", &on, "--rounds", "1", "-c", "1000000"];
    let mesh = Running::start(wirepath(&data, &mesh));
    let pings = || mesh.descendants().iter().any(|(pid, _)| has_thread(*pid, "wp-ping"));
    assert!(until(LONG, pings), "{}", mesh.stderr());
    for address in ["10.79.0.1", "10.79.0.2"] {
        let program = env!("CARGO_BIN_EXE_wirepath");
        let stranger = [program, "probe", "ping", address, "--no-peer", "-c", "20", "--json"];
        let output = run(enter(&star.hub, &stranger));
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        let delivery = &document["deliveries"]["round-trip"];
        assert_eq!((&delivery["sent_count"], &delivery["lost_count"]), (&20.into(), &20.into()));
    }
    assert!(pings(), "it still measures: {}", mesh.stderr());
    assert_eq!(mesh.end_by("INT", LONG).status.code(), Some(130));
}

const SHORT: [&str; 10] = [
    "probe",
    "--load",
    "ping",
    "--arms",
    "spin",
    "--max-blocks",
    "6",
    "--trial",
    "20ms",
    "--time=60s",
];

#[test]
fn interrupted_runs_of_several_hosts_end_with_130_and_leave_nothing() {
    let (star, data) = (Star::new(2, None), Data::new());
    let on = star.on();
    let endless = ["--time", "300s", "--min-blocks", "1000", "--trial", "50ms"];
    let prove = ["fleet", "prove", "--on", &on, "probe", "--load", "ping", "--arms", "spin"];
    let mut running = Running::start(wirepath(&data, &[&prove[..], &endless].concat()));
    let begun = until(LONG, || {
        running.descendants().iter().any(|(_, line)| line.starts_with("wirepath answer host"))
    });
    assert!(begun && !running.has_ended(), "{}", running.stderr());
    let holdings = running.holdings();
    let output = running.end_by("INT", LONG);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    holdings.assert_gone();
}

fn job_states(status: &Value, at: usize) -> Vec<&str> {
    let jobs = status["experiments"][at]["jobs"].as_array().expect("jobs");
    jobs.iter().map(|job| job["ended"].as_str().unwrap_or("open")).collect()
}

#[test]
fn killed_coordinator_leaves_nothing_and_the_next_one_gives_a_line_per_host() {
    let (star, data) = (Star::new(2, None), Data::new());
    let on = star.on();
    let endless = ["--time", "300s", "--min-blocks", "1000", "--trial", "50ms"];
    let prove = ["fleet", "prove", "--on", &on];
    let arguments = [&prove[..], &["probe", "--load", "ping", "--arms", "spin"], &endless].concat();
    let mut first = Running::start(wirepath(&data, &arguments));
    let begun = until(LONG, || {
        first.descendants().iter().any(|(_, line)| line.starts_with("wirepath answer host"))
    });
    assert!(begun && !first.has_ended(), "{}", first.stderr());
    // One at a time on this machine.
    let alone = fail(wirepath(&data, &[&["prove"], &SHORT[..]].concat()), 1);
    assert!(alone.contains("wirepath fleet"), "{alone}");
    let holdings = first.holdings();
    drop(first.end_by("KILL", LONG));
    holdings.assert_gone();
    let status = json(wirepath(&data, &["fleet", "status", "--json"]));
    assert_eq!((&status["running"], job_states(&status, 0)), (&false.into(), vec!["open"; 2]));
    let arguments = [&["fleet", "prove", "--json", "--on", &on], &SHORT[..]].concat();
    // Two hosts one after the other, each within its own `--time`: more than the limit of `run`.
    let ended = Running::start(wirepath(&data, &arguments)).finish(LONG * 5).expect("it ends");
    assert!(ended.status.success(), "{}", all_text(&ended));
    let document: Value = serde_json::from_slice(&ended.stdout).expect("a document");
    let metric = &document["arms"][0]["metrics"]["rtt_ns_p50"];
    let hosts: Vec<&str> = metric["lines"]
        .as_array()
        .expect("lines")
        .iter()
        .filter_map(|l| l["host"].as_str())
        .collect();
    assert_eq!(hosts.join(","), on, "{document:#}");
    let ids = document["hosts"].as_array().expect("hosts");
    assert!(ids.iter().all(|host| host["id"].is_string()), "{document:#}");
    assert_eq!((&metric["verdict"], &metric["hosts"]), (&Value::Null, &2.into()));
    let status = json(wirepath(&data, &["fleet", "status", "--json"]));
    assert_eq!(job_states(&status, 0), ["done"; 2]);
    assert_eq!(job_states(&status, 1), ["cancelled"; 2]);
}

#[test]
fn bad_input_is_refused_before_anything_is_measured() {
    let data = Data::new();
    let refused = |args: &[&str], code| fail(wirepath(&data, &[&["fleet"], args].concat()), code);
    assert!(refused(&["mesh", "--on", "this"], 2).contains("two hosts"));
    assert!(refused(&["mesh", "--on", "this,this"], 2).contains("twice"));
    assert!(refused(&["mesh", "--on", "db2,this"], 2).contains("is not a valid host"));
    assert!(refused(&["mesh", "--on", "this,netns:a", "--listen", "0"], 2).contains("--watch"));
    assert!(refused(&["mesh", "--on", "this,ssh:db2=x"], 2).contains("is not a valid address"));
    assert!(refused(&["mesh", "--on", "this,netns:no-such-namespace"], 2).contains("no-such"));
    assert!(refused(&["prove", "--on", "this", "nonsense"], 2).contains("nonsense"));
    assert!(refused(&["prove", "--on", "netns:no-such-namespace", "probe"], 2).contains("no-such"));
    let status = succeed(wirepath(&data, &["fleet", "status"]));
    assert!(status.contains("no experiment of a fleet"), "{status}");
}
