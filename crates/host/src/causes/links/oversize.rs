//! Frames longer than the receiver's MTU.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, finding};
use crate::net::{self, Link};

pub(super) const CAUSE: Cause = Cause {
    title: "The two ends of a link have different MTUs: long frames are dropped at the receiver",
    symptom: "ping and small requests work, large transfers hang in one direction",
    evidence: "rx_length_errors, or `ethtool -S`: rx_long_length_errors, rx_oversize (real cards); MTU of both \
               ends of a veth pair, tx_dropped of the sender and rx_dropped of the receiver",
    remedy: "the same MTU at both ends and at the ports between them: ip link set IF mtu N",
    undo: "ip link set IF mtu with the old value",
    counters: &["rx_length_errors", "tx_dropped", "rx_dropped"],
    references: &["drivers/net/veth.c", "include/uapi/linux/if_link.h (rx_length_errors)"],
    is_of_forwarding: true,
    ..Cause::new("mtu-mismatch", check)
};

/// The other end of a veth pair, in this namespace or another one that may be inspected.
pub(super) fn other_end(view: &Evidence, link: &Link) -> Option<Link> {
    let peer = link.peer.filter(|_| link.kind.as_deref() == Some("veth"))?;
    match peer.netns_id {
        None => view.links.get(&peer.index).cloned(),
        Some(_) => view.system.within(|| net::link_of(peer)).ok(),
    }
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for link in view.interfaces() {
        let name = &link.name;
        let too_long = too_long(window, name);
        if too_long.total > 0 {
            notes.find(judge(name, link.mtu_bytes, None, too_long, &view.prefix()));
            continue;
        }
        let (sent, received) =
            (window.row("link", name, "tx_dropped"), window.row("link", name, "rx_dropped"));
        if sent.total + received.total == 0 {
            continue;
        }
        let Some(peer) = other_end(view, link) else { continue };
        let lost = match peer.mtu_bytes {
            mtu if mtu < link.mtu_bytes => sent,
            mtu if mtu > link.mtu_bytes => received,
            _ => continue,
        };
        if lost.total > 0 {
            notes.find(judge(name, link.mtu_bytes, Some(peer.mtu_bytes), lost, &view.prefix()));
        }
    }
}

/// Counters of `ethtool -S` of frames that are too long.
const TOO_LONG: [&str; 3] = ["rx_long_length_errors", "rx_oversize", "rx_oversize_pkts_phy"];

/// Frames that were longer than an interface takes. `rx_length_errors` counts those that are too short as well, so it is
/// used where the driver does not tell them apart.
fn too_long(window: &Window, name: &str) -> Losses {
    let known = TOO_LONG
        .iter()
        .filter(|counter| window.latest(&format!("ethtool {name} {counter}")).is_some());
    let counted = known.map(|counter| window.row("ethtool", name, counter));
    let most = counted.max_by_key(|lost| (lost.now, lost.total));
    most.unwrap_or_else(|| window.row("link", name, "rx_length_errors"))
}

/// - `peer_bytes`: MTU of the other end of a veth pair.
fn judge(
    name: &str,
    mtu_bytes: u32,
    peer_bytes: Option<u32>,
    lost: Losses,
    prefix: &str,
) -> Finding {
    let what = match peer_bytes {
        None => format!("frames were longer than {name} takes (MTU {mtu_bytes})"),
        Some(peer) if peer < mtu_bytes => {
            format!(
                "packets of {name} (MTU {mtu_bytes}) were dropped at its other end, whose MTU is {peer}"
            )
        }
        Some(peer) => {
            format!(
                "packets of the other end (MTU {peer}) were dropped at {name}, whose MTU is {mtu_bytes}"
            )
        }
    };
    let smaller = peer_bytes.map_or(mtu_bytes, |peer| peer.min(mtu_bytes));
    let set = format!("{prefix}ip link set {name} mtu");
    let (change, undo) = match peer_bytes {
        Some(peer) if peer != mtu_bytes => (format!("{set} {peer}"), format!("{set} {mtu_bytes}")),
        _ => (
            format!("set the sender's MTU to {smaller}, or {set} to that of the sender"),
            format!("{set} {mtu_bytes}"),
        ),
    };
    finding(lost.severity(), lost.sentence(&what))
        .counted(lost, "packets")
        .read(format!("counters of {name}"), lost.evidence())
        .read(format!("/sys/class/net/{name}/mtu"), mtu_bytes.to_string())
        .read(
            "MTU of the other end",
            peer_bytes.map_or("not known".to_owned(), |peer| peer.to_string()),
        )
        .because(
            "two ends of a link do not tell each other their MTU, and no ICMP is sent below IP: the receiver \
             drops what is too long (drivers/net/veth.c)",
        )
        .effect("long packets arrive")
        .risk("connections that are open keep their segment size for a while")
        .change(change, undo)
}
