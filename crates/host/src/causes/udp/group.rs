//! Datagrams of a group that reach an interface and no program: what only a tap beside a member can see.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};
use crate::net::nftables::{HookPoint, Layer, NftChain, RulePacket, Ruleset};

pub(super) const FRAMES: Cause = Cause {
    title: "datagrams of a group come in a form that this host drops",
    symptom: "a capture on this host shows the datagrams of a group, and its members get none",
    evidence: "frames of a tap beside a member: hardware addresses of other hosts, and a sender whose address is also \
               one of this host",
    remedy: "the group's hardware address (01:00:5e:...) at the sender or the switch that mirrors it; another address \
             for one of the two hosts",
    undo: "the previous address",
    counters: &["IpInReceives"],
    reasons: &["IP_LOCAL_SOURCE"],
    references: &["RFC 1112 section 6.4", "packet(7)"],
    subject: CauseSubject::Group,
    ..Cause::new("group-frames", frames)
};

pub(super) const FILTER: Cause = Cause {
    title: "this host drops a group by a rule",
    symptom: "a capture on this host shows the datagrams of a group, and its members get none",
    evidence: "datagrams that a tap beside a member sees, and no counter of a drop; IpExtInMcastPkts, which counts those \
               that passed the rules before routing; chains of nftables",
    remedy: "a rule that accepts the group: `nft insert rule TABLE CHAIN ip daddr GROUP udp dport PORT accept`",
    undo: "`nft delete rule` with the rule's handle",
    counters: &["IpExtInMcastPkts"],
    references: &["firewalld/firewalld#21", "firewalld/firewalld#497", "nft(8)"],
    subject: CauseSubject::Group,
    ..Cause::new("group-filter", filter)
};

pub(super) const HEADER: Cause = Cause {
    title: "packets arrive with a damaged or impossible IP header",
    symptom: "a capture shows packets that no program gets, and no router forwards",
    evidence: "IpInHdrErrors and IpExtInCsumErrors beyond the packets whose TTL ended here (IcmpOutTimeExcds)",
    remedy: "the sender, or the device that rewrites its packets",
    undo: "nothing was changed",
    counters: &["IpInHdrErrors", "IpExtInCsumErrors", "Ip6InHdrErrors"],
    reasons: &["IP_INHDR", "IP_CSUM"],
    references: &["RFC 1122 section 3.2.1", "Documentation/networking/snmp_counter.rst"],
    ..Cause::new("ip-header", header)
};

/// A member of a group asks why it gets nothing.
#[derive(Debug, Clone)]
pub struct GroupQuestion {
    pub group: SocketAddr,
    pub interface: String,
    /// The member has got datagrams before.
    pub has_heard: bool,
    /// Arrivals that a tap saw within the window; `None` without one.
    pub seen: Option<GroupArrivals>,
    /// Rules of nftables, as far as they were readable.
    pub rules: Arc<Ruleset>,
}

/// Datagrams of the group and port at its interface, before the stack.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupArrivals {
    /// Whole ones, of senders that the member admits.
    pub whole: u64,
    /// Those without some of their fragments.
    pub torn: u64,
    /// Those whose frames are for another host.
    pub for_other_host: u64,
    /// A sender's address that is also one of this host.
    pub own_address: Option<std::net::IpAddr>,
}

impl GroupArrivals {
    /// True if a count explains the loss of most of them.
    fn is_explained_by(self, count: u64) -> bool {
        count.saturating_mul(2) >= self.whole.max(1)
    }
}

/// Counters that explain a group's loss, and their causes, in the order in which the kernel meets them.
const COUNTED: [(&str, &[&str]); 5] = [
    ("ip-header", &["IpInHdrErrors"]),
    ("reverse-path", &["TcpExtIPReversePathFilter"]),
    ("reasm", &["IpReasmFails"]),
    ("checksum", &["UdpInCsumErrors"]),
    ("udp-rcvbuf", &["UdpRcvbufErrors"]),
];

