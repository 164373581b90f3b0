//! Helpers that tests of several crates share. A dev-dependency, never part of the program.

pub mod arms;
mod classifier;
pub mod corpus;
#[cfg(feature = "engines")]
pub mod engines;
pub mod hostile;
mod pages;
pub mod series;
#[cfg(feature = "servers")]
pub mod servers;
mod skips;

pub use classifier::{CONSTANT_HASH, XDP_PASS, bpf_object};
pub use pages::page_file;
pub use skips::{NEEDS, is_installed, skip};

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for events that must happen on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

/// Packets that this machine dropped because a CPU's backlog was full.
///
/// Every veth of the machine shares that queue: a flood of another program may fill it. Usually none is dropped.
///
/// Source: softnet_seq_show of net/core/net-procfs.c, the second column.
pub fn backlog_drop_count() -> u64 {
    let table = std::fs::read_to_string("/proc/net/softnet_stat").expect("the kernel has it");
    let drops = table.lines().map(|line| line.split_whitespace().nth(1).expect("a column"));
    drops.map(|drops| u64::from_str_radix(drops, 16).expect("hexadecimal")).sum()
}

/// Requests among the first `count` that have no answer in the output of `ping -c COUNT -w SECONDS`.
///
/// With `-w` ping goes on until it has `count` answers. Without it, it waits for the last one no longer than two round trips or
/// one interval, and a machine that is busy for that long has lost a packet.
pub fn unanswered(said: &str, count: u64) -> Vec<u64> {
    let answers: Vec<_> = said.lines().filter(|line| line.contains(" bytes from ")).collect();
    let is_answered = |sequence: &u64| {
        let sequence = format!(" icmp_seq={sequence} ");
        answers.iter().any(|line| line.contains(&sequence))
    };
    (1..=count).filter(|sequence| !is_answered(sequence)).collect()
}

/// Reports a result of a long test on standard error.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns a command that runs a test of this program in a process of its own: a test marked
/// `#[ignore = "role of a child process"]`, which thus runs in no other way.
///
/// - `test`: its whole name.
///
/// # Panics
/// If this program has no such role.
#[track_caller]
pub fn role(test: &str) -> Command {
    let own = std::env::current_exe().expect("own path");
    let roles = Command::new(&own).args(["--ignored", "--list"]).output().expect("it runs");
    let roles = String::from_utf8_lossy(&roles.stdout).into_owned();
    assert!(
        roles.lines().any(|line| line == format!("{test}: test")),
        "{test} is none of\n{roles}"
    );
    let mut command = Command::new(own);
    command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// Polls `condition` until it holds; returns false if `limit` is over first.
///
/// The limit counts polls, at least half a millisecond apart: time in which this process was stopped does not count
/// against it. Polls that take longer, such as a run of a program, end after four times the limit.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let interval = limit.min(Duration::from_millis(10)).max(Duration::from_millis(1)) / 2;
    let polls_max = limit.as_nanos() / interval.as_nanos();
    let mut spent = Duration::ZERO;
    for _ in 0..polls_max {
        let begun = Instant::now();
        if condition() {
            return true;
        }
        thread::sleep(interval);
        // A stop is no more than one slow poll.
        spent += begun.elapsed().min(LONG);
        if spent > 4 * limit {
            break;
        }
    }
    condition()
}

/// Runs `ip` in the namespace of the calling thread; returns its standard output.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn ip(arguments: &str) -> String {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    let out = command.output().expect("ip runs");
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// True if any process is in that network namespace or holds it open.
pub fn is_netns_held(inode: u64) -> bool {
    let wanted = format!("net:[{inode}]");
    let leads_there = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == wanted.as_str())
    };
    let entries = |path: &Path| {
        std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
    };
    entries("/proc".as_ref()).any(|process| {
        leads_there(&process.join("ns/net"))
            || entries(&process.join("fd")).any(|fd| leads_there(&fd))
    })
}

/// Locks the lab for one test of this test program: two ends that spin use every CPU there is.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    LAB.write().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the lab for a test with few packets in flight, whose ends mostly sleep: beside others of its kind, never beside one
/// that is [`alone`].
pub fn beside() -> RwLockReadGuard<'static, ()> {
    LAB.read().unwrap_or_else(PoisonError::into_inner)
}

static LAB: RwLock<()> = RwLock::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_that_takes_long_is_given_up_too() {
        let (limit, mut polls) = (Duration::from_millis(50), 0);
        let holds = until(limit, || {
            polls += 1;
            thread::sleep(limit);
            false
        });
        // Without a limit of its time there would be ten, and the last one.
        assert!(!holds && (2..=5).contains(&polls), "{polls} polls");
    }

    #[test]
    fn ping_is_unanswered_if_it_is_among_the_first_and_a_later_one_does_not_replace_it() {
        let line = |n: u64| format!("64 bytes from 10.0.0.1: icmp_seq={n} ttl=64 time=0.4 ms\n");
        let said = |numbers: &[u64]| numbers.iter().map(|n| line(*n)).collect::<String>();
        assert!(unanswered(&said(&[1, 2, 3]), 3).is_empty());
        assert!(
            unanswered(&said(&[1, 3, 2, 4]), 3).is_empty(),
            "one more was sent, and one was late"
        );
        assert_eq!(unanswered(&said(&[1, 3, 4]), 3), [2]);
        assert_eq!(
            unanswered("5 packets transmitted, 0 received, 100% packet loss, time 4ms\n", 2),
            [1, 2]
        );
    }
}
