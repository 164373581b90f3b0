//! Queues of half-open connections that are full.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::TcpState;
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "The queue of half-open connections of a server is full: SYNs are dropped, or answered with cookies",
    symptom: "Some connections take 1, 3 or 7 s to open or fail; the kernel's log says `possible SYN flooding on \
              port`; listen overflows stay at 0.",
    evidence: "TcpExtTCPReqQFullDrop, TcpExtTCPReqQFullDoCookies, TcpExtSyncookiesSent; ListenDrops without \
               ListenOverflows; sockets in SYN-RECV by port and number of sources; net.ipv4.tcp_syncookies, \
               tcp_max_syn_backlog, and the backlog of listen().",
    remedy: "A larger backlog of listen() and net.core.somaxconn, net.ipv4.tcp_max_syn_backlog; \
             net.ipv4.tcp_syncookies=1. Against a flood, cookies and a filter.",
    undo: "The old values.",
    counters: &["TcpExtTCPReqQFullDrop", "TcpExtTCPReqQFullDoCookies", "TcpExtSyncookiesSent"],
    references: &[
        "Documentation/networking/ip-sysctl.rst, tcp_max_syn_backlog",
        "netdata/netdata#6998",
        "zaphoyd/websocketpp#549",
    ],
    ..Cause::new("syn-queue", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let dropped = window.sum(&["TcpExtTCPReqQFullDrop"]);
    let cookies = window.sum(&["TcpExtTCPReqQFullDoCookies"]);
    // Without cookies, the last quarter of tcp_max_syn_backlog is for known hosts, which only ListenDrops counts.
    let other = window.sum(&["TcpExtListenDrops"]).without(window.sum(&["TcpExtListenOverflows"]));
    let syncookies = evidence.number("net/ipv4/tcp_syncookies").unwrap_or(1);
    if dropped.total == 0 && cookies.total == 0 {
        return;
    }
    let backlog = evidence.number("net/ipv4/tcp_max_syn_backlog").unwrap_or(0);
    let somaxconn = evidence.number("net/core/somaxconn").unwrap_or(0);
    let half_open = half_open(window);
    let named = match half_open.first() {
        Some((port, count, sources)) => {
            let listener = window
                .after
                .tcp
                .iter()
                .find(|one| one.state == TcpState::Listen && one.local.port() == *port);
            let owner =
                listener.map_or("an unknown process".to_owned(), |one| evidence.owner(one.inode));
            let limit = listener.map_or(0, |one| one.send_queue);
            format!(
                "TCP port {port} of {owner} has {count} half-open connections of {sources} addresses, and {limit} may wait"
            )
        }
        None => "a queue of half-open connections was full".to_owned(),
    };
    let (counted, noun, what) = match dropped.now > 0 || cookies.now == 0 && dropped.total > 0 {
        true => (dropped, "SYNs", "SYNs were dropped"),
        false => (cookies, "cookies", "SYNs were answered with cookies"),
    };
    // With cookies, clients connect, and the connection lacks some options.
    let most = if dropped.now == 0 { Severity::Medium } else { Severity::High };
    let severity = counted.severity().min(most);
    let mut found =
        finding(severity, format!("{}: {named}", counted.sentence(what))).counted(counted, noun);
    let prefix = evidence.prefix();
    found = found
        .read("/proc/net/netstat: TcpExt TCPReqQFullDrop", dropped.evidence())
        .read("/proc/net/netstat: TcpExt TCPReqQFullDoCookies", cookies.evidence())
        .read("/proc/net/netstat: TcpExt ListenDrops without ListenOverflows", other.evidence())
        .read("/proc/sys/net/ipv4/tcp_syncookies", syncookies.to_string())
        .read("/proc/sys/net/ipv4/tcp_max_syn_backlog", backlog.to_string())
        .read("/proc/sys/net/core/somaxconn", somaxconn.to_string());
    for (port, count, sources) in half_open.iter().take(4) {
        found = found.read(
            format!("sock_diag: SYN-RECV of TCP port {port}"),
            format!("{count}, of {sources} addresses: few of them are a slow network or a full accept queue, many a flood"),
        );
    }
    notes.find(
        found
            .because(
                "a SYN waits in the queue until its handshake ends; when as many wait as the backlog of listen() (at \
                 most somaxconn), further ones are dropped, or with tcp_syncookies answered without a queue and \
                 without some options (ip-sysctl.rst, tcp_syncookies)",
            )
            .effect("connections open at once")
            .risk("memory for each half-open connection")
            .change(
                format!(
                    "a larger backlog in the program's settings and its restart (listen(2)); {prefix}sysctl -w \
                     net.core.somaxconn=4096 net.ipv4.tcp_max_syn_backlog=4096 net.ipv4.tcp_syncookies=1"
                ),
                format!(
                    "{prefix}sysctl -w net.core.somaxconn={somaxconn} net.ipv4.tcp_max_syn_backlog={backlog} \
                     net.ipv4.tcp_syncookies={syncookies}"
                ),
            )
            .setting("somaxconn", &Target::Netns, somaxconn.max(4096).to_string())
            .setting("tcp-max-syn-backlog", &Target::Netns, backlog.max(4096).to_string())
            .setting("tcp-syncookies", &Target::Netns, "1"),
    );
}

/// Ports with half-open connections: port, how many, and of how many addresses; the most first.
fn half_open(window: &Window) -> Vec<(u16, usize, usize)> {
    let mut ports: BTreeMap<u16, (usize, BTreeSet<IpAddr>)> = BTreeMap::new();
    for one in window.after.tcp.iter().filter(|one| one.state == TcpState::SynReceived) {
        let (count, sources) = ports.entry(one.local.port()).or_default();
        *count += 1;
        sources.insert(one.remote.ip());
    }
    let mut ports: Vec<_> =
        ports.into_iter().map(|(port, (count, sources))| (port, count, sources.len())).collect();
    ports.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    ports
}
