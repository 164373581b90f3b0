//! Experiments in labs, and what they leave.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::echo::{METRIC, PING, SERVER};
use crate::common::{Running, all_text, json, run, succeed};
use crate::{Home, USER, absent, assert_measured};

const NET_ADMIN: &str = "no CAP_NET_ADMIN on this host";
const BPF: &str = "no CAP_BPF on this host";

/// Some blocks, of short trials.
const SHORT: [&str; 5] = ["--max-blocks", "6", "--min-blocks", "6", "--json"];

fn prove(home: &Home, args: &[&str]) -> Command {
    home.wirepath(&[&["prove"][..], args, &SHORT].concat())
}

fn reason<'a>(absent: &'a [(String, String)], name: &str) -> Option<&'a str> {
    absent.iter().find(|(arm, _)| arm == name).map(|(_, what)| what.as_str())
}

#[test]
fn a_ladder_of_the_probe_runs_and_switches_that_need_the_host_are_known_before() {
    let Some(home) = Home::new() else { return };
    let outcome =
        json(prove(&home, &["probe", "--arms", "all", "--trial", "20ms", "--time", "60s"]));
    assert_measured(&outcome);
    let absent = absent(&outcome);
    for (name, what) in [
        ("+bypass", BPF),
        // It is possible where bypass is.
        ("+native", BPF),
        ("+busy-poll", NET_ADMIN),
        ("+rps", NET_ADMIN),
        ("+defer-hard-irqs", NET_ADMIN),
    ] {
        assert_eq!(reason(&absent, name), Some(what), "{absent:?}");
    }
    let idle = reason(&absent, "+no-idle-states");
    assert!(idle.is_none_or(|what| what.contains("/dev/cpu_dma_latency")), "{absent:?}");
    // Rungs above those that cannot run are measured.
    for name in ["+spin", "+batch", "+epoll", "+zero-copy-send"] {
        assert_eq!(reason(&absent, name), None, "{absent:?}");
    }
}

#[test]
fn results_belong_to_the_user_and_are_read_again() {
    let Some(home) = Home::new() else { return };
    let outcome = json(prove(&home, &["probe", "--arms", "batch", "--trial", "20ms"]));
    assert_measured(&outcome);
    let history = Path::new(&home.file(".local/share/wirepath/history.db")).to_owned();
    let owner = fs::metadata(&history).expect("a history").uid();
    assert_eq!(owner.to_string(), USER);
    let list = json(home.wirepath(&["history", "list", "--json"]));
    assert_eq!(list["experiments"][0]["id"], outcome["id"]);
    let page = home.file("page.html");
    succeed(home.wirepath(&["report", "last", "--html", &page]));
    assert_eq!(fs::metadata(&page).expect("a page").uid().to_string(), USER);
    assert!(succeed(home.wirepath(&["report", "last"])).contains("batch"));
}

#[test]
fn servers_and_clients_run_as_the_user_without_capabilities_and_one_note_tells_of_control_groups() {
    let Some(home) = Home::new() else { return };
    if !crate::common::is_installed("python3") {
        return;
    }
    for (name, text) in [("server.py", SERVER), ("client.py", PING)] {
        fs::write(home.file(name), text).expect("a program");
    }
    let seen = home.file("seen");
    let look = format!("grep -E '^(Uid|Cap(Inh|Prm|Eff|Amb)):' /proc/self/status >> {seen}");
    let server = format!("{look}; exec python3 {}", home.file("server.py"));
    let (old, new) = (format!("old={server}"), format!("new={server}"));
    let client = format!("{look}; exec python3 {}", home.file("client.py"));
    let arms = ["command", "--arm", &old, "--arm", &new, "--ready", "udp", "--client", &client];
    let rest = ["--metric", METRIC, "--time", "60s"];
    let outcome = json(prove(&home, &[&arms[..], &rest].concat()));
    assert_measured(&outcome);

    let seen = fs::read_to_string(seen).expect("they looked");
    let lines: Vec<Vec<&str>> =
        seen.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.len() > 5 * 6, "{seen}");
    for line in lines {
        match line[0] {
            "Uid:" => assert!(line[1..].iter().all(|uid| *uid == USER), "{line:?}"),
            // Inheritable alone grants nothing.
            "CapInh:" => {}
            _ => assert_eq!(line[1].trim_start_matches('0'), "", "{line:?}"),
        }
    }
    let notes = outcome["warnings"].as_array().expect("a list").iter();
    let notes = notes.filter(|note| note["what"].as_str().is_some_and(is_of_groups));
    assert!(notes.count() <= 1, "{}", outcome["warnings"]);
}

