//! Counts of QEMU's machines under KVM that run a firmware without any disk.
#![cfg(target_arch = "x86_64")]

use std::process::{Command, Stdio};
use std::time::Duration;

use lab::qemu::Qemu;
use sys::child::ChildPlace;
use testkit::skip;
use wirepath_outside::{KvmEvent, OutsideCounts, OutsideWatch, Target, ThreadRole};

/// A machine that runs its firmware, or waits paused; its threads have no names. `None`, with a skip, without QEMU or KVM.
fn machine(more: &[&str]) -> Option<Qemu> {
    if !std::path::Path::new("/dev/kvm").exists() {
        skip("kvm", "no /dev/kvm");
        return None;
    }
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-accel", "kvm", "-M", "pc", "-m", "64", "-display", "none", "-nodefaults"]);
    command.args(more);
    let place = ChildPlace { netns: None, cpus: &[] };
    Qemu::start(command, &place, Stdio::null())
        .inspect_err(|why| skip("qemu-system-x86_64", why.to_string()))
        .ok()
}

/// Counts of a machine while it runs for a moment.
fn counts(machine: &Qemu) -> OutsideCounts {
    let target = Target { pid: machine.pid(), trace_log: None, baud: 0 };
    let watch = OutsideWatch::begin(&target).expect("QEMU runs");
    std::thread::sleep(Duration::from_millis(100));
    watch.end().expect("no log is read")
}

/// Counts as soon as the machine has made exits; `None`, with a skip, where they cannot be counted.
fn running(machine: &Qemu) -> Option<OutsideCounts> {
    let mut seen = OutsideCounts::default();
    let has_run = testkit::until(testkit::LONG, || {
        seen = counts(machine);
        seen.figures().get("outside_process_exits_count").is_some_and(|count| *count > 0.0)
    });
    if seen.kvm_events().is_none() {
        skip("bpf", seen.missing.join("; "));
        return None;
    }
    assert!(has_run, "{seen:?}");
    Some(seen)
}

#[test]
fn exits_ports_and_vcpu_threads_of_a_machine_are_found_without_names() {
    let Some(machine) = machine(&[]) else { return };
    let Some(seen) = running(&machine) else { return };
    let figures = seen.figures();
    let ports: u64 = [KvmEvent::PortRead, KvmEvent::PortWrite]
        .iter()
        .flat_map(|way| seen.kvm_sums(*way).into_values())
        .map(|sum| sum.count)
        .sum();
    assert!(ports > 0, "{figures:?}");
    let vcpus: Vec<_> =
        seen.threads.iter().filter(|thread| thread.role == ThreadRole::Vcpu).collect();
    assert!(vcpus.len() == 1 && vcpus[0].id != machine.pid(), "{:?}", seen.threads);
    let places = figures
        .keys()
        .filter(|name| ["_read_count", "_write_count"].iter().any(|ending| name.ends_with(ending)));
    assert!((1..=16).contains(&places.count()), "{figures:?}");
    // Either the kernel tells of exits, or the reason is there, and no figure is a zero that nothing counted.
    let silent = seen.missing.iter().any(|what| what.contains("kvm_exit"));
    assert_ne!(figures.contains_key("outside_exits_count"), silent, "{:?}", seen.missing);
    if !silent {
        assert!(figures["outside_exits_count"] >= figures["outside_process_exits_count"]);
        assert!(figures["outside_exits_ns"] > 0.0 && seen.timeline().contains("exits of vCPU 0"));
    }
}

#[test]
fn exits_of_another_machine_are_not_counted() {
    let (Some(paused), Some(other)) = (machine(&["-S"]), machine(&[])) else { return };
    let Some(before) = running(&other) else { return };
    let seen = counts(&paused);
    // It had a machine of KVM to count, and the other went on meanwhile.
    let events = seen.kvm_events().expect("as of the other");
    assert!(events.sums.iter().all(|sum| sum.event == KvmEvent::Line), "{events:?}");
    assert!(before.kvm_events().is_some_and(|events| !events.sums.is_empty()));
}

#[test]
fn machine_that_ends_meanwhile_leaves_its_counts_and_says_so() {
    let Some(machine) = machine(&[]) else { return };
    if running(&machine).is_none() {
        return;
    }
    let target = Target { pid: machine.pid(), trace_log: None, baud: 0 };
    let watch = OutsideWatch::begin(&target).expect("QEMU runs");
    drop(machine);
    let seen = watch.end().expect("no log is read");
    assert!(seen.missing.iter().any(|what| what.contains("ended meanwhile")), "{seen:?}");
    assert!(seen.threads.is_empty() && seen.kvm_events().is_some());
}
