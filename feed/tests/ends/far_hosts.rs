//! `prove feed` whose exchange is at a far end.

use std::process::Command;

use serde_json::Value;

use crate::common::far_end::{
    ENDLESS, SBIN_PATH, SHORT, Sshd, arm, assert_far_end_gone,
    assert_kills_leave_nothing_in_a_namespace, assert_kills_leave_nothing_on_a_host, command_line,
    far_pids, near_packets,
};
use crate::common::{
    Data, FAR_IP, LONG, Running, Spaces, enter, fail, is_installed, json, succeed, until,
};

#[path = "../receiver/mod.rs"]
mod program;

const ARMS: [&str; 5] = ["--load", "paced", "--arms", "quiet+spin+pin,quiet+bypass", "--json"];

fn prove_feed(spaces: &Spaces, args: &[&str]) -> Command {
    spaces.near(&[&["prove", "feed", "--far", &format!("netns:{}", spaces.far)], args].concat())
}

/// Asserts that each quote of an arm is in its books.
fn assert_balanced(document: &Value, name: &str) {
    let arm = arm(document, name);
    assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
    let counters = arm["counters"].as_object().expect("counters");
    let count = |name: &str| counters[name].as_u64().expect("a count");
    let accounted = count("received_count") + count("dropped_by_socket_count");
    assert!(count("sent_count") > 0 && count("sent_count") == accounted, "{arm:#}");
    assert_eq!(count("missing_count") + count("stray_count"), 0, "{arm:#}");
    let calibrated = arm["mode"]["match→app"].as_str().expect("a mode");
    assert!(calibrated.contains("too low by at most"), "both ends read one clock: {calibrated}");
}

#[test]
fn feed_of_a_far_exchange_is_received_in_full_on_the_named_interface() {
    let spaces = Spaces::with_queues(2);
    let before = near_packets(&spaces);
    let cpu = sys::affinity::allowed_cpus().expect("CPUs")[0].to_string();
    let named = ["-i", "va", "--app-cpu", &cpu];
    let document = json(prove_feed(&spaces, &[&ARMS[..], &SHORT, &named].concat()));
    let after = near_packets(&spaces);
    for name in ["baseline", "quiet+spin+pin", "quiet+bypass"] {
        assert_balanced(&document, name);
    }
    assert_eq!(arm(&document, "quiet+spin+pin")["mode"]["near CPU"], format!("[{cpu}]"));
    // A calibration of 1,000 quotes, and the trials.
    assert!(after[0] - before[0] > 1_000, "{before:?} {after:?}");
    assert!(after[1] - before[1] < 100, "{before:?} {after:?}");
    assert!(document["machine"]["nic"].as_str().is_some_and(|nic| nic.starts_with("va (")));
    assert!(document["machine"]["far"]["nic"].as_str().is_some_and(|nic| nic.starts_with("vb (")));
    assert_far_end_gone(&spaces, &[]);
    let near = spaces.near_link();
    assert!(!near.contains("xdp"), "{near}");
}

#[test]
fn nothing_of_a_far_exchange_is_left_when_the_near_end_is_killed() {
    let spaces = Spaces::new();
    let data = Data::new();
    let dir = data.path().to_str().expect("a plain path");
    let mut near =
        Running::start(prove_feed(&spaces, &[&ENDLESS[..], &["--data-dir", dir]].concat()));
    assert!(
        until(LONG, || near.has_ended() || data.trial_count() >= 2) && !near.has_ended(),
        "{}",
        near.stderr()
    );
    assert!(
        far_pids(&spaces)
            .into_iter()
            .any(|pid| command_line(pid).starts_with("wirepath answer feed")),
        "the check itself must see it"
    );
    near.end_by("KILL", LONG);
    assert_far_end_gone(&spaces, &[]);
}

#[test]
fn exchange_on_a_host_by_ssh_is_received_in_full_and_leaves_nothing() {
    let Some(sshd) = Sshd::start("BIN:/usr/bin:/bin") else { return };
    let args = ["--load", "paced", "--arms", "quiet+spin+pin", "--json"];
    let document = json(sshd.near("feed", &[&args[..], &SHORT].concat()));
    for name in ["baseline", "quiet+spin+pin"] {
        assert_balanced(&document, name);
    }
    assert_eq!(document["load"]["far"], format!("ssh:root@{FAR_IP}"));
    sshd.assert_nothing_left();
}

#[test]
fn feed_that_does_not_arrive_is_explained() {
    let spaces = Spaces::new();
    if !is_installed("nft") {
        return;
    }
    let rule =
        "table ip t { chain c { type filter hook input priority 0; ip daddr 239.0.0.0/8 drop; }; }";
    succeed(enter(&spaces.near, &["nft", rule]));
    let said = fail(prove_feed(&spaces, &[&["--arms", "quiet"][..], &SHORT].concat()), 1);
    assert!(said.contains("239.255.100.100:10000") && said.contains("va"), "{said}");
    let said = fail(spaces.near(&["prove", "feed", "--far", &format!("peer:{FAR_IP}")]), 1);
    assert!(said.contains("use --far netns:NAME"), "{said}");
    let said = fail(prove_feed(&spaces, &["--direction", "receive"]), 2);
    assert!(said.contains("load burst has no direction to choose"), "{said}");
    assert_far_end_gone(&spaces, &[]);
}

#[test]
fn nothing_of_a_namespace_is_left_whenever_either_end_is_killed() {
    assert_kills_leave_nothing_in_a_namespace("feed");
}

#[test]
fn nothing_of_a_host_is_left_whenever_either_end_is_killed() {
    let Some(sshd) = Sshd::start(SBIN_PATH) else { return };
    assert_kills_leave_nothing_on_a_host(&sshd, "feed", &ENDLESS);
}

/// The page's receiver on another host, with the feed here.
#[test]
fn a_receiver_on_another_host_is_measured_by_the_file_of_its_page() {
    let Some(sshd) = Sshd::start("BIN:/usr/bin:/bin") else { return };
    let Some(receiver) = program::build(sshd.data.path(), &[]) else { return };
    let named = "receiver.toml --far ssh:root@rx2";
    assert_eq!(program::page_command("ssh:"), named, "the command below is the page's");
    // The login folder is the user's own.
    let file = program::page_file().replace("./receiver", &receiver);
    let place = sshd.data.file("receiver.toml");
    std::fs::write(&place, file).expect("a file");
    let data = ["--data-dir", sshd.data.path().to_str().expect("a plain path")];
    let limits = ["--max-blocks", "6", "--time", "100s", "--json"];
    let mut command = sshd.near("command", &[&[&*place], &data[..], &limits].concat());
    command.env("WIREPATH_STATE", sshd.data.file("near-state"));
    let document = json(command);
    for name in ["baseline", "env:N=-n", "env:C=-c 1", "env:R=-r 80", "env:Q=-q"] {
        let arm = arm(&document, name);
        assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
        for figure in ["p99_us", "p999_us", "within_1us_share", "server_cpu_ns"] {
            assert!(arm["metrics"][figure]["median"].as_f64() > Some(0.0), "{figure}: {arm:#}");
        }
    }
    sshd.assert_nothing_left();
}
