//! Cards that interrupt for nearly each packet.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::ethtool::{self, Coalesce};
use crate::tune::Profile;

pub(super) const CAUSE: Cause = Cause {
    title: "The card interrupts for nearly each packet",
    symptom: "much CPU time in interrupts and softirqs at a moderate packet rate, and squeezed softirqs",
    evidence: "growth of the card's rows of `/proc/interrupts` beside its rx_packets and tx_packets; \
               `ethtool -c`: rx-usecs 0 to 3 without adaptive-rx",
    remedy: "ethtool -C IF adaptive-rx on, or rx-usecs 20 to 50",
    undo: "ethtool -C IF with the old values",
    references: &["ethtool(8), -C", "https://github.com/netdata/netdata/issues/4624"],
    is_of_forwarding: true,
    ..Cause::new("irq-rate", check)
};

/// Interrupts a second from which they are judged, and packets of each that are many.
const BUSY_PER_S: f64 = 20_000.0;
const MANY_PACKETS: f64 = 3.0;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    // That is what the profile asks for.
    if view.is_for(Profile::Latency) {
        return;
    }
    for link in crate::causes::links::cards(view) {
        let Some(window) = notes.window(view) else { return };
        let of_irq =
            |irq: u32| window.of_prefix(&format!("irq {irq} ")).map(|(_, n)| n.now).sum::<u64>();
        let raised: u64 = view.system.irqs(&link.name).into_iter().map(of_irq).sum();
        let packets =
            window.link(&link.name, "rx_packets").now + window.link(&link.name, "tx_packets").now;
        let per_s = window.losses(0, raised).per_second();
        let each = packets as f64 / raised.max(1) as f64;
        if per_s < BUSY_PER_S || each >= MANY_PACKETS {
            continue;
        }
        let setting = view.system.within(|| ethtool::coalesce(link.index)).unwrap_or_default();
        notes.find(judge(&link.name, per_s, each, setting, &view.prefix()));
    }
}

fn judge(name: &str, per_s: f64, each: f64, setting: Coalesce, prefix: &str) -> Finding {
    let command = format!("{prefix}ethtool -C {name}");
    let rx_us = setting.rx_us.unwrap_or(0);
    let (change, undo) = match setting.is_adaptive_rx {
        Some(false) => (format!("{command} adaptive-rx on"), format!("{command} adaptive-rx off")),
        _ => (format!("{command} rx-usecs 30"), format!("{command} rx-usecs {rx_us}")),
    };
    finding(
        Severity::Medium,
        format!("{name} interrupts {per_s:.0} times a second, for {each:.1} packets each"),
    )
    .seen(Confidence::Now)
    .costs(format!("{per_s:.0} interrupts a second"))
    .read("/proc/interrupts, growth within the window", format!("{per_s:.0} a second"))
    .read(format!("ethtool coalescing of {name}"), format!("rx-usecs {rx_us}, adaptive-rx {:?}", setting.is_adaptive_rx))
    .because("each interrupt costs a microsecond or more of a CPU, whatever it delivers (ethtool(8), -C)")
    .effect("less CPU time for each packet")
    .risk("packets wait for up to rx-usecs")
    .change(change, undo)
}
