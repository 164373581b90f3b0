//! Feeds in place of clients, and the variables that all commands have.

use std::collections::BTreeSet;

use super::*;
use crate::common::{Spaces, all_text, is_installed, run, succeed};

/// UDP server that counts datagrams, ends after `$COUNT` of them, and prints the number at its end.
const COUNTING: &str = r#"
import json, os, signal, socket, sys
count, wanted = 0, int(os.environ.get("COUNT", "0"))
def end(*_):
    print(json.dumps({"count": count, "by": "signal" if _ else "itself"}), flush=True)
    sys.exit(int(os.environ.get("STATUS", "0")))
signal.signal(signal.SIGTERM, end)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", int(os.environ["WIREPATH_PORT"])))
while True:
    server.recv(2048)
    count += 1
    if count == wanted:
        end()
"#;

/// Sends `$1` datagrams, a millisecond apart; without it for ever.
const FEED: &str = r#"
import itertools, os, socket, sys, time
feed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = (os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"]))
for _ in range(int(sys.argv[1])) if len(sys.argv) > 1 else itertools.count():
    feed.sendto(b"x" * 100, to)
    time.sleep(0.001)
"#;

const COUNT: &str = "got_count=server:json:/count lower";

struct Programs {
    data: Data,
    server: String,
    feed: String,
}

fn programs() -> Option<Programs> {
    if !is_installed("python3") {
        return None;
    }
    let data = Data::new();
    let server = format!("exec {}", script(&data, "server.py", COUNTING));
    let feed = format!("exec {}", script(&data, "feed.py", FEED));
    Some(Programs { data, server, feed })
}

impl Programs {
    fn args<'a>(&'a self, feed: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["--server", &self.server, "--feed", feed, "--metric", COUNT][..], more].concat()
    }
}

#[test]
fn a_trial_ends_with_the_server_and_the_feed_is_stopped_then() {
    let Some(programs) = programs() else { return };
    let args =
        programs.args(&programs.feed, &["--arm", "baseline:COUNT=50", "--arm", "b:COUNT=100"]);
    let outcome = proven(&programs.data, &args);
    assert_no_failure(&outcome);
    assert_eq!(outcome["judged"], serde_json::json!(["got_count", "server_cpu_ns"]));
    for (name, count) in [("baseline", 50.0), ("b", 100.0)] {
        assert_eq!(median(&outcome, name, "got_count"), count);
        assert!(median(&outcome, name, "feed_cpu_ns") > 0.0);
        assert!(median(&outcome, name, "interface_packet_count") >= count);
        assert!(arm(&outcome, name)["metrics"]["client_cpu_ns"].is_null());
    }
    // A figure without a prefix is of the arm's program, too.
    let own = programs.args(&programs.feed, &["--arm", "baseline:COUNT=5", "--arm", "b:COUNT=5"]);
    let own: Vec<&str> =
        own.into_iter().map(|arg| if arg == COUNT { "n_count=json:/count" } else { arg }).collect();
    assert_eq!(median(&proven(&programs.data, &own), "b", "n_count"), 5.0);
}

#[test]
fn a_server_that_outlives_its_feed_is_stopped_and_its_last_output_is_read() {
    let Some(programs) = programs() else { return };
    let feed = format!("{} 30", programs.feed);
    let outcome = proven(&programs.data, &programs.args(&feed, &["--arm", "b:X=1"]));
    assert_no_failure(&outcome);
    for name in names(&outcome) {
        assert_eq!(median(&outcome, name, "got_count"), 30.0, "{name}");
    }
}

#[test]
fn feeds_and_servers_that_fail_are_failed_trials_with_their_reasons() {
    let Some(programs) = programs() else { return };
    let said = |feed: &str, more: &[&str]| {
        let more = [&["--arm", "b:X=1"], more].concat();
        let output = run(prove(&programs.data, &programs.args(feed, &more)));
        let said = all_text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    };
    let fails = said("echo no group >&2; exit 3", &[]);
    assert!(fails.contains("the feed ended") && fails.contains("exit status: 3"), "{fails}");
    assert!(fails.contains("no group"), "{fails}");
    // Both would go on for ever.
    let endless = said(&programs.feed, &["--within", "300ms"]);
    assert!(endless.contains("the feed did not end within 300 ms"), "{endless}");
    let nothing = said("sleep 0.1", &[]);
    assert!(nothing.contains("no packet"), "{nothing}");
    let server = ["--arm", "b:STATUS=4", "--arm", "b:COUNT=5", "--arm", "c:COUNT=5"];
    let failed = said(&programs.feed, &server);
    assert!(failed.contains("exit status: 4"), "{failed}");
}

