//! TCP connections at the two moments of a window, their names, and settings that they depend on.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use netlink_bindings::inet_diag::TcpInfo;

use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Finding, Severity};
use crate::net::{TcpSocket, TcpState};

/// Most sockets that a finding lists.
const LISTED_MAX: usize = 6;

/// A connection at both moments.
#[derive(Clone, Copy)]
pub(super) struct Connection<'a> {
    pub(super) before: &'a TcpSocket,
    pub(super) after: &'a TcpSocket,
}

impl Connection<'_> {
    /// Growth of a count within the window.
    pub(super) fn growth(&self, count: fn(&TcpInfo) -> u64) -> u64 {
        count(&self.after.info).saturating_sub(count(&self.before.info))
    }

    /// Bytes that the far end acknowledged within the window.
    pub(super) fn acked_bytes(&self) -> u64 {
        self.growth(|info| info.bytes_acked)
    }

    pub(super) fn bytes_per_s(&self, window: &Window) -> f64 {
        self.acked_bytes() as f64 / window.time().as_secs_f64().max(1e-3)
    }
}

/// Established connections that are there at both moments, and those that one end has closed.
pub(super) fn connections(window: &Window) -> Vec<Connection<'_>> {
    let is_open = |one: &TcpSocket| {
        !matches!(one.state, TcpState::Listen | TcpState::TimeWait | TcpState::SynReceived)
    };
    let pairs = window.tcp_pairs().filter(|(_, after)| is_open(after));
    pairs.map(|(before, after)| Connection { before, after }).collect()
}

/// Sockets by far end, the most first.
pub(super) fn by_remote<'a>(
    sockets: impl IntoIterator<Item = &'a TcpSocket>,
) -> Vec<(SocketAddr, Vec<&'a TcpSocket>)> {
    let mut groups: BTreeMap<SocketAddr, Vec<&TcpSocket>> = BTreeMap::new();
    for socket in sockets {
        groups.entry(socket.remote).or_default().push(socket);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, sockets)| std::cmp::Reverse(sockets.len()));
    groups
}

/// `python3 (process 7) from 10.1.0.1:40000 to 10.1.0.2:80`.
pub(super) fn name(evidence: &Evidence, socket: &TcpSocket) -> String {
    let owner = match socket.inode {
        0 => "no process".to_owned(),
        inode => evidence.owner(inode),
    };
    format!("{owner} from {} to {}", socket.local, socket.remote)
}

/// Program of the first socket, and how many others there are.
pub(super) fn programs(evidence: &Evidence, sockets: &[&TcpSocket]) -> String {
    let named = sockets.iter().find(|one| one.inode != 0);
    named.map_or("no process".to_owned(), |one| evidence.owner(one.inode))
}

/// `1 connection`, `3 connections`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Adds a line for each socket, up to a limit.
///
/// - `attribute`: of sock_diag, or of its `tcp_info`.
pub(super) fn listed<'a>(
    found: Finding,
    evidence: &Evidence,
    sockets: impl IntoIterator<Item = &'a TcpSocket>,
    attribute: &str,
    value: impl Fn(&TcpSocket) -> String,
) -> Finding {
    sockets.into_iter().take(LISTED_MAX).fold(found, |found, socket| {
        found.read(format!("sock_diag: {attribute} of {}", name(evidence, socket)), value(socket))
    })
}

/// Time in words of its size.
pub(super) fn time_text(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format!("{} min", ms / 60_000),
    }
}

/// Bytes in words of their size.
pub(super) fn size_text(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// How bad it is that a far end does not answer: clients of a public server vanish all the time.
pub(super) fn severity_of_silence(window: &Window, socket: &TcpSocket) -> Severity {
    let is_accepted = window
        .after
        .tcp
        .iter()
        .any(|one| one.state == TcpState::Listen && one.local.port() == socket.local.port());
    match is_internal(socket.remote.ip()) {
        true => Severity::High,
        false if is_accepted || socket.inode == 0 => Severity::Low,
        false => Severity::Medium,
    }
}

/// An address of the same organisation: private, link-local or loopback. What one's own far ends do is a fault more
/// often than what strangers do.
pub(super) fn is_internal(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local(),
    }
}
