//! Answers that leave by another interface than the one with their address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::{self, TcpSocket, TcpState, TcpTimer};

/// Most pairs of addresses whose route is asked for.
const PAIRS_MAX: usize = 256;
/// Retransmissions of an established connection from which it is in trouble.
const RETRIES: u8 = 2;

pub(super) const CAUSE: Cause = Cause {
    title: "Replies leave through another interface than requests came in",
    symptom: "a host with two uplinks (cards, VPNs, cloud interfaces) answers at one address and not at the other, or some users only; \
              a capture shows requests and replies, and the client gets none",
    evidence: "sockets whose local address is of one interface while `ip route get CLIENT from ADDRESS` names another, with \
               SYN-ACKs or data that are retransmitted: a router with state, or a filter of sources, drops the replies",
    remedy: "a routing table for each uplink and a rule for its source address",
    undo: "delete the rule and the table's route",
    counters: &["TcpRetransSegs"],
    references: &[
        "https://man7.org/linux/man-pages/man8/ip-rule.8.html",
        "https://www.rfc-editor.org/rfc/rfc3704",
    ],
    ..Cause::new("asym-route", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let Some(addresses) = notes.section(evidence.addresses()) else { return };
    let home: BTreeMap<IpAddr, u32> = addresses.iter().map(|own| (own.ip, own.interface)).collect();
    let interfaces: BTreeSet<u32> = home
        .values()
        .copied()
        .filter(|index| evidence.links.get(index).is_some_and(|link| !link.is_loopback))
        .collect();
    if interfaces.len() < 2 {
        return;
    }
    let mut pairs: BTreeMap<(IpAddr, IpAddr), Vec<&TcpSocket>> = BTreeMap::new();
    for one in &window.after.tcp {
        let key = (one.local.ip(), one.remote.ip());
        let is_away = matches!(one.state, TcpState::Established | TcpState::SynReceived)
            && home.get(&key.0).is_some_and(|index| interfaces.contains(index))
            && !home.contains_key(&key.1);
        if is_away && (pairs.len() < PAIRS_MAX || pairs.contains_key(&key)) {
            pairs.entry(key).or_default().push(one);
        }
    }
    // Troubled pairs first: one of them is enough to name the address.
    let mut told = BTreeSet::new();
    let mut pairs: Vec<_> =
        pairs.into_iter().map(|(key, sockets)| (in_trouble(&sockets), key, sockets)).collect();
    pairs.sort_by_key(|(troubled, ..)| std::cmp::Reverse(*troubled));
    for (troubled, (local, remote), sockets) in pairs {
        let Ok(Some((leaves, gateway))) = evidence.system.run(|| net::route_from(local, remote))
        else {
            continue;
        };
        let comes = home[&local];
        // Without a router and without trouble, it is the host's other network, as of containers.
        let is_harmless = troubled == 0 && gateway.is_none();
        if leaves == comes || is_harmless || !told.insert((local, leaves)) {
            continue;
        }
        let (comes, leaves) = (evidence.name_of(comes), evidence.name_of(leaves));
        let what = if troubled > 0 {
            format!(
                "replies of {local} to {remote} leave by {leaves} although the address is of {comes}: {troubled} of {} connections \
                 get no acknowledgement ({})",
                sockets.len(),
                evidence.owner(sockets[0].inode)
            )
        } else {
            format!(
                "replies of {local} to {remote} leave by {leaves} although the address is of {comes}"
            )
        };
        let severity = if troubled > 0 { Severity::High } else { Severity::Low };
        let confidence = if troubled > 0 { Confidence::Now } else { Confidence::SetUp };
        notes.find(
            remedy(finding(severity, what).seen(confidence), evidence, local, &comes)
                .read(format!("ip route get {remote} from {local}"), format!("dev {leaves}"))
                .read(format!("RTM_GETADDR of {comes}"), local.to_string())
                .read(
                    "sock_diag: connections of the pair that retransmit",
                    format!("{troubled} of {}", sockets.len()),
                ),
        );
    }
}

fn remedy(found: Finding, evidence: &Evidence, local: IpAddr, comes: &str) -> Finding {
    let prefix = evidence.prefix();
    let ip = if local.is_ipv6() { "ip -6" } else { "ip" };
    found
        .because(
            "routes are chosen by destination alone unless a rule names the source; routers that track connections and filters of \
             sources on the other path drop such replies (ip-rule(8), RFC 3704)",
        )
        .effect("replies leave by the interface that requests came in by")
        .risk("programs that bind that address use the new table for all they send")
        .change(
            format!(
                "{prefix}{ip} route add default via ROUTER dev {comes} table 100, and {prefix}{ip} rule add from {local} table 100"
            ),
            format!("{prefix}{ip} rule del from {local} table 100, and {prefix}{ip} route flush table 100"),
        )
}

/// Number of sockets that get no acknowledgement.
fn in_trouble(sockets: &[&TcpSocket]) -> usize {
    let is_troubled = |one: &&&TcpSocket| match one.state {
        TcpState::SynReceived => one.retry_count > 0,
        _ => one.timer == TcpTimer::Retransmit && one.retry_count >= RETRIES,
    };
    sockets.iter().filter(is_troubled).count()
}
