//! Arms of a path, run as `prove` runs them.

use std::time::Duration;

use model::{Arm, Load, Measurement, Path, Support};

use crate::skip;

/// Returns a load of the path with its default size and rate, in trials of `trial`.
///
/// # Panics
/// If the path has no load of that name.
pub fn load(path: &dyn Path, kind: &str, trial: Duration) -> Load {
    let kind = path.loads().iter().find(|load| load.name == kind).expect("a load of that name");
    Load {
        kind: kind.name.to_owned(),
        size_bytes: kind.size_bytes,
        rate_pps: kind.rate_pps,
        trial,
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
    }
}

/// Returns true if an arm can run here; reports a skip if it cannot.
///
/// # Panics
/// If the path refuses the arm.
#[track_caller]
pub fn supported(path: &dyn Path, arm: &Arm, load: &Load) -> bool {
    match path.support(arm, load) {
        Support::Yes => true,
        Support::Unsupported { what, needs } => {
            skip(need(arm), format!("{}: {what}; {needs}", arm.name));
            false
        }
        Support::Refused { why } => panic!("{}: {why}", arm.name),
    }
}

/// Returns the need of an arm that a host does not support: the program of a peer, the lab of a
/// baseline, and otherwise a switch.
pub fn need(arm: &Arm) -> &'static str {
    match arm.name.as_str() {
        "iperf3" => "iperf3",
        "sockperf" => "sockperf",
        "testpmd" | "testpmd-packet" => "dpdk-testpmd",
        "linux" => "linux-guest",
        "virtio-drivers" => "aarch64",
        "qemu-pcnet" | "qemu-virtio-net" => "qemu-system-x86_64",
        _ if arm.switches.iter().next().is_none() => "netns",
        _ => "kernel",
    }
}

/// Returns a counter of a measurement.
///
/// # Panics
/// If there is none of that name.
#[track_caller]
pub fn counter(m: &Measurement, name: &str) -> u64 {
    *m.counters.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", m.counters))
}
