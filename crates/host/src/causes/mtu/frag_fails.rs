//! Packets that are refused as too large for the next link.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "packets are too large for the next link, and their sender goes on",
    symptom: "large packets of some hosts never pass this one; their connections hang while ping works",
    evidence: "IpFragFails and Ip6InTooBigErrors that go on growing, against the ICMP messages sent for them \
               (IcmpOutDestUnreachs, Icmp6OutPktTooBigs) and those that could not be sent (IpOutDiscards)",
    remedy: "let ICMP type 3 code 4 (IPv6: type 2) pass from here to the senders; or clamp their segments: `nft add rule \
             inet filter forward tcp flags syn tcp option maxseg size set rt mtu`",
    undo: "`nft delete rule` with the rule's handle",
    counters: &["IpFragFails", "Ip6FragFails", "Ip6InTooBigErrors"],
    reasons: &["PKT_TOO_BIG"],
    references: &["RFC 1191", "RFC 2923", "RFC 4890 section 4.3.1"],
    is_of_forwarding: true,
    ..Cause::new("frag-fails", check)
};

/// Packets that were too large and might not be cut.
pub(super) fn refused(window: &Window) -> Losses {
    window.sum(&["IpFragFails", "Ip6FragFails", "Ip6InTooBigErrors"])
}

/// Refused packets of a second by which senders learn the size.
const LEARNING_MAX: u64 = 4;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let failed = refused(window);
    if failed.now <= LEARNING_MAX {
        return;
    }
    let told = window.sum(&["IcmpOutDestUnreachs", "Icmp6OutPktTooBigs"]);
    let discarded = window.sum(&["IpOutDiscards", "Ip6OutDiscards"]);
    let why = if discarded.now > 0 {
        "a rule of this host drops the ICMP messages that say so"
    } else if told.now == 0 {
        "this host sends no ICMP message for them"
    } else {
        "their senders do not obey the ICMP messages, or never get them"
    };
    let widths: Vec<String> = view
        .links
        .values()
        .filter(|link| !link.is_loopback && link.is_up)
        .map(|link| format!("{} {}", link.name, link.mtu_bytes))
        .take(16)
        .collect();
    notes.find(
        finding(
            failed.severity(),
            format!("{}, and {why}", failed.sentence("packets that may not be cut were too large for the next link")),
        )
        .counted(failed, "packets")
        .read("/proc/net/snmp and snmp6: FragFails, InTooBigErrors", failed.evidence())
        .read("/proc/net/snmp and snmp6: OutDestUnreachs, OutPktTooBigs", told.evidence())
        .read("/proc/net/snmp and snmp6: OutDiscards", discarded.evidence())
        .read("IFLA_MTU", widths.join(", "))
        .because(
            "a sender learns the size of a path by ICMP (fragmentation needed); without it, it repeats what cannot pass \
             (RFC 1191, RFC 2923)",
        )
        .effect("senders use packets that fit")
        .risk("none for the clamp; ICMP of type 3 is needed for other errors too")
        .change(
            format!(
                "let ICMP type 3 code 4 (IPv6: type 2) out of the rules here and up to the senders; or {}nft add rule inet \
                 filter forward tcp flags syn tcp option maxseg size set rt mtu",
                view.prefix()
            ),
            "nft delete rule inet filter forward handle N",
        ),
    );
}
