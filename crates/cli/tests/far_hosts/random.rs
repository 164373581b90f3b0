//! Either end of each service is killed at moments of no plan: while it starts, greets, measures or ends.

use std::hash::{BuildHasher, RandomState};

use super::*;

/// Moments a service and victim. `WIREPATH_TEST_KILLS=50` sets another number.
fn kill_count() -> u64 {
    std::env::var("WIREPATH_TEST_KILLS").map_or(3, |text| text.parse().expect("a number"))
}

/// Moments of the first second, after which every service measures.
fn moments() -> Vec<Duration> {
    let random = RandomState::new();
    (0..kill_count()).map(|n| Duration::from_millis(random.hash_one(n) % 1000)).collect()
}

/// Starts `near` and kills it, or the oldest process at the far end beside `before`.
fn kill_after(moment: Duration, near: Command, spaces: &Spaces, before: &[u32], is_near: bool) {
    let near = Running::start(near);
    if is_near {
        thread::sleep(moment);
        near.end_by("KILL", LONG);
        return;
    }
    let started = || far_pids(spaces).into_iter().find(|pid| !before.contains(pid));
    if !until(LONG, || started().is_some()) {
        panic!("no far end: {}", near.stderr());
    }
    thread::sleep(moment);
    // It may be another one by now, or none.
    let Some(victim) = started() else { return };
    let mut kill = Command::new("kill");
    kill.args(["-KILL", &victim.to_string()]);
    run(kill);
    // A far end that was replaced by a new one, or a failed trial, ends no command.
    let output = near.end_by("INT", LONG * 2);
    assert!(matches!(output.status.code(), Some(1 | 130)), "{}", all_text(&output));
}

#[test]
fn nothing_of_a_namespace_is_left_whenever_either_end_is_killed() {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    for path in ["feed", "probe"] {
        for (n, moment) in moments().into_iter().enumerate() {
            let near = spaces
                .near(&[&["prove", path, "--far", &far, "--no-history"][..], &ENDLESS].concat());
            eprintln!("{path} after {moment:?}");
            kill_after(moment, near, &spaces, &[], n % 2 == 0);
            assert_far_end_gone(&spaces, &[]);
        }
    }
}

#[test]
fn nothing_of_a_host_is_left_whenever_either_end_is_killed() {
    let Some(sshd) = Sshd::start("BIN:/usr/sbin:/usr/bin:/bin") else { return };
    let server = ["--server", "exec sleep 1000", "--client", "exec sleep 1000", "--ready"];
    let server = [&server[..], &["sleep:10", "--within", "900s", "--arm", "x:X=1"]].concat();
    let feed = &["--no-history"][..];
    for (path, args) in [("feed", feed), ("probe", feed), ("command", &server)] {
        for (n, moment) in moments().into_iter().enumerate() {
            let limits: &[&str] = if path == "command" { &["--no-history"] } else { &ENDLESS };
            let near = sshd.near(path, &[args, limits].concat());
            eprintln!("{path} after {moment:?}");
            kill_after(moment, near, &sshd.spaces, &sshd.own(), n % 2 == 0);
            sshd.assert_nothing_left();
        }
    }
}
