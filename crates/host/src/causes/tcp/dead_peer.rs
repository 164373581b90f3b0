//! Connections whose far end is gone without a word.

use super::connections::{
    by_remote, connections, counted, listed, programs, severity_of_silence, time_text,
};
use super::stalled::{stalled, waits_ms};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, finding};
use crate::net::{TcpSocket, TcpState, TcpTimer};

pub(super) const CAUSE: Cause = Cause {
    title: "The far end of a connection is gone without FIN or RST, and the kernel retransmits for 15 minutes",
    symptom: "After a failover, a crash or a cut cable, requests hang for about 15 minutes until an error comes, \
              while new connections work at once. Only on Linux, or only when data was on its way.",
    evidence: "sock_diag: the retransmission timer with 3 and more retries and its back-off, no segment received \
               meanwhile; or keep-alive probes without an answer. TcpExtTCPTimeouts rises; \
               net.ipv4.tcp_retries2.",
    remedy: "TCP_USER_TIMEOUT in the program (keep-alive does not run while data is unacknowledged), or \
             net.ipv4.tcp_retries2=5 for about 13 s.",
    undo: "net.ipv4.tcp_retries2=15.",
    counters: &["TcpExtTCPTimeouts", "TcpExtTCPAbortOnTimeout"],
    references: &[
        "tcp(7), TCP_USER_TIMEOUT",
        "Documentation/networking/ip-sysctl.rst, tcp_retries2",
        "StackExchange/StackExchange.Redis#1848",
        "redis/lettuce#2082",
    ],
    ..Cause::new("dead-peer", check)
};

/// First timeout with a fast network, milliseconds.
const RTO_MS_MIN: u64 = 200;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let stalled: Vec<_> = stalled(window).into_iter().filter(|one| !one.is_forgotten()).collect();
    let open = connections(window);
    let probed = open.iter().filter(|one| {
        let socket = one.after;
        let is_probed = socket.timer == TcpTimer::KeepAlive && socket.retry_count >= 2;
        is_probed
            && socket.state == TcpState::Established
            && one.growth(|info| info.segs_in.into()) == 0
    });
    let silent = stalled.iter().map(|one| one.socket).chain(probed.map(|one| one.after));
    let timeouts = window.sum(&["TcpExtTCPTimeouts"]);
    let retries = evidence.number("net/ipv4/tcp_retries2").unwrap_or(15);
    let most_ms = waits_ms(RTO_MS_MIN, retries.min(64) as u32 + 1);
    for (remote, sockets) in by_remote(silent).into_iter().take(8) {
        let own = stalled.iter().filter(|one| one.socket.remote == remote);
        let longest = own.max_by_key(|one| one.stalled_ms);
        let program = programs(evidence, &sockets);
        let count = counted(sockets.len(), "connection");
        let what = match longest {
            Some(one) => format!(
                "{count} of {program} to {remote} got no answer for {}: data is retransmitted, by default until {} \
                 have passed",
                time_text(one.stalled_ms),
                time_text(most_ms)
            ),
            None => format!("{count} of {program} to {remote} got no answer to keep-alive probes"),
        };
        let mut found = finding(severity_of_silence(window, sockets[0]), what)
            .costs(format!("{count} without an answer"))
            .seen(Confidence::Now)
            .read("/proc/net/netstat: TcpExt TCPTimeouts", timeouts.evidence())
            .read("/proc/sys/net/ipv4/tcp_retries2", retries.to_string());
        if let Some(one) = longest {
            let others =
                if one.is_peer_alive { "answer: only this one is lost" } else { "none answers" };
            found = found
                .read(format!("sock_diag: other connections with {}", remote.ip()), others)
                .read(
                    "sock_diag: silence before the first unanswered data",
                    time_text(one.pause_ms),
                );
        }
        notes.find(
            listed(found, evidence, sockets, "timer", timer_text)
                .because(
                    "without FIN, RST or ICMP, the kernel retransmits tcp_retries2 times with doubled pauses, and \
                     keep-alive probes are not sent meanwhile (tcp(7), RFC 6298)",
                )
                .effect("the program gets ETIMEDOUT after seconds, and connects again")
                .risk("a short limit ends connections that would survive an outage of that time")
                .change(
                    format!(
                        "TCP_USER_TIMEOUT of 10 to 30 s in the program, or {}sysctl -w net.ipv4.tcp_retries2=5 (about \
                         13 s); end those that hang: {}ss -K dst {} dport = {}",
                        evidence.prefix(),
                        evidence.prefix(),
                        remote.ip(),
                        remote.port()
                    ),
                    format!("{}sysctl -w net.ipv4.tcp_retries2={retries}", evidence.prefix()),
                ),
        );
    }
}

/// Timer of a socket as `ss -o` shows it.
pub(super) fn timer_text(socket: &TcpSocket) -> String {
    format!(
        "{} retries, next in {}, {} bytes unacknowledged, last packet from there {} ago",
        socket.retry_count,
        time_text(socket.timer_ms.into()),
        socket.send_queue,
        time_text(socket.info.last_ack_recv.into())
    )
}
