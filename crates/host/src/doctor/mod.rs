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

use crate::generated::Plain;
pub use finding::{DoctorReport, Fact, Finding, FindingEvidence, Notes, Severity, Unseen};
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

pub fn examine(view: &HostView) -> DoctorReport {
    run(view, CHECKS.iter())
}

/// Runs the checks that apply to forwarded packets.
pub fn examine_forwarding(view: &HostView) -> DoctorReport {
    run(view, CHECKS.iter().filter(|check| OF_FORWARDING.contains(&check.name)))
}

fn run<'a>(view: &HostView, checks: impl Iterator<Item = &'a Check>) -> DoctorReport {
    let mut report = DoctorReport::default();
    for check in checks {
        let before = (report.findings.len(), report.unseen.len());
        (check.run)(view, &mut Notes { check: check.name, report: &mut report });
        if (report.findings.len(), report.unseen.len()) == before {
            report.passed.push(check.name);
        }
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let names: Vec<&str> = view.links.values().map(|link| link.name.as_str()).collect();
    for finding in &mut report.findings {
        finding.change = without_odd_names(&finding.change, &names);
        finding.undo = without_odd_names(&finding.undo, &names);
    }
    report
}

/// A command without names of interfaces in which a shell would find more than a word, such as `a;reboot`: commands are
/// copied, and the program that made the interface may be a stranger's.
fn without_odd_names(command: &str, names: &[&str]) -> String {
    let mut odd: Vec<&&str> = names
        .iter()
        .filter(|name| Plain::word(name).is_none() && command.contains(**name))
        .collect();
    // A name may be a part of another one.
    odd.sort_by_key(|name| std::cmp::Reverse(name.len()));
    if odd.is_empty() {
        return command.to_owned();
    }
    let text = odd.iter().fold(command.to_owned(), |text, name| text.replace(**name, "INTERFACE"));
    format!("{text}   (INTERFACE: rename it first to letters, digits, '.', '_' and '-')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_interface_is_no_command_in_the_text_that_a_user_copies() {
        let names = ["eth0", "a;reboot", "a;", "$(x)"];
        let command = "ip netns exec b sh -c 'echo 1 > /sys/class/net/a;reboot/mtu'";
        let shown = without_odd_names(command, &names);
        assert!(
            shown.starts_with("ip netns exec b sh -c 'echo 1 > /sys/class/net/INTERFACE/mtu'   ("),
            "{shown}"
        );
        assert!(shown.contains("rename it"), "{shown}");
        let plain = "ethtool -K eth0 gro on";
        assert_eq!(without_odd_names(plain, &names), plain);
        assert!(!without_odd_names("ethtool -K $(x) gro on", &names).contains("$("));
    }

    #[test]
    fn checks_of_forwarding_exist() {
        for name in OF_FORWARDING {
            assert!(checks().any(|check| check == name), "{name}");
        }
    }
}
