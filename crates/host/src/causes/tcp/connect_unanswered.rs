//! Connections that are not answered at all.

use super::connections::{by_remote, counted, is_internal, listed, programs, time_text};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "SYNs get no answer: they are dropped on the way, or by a full queue at the far end",
    symptom: "connect takes 1, 3 or 7 s, or fails with `Connection timed out` after about 2 minutes; a refused \
              connection would fail at once.",
    evidence: "Sockets in SYN-SENT with two and more retries, by far end; whether its address answers on other \
               ports; TcpExtTCPSynRetrans; net.ipv4.tcp_syn_retries.",
    remedy: "At the far end: a filter that drops, a full accept or SYN queue (ListenOverflows, TCPReqQFullDrop), the \
             route back. In the program: a connect timeout of a few seconds.",
    undo: "The old rule or setting at the far end.",
    counters: &["TcpExtTCPSynRetrans"],
    references: &[
        "connect(2), ETIMEDOUT",
        "RFC 6298 section 2",
        "Documentation/networking/ip-sysctl.rst, tcp_syn_retries",
    ],
    ..Cause::new("connect-unanswered", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let is_waiting = |one: &&TcpSocket| one.state == TcpState::SynSent && one.retry_count >= 2;
    let waiting: Vec<&TcpSocket> = window.after.tcp.iter().filter(is_waiting).collect();
    if waiting.is_empty() {
        return;
    }
    let again = window.sum(&["TcpExtTCPSynRetrans"]);
    let retries = evidence.number("net/ipv4/tcp_syn_retries").unwrap_or(6);
    for (remote, sockets) in by_remote(waiting).into_iter().take(8) {
        let severity = match sockets.len() {
            _ if is_internal(remote.ip()) => Severity::High,
            0..3 => Severity::Low,
            _ => Severity::Medium,
        };
        let most = sockets.iter().map(|one| one.retry_count).max().unwrap_or(0);
        let (place, change) = place(window, sockets[0]);
        let found = finding(
            severity,
            format!(
                "{} of {} to {remote} got no answer to {} SYNs: {place}",
                counted(sockets.len(), "connection"),
                programs(evidence, &sockets),
                most + 1
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{} that wait", counted(sockets.len(), "connection")))
        .read("/proc/net/netstat: TcpExt TCPSynRetrans", again.evidence())
        .read("/proc/sys/net/ipv4/tcp_syn_retries", retries.to_string());
        notes.find(
            listed(found, evidence, sockets, "timer", |one| {
                format!("{} retries, next in {}", one.retry_count, time_text(one.timer_ms.into()))
            })
            .because(
                "neither SYN-ACK nor RST nor ICMP came back: a closed port or a host that is down behind a router \
                 would answer, a filter that drops and a full queue do not (connect(2))",
            )
            .effect("connections open at once, or fail at once")
            .change(change, "the old rule or setting there"),
        );
    }
}

/// Where SYNs may be lost, and what to do about it.
fn place(window: &Window, socket: &TcpSocket) -> (&'static str, String) {
    let (ip, port) = (socket.remote.ip(), socket.remote.port());
    let listeners = window.after.tcp.iter().filter(|one| one.state == TcpState::Listen);
    let own = listeners
        .filter(|one| one.local.port() == port && (one.local.ip() == ip || ip.is_loopback()));
    if own.into_iter().any(TcpSocket::is_full) {
        let change = format!(
            "a larger backlog of the listener of port {port}, and more threads that accept"
        );
        return ("the accept queue of that port, on this host, is full", change);
    }
    let other = window.after.tcp.iter().find(|one| {
        one.remote.ip() == ip
            && one.state == TcpState::Established
            && one.info.last_ack_recv < 60_000
    });
    match other.map(|one| one.remote.port() == port) {
        Some(true) => (
            "other connections with that port are answered, so its queue may be full, or a filter limits new ones",
            format!(
                "at {ip}: `nstat -az TcpExtListenOverflows TcpExtTCPReqQFullDrop`, a larger backlog of port {port}"
            ),
        ),
        Some(false) => (
            "its address answers on other ports, so a filter drops this one or its queue is full",
            format!(
                "at {ip} and on the way: allow TCP port {port}; `nstat -az TcpExtListenOverflows` there"
            ),
        ),
        None => (
            "no connection with its address is answered, so it is down, or a filter or route loses the packets",
            format!(
                "check the way: `ip route get {ip}`, `ping {ip}`, and a capture at the far end; allow TCP port {port}"
            ),
        ),
    }
}
