//! Nothing outlives a process that is killed at any moment of a trial.

use std::env;
use std::io::{Write, stdout};
use std::process::Command;
use std::time::Duration;

use sys::child::{Child, ChildPlace};
use testkit::LONG;
use wirepath_lab::{Pair, PairSpec};

use crate::common::{GO_ON, Home, MARK, marked, own_groups, ready};

const HAS_GROUPS: &str = "WIREPATH_PROGRAM_TEST_GROUPS";

/// Moments of the role, in their order.
const MOMENTS: [&str; 10] = [
    "lab made",
    "server started",
    "daemon started",
    "server ready",
    "daemon ready",
    "client started",
    "usage read",
    "client ended",
    "flood started",
    "server stopping",
];

fn say(moment: &str) {
    assert!(MOMENTS.contains(&moment));
    stdout().write_all(format!("moment {moment}\n\n").as_bytes()).unwrap();
}

/// Child process of the next test, which kills it.
#[test]
#[ignore = "role of a child process"]
fn runs_a_trial_until_killed() {
    let home = Home::new(env::var(HAS_GROUPS).unwrap() == "true");
    let pair = Pair::new(&PairSpec::default()).unwrap();
    writeln!(stdout(), "namespace {}\n", pair.far.netns.inode().unwrap()).unwrap();
    say("lab made");
    let command = "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo ready; \
                   while :; do sleep 1; done";
    let mut server = home.spec("server", command);
    // The mark of the test comes with this process.
    (server.netns, server.env) = (Some(&pair.far.netns), Vec::new());
    let mut server = home.start_as(&server);
    say("server started");
    let body = "signal.signal(15, signal.SIG_IGN)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"0.0.0.0\", 53))
time.sleep(600)";
    let mut daemon = home.daemon(body);
    daemon.netns = Some(&pair.far.netns);
    daemon.env.retain(|(name, _)| name != MARK);
    let mut daemon = home.start_as(&daemon);
    say("daemon started");
    server.wait_ready(&ready("line:^ready$"), LONG, &GO_ON).unwrap();
    say("server ready");
    daemon.wait_ready(&ready("udp:53"), LONG, &GO_ON).unwrap();
    say("daemon ready");
    let start = |command| {
        let mut client = home.spec("client", command);
        (client.netns, client.env) = (Some(&pair.near.netns), Vec::new());
        home.start_as(&client)
    };
    let client = start("sleep 600 & sleep 0.2");
    say("client started");
    daemon.usage().unwrap();
    say("usage read");
    client.wait(LONG, &GO_ON).unwrap();
    say("client ended");
    let flood = start("yes");
    say("flood started");
    assert!(flood.wait(Duration::from_millis(50), &GO_ON).is_err());
    say("server stopping");
    // Neither complies.
    server.stop(LONG * 20).unwrap();
}

#[test]
fn killed_owner_leaves_no_process_group_or_namespace_at_ten_moments() {
    if !testkit::is_installed("python3") {
        return;
    }
    for has_groups in [true, false] {
        for (i, moment) in MOMENTS.iter().enumerate() {
            let mark = format!("kill-{}-{has_groups}-{i}", std::process::id());
            let mut role = testkit::role("kill::runs_a_trial_until_killed");
            role.env(MARK, &mark).env(HAS_GROUPS, has_groups.to_string());
            let mut role = Child::spawn(role, &ChildPlace::default()).unwrap();
            let said = role.wait_for_stdout(&format!("moment {moment}\n"), LONG);
            let text = String::from_utf8(role.stdout_so_far()).unwrap();
            assert!(said, "{moment}: {text} {:?}", role.wait(Duration::ZERO));
            let namespace = text.split_once("namespace ").unwrap().1.lines().next().unwrap();
            let namespace: u64 = namespace.parse().unwrap();
            if i > 0 {
                assert!(marked(&mark).len() > 2, "the search must see a program in use");
                assert!(testkit::is_netns_held(namespace));
                assert_eq!(has_groups, !own_groups(role.pid()).is_empty());
            }
            let pid = role.pid().to_string();
            assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
            role.wait(LONG).unwrap().expect("killed");
            let gone = testkit::until(LONG, || {
                marked(&mark).is_empty()
                    && own_groups(role.pid()).is_empty()
                    && !testkit::is_netns_held(namespace)
            });
            let left = (marked(&mark), own_groups(role.pid()));
            assert!(gone, "at {moment:?}, with groups {has_groups}: {left:?}");
        }
    }
}
