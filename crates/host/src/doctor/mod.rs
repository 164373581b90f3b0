//! Checks for settings that slow packets on this host. No check changes a setting.
//!
//! A check examines a [`HostView`] and reports findings: evidence with its source, the reason, the
//! expected effect of a change, its risk, the change and how to undo it. A check that cannot run
//! says why; missing data is never reported as healthy.

mod buffers;
mod clocks;
mod counters;
mod cpu;
mod finding;
mod forwarding;
mod host;
mod host_view;
mod interface;
mod interrupts;
mod isolation;
mod losses;
mod memory;
mod netfilter;
mod shaper;
mod softnet;
mod steering;
mod taps;
mod tunnel;

pub use finding::{Evidence, Fact, Finding, Notes, Report, Severity, Unseen};
pub use host_view::HostView;

/// A check.
///
/// To add one: a function in a file of this folder, and a line in [`CHECKS`].
struct Check {
    name: &'static str,
    run: fn(&HostView, &mut Notes<'_>),
}

const CHECKS: &[Check] = &[
    Check { name: "receive-steering", run: steering::receive },
    Check { name: "transmit-steering", run: steering::transmit },
    Check { name: "flow-hash", run: steering::flow_hash },
    Check { name: "channels", run: interface::channels },
    Check { name: "rings", run: interface::rings },
    Check { name: "coalescing", run: interface::coalescing },
    Check { name: "interrupts", run: interrupts::check },
    Check { name: "napi", run: interface::napi },
    Check { name: "offloads", run: interface::offloads },
    Check { name: "forwarding", run: forwarding::check },
    Check { name: "tunnel-queues", run: tunnel::queues },
    Check { name: "tunnel-headroom", run: tunnel::headroom },
    Check { name: "tunnel-mtu", run: tunnel::mtu },
    Check { name: "hooks", run: netfilter::hooks },
    Check { name: "conntrack", run: netfilter::conntrack },
    Check { name: "taps", run: taps::check },
    Check { name: "xdp", run: interface::xdp },
    Check { name: "qdisc", run: interface::qdisc },
    Check { name: "shaper", run: shaper::check },
    Check { name: "socket-buffers", run: buffers::check },
    Check { name: "listen-queue", run: losses::listen_queue },
    Check { name: "reverse-path", run: losses::reverse_path },
    Check { name: "protocol-errors", run: losses::protocol_errors },
    Check { name: "softnet", run: softnet::check },
    Check { name: "host-settings", run: host::settings },
    Check { name: "locality", run: host::locality },
    Check { name: "cpu", run: cpu::check },
    Check { name: "isolation", run: isolation::check },
    Check { name: "clocks", run: clocks::check },
    Check { name: "memory", run: memory::check },
];

pub fn checks() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.name)
}

/// Checks that apply to packets that are forwarded by route, bridge or tunnel: not those of receiving
/// programs or of the machine as a whole.
const OF_FORWARDING: [&str; 18] = [
    "receive-steering",
    "transmit-steering",
    "flow-hash",
    "channels",
    "rings",
    "offloads",
    "forwarding",
    "tunnel-queues",
    "tunnel-headroom",
    "tunnel-mtu",
    "hooks",
    "conntrack",
    "taps",
    "xdp",
    "qdisc",
    "shaper",
    "reverse-path",
    "softnet",
];

pub fn examine(view: &HostView) -> Report {
    run(view, CHECKS.iter())
}

/// Runs the checks that apply to forwarded packets.
pub fn examine_forwarding(view: &HostView) -> Report {
    run(view, CHECKS.iter().filter(|check| OF_FORWARDING.contains(&check.name)))
}

fn run<'a>(view: &HostView, checks: impl Iterator<Item = &'a Check>) -> Report {
    let mut report = Report::default();
    for check in checks {
        let before = (report.findings.len(), report.unseen.len());
        (check.run)(view, &mut Notes { check: check.name, report: &mut report });
        if (report.findings.len(), report.unseen.len()) == before {
            report.passed.push(check.name);
        }
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_of_forwarding_exist() {
        for name in OF_FORWARDING {
            assert!(checks().any(|check| check == name), "{name}");
        }
    }
}
