//! Merged UDP datagrams that reach a receiver that cannot split them.

use super::Offloads;
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::{AttachedMode, Link};

pub(super) const CAUSE: Cause = Cause {
    title: "UDP datagrams are merged on arrival, and their receiver cannot split them",
    symptom: "QUIC, a VPN or a capture program loses or misreads datagrams at high rates only; a capture shows \
              UDP packets that are longer than the MTU",
    evidence: "`ethtool -k`: rx-udp-gro-forwarding, rx-gro-list, rx-gro-hw or large-receive-offload on; a packet \
               socket, an XDP program in generic mode, or forwarding behind it",
    remedy: "ethtool -K IF rx-udp-gro-forwarding off (or rx-gro-list, rx-gro-hw, lro); TCP keeps its merging",
    undo: "the same with on",
    counters: &["UdpInErrors"],
    reasons: &["SKB_GSO_SEG"],
    references: &[
        "Documentation/networking/segmentation-offloads.rst",
        "https://github.com/firedancer-io/firedancer/issues/7071",
        "https://github.com/lxc/incus-os/issues/1160",
    ],
    is_of_forwarding: true,
    ..Cause::new("udp-merge", check)
};

/// Offloads that merge datagrams, by their names in the kernel and in `ethtool -K`.
const MERGING: [(&str, &str); 2] =
    [("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"), ("rx-gro-list", "rx-gro-list")];
const LRO: (&str, &str) = ("rx-lro", "lro");
const HARDWARE: (&str, &str) = ("rx-gro-hw", "rx-gro-hw");
/// Programs that only show packets.
const VIEWERS: [&str; 8] = [
    "tcpdump",
    "dumpcap",
    "tshark",
    "wireshark",
    "dhclient",
    "dhcpcd",
    "systemd-network",
    "NetworkManager",
];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for (link, offloads) in super::busy(view, window) {
        let Some(feature) = merging(&offloads, view.forwards(link).is_some()) else { continue };
        let Some(receiver) = receiver(view, window, link, feature.0) else { continue };
        let grown = window.link(&link.name, "rx_packets");
        notes.find(judge(&link.name, feature, &receiver, grown.now, &view.prefix()));
    }
}

/// The first offload that merges datagrams which something else may have to split.
fn merging(offloads: &Offloads, forwards: bool) -> Option<(&'static str, &'static str)> {
    let is_on = |name: &str| offloads.get(name).is_some_and(|offload| offload.is_on);
    let own = MERGING.into_iter().find(|(name, _)| is_on(name));
    // Hardware that merges although it was switched off for software; LRO loses what forwarding needs.
    let hardware = (is_on(HARDWARE.0) && !is_on("rx-gro")).then_some(HARDWARE);
    own.or(hardware).or((forwards && is_on(LRO.0)).then_some(LRO))
}

/// Receivers of merged datagrams that cannot split them.
fn receiver(view: &Evidence, window: &Window, link: &Link, feature: &str) -> Option<String> {
    if link.xdp.iter().any(|attached| attached.mode == AttachedMode::Skb) {
        return Some("an XDP program in generic mode".to_owned());
    }
    if feature == LRO.0 {
        return Some("the network behind this host, to which they are forwarded,".to_owned());
    }
    if feature == HARDWARE.0 {
        return Some("the stack, although GRO is switched off,".to_owned());
    }
    let hears = |index: u32| index == 0 || index == link.index;
    let sockets = window.after.packet.iter().filter(|one| {
        let is_ip =
            [libc::ETH_P_ALL, libc::ETH_P_IP, libc::ETH_P_IPV6].contains(&i32::from(one.protocol));
        is_ip && hears(one.interface)
    });
    let owners = sockets.map(|one| view.owner(one.inode));
    let mut programs =
        owners.filter(|owner| !VIEWERS.iter().any(|viewer| owner.starts_with(viewer)));
    programs.next().map(|owner| format!("{owner}, which reads frames from a packet socket,"))
}

fn judge(
    name: &str,
    (feature, option): (&str, &str),
    receiver: &str,
    packets: u64,
    prefix: &str,
) -> Finding {
    let (severity, confidence) = match (packets, feature) {
        (0, _) => (Severity::Low, Confidence::SetUp),
        (_, "rx-gro-hw") => (Severity::Low, Confidence::SetUp),
        _ => (Severity::Medium, Confidence::SetUp),
    };
    let command = format!("{prefix}ethtool -K {name} {option}");
    finding(
        severity,
        format!(
            "{name} merges datagrams of a flow into one long packet ({feature}), and {receiver} gets them merged: \
             datagrams seem lost or damaged"
        ),
    )
    .seen(confidence)
    .read(format!("ethtool features of {name}"), format!("{feature} on"))
    .read("receiver of the merged packets", receiver.trim_end_matches(','))
    .read(format!("/sys/class/net/{name}/statistics/rx_packets"), format!("{packets} more within the window"))
    .because(
        "a merged packet has the length of each datagram beside it, in the socket buffer; a receiver of raw \
         frames does not see that (Documentation/networking/segmentation-offloads.rst)",
    )
    .effect("each datagram arrives by itself")
    .risk("more CPU time for forwarded UDP; TCP is merged as before")
    .change(format!("{command} off"), format!("{command} on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ethtool::Offload;

    fn switched_on(names: &[&str]) -> Offloads {
        let state = Offload { is_on: true, is_offered: true };
        names.iter().map(|name| ((*name).to_owned(), state)).collect()
    }

    #[test]
    fn merging_that_may_have_to_be_split_is_found() {
        let found =
            |names: &[&str], forwards| merging(&switched_on(names), forwards).map(|(name, _)| name);
        assert_eq!(
            found(&["rx-gro", "rx-udp-gro-forwarding"], false),
            Some("rx-udp-gro-forwarding")
        );
        assert_eq!(found(&["rx-gro"], true), None, "TCP alone");
        assert_eq!(found(&["rx-gro-hw"], false), Some("rx-gro-hw"), "on although GRO is off");
        assert_eq!(found(&["rx-gro", "rx-gro-hw"], false), None);
        assert_eq!(found(&["rx-lro"], true), Some("rx-lro"));
        assert_eq!(found(&["rx-lro"], false), None);
    }
}
