//! Power saving of the PCIe link of a card.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::tune::Profile;

pub(super) const CAUSE: Cause = Cause {
    title: "The PCIe link of the card sleeps between packets (ASPM)",
    symptom: "a card receives slowly or unevenly, latency is higher after pauses, its transmit queue times \
              out, or it disappears from the bus until a reboot",
    evidence: "`/sys/class/net/IF/device/link/l1_aspm` and its other states are 1, or the policy of \
               `/sys/module/pcie_aspm/parameters/policy` saves power; with it missed frames, transmit \
               time-outs or PCIe errors (`aer_dev_correctable`)",
    remedy: "write 0 to the states of that link, or the policy `performance`, or boot with pcie_aspm=off",
    undo: "write 1 to them, or the old policy",
    counters: &["rx_missed_errors", "rx_fifo_errors", "tx_timeout"],
    references: &[
        "Documentation/ABI/testing/sysfs-bus-pci (link/l1_aspm)",
        "Documentation/admin-guide/kernel-parameters.txt (pcie_aspm)",
        "https://github.com/openwrt/openwrt/issues/13248",
    ],
    is_of_forwarding: true,
    ..Cause::new("aspm", check)
};

/// States of a link that save power, by their files.
const STATES: [&str; 6] =
    ["l0s_aspm", "l1_aspm", "l1_1_aspm", "l1_2_aspm", "l1_1_pcipm", "l1_2_pcipm"];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view) {
        let name = &link.name;
        let is_on = |state: &&str| {
            view.system.read_net(&format!("{name}/device/link/{state}")).is_ok_and(|on| on == "1")
        };
        let on: Vec<&str> = STATES.into_iter().filter(|state| is_on(state)).collect();
        if on.is_empty() {
            continue;
        }
        let Some(window) = notes.window(view) else { return };
        let lost = window.sum(&[
            &format!("link {name} rx_missed_errors"),
            &format!("link {name} rx_fifo_errors"),
        ]);
        let timeouts = super::tx_hang::timeouts(view, name);
        let errors = view.system.read_net(&format!("{name}/device/aer_dev_correctable"));
        let errors: u64 = errors.ok().and_then(|text| total_errors(&text)).unwrap_or(0);
        // The setting alone is that of most laptops.
        let has_sign = lost.total > 0 || timeouts > 0 || errors > 0;
        if !has_sign && !view.is_for(Profile::Latency) {
            notes.fact(format!("the PCIe link of {name} saves power ({})", on.join(", ")));
            continue;
        }
        let severity = if lost.now > 0 { Severity::Medium } else { Severity::Low };
        let signs = match (lost.total, timeouts, errors) {
            (0, 0, 0) => "it wakes up for the first packet after a pause".to_owned(),
            (0, 0, _) => format!("its link has had {errors} errors"),
            (_, 0, _) => format!("it has missed {} frames", lost.total),
            _ => format!("its transmit queue has timed out {timeouts} times"),
        };
        let files = |value: u8| {
            let each =
                |state: &&str| format!("echo {value} > /sys/class/net/{name}/device/link/{state}");
            view.in_sysfs(&on.iter().map(each).collect::<Vec<_>>().join(" && "))
        };
        let policy = view.system.read_host("sys/module/pcie_aspm/parameters/policy");
        let mut found = finding(
            severity,
            format!("the PCIe link of {name} sleeps when idle ({}), and {signs}", on.join(", ")),
        )
        .seen(match (lost.now, has_sign) {
            (0, true) => Confidence::Before,
            (0, false) => Confidence::SetUp,
            _ => Confidence::Now,
        })
        .read(format!("/sys/class/net/{name}/device/link/*_aspm"), on.join(", "))
        .read(format!("driver of {name}"), view.system.driver(name));
        for (file, count) in [
            (
                format!("/sys/class/net/{name}/statistics: rx_missed_errors, rx_fifo_errors"),
                lost.total,
            ),
            (format!("/sys/class/net/{name}/queues/tx-*/tx_timeout"), timeouts),
            (format!("/sys/class/net/{name}/device/aer_dev_correctable"), errors),
        ] {
            found = found.read(file, count.to_string());
        }
        if let Ok(policy) = policy {
            found = found.read("/sys/module/pcie_aspm/parameters/policy", policy);
        }
        notes.find(
            found
                .because(
                    "the link needs microseconds to leave L1, and some cards or slots leave it badly: \
                     frames do not fit the card's buffer meanwhile \
                     (Documentation/ABI/testing/sysfs-bus-pci)",
                )
                .effect("the card reaches memory at once")
                .risk("some watts of power")
                .change(files(0), files(1)),
        );
    }
}

/// `TOTAL_ERR_COR 7` of the list of kinds of errors.
fn total_errors(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("TOTAL_ERR_COR ")?.trim().parse().ok())
}
