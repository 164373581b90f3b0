//! `wirepath tunnel check` on a tunnel with faults, in namespaces of its own.

use std::process::Command;

use crate::common::{FAR_IP, Spaces, all_text, enter, ip, json, run, succeed, wirepath};
use serde_json::Value;

fn check(spaces: &Spaces, args: &[&str]) -> Command {
    let at = ["tunnel", "check", "--netns", &spaces.near];
    wirepath(&[&at[..], args].concat())
}

fn names<'a>(report: &'a Value, part: &str) -> Vec<&'a str> {
    let all = report[part].as_array().unwrap();
    all.iter().filter_map(|one| one["cause"].as_str().or(one.as_str())).collect()
}

#[test]
fn faults_of_a_tunnel_are_found_from_it_and_others_are_not_looked_for() {
    let spaces = Spaces::with_queues(2);
    let made = ["link", "add", "vx", "type", "vxlan", "id", "42", "dstport", "4789"];
    let remote = ["remote", FAR_IP];
    succeed(ip(&[&["-n", &spaces.near], &made[..], &remote].concat()));
    succeed(ip(&["-n", &spaces.near, "link", "set", "vx", "up"]));
    // On the interface below, which only the route to the far end names.
    let steer = "echo 1 > /sys/class/net/va/queues/rx-0/rps_cpus";
    succeed(enter(&spaces.near, &["sh", "-c", steer]));

    let report = json(check(&spaces, &["vx", "--json"]));
    let found = names(&report, "findings");
    // Plain Ethernet asks for no headroom: nothing is copied, bound or not.
    assert!(!found.contains(&"tunnel-headroom"), "{report:#}");
    // VXLAN sends without a lock, whatever the number of its queues.
    assert!(!found.contains(&"tunnel-queues"), "{report:#}");
    assert!(found.contains(&"receive-steering"), "{report:#}");
    let about = report["about"].as_str().unwrap();
    assert!(about.starts_with("vx of namespace"), "{about}");
    // A part of the doctor's checks, and no other.
    let looked = [found, names(&report, "unseen"), names(&report, "passed")].concat();
    assert!(looked.contains(&"taps") && looked.contains(&"hooks"), "{looked:?}");
    for others in ["udp-rcvbuf", "memory", "cpu", "interrupts"] {
        assert!(!looked.contains(&others), "{looked:?}");
    }

    let said = succeed(check(&spaces, &["vx"]));
    assert!(said.contains("RPS of queue va rx-0 passes all packets to CPU 0"), "{said}");
    let output = run(check(&spaces, &["vx", "--severity", "low"]));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let output = run(check(&spaces, &["nowhere"]));
    assert!(!output.status.success() && all_text(&output).contains("nowhere"));
}

#[test]
fn tunnel_without_its_faults_has_none_of_their_findings() {
    let spaces = Spaces::with_queues(2);
    let made = ["link", "add", "vx", "mtu", "1450", "numtxqueues", "2", "type", "vxlan"];
    let rest = ["id", "42", "dstport", "4789", "remote", "192.0.2.2", "dev", "va"];
    succeed(ip(&[&["-n", &spaces.near], &made[..], &rest].concat()));
    let report = json(check(&spaces, &["vx", "--json"]));
    let found = names(&report, "findings");
    assert!(!found.iter().any(|check| check.starts_with("tunnel-")), "{report:#}");
    assert!(names(&report, "passed").contains(&"tunnel-queues"), "{report:#}");
}
