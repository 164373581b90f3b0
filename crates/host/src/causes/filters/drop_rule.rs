//! Rules that drop or refuse packets now.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, Severity, finding};
use crate::net::TcpState;
use crate::net::nftables::{NftChain, NftRule, Ruleset};

use super::counted::growing;
use super::rules::{chains_at, drops_at, is_of_invalid, place, port_of, removal};

/// Most rules that are named.
const NAMED_MAX: usize = 3;
/// Share of received or forwarded packets from which a rule drops more than strays, percent.
const LARGE_SHARE: u64 = 50;
const PACKETS: u64 = 10;

pub(super) const CAUSE: Cause = Cause {
    title: "A rule of the firewall drops or refuses packets",
    symptom: "a program listens and clients time out or are refused; a capture shows the packets, the program gets none",
    evidence: "the counter of a rule that drops or rejects grows; or packets vanish between receive and delivery (IpInReceives \
               without IpInDelivers) and a rule drops the port of a program that listens",
    remedy: "delete the rule, or accept the packets in a rule before it",
    undo: "the rule again",
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://wiki.nftables.org/wiki-nftables/index.php/Counters",
        "https://man7.org/linux/man-pages/man8/nft.8.html",
    ],
    is_of_forwarding: true,
    ..Cause::new("drop-rule", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let vanished = window.vanished_received();
    if window.after.drops == window.before.drops && vanished.now == 0 {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    // Packets that programs send have a cause of their own.
    let outgoing = chains_at(rules, "output");
    let counted: Vec<_> = growing(window, rules)
        .into_iter()
        .filter(|(chain, rule, _)| !is_of_invalid(rule) && !outgoing.contains(chain))
        .collect();
    for (chain, rule, dropped) in counted.iter().take(NAMED_MAX) {
        notes.find(counted_rule(evidence, window, chain, rule, *dropped));
    }
    if counted.is_empty() && vanished.now > 0 {
        uncounted(evidence, window, rules, vanished, notes);
    }
}

fn counted_rule(
    evidence: &Evidence,
    window: &Window,
    chain: &NftChain,
    rule: &NftRule,
    dropped: Losses,
) -> Finding {
    let received = window.sum(&["IpInReceives", "Ip6InReceives"]);
    let is_large = dropped.now >= PACKETS && dropped.now * 100 >= received.now * LARGE_SHARE;
    let listener = port_of(rule).and_then(|port| listener(evidence, window, port));
    let severity = match (&listener, is_large) {
        (Some(_), _) => Severity::High,
        (None, true) => Severity::Medium,
        // To drop strays is its purpose.
        (None, false) => Severity::Low,
    };
    let what = format!(
        "{}: {} drops them",
        dropped.sentence("packets were dropped"),
        place(chain, Some(rule))
    );
    let what = match &listener {
        Some(listener) => format!("{what}, and {listener} waits for them"),
        None => what,
    };
    let found = finding(severity, what).counted(dropped, "packets");
    remedy(found, evidence, chain, Some(rule))
        .read("nftables: packets that the rule dropped", dropped.evidence())
        .read("/proc/net/snmp and snmp6: InReceives", received.evidence())
}

/// Rules without a counter, of which one or the other dropped the packets that vanished.
fn uncounted(
    evidence: &Evidence,
    window: &Window,
    rules: &Ruleset,
    vanished: Losses,
    notes: &mut Notes<'_>,
) {
    let suspects: Vec<_> =
        ["prerouting", "input"].iter().flat_map(|hook| drops_at(rules, hook)).collect();
    let named = suspects.iter().find_map(|(chain, rule)| {
        let listener = listener(evidence, window, port_of((*rule)?)?)?;
        Some((*chain, *rule, Some(listener)))
    });
    let Some((chain, rule, listener)) =
        named.or_else(|| suspects.last().map(|(chain, rule)| (*chain, *rule, None)))
    else {
        return;
    };
    let severity = if listener.is_some() { Severity::High } else { Severity::Low };
    let received = vanished.sentence("received packets were neither delivered nor forwarded");
    let what = match &listener {
        Some(listener) => {
            format!("{received}: {} drops those to {listener}", place(chain, rule))
        }
        None => format!(
            "{received}: {} of the firewall, such as {}, drop them",
            if suspects.len() == 1 {
                "a rule".to_owned()
            } else {
                format!("one or more of {} rules", suspects.len())
            },
            place(chain, rule)
        ),
    };
    let found = finding(severity, what).counted(vanished, "packets");
    notes.find(
        remedy(found, evidence, chain, rule).read(
            "/proc/net/snmp: Ip InReceives that no counter accounts for",
            vanished.evidence(),
        ),
    );
}

fn remedy(
    found: Finding,
    evidence: &Evidence,
    chain: &NftChain,
    rule: Option<&NftRule>,
) -> Finding {
    let (change, undo) = removal(&evidence.prefix(), chain, rule);
    found
        .because("what a rule drops is counted by the rule's own counter alone (nft(8))")
        .effect("the packets pass")
        .risk("the rule has a purpose: ask its author, and accept what is wanted before it")
        .change(change, undo)
}

/// Program that listens at a port, in words.
fn listener(evidence: &Evidence, window: &Window, port: u16) -> Option<String> {
    let tcp = window
        .after
        .tcp
        .iter()
        .find(|one| one.state == TcpState::Listen && one.local.port() == port);
    let udp = || window.after.udp.iter().find(|one| one.local.port() == port);
    let (protocol, inode) =
        tcp.map(|one| ("TCP", one.inode)).or_else(|| udp().map(|one| ("UDP", one.inode)))?;
    Some(format!("{protocol} port {port} of {}", evidence.owner(inode)))
}
