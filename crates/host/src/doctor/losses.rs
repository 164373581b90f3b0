//! Packets that reach the host and are dropped before a program gets them, by the kernel's counters.

use super::counters::Losses;
use super::finding::{Notes, finding};
use super::host_view::HostView;
use crate::net::{self, Listener};

/// Connections that found the accept queue of their server full.
pub(super) fn listen_queue(view: &HostView, notes: &mut Notes<'_>) {
    let counters = match view.counters() {
        Ok(counters) => counters,
        Err(why) => return notes.unseen(why),
    };
    let refused = counters.sum(&["TcpExt ListenOverflows"]);
    if refused.total == 0 {
        return;
    }
    let listeners = notes.ask(view.system.within(net::listeners)).unwrap_or_default();
    let mut full: Vec<&Listener> = listeners.iter().filter(|one| one.is_full()).collect();
    full.sort_by_key(|one| one.backlog);
    let somaxconn = view.sysctl("net/core/somaxconn").unwrap_or_default();
    let named = match full.first() {
        Some(one) => format!(
            "the accept queue of TCP port {} of {} is full",
            one.port,
            view.owner(one.inode)
        ),
        None => "an accept queue was full".to_owned(),
    };
    let mut found = finding(
        refused.severity(),
        format!("{}: {named}", refused.sentence("attempts to connect were refused")),
    )
    .read("/proc/net/netstat: TcpExt ListenOverflows", refused.evidence())
    .read(
        "/proc/net/netstat: TcpExt ListenDrops, which has them too",
        counters.sum(&["TcpExt ListenDrops"]).evidence(),
    )
    .read("/proc/sys/net/core/somaxconn", &somaxconn)
    .because(
        "the kernel drops a connection that finds the queue full, and the client tries again after 1, 3 \
         and 7 seconds (listen(2), tcp(7))",
    )
    .effect("clients connect at once")
    .risk("a program that does not keep up has longer queues, and answers later");
    for one in &full {
        found = found.read(
            format!("sock_diag: TCP port {} of {}", one.port, view.owner(one.inode)),
            format!("{} connections wait, and {} may", one.waiting_count, one.backlog),
        );
    }
    // The kernel's limit cuts what the program asks for.
    let limit: u32 = somaxconn.parse().unwrap_or(u32::MAX);
    let is_limited_by_host = full.first().is_some_and(|one| one.backlog >= limit);
    let (change, undo) = if is_limited_by_host {
        let sysctl = format!("{}sysctl -w net.core.somaxconn", view.prefix());
        (
            format!("{sysctl}=4096, a backlog of as many in the program, and its restart"),
            format!("{sysctl}={somaxconn}, and its restart"),
        )
    } else {
        (
            format!(
                "a larger backlog in the program's own settings (listen(2)), at most \
                 net.core.somaxconn ({somaxconn}); more threads that accept"
            ),
            "the program's previous setting".to_owned(),
        )
    };
    notes.find(found.change(change, undo));
}

/// Packets whose source the host would answer through another interface.
pub(super) fn reverse_path(view: &HostView, notes: &mut Notes<'_>) {
    let counters = match view.counters() {
        Ok(counters) => counters,
        Err(why) => return notes.unseen(why),
    };
    let dropped = counters.sum(&["TcpExt IPReversePathFilter"]);
    if dropped.total == 0 {
        return;
    }
    let setting = |name: &str| view.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"));
    let all = setting("all").and_then(|text| text.parse().ok()).unwrap_or(0);
    // The larger one of both applies; 1 is strict, 2 accepts any route back.
    let filtering: Vec<(&str, u32)> = view
        .interfaces()
        .filter_map(|link| Some((link.name.as_str(), setting(&link.name)?.parse::<u32>().ok()?)))
        .filter(|(_, own)| all.max(*own) > 0)
        .collect();
    let mut found = finding(
        dropped.severity(),
        dropped.sentence("packets with another way back to their source were dropped by rp_filter"),
    )
    .read("/proc/net/netstat: TcpExt IPReversePathFilter", dropped.evidence())
    .read("/proc/sys/net/ipv4/conf/all/rp_filter", all.to_string())
    .because(
        "a capture shows such packets and no program gets them: the route to their source leads to another \
         interface (Documentation/networking/ip-sysctl.rst, rp_filter)",
    )
    .effect("the packets are received")
    .risk("packets with forged sources are accepted from more interfaces");
    for (name, own) in &filtering {
        found = found.read(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), own.to_string());
    }
    let strict: Vec<&(&str, u32)> =
        filtering.iter().filter(|(_, own)| all.max(*own) == 1).collect();
    let set = |value: &dyn Fn(u32) -> u32| {
        let settings = strict.iter().map(|(name, own)| {
            format!("net.ipv4.conf.{}.rp_filter={}", name.replace('.', "/"), value(*own))
        });
        format!("{}sysctl -w {}", view.prefix(), settings.collect::<Vec<_>>().join(" "))
    };
    let (change, undo) = if strict.is_empty() {
        ("add a route to the sources (`ip route add`)".to_owned(), "`ip route del` it".to_owned())
    } else {
        (
            format!(
                "add a route to the sources through the interface that receives them, or: {}",
                set(&|_| 2)
            ),
            set(&|own| own),
        )
    };
    notes.find(found.change(change, undo));
}