/// Answers [`Evidence::about_group`]: why the group does not reach its member, if this host knows.
pub fn of_group(evidence: &Evidence) -> Option<Finding> {
    let (question, window) = (evidence.asked.as_ref()?, evidence.window().ok()?);
    let first = |id: &str| {
        let report = crate::causes::examine_for(evidence, |cause| cause.id == id);
        report.findings.into_iter().find(|found| found.confidence >= Confidence::SetUp)
    };
    let Some(seen) = question.seen else {
        // Without a tap, rare counters of all traffic are the best guess.
        let may_be = |id: &str| ["reverse-path", "checksum"].contains(&id);
        let mut grown =
            COUNTED.iter().filter(|(id, names)| may_be(id) && window.sum(names).now > 0);
        return grown.find_map(|(id, _)| first(id));
    };
    if seen.whole > 0 {
        return first(FRAMES.id)
            .or_else(|| {
                let mut counted = COUNTED.iter();
                counted
                    .find(|(_, names)| seen.is_explained_by(window.sum(names).now))
                    .and_then(|(id, _)| first(id))
            })
            .or_else(|| first(FILTER.id));
    }
    if seen.torn > 0 {
        return Some(torn(question, seen.torn));
    }
    if window.sum(&["TcpExtIPReversePathFilter"]).now > 0 {
        return first("reverse-path");
    }
    let received = |counter: &str| window.link(&question.interface, counter).now;
    (!question.has_heard && received("rx_packets") == 0)
        .then(|| elsewhere(evidence, question, window))
        .flatten()
}

fn frames(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(question) = &view.asked else { return };
    let Some(seen) = question.seen.filter(|seen| seen.whole > 0) else { return };
    let (group, interface) = (question.group, &question.interface);
    let found = if seen.is_explained_by(seen.for_other_host) {
        finding(
            Severity::High,
            format!("the frames of {group} on {interface} have the hardware address of another host, so that they are dropped"),
        )
        .read(format!("packet tap on {interface}: frames for another host"), seen.for_other_host.to_string())
        .because("the kernel passes frames of other hosts to captures only (packet(7), PACKET_OTHERHOST)")
        .change("correct the sender, or the port of the switch that mirrors them", "the previous setting")
    } else if let Some(address) = seen.own_address {
        finding(
            Severity::High,
            format!("the address {address} of the sender of {group} is also one of this host, so that the kernel drops its datagrams"),
        )
        .read(format!("packet tap on {interface}: sender"), address.to_string())
        .because("a packet from outside with an own address is a forgery (RFC 1122 section 3.2.1.3)")
        .change("give one of the two hosts another address", "the previous address")
    } else {
        return;
    };
    notes.find(found.seen(Confidence::Now).effect("the member gets the group").risk("none known"));
}

