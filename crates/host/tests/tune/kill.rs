//! The journal of a killed process suffices to restore all settings.

use std::fs;
use std::io::{Write, stdout};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use sys::child::{Child, ChildPlace};
use wirepath_host::tune::{
    self, JournalStore, Options, Place, Plan, RollbackError, System, read_plan,
};

use crate::bench::Bench;

const PLAN: &str = "WIREPATH_TEST_APPLIES";
const STATE: &str = "WIREPATH_TEST_STATE";
/// Moments that it passes before it kills itself; never when there are not so many.
const MOMENT: &str = "WIREPATH_TEST_MOMENT";
/// How many random points the test of those tries; `WIREPATH_TEST_KILLS=200` for a long run.
const KILLS: &str = "WIREPATH_TEST_KILLS";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

/// Child process that other tests kill.
#[test]
#[ignore = "role of a child process"]
fn applies_a_plan_until_killed() {
    let state = std::env::var_os(STATE).expect("set by the parent");
    let plan = read_plan(std::env::var_os(PLAN).expect("set by the parent").as_ref()).unwrap();
    let last: usize =
        std::env::var(MOMENT).ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let system = System::open(&Place { netns: plan.netns.clone(), root: None }).unwrap();
    writeln!(stdout(), "begin").unwrap();
    let mut passed = 0;
    let mut watch = |_| {
        if passed == last {
            kill(std::process::id());
        }
        passed += 1;
    };
    let stop = AtomicBool::new(false);
    let options = Options { stop: &stop, confirm_within: None, owner: None, watch: &mut watch };
    tune::apply(&system, &plan, &JournalStore::new(state), options).unwrap();
    writeln!(stdout(), "applied").unwrap();
}

fn start(bench: &Bench, plan: &Plan, moment: usize) -> Child {
    let path = bench.folder.path().join("plan.toml");
    fs::write(&path, plan.to_text()).unwrap();
    let mut command = testkit::role("kill::applies_a_plan_until_killed");
    command
        .env(PLAN, path)
        .env(STATE, bench.folder.path().join("state"))
        .env(MOMENT, moment.to_string());
    Child::spawn(command, &ChildPlace::default()).unwrap()
}

/// Child process that another test kills.
#[test]
#[ignore = "role of a child process"]
fn gives_back_until_killed() {
    let store = JournalStore::new(std::env::var_os(STATE).expect("set by the parent"));
    let lock = store.lock().unwrap();
    writeln!(stdout(), "begin").unwrap();
    tune::rollback(&store, &lock, None, "a test").unwrap();
}

fn plan(bench: &Bench) -> Plan {
    bench.plan(&[
        ("channels", "interface wp-near", "rx=1 tx=1"),
        ("tso", "interface wp-near", "off"),
        ("gro", "interface wp-near", "off"),
        ("qdisc", "interface wp-near", "pfifo:50"),
        ("tx-queue-len", "interface wp-near", "777"),
        ("gro-flush-timeout", "interface wp-near", "20000"),
        ("napi-defer-hard-irqs", "interface wp-near", "2"),
        ("rps-cpus", "queue wp-near rx-0", "1"),
        ("rps-flow-count", "queue wp-near rx-0", "1024"),
        ("udp-rmem-min", "netns", "8192"),
        ("tcp-rmem", "netns", "4096 200000 6291456"),
        ("ip-early-demux", "netns", "0"),
        ("route-initcwnd", "route 10.77.0.0/24 dev wp-near", "20"),
    ])
}