/// A group of counters, with the remedy.
struct Errors {
    names: &'static [&'static str],
    /// Counted among `names` and reported by another finding.
    but: &'static [&'static str],
    what: &'static str,
    why: &'static str,
    effect: &'static str,
    risk: &'static str,
    change: &'static str,
    undo: &'static str,
}

const ERRORS: [Errors; 3] = [
    Errors {
        names: &["Udp InCsumErrors", "Udp6InCsumErrors", "Tcp InCsumErrors"],
        but: &[],
        what: "packets were dropped for a wrong checksum",
        why: "they were damaged on their way, or a sender left the checksum to a device that did not \
              compute it, as virtual switches and tunnels do (Documentation/networking/checksum-offloads.rst)",
        effect: "the packets are received",
        risk: "the sender's CPU computes the checksums",
        change: "at the sender: ethtool -K IF tx off; if that changes nothing, replace the cable or the card",
        undo: "at the sender: ethtool -K IF tx on",
    },
    Errors {
        names: &["Udp MemErrors", "Udp6MemErrors"],
        but: &[],
        what: "datagrams were dropped because the memory of all UDP sockets was used up",
        why: "all UDP sockets share a limit (udp(7), udp_mem)",
        effect: "bursts are kept until the programs run",
        risk: "memory",
        change: "sysctl -w net.ipv4.udp_mem with larger numbers (host-only), or find the program that does \
                 not read: `ss -uam`",
        undo: "sysctl -w net.ipv4.udp_mem with the previous numbers",
    },
    Errors {
        names: &["Udp InErrors", "Udp6InErrors"],
        but: &[
            "Udp RcvbufErrors",
            "Udp6RcvbufErrors",
            "Udp InCsumErrors",
            "Udp6InCsumErrors",
            "Udp MemErrors",
            "Udp6MemErrors",
        ],
        what: "datagrams were refused by a socket's filter or by an IPsec policy",
        why: "they reached a socket that exists, and neither its buffer nor their checksum was the reason \
              (socket(7), SO_ATTACH_FILTER; ip-xfrm(8))",
        effect: "the program gets the datagrams",
        risk: "the filter has a purpose: ask the program's author",
        change: "look at `wirepath explain` for the reason: SOCKET_FILTER or XFRM_POLICY",
        undo: "nothing was changed",
    },
];

pub(super) fn protocol_errors(view: &HostView, notes: &mut Notes<'_>) {
    let counters = match view.counters() {
        Ok(counters) => counters,
        Err(why) => return notes.unseen(why),
    };
    for errors in &ERRORS {
        let lost: Losses = counters.sum(errors.names).without(counters.sum(errors.but));
        if lost.total == 0 {
            continue;
        }
        notes.find(
            finding(lost.severity(), lost.sentence(errors.what))
                .read(
                    format!("/proc/net/snmp and snmp6: {}", errors.names.join(", ")),
                    lost.evidence(),
                )
                .because(errors.why)
                .effect(errors.effect)
                .risk(errors.risk)
                .change(errors.change, errors.undo),
        );
    }
}