#[test]
fn every_command_knows_its_interface_both_ends_and_this_program() {
    let data = Data::new();
    let log = data.file("log");
    let step = |name: &str| {
        let interfaces = "$WIREPATH_INTERFACE $WIREPATH_NEAR_INTERFACE $WIREPATH_FAR_INTERFACE";
        format!("echo {name} {interfaces} $(readlink $WIREPATH) >>{log}")
    };
    let ends = |server: &str, near: &str, place: &[&str]| {
        let _ = fs::remove_file(&log);
        let (setup, beside, warmup) = (step("setup"), step("beside"), step("warmup"));
        let [server, near] = [server, near].map(step);
        let server = format!("{server}; echo up; exec sleep 1000");
        let (beside, near) = (format!("{beside}; exec sleep 1000"), format!("{near}; echo rps 5"));
        let args = ["--server", &server, "--client", &near, "--warmup", &warmup, "--arm", "b:X=1"];
        let more = ["--setup", &setup, "--beside", &beside, "--beside-ready", "sleep:30"];
        let figure = ["--ready", "line:up", "--metric", "rps=re:rps ([0-9]+)"];
        assert_no_failure(&proven(&data, &[&args[..], &more, &figure, place].concat()));
        let text = fs::read_to_string(&log).expect("a log");
        text.lines().map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let program = env!("CARGO_BIN_EXE_wirepath");
    let expected = |near: &str, far: &str| {
        let line = |name: &str, own: &str| format!("{name} {own} {near} {far} {program}");
        let of_far = ["setup", "beside", "server"].map(|name| line(name, far));
        let of_near = ["warmup", "client"].map(|name| line(name, near));
        of_far.into_iter().chain(of_near).collect::<BTreeSet<String>>()
    };
    assert_eq!(ends("server", "client", &[]), expected("wp-near", "wp-far"));
    let spaces = Spaces::new();
    let (near, far) = (format!("netns:{}", spaces.near), format!("netns:{}", spaces.far));
    let place = ["--near", &near, "--far", &far];
    assert_eq!(ends("server", "client", &place), expected("va", "vb"));
}

#[test]
fn programs_that_end_take_turns_at_a_place_that_exists_with_its_settings() {
    if !is_installed("ethtool") {
        return;
    }
    let (spaces, data) = (Spaces::new(), Data::new());
    let log = data.file("log");
    let seen = "$(ethtool -k $WIREPATH_INTERFACE | grep tx-tcp-segmentation:)";
    let a = format!(
        "a=echo $WIREPATH_ARM $WIREPATH_INTERFACE $WIREPATH_FAR {seen} >>{log}; echo rps 5"
    );
    let features = || succeed(crate::common::enter(&spaces.far, &["ethtool", "-k", "vb"]));
    let before = features();
    for place in [format!("netns:{}", spaces.far), format!("netns:{}@vb", spaces.far)] {
        let _ = fs::remove_file(&log);
        let args = ["--arm", &a, "--switch", "tso=off", "--metric", "rps=re:rps ([0-9]+)"];
        let outcome = proven(&data, &[&args[..], &["--place", &place]].concat());
        assert_no_failure(&outcome);
        let text = fs::read_to_string(&log).expect("a log");
        let lines: BTreeSet<&str> = text.lines().collect();
        let line =
            |arm: &str, state: &str| format!("{arm} vb 10.77.0.2 tx-tcp-segmentation: {state}");
        // The control runs under the name of the baseline.
        assert_eq!(lines, BTreeSet::from([&*line("a", "on"), &*line("+tso=off", "off")]));
        assert_eq!(features(), before);
        assert!(outcome["machine"]["nic"].as_str().expect("text").contains("vb"), "{outcome:#}");
    }
    let missing = format!("netns:{}@nosuch", spaces.far);
    let args = ["--arm", "a=true", "--arm", "b=true", "--place", &missing];
    let said = crate::common::fail(prove(&data, &args), 2);
    assert!(said.contains("no interface nosuch"), "{said}");
}