/// Gives back what the killed process left; whether there was anything.
fn recover(bench: &Bench) -> bool {
    let lock = bench.store.lock().expect("a lock dies with its process");
    match tune::rollback(&bench.store, &lock, None, "a test") {
        Ok(report) => {
            assert!(report.failures().next().is_none(), "{report:?}");
            assert!(report.foreign().next().is_none(), "{report:?}");
            true
        }
        Err(RollbackError::Nothing { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn all_settings_are_restored_after_a_kill_at_every_step() {
    let bench = Bench::new();
    // Steering that the channels take along.
    for (path, text) in [("rx-1/rps_cpus", "3"), ("tx-1/xps_cpus", "2"), ("tx-0/xps_cpus", "1")] {
        bench.system.write_net(&format!("wp-near/queues/{path}"), text).unwrap();
    }
    let before = bench.everything();
    let plan = plan(&bench);
    // Three moments a step, one before and one after all.
    let moment_count = plan.steps.len() * 3 + 2;
    for moment in 0..moment_count {
        let mut child = start(&bench, &plan, moment);
        let finished = child.wait(TEST_TIMEOUT).unwrap().expect("killed");
        assert!(finished.status.code().is_none(), "{moment}: {finished:?}");
        assert!(recover(&bench), "{moment}: there is a journal from the first moment on");
        assert_eq!(bench.everything(), before, "{moment}");
    }
    let mut child = start(&bench, &plan, moment_count);
    let finished = child.wait(TEST_TIMEOUT).unwrap().unwrap();
    assert!(finished.status.success(), "one more moment than there are: {finished:?}");
    assert_ne!(bench.everything(), before);
    recover(&bench);
}

#[test]
fn all_settings_are_restored_after_a_kill_at_any_time() {
    let kills: u32 = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let bench = Bench::new();
    let before = bench.everything();
    let plan = plan(&bench);
    let begun = Instant::now();
    let mut child = start(&bench, &plan, usize::MAX);
    assert!(child.wait_for_stdout("begin", TEST_TIMEOUT));
    let started = begun.elapsed();
    assert!(child.wait(TEST_TIMEOUT).unwrap().unwrap().status.success());
    let whole = begun.elapsed() - started;
    assert!(recover(&bench));
    let (mut journals, mut in_between) = (0, 0);
    for number in 0..kills {
        let child = start(&bench, &plan, usize::MAX);
        assert!(child.wait_for_stdout("begin", TEST_TIMEOUT));
        // Spread evenly over a run, in an order without meaning: the golden ratio's multiples.
        let share = (f64::from(number) * 0.618_033_988_749_895).fract();
        std::thread::sleep(whole.mul_f64(share));
        kill(child.pid());
        drop(child);
        let changed = bench.everything() != before;
        let found = recover(&bench);
        assert!(found || !changed, "{number}: changes without a journal");
        assert_eq!(bench.everything(), before, "{number}");
        journals += u32::from(found);
        in_between += u32::from(found && changed);
    }
    // Else they were all killed before or after the part that matters.
    assert!(journals > 0 && in_between > 0, "{journals} {in_between} of {kills}");
}

#[test]
fn rollback_is_completed_after_a_kill() {
    let kills: u32 = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let bench = Bench::new();
    for (path, text) in [("rx-1/rps_cpus", "3"), ("tx-1/xps_cpus", "2"), ("tx-0/xps_cpus", "1")] {
        bench.system.write_net(&format!("wp-near/queues/{path}"), text).unwrap();
    }
    let before = bench.everything();
    let plan = plan(&bench);
    let start = || {
        let mut command = testkit::role("kill::gives_back_until_killed");
        command.env(STATE, bench.folder.path().join("state"));
        let child = Child::spawn(command, &ChildPlace::default()).unwrap();
        assert!(child.wait_for_stdout("begin", TEST_TIMEOUT), "{:?}", child.stdout_so_far());
        child
    };
    bench.apply(&plan).unwrap();
    let mut child = start();
    let begun = Instant::now();
    assert!(child.wait(TEST_TIMEOUT).unwrap().unwrap().status.success());
    let whole = begun.elapsed();
    assert_eq!(bench.everything(), before);
    let mut unfinished = 0;
    for number in 0..kills {
        bench.apply(&plan).unwrap();
        let child = start();
        let share = (f64::from(number) * 0.618_033_988_749_895).fract();
        std::thread::sleep(whole.mul_f64(share));
        kill(child.pid());
        drop(child);
        unfinished += u32::from(recover(&bench));
        assert_eq!(bench.everything(), before, "{number}");
    }
    assert!(unfinished > 0, "all {kills} had ended before");
}
