//! Paths that swallow large packets in silence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::causes::tunnels::is_tunnel;
use crate::net::{self, Link, TcpSocket, TcpState, TcpTimer};

pub(super) const CAUSE: Cause = Cause {
    title: "a path swallows large packets and says nothing",
    symptom: "a connection is made and then hangs: TLS handshakes, large pages and copies stall, while ping and small \
              requests work",
    evidence: "sockets that retransmit full segments (`ss -ti`: mss, pmtu, backoff, unacked, sacked) while small ones of \
               the same far end pass; IcmpInDestUnreachs; net.ipv4.tcp_mtu_probing",
    remedy: "`sysctl -w net.ipv4.tcp_mtu_probing=1` at the sender; let ICMP `fragmentation needed` pass the filters; the \
             MTU of the narrow link on the route: `ip route change ... mtu 1400`",
    undo: "`sysctl -w net.ipv4.tcp_mtu_probing=0`; the route without `mtu`",
    counters: &["TcpRetransSegs", "TcpExtTCPTimeouts"],
    references: &["RFC 2923", "RFC 4821", "kubernetes/minikube#9528", "linuxkit/linuxkit#2496"],
    ..Cause::new("pmtu-black-hole", check)
};

/// Segments up to this size pass everywhere.
const SMALL_BYTES: u32 = 1220;

/// Most sockets that are examined.
const STUCK_MAX: usize = 64;

/// A socket whose full segments are not acknowledged.
#[derive(Debug)]
pub(super) struct Stuck<'a> {
    pub(super) socket: &'a TcpSocket,
    /// Why the path is known to be alive.
    pub(super) alive: Option<&'static str>,
}

/// Sockets that retransmit full segments in vain.
pub(super) fn stuck(window: &Window) -> Vec<Stuck<'_>> {
    let is_stuck = |one: &&TcpSocket| {
        let info = &one.info;
        let is_open =
            matches!(one.state, TcpState::Established | TcpState::CloseWait | TcpState::FinWait1);
        let has_full = info.snd_mss > SMALL_BYTES && one.send_queue >= info.snd_mss;
        // Two time-outs in a row: a lost segment of an ordinary path has none or one.
        is_open && has_full && one.timer == TcpTimer::Retransmit && info.backoff >= 2
    };
    let stuck: Vec<&TcpSocket> = window.after.tcp.iter().filter(is_stuck).take(STUCK_MAX).collect();
    if stuck.is_empty() {
        return Vec::new();
    }
    let inodes: BTreeSet<u32> = stuck.iter().map(|one| one.inode).collect();
    let earlier: BTreeMap<u32, &TcpSocket> =
        window.before.tcp.iter().filter(|one| one.inode != 0).map(|one| (one.inode, one)).collect();
    // Far ends that answered another socket within the window.
    let talking: BTreeSet<IpAddr> = window
        .after
        .tcp
        .iter()
        .filter(|one| !inodes.contains(&one.inode))
        .filter(|one| {
            earlier.get(&one.inode).is_some_and(|old| one.info.segs_in > old.info.segs_in)
        })
        .map(|one| one.remote.ip())
        .collect();
    let alive = |one: &TcpSocket| {
        let grown = earlier.get(&one.inode).is_some_and(|old| one.info.segs_in > old.info.segs_in);
        // A connection that never had a full segment through: the path, and not the far end, is at fault.
        let is_new = one.info.bytes_acked <= u64::from(SMALL_BYTES);
        if one.info.sacked > 0 {
            Some("a smaller segment behind them was acknowledged (SACK)")
        } else if grown {
            Some("its far end still sends")
        } else if is_new && talking.contains(&one.remote.ip()) {
            Some("its far end answers another connection")
        } else if is_new && one.info.bytes_received > 1 {
            Some("small segments passed before, and no full one ever")
        } else {
            None
        }
    };
    stuck.into_iter().map(|socket| Stuck { socket, alive: alive(socket) }).collect()
}

/// The interface by which a far end is reached.
pub(super) fn way(view: &Evidence, to: IpAddr) -> Option<&Link> {
    let route = view.system.within(|| net::route_to(to)).ok()?;
    view.links.get(&route.ifindex)
}

/// A finding about such sockets to one far end.
///
/// - `by`: `eth0`, `tunnel wg0`.
pub(super) fn of_far_end(
    view: &Evidence,
    window: &Window,
    stuck: &[&Stuck<'_>],
    by: &str,
) -> Finding {
    let first = stuck[0].socket;
    let (info, remote) = (&first.info, first.remote);
    let needed = window.sum(&["IcmpInDestUnreachs", "Icmp6InPktTooBigs"]);
    let mut found = finding(
        Severity::High,
        format!(
            "{} to {remote} hang{}: full segments of {} bytes by {by} are lost again and again, while small ones pass",
            match stuck.len() {
                1 => format!("a connection of {}", view.owner(first.inode)),
                many => format!("{many} connections, such as one of {},", view.owner(first.inode)),
            },
            if stuck.len() == 1 { "s" } else { "" },
            info.snd_mss,
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{} bytes wait, after {} time-outs", first.send_queue, info.backoff))
    .read(
        format!("sock_diag: TCP {} to {remote}", first.local),
        format!(
            "mss {}, pmtu {}, {} time-outs in a row, {} bytes unacknowledged, {} segments sacked",
            info.snd_mss, info.pmtu, info.backoff, first.send_queue, info.sacked
        ),
    )
    .read("/proc/net/snmp: Icmp InDestUnreachs and Icmp6InPktTooBigs", needed.evidence());
    if let Some(alive) = stuck[0].alive {
        found = found.read("the far end is alive", alive);
    }
    for name in ["tcp_mtu_probing", "ip_no_pmtu_disc"] {
        let value = view.sysctl(&format!("net/ipv4/{name}")).unwrap_or_default();
        found = found.read(format!("/proc/sys/net/ipv4/{name}"), value);
    }
    found
        .because(
            "a link on the path is narrower than the segments; the ICMP message that says so (fragmentation needed) is \
             dropped by a filter, or never sent, so that the sender repeats them for 15 minutes (RFC 2923 section 2.1)",
        )
        .effect("the sender finds the size that passes")
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let sysctl = format!("{}sysctl -w net.ipv4.tcp_mtu_probing", view.prefix());
    let probing = view.sysctl("net/ipv4/tcp_mtu_probing").unwrap_or_default();
    for (remote, group) in by_far_end(&stuck(window)) {
        let link = way(view, remote);
        // A tunnel has a finding of its own.
        if link.is_some_and(is_tunnel) {
            continue;
        }
        let by = link.map_or("its route", |link| link.name.as_str());
        let mut found = of_far_end(view, window, &group, by);
        if let Some(link) = link {
            found = found.read(format!("IFLA_MTU of {by}"), link.mtu_bytes.to_string());
        }
        notes.find(
            found.risk("segments are smaller on paths that lose packets for other reasons").change(
                format!("{sysctl}=1; and let ICMP type 3 code 4 (IPv6: type 2) pass the filters on the way and here"),
                format!("{sysctl}={probing}"),
            ),
        );
    }
}

/// Stuck sockets whose path is alive, by far end.
pub(super) fn by_far_end<'a, 's>(all: &'a [Stuck<'s>]) -> BTreeMap<IpAddr, Vec<&'a Stuck<'s>>> {
    let mut groups: BTreeMap<IpAddr, Vec<&Stuck<'_>>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.alive.is_some()) {
        groups.entry(one.socket.remote.ip()).or_default().push(one);
    }
    groups
}
