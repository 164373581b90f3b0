//! Names and numbers that were reused, or have vanished, since a plan was applied.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use sys::netns::Netns;
use wirepath_host::tune::{self, RestoreOutcome, RollbackError, Target};

use crate::bench::{Bench, INTERFACE, netns_file};
use crate::host_wide::{self, Root};

const LENGTH: (&str, &str, &str) = ("tx-queue-len", "interface wp-near", "777");
const RPS: (&str, &str, &str) = ("rps-cpus", "queue wp-near rx-1", "1");

/// Runs `ip` in the near namespace.
fn ip(bench: &Bench, args: &str) {
    let words: Vec<&str> = args.split(' ').collect();
    let output =
        bench.pair.near.netns.run(|| Command::new("ip").args(&words).output().unwrap()).unwrap();
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

fn outcomes(report: &tune::RollbackReport) -> Vec<&RestoreOutcome> {
    report.settings.iter().map(|setting| &setting.outcome).collect()
}

fn remove(root: &Root, path: &str) {
    let path = root.folder.path().join(path);
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

fn write(root: &Root, path: &str, text: &str) {
    let path = root.folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Applies all settings of the machine, changes the machine, and rolls back.
fn after(change: impl FnOnce(&Root)) -> (Root, tune::RollbackReport) {
    let root = host_wide::root();
    write(&root, "sys/kernel/irq/24/actions", "eth0-rx-0\n");
    host_wide::apply(&root, &host_wide::plan(&root.system, host_wide::STEPS)).unwrap();
    change(&root);
    let lock = root.store.lock().unwrap();
    let report = tune::rollback(&root.store, &lock, Some(root.folder.path()), "a test").unwrap();
    drop(lock);
    (root, report)
}

fn of<'a>(report: &'a tune::RollbackReport, target: &str) -> Vec<&'a RestoreOutcome> {
    let target: Target = target.parse().unwrap();
    let of_target = report.settings.iter().filter(|setting| setting.target == target);
    of_target.map(|setting| &setting.outcome).collect()
}

#[test]
fn interrupts_and_cpus_that_vanished_have_nothing_to_restore() {
    let (root, report) = after(|root| {
        remove(root, "proc/irq/24");
        remove(root, "sys/devices/system/cpu/cpu1");
        write(root, "sys/devices/system/cpu/online", "0\n");
    });
    assert_eq!(of(&report, "irq 24"), [&RestoreOutcome::Gone]);
    assert_eq!(of(&report, "cpu 1"), [&RestoreOutcome::Gone; 2]);
    assert_eq!(of(&report, "host"), [&RestoreOutcome::Restored; 5]);
    assert!(report.failures().next().is_none() && !root.store.journal_file().exists());
}

#[test]
fn interrupt_of_another_device_is_left_alone() {
    let (root, report) = after(|root| write(root, "sys/kernel/irq/24/actions", "nvme0q1\n"));
    let by = "nvme0q1".to_owned();
    assert_eq!(of(&report, "irq 24"), [&RestoreOutcome::Replaced { by }]);
    let mask = fs::read_to_string(root.folder.path().join("proc/irq/24/smp_affinity")).unwrap();
    assert_eq!(mask, "2");
    assert!(!root.store.journal_file().exists());
}

#[test]
fn queue_that_vanished_has_nothing_to_restore() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[LENGTH, RPS])).unwrap();
    let near = &bench.pair.near;
    let channels = tune::find("channels").unwrap();
    let target = Target::Interface(INTERFACE.into());
    channels.set(&bench.system, &target, &crate::bench::value("rx=1 tx=1")).unwrap();
    let report = bench.rollback();
    assert_eq!(outcomes(&report), [&RestoreOutcome::Restored, &RestoreOutcome::Gone], "{near:?}");
    assert!(!bench.store.journal_file().exists());
}

#[test]
fn renamed_interface_is_restored_under_its_new_name() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[LENGTH, RPS])).unwrap();
    ip(&bench, "link set wp-near down");
    ip(&bench, "link set wp-near name lan0");
    // The old name belongs to another interface with the same values.
    ip(&bench, "link add wp-near numrxqueues 2 txqueuelen 777 type veth peer name other");
    let report = bench.rollback();
    assert_eq!(outcomes(&report), [&RestoreOutcome::Restored; 2], "{report:?}");
    assert_eq!(report.settings[0].now_at, Some(Target::Interface("lan0".into())));
    assert_eq!(bench.read("tx-queue-len", "interface lan0"), "1000");
    assert_eq!(bench.read("rps-cpus", "queue lan0 rx-1"), "0");
    assert_eq!(bench.read("tx-queue-len", "interface wp-near"), "777");
}

