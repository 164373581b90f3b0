//! A program may not send: netfilter drops its packet, and the call fails.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::TcpState;

use super::counted::packets_of;
use super::rules::{drops_at, place, port_of, removal};

pub(super) const CAUSE: Cause = Cause {
    title: "A rule at the hook output drops what a program sends",
    symptom: "send, sendto or sendmsg fails with EPERM (\"Operation not permitted\") although the program is root; a TCP \
              connect hangs; nothing is seen on the wire",
    evidence: "IpOutDiscards (UDP, ICMP) or TcpExtTCPRetransFail (TCP) grows, and a chain at the hook output or postrouting \
               drops, or an entry of address translation has the socket's own addresses (insert_failed)",
    remedy: "accept the packets in the chain, or do not bind the same port at two addresses behind one masquerade",
    undo: "delete the rule",
    counters: &["IpOutDiscards", "Ip6OutDiscards", "TcpExtTCPRetransFail"],
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://man7.org/linux/man-pages/man2/send.2.html",
        "https://github.com/elixir-webrtc/ex_ice/issues/83",
        "https://github.com/kronosnet/kronosnet/issues/178",
    ],
    ..Cause::new("send-eperm", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let discarded = window.sum(&["IpOutDiscards", "Ip6OutDiscards"]);
    let failed = window.sum(&["TcpExtTCPRetransFail"]);
    let lost = window.losses(0, discarded.now + failed.now);
    if lost.now == 0 {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let mut suspects = drops_at(rules, "output");
    suspects.extend(drops_at(rules, "postrouting"));
    let grew =
        |rule| move |chain| packets_of(window, chain, rule).is_some_and(|dropped| dropped.now > 0);
    let counted = suspects.iter().find(|(chain, rule)| rule.is_some_and(|rule| grew(rule)(*chain)));
    let named = suspects.iter().find(|(_, rule)| {
        rule.and_then(port_of).is_some_and(|port| sender(evidence, window, port).is_some())
    });
    let suspect = counted
        .or(named)
        .or_else(|| suspects.iter().find(|(_, rule)| rule.is_none()))
        .or(suspects.first());
    let collided = window.sum(&["nf_conntrack insert_failed"]);
    let legacy = evidence.legacy_tables().iter().any(|table| table.rule_count.unwrap_or(0) > 0);
    let sends = lost.sentence("sends of programs failed (EPERM for datagrams, TCP goes on trying)");
    let prefix = evidence.prefix();
    let (what, change, undo) = match suspect {
        Some((chain, rule)) => {
            let by = rule.and_then(port_of).and_then(|port| sender(evidence, window, port));
            let by = by.map_or_else(String::new, |sender| format!(", of {sender} among them"));
            let (change, undo) = removal(&prefix, chain, *rule);
            (format!("{sends}: {} drops them{by}", place(chain, *rule)), change, undo)
        }
        None if collided.now > 0 => (
            format!(
                "{sends}: another connection has the addresses that translation would give them"
            ),
            "bind the program's sockets to different ports, or to one address only".to_owned(),
            "the program's previous setting".to_owned(),
        ),
        None if legacy => (
            format!("{sends}: a rule of iptables-legacy may drop them"),
            format!(
                "{prefix}iptables-legacy -S OUTPUT -v shows the rule; accept before it with -I OUTPUT"
            ),
            format!("{prefix}iptables-legacy -D OUTPUT with the same words"),
        ),
        None => return,
    };
    notes.find(
        finding(Severity::High, what)
            .counted(lost, "packets")
            .read("/proc/net/snmp and snmp6: OutDiscards", discarded.evidence())
            .read("/proc/net/netstat: TcpExt TCPRetransFail", failed.evidence())
            .read("/proc/net/stat/nf_conntrack: insert_failed", collided.evidence())
            .because(
                "a packet that netfilter drops at output makes the call that sends it fail with EPERM; TCP takes it for a \
                 loss (send(2), nft(8))",
            )
            .effect("the program can send")
            .risk("the rule has a purpose: ask its author")
            .change(change, undo),
    );
}

/// Program that sends to a port, in words.
fn sender(evidence: &Evidence, window: &Window, port: u16) -> Option<String> {
    let tcp = window
        .after
        .tcp
        .iter()
        .find(|one| one.remote.port() == port && one.state != TcpState::Listen);
    let udp = || window.after.udp.iter().find(|one| one.remote.port() == port);
    let inode = tcp.map(|one| one.inode).or_else(|| udp().map(|one| one.inode))?;
    Some(format!("{} to port {port}", evidence.owner(inode)))
}
