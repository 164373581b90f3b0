//! Packets of this host that a router drops because their time to live has run out.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "packets of this host die at a router: their TTL is too small, or the way goes in a circle",
    symptom: "a session with a peer some hops away never opens, while one with a neighbour does; ping works, as it \
              has a TTL of its own",
    evidence: "IcmpInTimeExcds and Icmp6InTimeExcds that grow without traceroute; sockets in SYN-SENT beside it",
    remedy: "a larger TTL in the program (IP_TTL, `ttl-security` or `ebgp-multihop` of a routing daemon; \
             IP_MULTICAST_TTL for groups); for a circle the routes of the routers: `traceroute ADDRESS`",
    undo: "the previous TTL",
    counters: &["IcmpInTimeExcds", "Icmp6InTimeExcds"],
    references: &["RFC 792, time exceeded", "ip(7), IP_TTL"],
    ..Cause::new("ttl-too-small", check)
};

/// Answers in a window from which it is no traceroute of a moment.
const FEW: u64 = 2;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let died = window.sum(&["IcmpInTimeExcds", "Icmp6InTimeExcds"]);
    let opening: Vec<&TcpSocket> =
        window.after.tcp.iter().filter(|one| one.state == TcpState::SynSent).collect();
    let is_now = died.now >= FEW || (died.now > 0 && !opening.is_empty());
    if !is_now && (died.total < FEW || opening.is_empty()) {
        return;
    }
    let severity = match (is_now, opening.is_empty()) {
        (true, false) => Severity::High,
        (true, true) => Severity::Medium,
        (false, _) => Severity::Low,
    };
    let to = opening.first().map_or(String::new(), |one| {
        format!(", among them perhaps those of {} to {}", view.owner(one.inode), one.remote)
    });
    let what =
        format!("{}{to}", died.sentence("packets of this host died at a router (TTL exceeded)"));
    let mut found = finding(severity, what)
        .counted(died, "packets")
        .read("/proc/net/snmp: Icmp InTimeExcds", died.evidence());
    for one in opening.iter().take(8) {
        found = found.read(
            format!("sock_diag: {} opens a connection", view.owner(one.inode)),
            format!("to {}, {} SYNs without an answer", one.remote, one.retry_count),
        );
    }
    notes.find(
        found
            .because("each router takes one from the TTL, drops the packet at 0 and tells its sender (RFC 792)")
            .effect("the packets arrive")
            .risk("a TTL of 1 is a guard of protocols between neighbours: let only the sessions that need it have more")
            .change(
                "a larger TTL in the program's settings (IP_TTL; multihop of a routing daemon); `traceroute ADDRESS` \
                 shows whether the routers send it in a circle",
                "the previous TTL",
            ),
    );
}