#[test]
fn another_interface_of_the_same_name_is_left_alone() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[LENGTH])).unwrap();
    bench.pair.near.delete_link().unwrap();
    ip(&bench, "link add wp-near txqueuelen 777 type veth peer name other");
    let report = bench.rollback();
    let RestoreOutcome::Replaced { by } = &report.settings[0].outcome else { panic!("{report:?}") };
    assert!(by.contains("driver veth") && by.contains("MAC "), "{by}");
    assert_eq!(bench.read("tx-queue-len", "interface wp-near"), "777");
    assert!(!bench.store.journal_file().exists());
}

#[test]
fn interface_of_doubtful_identity_stops_the_rollback_until_it_is_given_up() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[LENGTH, ("udp-rmem-min", "netns", "8192")])).unwrap();
    ip(&bench, "link set wp-near address 02:00:00:00:00:77");
    let lock = bench.store.lock().unwrap();
    for _ in 0..2 {
        let report = tune::rollback(&bench.store, &lock, None, "a test").unwrap();
        let failure = report.failure().unwrap();
        assert!(failure.contains("another device") && failure.contains("02:00:00:00:00:77"));
        assert_eq!(report.failures().map(|failed| failed.entry).collect::<Vec<_>>(), [0]);
        assert_eq!(bench.read("udp-rmem-min", "netns"), "4096");
        assert!(bench.store.journal_file().exists());
    }
    let absent = tune::forget(&bench.store, &lock, &[0, 9]).unwrap_err();
    assert!(matches!(absent, RollbackError::NoEntry { entry: 9 }), "{absent}");
    tune::forget(&bench.store, &lock, &[0]).unwrap();
    let report = tune::rollback(&bench.store, &lock, None, "a test").unwrap();
    assert_eq!(outcomes(&report), [&RestoreOutcome::Forgotten, &RestoreOutcome::Unchanged]);
    assert_eq!(bench.read(LENGTH.0, LENGTH.1), "777");
    assert!(!bench.store.journal_file().exists());
    assert_eq!(bench.store.read_last().unwrap().unwrap().forgotten, [0].into());
}

/// Rewrites the journal as if it were of a namespace that had the inode of `other`.
fn as_if_of(bench: &Bench, other: &Netns) {
    let text = fs::read_to_string(bench.store.journal_file()).unwrap();
    let (ours, other) = (bench.system.netns().inode().unwrap(), other.inode().unwrap());
    let lines = text.lines().map(|line| {
        let body = line[9..]
            .replace(&format!("\"netns_inode\":{ours}"), &format!("\"netns_inode\":{other}"));
        format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
    });
    fs::write(bench.store.journal_file(), lines.collect::<String>()).unwrap();
}

#[test]
fn namespace_that_reuses_the_inode_is_left_alone() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[("udp-rmem-min", "netns", "8192")])).unwrap();
    let other = Bench::new();
    let knob = tune::find("udp-rmem-min").unwrap();
    knob.set(&other.system, &Target::Netns, &crate::bench::value("8192")).unwrap();
    as_if_of(&bench, &other.pair.near.netns);
    let report = bench.rollback();
    assert_eq!(outcomes(&report), [&RestoreOutcome::Gone]);
    assert_eq!(other.read("udp-rmem-min", "netns"), "8192");
}

/// A copy of a descriptor with a higher number than `lower`: lower descriptors are looked at first.
/// Other tests of this process close theirs meanwhile, and a copy takes the lowest free number.
fn clone_above(descriptor: BorrowedFd<'_>, lower: BorrowedFd<'_>) -> OwnedFd {
    let mut copies = Vec::new();
    loop {
        let copy = descriptor.try_clone_to_owned().unwrap();
        if copy.as_raw_fd() > lower.as_raw_fd() {
            return copy;
        }
        copies.push(copy);
    }
}

#[test]
fn files_that_other_processes_hold_are_not_opened_in_search_of_the_namespace() {
    let mut bench = Bench::new();
    let name = bench.pair.near.netns.try_clone().unwrap();
    let place = tune::Place { netns: Some(netns_file(&name)), root: None };
    bench.system = tune::System::open(&place).unwrap();
    bench.apply(&bench.plan(&[LENGTH])).unwrap();
    drop(name);
    // A pipe without a writer: opening it waits. Its path looks like that of a namespace.
    let pipe = bench.folder.path().join("netns/x");
    fs::create_dir(pipe.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let held = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe);
    let held = held.unwrap();
    let _namespace = clone_above(bench.pair.near.netns.as_fd(), held.as_fd());
    let store = bench.store.clone();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let lock = store.lock().unwrap();
        done.send(tune::rollback(&store, &lock, None, "a test").unwrap())
    });
    let report = is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("does not wait");
    assert_eq!(outcomes(&report), [&RestoreOutcome::Restored]);
}