fn filter(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(question) = &view.asked else { return };
    let Some(seen) = question.seen.filter(|seen| seen.whole > 0) else { return };
    let Ok(window) = view.window() else { return };
    let routed = window.sum(&["IpExtInMcastPkts"]);
    let (group, interface) = (question.group, &question.interface);
    let hooks: &[&'static str] =
        if seen.is_explained_by(routed.now) { &["input"] } else { &["prerouting", "ingress"] };
    let chains: Vec<&NftChain> = question
        .rules
        .chains
        .iter()
        .filter(|chain| chain.base.as_ref().is_some_and(|base| hooks.contains(&base.hook)))
        .collect();
    let suspects = question.rules.suspects(&datagram_to(group), &points(hooks));
    let place = match (&suspects[..], &chains[..]) {
        ([suspect, ..], _) => {
            let NftChain { family, table, name, .. } = suspect.chain;
            let rule = suspect.rule.map_or("its policy".to_owned(), |rule| {
                format!("rule with handle {}", rule.handle)
            });
            format!("by chain {family} {table} {name}: {rule}")
        }
        ([], []) => format!("most likely by a firewall rule at {}", hooks.join(" or ")),
        ([], chains) => {
            let names: Vec<String> = chains
                .iter()
                .map(|chain| format!("{} {} {}", chain.family, chain.table, chain.name))
                .take(8)
                .collect();
            format!("by a rule at {}: chain {}", hooks.join(" or "), names.join(", "))
        }
    };
    let order = if hooks[0] == "input" { "behind routing" } else { "before routing" };
    let command = match suspects.first().map(|suspect| suspect.chain).or(chains.first().copied()) {
        Some(chain) => format!(
            "{}nft insert rule {} {} {} ip daddr {} udp dport {} accept",
            view.prefix(),
            chain.family,
            chain.table,
            chain.name,
            group.ip(),
            group.port()
        ),
        None => format!(
            "accept UDP port {} to {} in nft list ruleset, iptables -S INPUT, iptables -t raw -S or tc filter show dev \
             {interface} ingress",
            group.port(),
            group.ip()
        ),
    };
    notes.find(
        finding(Severity::High, format!("{group} is dropped by this host {order}, {place}"))
            .seen(Confidence::Now)
            .costs(format!("{} datagrams or more", seen.whole))
            .read(format!("packet tap on {interface}"), format!("{} datagrams or more", seen.whole))
            .read("/proc/net/netstat: IpExt InMcastPkts, behind the rules before routing", routed.evidence())
            .because("they reach the interface and no socket, and no counter of the stack explains it: rules have none")
            .effect("the member gets the group")
            .risk("the rule has a purpose: accept this group and port only")
            .change(command, "nft delete rule, with the handle of nft -a list ruleset"),
    );
}

/// Headers of a datagram to a group, of which the source is unknown.
fn datagram_to(group: SocketAddr) -> RulePacket {
    const UDP: u8 = 17;
    let mut network = vec![0; 28];
    let (IpAddr::V4(ip), port) = (group.ip(), group.port()) else { return RulePacket::default() };
    network[0] = 0x45;
    network[9] = UDP;
    network[16..20].copy_from_slice(&ip.octets());
    network[22..24].copy_from_slice(&port.to_be_bytes());
    RulePacket { network, ethertype: libc::ETH_P_IP as u16, ..RulePacket::default() }
}

fn points(hooks: &[&'static str]) -> Vec<HookPoint> {
    let layer = |hook: &str| if hook == "ingress" { Layer::Device } else { Layer::Ip };
    hooks.iter().map(|hook| HookPoint { layer: layer(hook), hook }).collect()
}

fn torn(question: &GroupQuestion, count: u64) -> Finding {
    let GroupQuestion { group, interface, .. } = question;
    let found = finding(
        Severity::High,
        format!(
            "{count} datagrams of {group} or more reach {interface} with fragments missing, so that the kernel cannot put \
             them together; a firewall or switch on the way drops fragments, or this host does by a rule"
        ),
    );
    Finding { cause: "reasm", ..found }
        .seen(Confidence::Now)
        .read(format!("packet tap on {interface}"), format!("{count} datagrams without a fragment"))
        .because("a datagram above the MTU travels in fragments, and is lost with any of them")
        .effect("whole datagrams arrive")
        .risk("none known")
        .change(
            "datagrams that fit into a frame, at the sender; let fragments pass the filters",
            "nothing was changed",
        )
}

/// Another interface that receives multicast, while the member's receives nothing.
fn elsewhere(view: &Evidence, question: &GroupQuestion, window: &Window) -> Option<Finding> {
    let multicast = |name: &str| window.link(name, "multicast");
    let others =
        view.links.values().filter(|link| link.name != question.interface && !link.is_loopback);
    let other = others.max_by_key(|link| multicast(&link.name).now)?;
    let (name, count) = (&other.name, multicast(&other.name));
    if count.now == 0 {
        return None;
    }
    let GroupQuestion { group, interface, .. } = question;
    let found = finding(
        Severity::Medium,
        format!(
            "{group} is joined on {interface}, which receives nothing, while {name} received {} multicast frames",
            count.now
        ),
    );
    Some(
        Finding { cause: super::bind::OTHER_INTERFACE.id, ..found }
            .seen(Confidence::Possible)
            .read(format!("link {name} multicast"), count.evidence())
            .because("a group is joined on one interface, and datagrams that arrive on another one are dropped (ip(7))")
            .effect("the member gets the group")
            .risk("none known")
            .change(format!("join the group on {name}"), format!("join it on {interface}")),
    )
}

fn header(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    // Packets whose TTL ends here are counted too; those of route tracing are healthy.
    let ended = window.sum(&["IcmpOutTimeExcds", "Icmp6OutTimeExcds"]);
    let wrong = window.sum(&["IpInHdrErrors", "Ip6InHdrErrors"]).without(ended);
    if wrong.now == 0 {
        return;
    }
    notes.find(
        finding(wrong.severity(), wrong.sentence("packets were dropped for their IP header: it is damaged, or its TTL ended here unanswered"))
            .counted(wrong, "packets")
            .read("/proc/net/snmp and snmp6: InHdrErrors without expired TTLs", wrong.evidence())
            .read("/proc/net/netstat: IpExt InCsumErrors", window.sum(&["IpExtInCsumErrors"]).evidence())
            .because("the version, the length or the checksum of the header is wrong (RFC 1122 section 3.2.1)")
            .effect("the packets are received")
            .risk("none known")
            .change("correct the sender, or the device on the way that rewrites its packets", "nothing was changed"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::{Place, System};

    fn asked(seen: GroupArrivals, counters: &[(&str, u64, u64)]) -> Option<Finding> {
        let question = GroupQuestion {
            group: "239.1.1.1:10000".parse().unwrap(),
            interface: "lo".to_owned(),
            has_heard: false,
            seen: Some(seen),
            rules: Arc::default(),
        };
        let window = Window::with_counters(counters);
        let evidence =
            Evidence::new(System::open(&Place::default()).unwrap(), None, None, None).unwrap();
        of_group(&evidence.watched(window.before, window.after).about_group(question))
    }

    fn whole(count: u64) -> GroupArrivals {
        GroupArrivals { whole: count, ..GroupArrivals::default() }
    }

    #[test]
    fn the_counter_that_grows_with_the_group_names_the_cause() {
        let what = |seen, counters: &[(&str, u64, u64)]| {
            asked(seen, counters).map(|found| (found.cause, found.what))
        };
        let found = what(whole(100), &[("IpExtInMcastPkts", 0, 100)]).unwrap();
        assert!(found.0 == "group-filter" && found.1.contains("rule at input"), "{found:?}");
        let found = what(whole(100), &[]).unwrap();
        assert!(
            found.1.contains("before routing") && found.1.contains("rule at prerouting"),
            "{found:?}"
        );
        let counted = |counter| what(whole(100), &[(counter, 0, 90)]).unwrap().0;
        assert_eq!(counted("UdpInCsumErrors"), "checksum");
        assert_eq!(counted("TcpExtIPReversePathFilter"), "reverse-path");
        assert_eq!(counted("IpReasmFails"), "reasm");
        assert_eq!(counted("UdpRcvbufErrors"), "udp-rcvbuf");
        assert_eq!(counted("IpInHdrErrors"), "ip-header");
        // A counter that grows by other traffic does not explain it.
        assert_eq!(what(whole(100), &[("UdpInCsumErrors", 0, 2)]).unwrap().0, "group-filter");
    }

    #[test]
    fn frames_for_others_and_missing_fragments_are_told_and_nothing_is_invented() {
        let others = GroupArrivals { for_other_host: 100, ..whole(100) };
        assert!(asked(others, &[]).unwrap().what.contains("hardware address of another host"));
        let own = GroupArrivals { own_address: "10.0.0.1".parse().ok(), ..whole(100) };
        assert!(asked(own, &[]).unwrap().what.contains("also one of this host"));
        let torn = GroupArrivals { torn: 9, ..GroupArrivals::default() };
        assert!(asked(torn, &[]).unwrap().what.contains("fragments missing"));
        assert_eq!(asked(whole(0), &[("link lo rx_packets", 1, 9)]), None);
    }
}
