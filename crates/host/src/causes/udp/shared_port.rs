//! Several sockets on one port.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{datagrams_read, dropping, named};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::UdpSocket;

pub(super) const CAUSE: Cause = Cause {
    title: "two programs have the same UDP port, and one gets the datagrams of the other",
    symptom: "a program gets nothing since a second one, or a second copy of it, was started; both started without \
              an error",
    evidence: "sockets of different programs with the same address and port, not connected (sock_diag)",
    remedy: "end one of the two, or give it another port; with SO_REUSEADDR the last one bound gets unicast",
    undo: "start it again",
    counters: &["UdpInDatagrams"],
    references: &["socket(7)", "ip(7)"],
    ..Cause::new("udp-shared-port", check)
};

pub(super) const IMBALANCE: Cause = Cause {
    title: "the flows of a port fall to few of its SO_REUSEPORT sockets",
    symptom: "one worker of a server is busy and loses datagrams while its siblings are idle",
    evidence: "sockets of one port: drops in the window at some, and empty buffers without drops at others",
    remedy: "more flows (source ports) at the sender, or a program that chooses the socket (SO_ATTACH_REUSEPORT_EBPF)",
    undo: "detach the program (SO_DETACH_REUSEPORT_BPF)",
    counters: &["UdpRcvbufErrors", "Udp6RcvbufErrors"],
    references: &["socket(7)", "lwn.net/Articles/542629"],
    ..Cause::new("reuseport-imbalance", imbalance)
};

/// Sockets that are not connected, by address and port; only those with company.
fn shared(window: &Window) -> BTreeMap<SocketAddr, Vec<&UdpSocket>> {
    let mut by_address: BTreeMap<SocketAddr, Vec<&UdpSocket>> = BTreeMap::new();
    for one in &window.after.udp {
        if one.remote.ip().is_unspecified()
            && one.local.port() != 0
            && !one.local.ip().is_multicast()
        {
            by_address.entry(one.local).or_default().push(one);
        }
    }
    by_address.retain(|_, sockets| sockets.len() > 1);
    by_address
}

/// True if a program joined a group, so that each socket of a port may get every datagram.
fn has_groups(view: &Evidence) -> bool {
    view.groups().iter().any(|one| one.is_of_data() && one.user_count > 0)
}

/// Ports that programs share on purpose, each with all datagrams of a group: SSDP, mDNS, LLMNR.
const OF_GROUPS: [u16; 4] = [1900, 3702, 5353, 5355];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    if has_groups(view) {
        return;
    }
    let read = datagrams_read(window);
    for (address, sockets) in shared(window) {
        let first = view.owner(sockets[0].inode);
        let program = |owner: &str| owner.split(" (").next().unwrap_or_default().to_owned();
        let is_other = |one: &&&UdpSocket| program(&view.owner(one.inode)) != program(&first);
        let Some(other) = sockets.iter().find(is_other) else { continue };
        // A socket bound to one interface has datagrams of its own.
        let is_apart = sockets.iter().any(|one| one.bound_ifindex != 0);
        let second = view.owner(other.inode);
        let is_unknown = [&first, &second].iter().any(|name| name.contains("unknown"));
        if OF_GROUPS.contains(&address.port()) || is_apart || is_unknown {
            continue;
        }
        notes.find(
            finding(Severity::Low, format!("{first} and {second} both have UDP {address}: only one of them gets a datagram"))
                .read("sock_diag: sockets with this address and port", sockets.len().to_string())
                .read("/proc/net/snmp and snmp6: InDatagrams", read.evidence())
                .because(
                    "with SO_REUSEADDR the last socket that was bound gets all unicast datagrams, and with \
                     SO_REUSEPORT each gets a share (socket(7))",
                )
                .effect("each program gets its datagrams")
                .risk("the program that is ended may be the right one")
                .change("end one of the two, or give it another port", "start it again"),
        );
    }
}

fn imbalance(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let lost = window.sum(&["UdpRcvbufErrors", "Udp6RcvbufErrors"]);
    if lost.now == 0 || has_groups(view) {
        return;
    }
    let drops = dropping(window);
    for (address, sockets) in shared(window) {
        let (mut now, mut loser) = (window.losses(0, 0), None);
        for (socket, own) in drops.iter().filter(|(socket, _)| socket.local == address) {
            now.now += own.now;
            now.total += own.total;
            loser = loser.or((own.now > 0).then_some(*socket));
        }
        let is_idle =
            |one: &&&UdpSocket| one.memory.received_bytes == 0 && one.memory.drop_count == 0;
        let idle_count = sockets.iter().filter(is_idle).count();
        let Some(loser) = loser.filter(|_| idle_count > 0) else { continue };
        notes.find(
            finding(
                Severity::High,
                format!(
                    "{} at {}, while {idle_count} of the {} sockets of UDP {address} are idle",
                    now.sentence("datagrams were dropped"),
                    named(view, loser),
                    sockets.len()
                ),
            )
            .counted(now, "datagrams")
            .read("sock_diag: drops of the sockets of this port", now.evidence())
            .read("sock_diag: sockets with an empty buffer and no drops", idle_count.to_string())
            .because(
                "SO_REUSEPORT chooses a socket by the hash of addresses and ports, so that one flow goes to one \
                 socket, however many there are (socket(7))",
            )
            .effect("the sockets share the work")
            .risk("datagrams of one flow may overtake each other if it is spread")
            .change(
                "several source ports at the sender, or a program that chooses (SO_ATTACH_REUSEPORT_EBPF)",
                "detach it (SO_DETACH_REUSEPORT_BPF)",
            ),
        );
    }
}
