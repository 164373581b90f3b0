//! Interfaces, their queues and wires.

mod aspm;
mod bond_hash;
mod bridge_port;
mod carrier;
mod copies;
mod interface;
mod link_mode;
mod oversize;
mod pause;
mod pcie_link;
mod qdisc_drops;
mod rings;
mod rx_dropped_benign;
mod shaper;
mod silent_nic_drop;
mod standing_queue;
mod taps;
mod tun_queue;
mod tx_hang;
mod wire_errors;

use super::Cause;
use super::evidence::{Evidence, Window};
use super::finding::Severity;
use crate::net::Link;

pub(super) const CAUSES: &[Cause] = &[
    copies::CAUSE,
    standing_queue::CAUSE,
    shaper::CAUSE,
    qdisc_drops::CAUSE,
    interface::QDISC,
    aspm::CAUSE,
    tx_hang::CAUSE,
    bond_hash::CAUSE,
    bond_hash::MONITOR,
    bridge_port::CAUSE,
    rings::CAUSE,
    silent_nic_drop::CAUSE,
    rx_dropped_benign::CAUSE,
    tun_queue::CAUSE,
    pause::CAUSE,
    link_mode::CAUSE,
    pcie_link::CAUSE,
    wire_errors::CAUSE,
    carrier::FLAPS,
    carrier::DEAD_ROUTE,
    oversize::CAUSE,
    interface::CHANNELS,
    interface::COALESCING,
    interface::NAPI,
    interface::XDP,
    taps::CAUSE,
];

/// Real cards of the path, and those of virtual machines: interfaces with a device.
pub(super) fn cards(view: &Evidence) -> impl Iterator<Item = &Link> {
    view.interfaces().filter(|link| view.system.list_net(&format!("{}/device", link.name)).is_ok())
}

/// Severity of a setting that costs for each packet: medium while there are that many a second, else low.
pub(super) fn by_traffic(window: &Window, name: &str, least_per_s: f64) -> Severity {
    let packets =
        window.sum(&[&format!("link {name} rx_packets"), &format!("link {name} tx_packets")]);
    if packets.per_second() >= least_per_s { Severity::Medium } else { Severity::Low }
}

/// Packets a second from which an interface is busy.
pub(super) const BUSY_PER_S: f64 = 1000.0;

fn on_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Program that has a TUN or TAP device open: `openvpn (process 812)`.
pub(super) fn tun_owner(view: &Evidence, interface: &str) -> Option<String> {
    let pids = view.system.list_host("proc").ok()?;
    let pids = pids.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let pid = pids.clone().find(|pid| {
        let folder = format!("proc/{pid}/fd");
        let Ok(descriptors) = view.system.list_host(&folder) else { return false };
        descriptors.iter().any(|descriptor| {
            let to = std::fs::read_link(view.system.host_path(&format!("{folder}/{descriptor}")));
            to.is_ok_and(|to| to.ends_with("net/tun"))
                && view
                    .system
                    .read_host(&format!("proc/{pid}/fdinfo/{descriptor}"))
                    .is_ok_and(|text| text.lines().any(|line| is_device(line, interface)))
        })
    })?;
    let comm = view.system.read_host(&format!("proc/{pid}/comm")).unwrap_or_default();
    Some(format!("{comm} (process {pid})"))
}

/// True for the line `iff: tun0` of that interface.
fn is_device(line: &str, interface: &str) -> bool {
    line.strip_prefix("iff:").is_some_and(|name| name.trim() == interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_found_by_its_whole_name() {
        assert!(is_device("iff:\ttun0", "tun0") && !is_device("iff:\ttun01", "tun0"));
    }
}