fn is_of_groups(what: &str) -> bool {
    what.contains("no control group")
}

#[cfg(feature = "feed")]
#[test]
fn a_ladder_of_the_feed_runs_without_the_switches_that_need_the_host() {
    let Some(home) = Home::new() else { return };
    let outcome = json(prove(&home, &["feed", "--arms", "all", "--trial", "50ms"]));
    assert_measured(&outcome);
    let absent = absent(&outcome);
    assert_eq!(reason(&absent, "+bypass"), Some(BPF), "{absent:?}");
    for name in ["+busy-poll", "+rps"] {
        assert_eq!(reason(&absent, name), Some(NET_ADMIN), "{absent:?}");
    }
    for (name, missing) in [("+fifo", "CAP_SYS_NICE"), ("+lock-memory", "CAP_IPC_LOCK")] {
        // A limit of the user may allow it.
        assert!(reason(&absent, name).is_none_or(|what| what.contains(missing)), "{absent:?}");
    }
}

#[test]
fn nothing_is_left_of_a_run_that_is_interrupted() {
    let Some(home) = Home::new() else { return };
    let args = ["prove", "probe", "--arms", "spin", "--trial", "20ms", "--time", "600s"];
    let running = Running::start(home.wirepath(&args));
    let has_lab = crate::common::until(crate::common::LONG, || !running.namespaces().is_empty());
    assert!(has_lab, "{}", running.stderr());
    let holdings = running.holdings();
    let output = running.end_by("INT", crate::common::LONG);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    let is_gone = crate::common::until(crate::common::LONG, || holdings.links().is_empty());
    assert!(is_gone, "{:?}", holdings.links());
}

#[test]
fn series_in_processes_of_their_own_have_the_same_rights() {
    let Some(home) = Home::new() else { return };
    let args = ["probe", "--arms", "batch", "--trial", "20ms", "--runs", "2"];
    let document = json(prove(&home, &args));
    let runs = document["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2);
    runs.iter().for_each(assert_measured);
}

#[test]
fn paths_are_shown_as_they_are_possible_in_a_namespace_of_their_own() {
    let Some(home) = Home::new() else { return };
    let list = json(home.wirepath(&["paths", "probe", "--json"]));
    let path = &list["paths"][0];
    assert_eq!(path["support"]["status"], "yes", "{path}");
    let switches = path["switches"].as_array().expect("a list");
    let bypass: &Value = switches.iter().find(|it| it["id"] == "bypass").expect("a switch");
    assert_eq!(bypass["support"]["what"], BPF);
}

#[test]
fn commands_that_cannot_run_name_the_right_that_is_missing() {
    let Some(home) = Home::new() else { return };
    let explain = run(home.wirepath(&["explain", "lo", "--time", "1s"]));
    let storm = run(home.wirepath(&["prove", "probe", "--load", "storm"]));
    let mut runs = vec![explain, storm];
    if cfg!(feature = "tunnel") {
        runs.push(run(home.wirepath(&["prove", "tunnel"])));
    }
    // Root of a user namespace has no more rights on the host.
    if crate::common::is_installed("unshare") {
        let program = home.file("wirepath");
        let line = ["unshare", "-Urn", &program, "explain", "lo", "--time", "1s"];
        runs.push(run(home.user(&line)));
    }
    for output in runs {
        let said = all_text(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("CAP_BPF") && said.contains("setcap"), "{said}");
        assert!(!said.contains("or newer"), "the kernel is not the cause: {said}");
    }
}
