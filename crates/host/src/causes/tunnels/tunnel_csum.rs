//! Packets out of a tunnel with a wrong checksum.

use super::receiving_tunnels;
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};
use crate::causes::udp::{checksum_losses, checksums_in_text};

pub(super) const CAUSE: Cause = Cause {
    title: "packets come out of a tunnel with a wrong checksum: an offload at the far end that lies",
    symptom: "ping works between pods or sites, and TCP or UDP does not, or takes 63 s (six repeated SYNs)",
    evidence: "TcpInCsumErrors and UdpInCsumErrors grow while a tunnel receives packets",
    remedy: "at the sending end `ethtool -K TUNNEL tx-checksum-ip-generic off`, or `ethtool -K CARD tx off`; another UDP \
             port for VXLAN on some virtual cards; a kernel of 5.7 or newer",
    undo: "`ethtool -K TUNNEL tx-checksum-ip-generic on`, `ethtool -K CARD tx on`",
    counters: &["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors"],
    reasons: &["TCP_CSUM", "UDP_CSUM"],
    references: &["projectcalico/calico#3145", "projectcalico/calico#9433", "k3s-io/k3s#2013"],
    ..Cause::new("tunnel-csum", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let lost = checksum_losses(window);
    let tunnels = receiving_tunnels(view, window);
    let Some(first) = tunnels.first().filter(|_| lost.now > 0) else { return };
    let names: Vec<&str> = tunnels.iter().map(|link| link.name.as_str()).take(8).collect();
    let name = &first.name;
    let mut found = finding(
        lost.severity(),
        format!(
            "{}, while tunnel {} receives: its far end sends checksums that a device should have computed",
            lost.sentence("packets were dropped for a wrong checksum"),
            names.join(" or ")
        ),
    )
    .counted(lost, "packets")
    .read("/proc/net/snmp and snmp6", checksums_in_text(window));
    for link in &tunnels {
        let received = window.link(&link.name, "rx_packets");
        found = found.read(format!("rx_packets of {}", link.name), received.evidence());
    }
    notes.find(
        found
            .because(
                "the far end left the inner checksum to a card that computes the outer one only, or a rule that \
                 translates addresses changed it (Documentation/networking/checksum-offloads.rst, LCO)",
            )
            .effect("TCP and UDP pass the tunnel")
            .risk("the far end's CPU computes the checksums: some throughput")
            .change(
                format!("at the far end of {name}: ethtool -K {name} tx-checksum-ip-generic off; if that changes nothing, ethtool -K CARD tx off on the card below"),
                format!("at the far end: ethtool -K {name} tx-checksum-ip-generic on; ethtool -K CARD tx on"),
            ),
    );
}
