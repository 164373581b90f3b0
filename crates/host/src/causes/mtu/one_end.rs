//! Frames that are larger than the other end of the wire takes.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};
use crate::net;

pub(super) const CAUSE: Cause = Cause {
    title: "one end of a wire has a larger MTU than the other",
    symptom: "large datagrams and pings are lost in one direction, small ones pass; TCP works, or stalls if a router is \
              between",
    evidence: "frames dropped as too long (rx_length_errors, rx_over_errors); for a veth pair its drops and the MTU of \
               its other end",
    remedy: "the same MTU at both ends and at the switch: `ip link set IF mtu 9000`",
    undo: "`ip link set IF mtu 1500`",
    counters: &["link IF rx_length_errors", "link IF tx_dropped"],
    reasons: &["PKT_TOO_BIG"],
    references: &["ip-link(8)", "drivers/net/veth.c"],
    is_of_forwarding: true,
    ..Cause::new("mtu-one-end", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let window = match view.window() {
        Ok(window) => window,
        Err(why) => return notes.unseen(why),
    };
    for link in view.links.values().filter(|link| !link.is_loopback && link.is_up) {
        let (name, mtu) = (&link.name, link.mtu_bytes);
        let counted = |counter: &str| window.sum(&[&format!("link {name} {counter}")]);
        let too_long = window.sum(&[
            &format!("link {name} rx_length_errors"),
            &format!("link {name} rx_over_errors"),
        ]);
        let command = format!("{}ip link set {name} mtu", view.prefix());
        let found = if link.kind.as_deref() == Some("veth") {
            // The pair drops what its other end does not take, and counts it at both.
            let dropped = window
                .sum(&[&format!("link {name} tx_dropped"), &format!("link {name} rx_dropped")]);
            if dropped.total == 0 {
                continue;
            }
            let Some(peer) = link.peer else { continue };
            let Ok(other) = view.system.within(|| net::mtu_of(peer)) else { continue };
            if other == mtu {
                continue;
            }
            finding(
                dropped.severity(),
                format!(
                    "{}: {name} has an MTU of {mtu} and its other end one of {other}",
                    dropped.sentence("frames were dropped between the ends of a veth pair")
                ),
            )
            .counted(dropped, "frames")
            .read(format!("tx_dropped of {name}"), counted("tx_dropped").evidence())
            .read(format!("rx_dropped of {name}"), counted("rx_dropped").evidence())
            .read(format!("IFLA_MTU of the other end of {name}"), other.to_string())
            .change(
                format!("{command} {other}, or {mtu} at the other end"),
                format!("{command} {mtu}"),
            )
        } else if too_long.now > 0 {
            finding(
                too_long.severity(),
                format!(
                    "{}: {name} takes {mtu} bytes",
                    too_long.sentence(&format!(
                        "frames that arrived on {name} were too long or of a wrong length"
                    ))
                ),
            )
            .counted(too_long, "frames")
            .read(format!("rx_length_errors and rx_over_errors of {name}"), too_long.evidence())
            .change(format!("{command} 9000, or 1500 at the senders"), format!("{command} {mtu}"))
        } else {
            continue;
        };
        notes.find(
            found
                .read(format!("IFLA_MTU of {name}"), mtu.to_string())
                .because(
                    "a frame above the receiver's MTU is dropped, and no message tells the sender",
                )
                .effect("large packets pass")
                .risk("every host and switch of the network needs the same size"),
        );
    }
}
