//! Connections that a device on the way has forgotten while they were idle.

use std::collections::HashSet;

use super::connections::{by_remote, counted, listed, programs, severity_of_silence, time_text};
use super::dead_peer::timer_text;
use super::stalled::stalled;
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState, TcpTimer};
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "A NAT or firewall on the way forgets a connection that is idle, and drops what comes later",
    symptom: "The first request after a pause of 5, 10, 30 or 60 minutes hangs, or a query that takes longer never \
              returns; busy connections and new ones work. Idle sessions pile up on the server.",
    evidence: "sock_diag: data is retransmitted without an answer after a pause, while other connections with the \
               same address are answered; no keep-alive timer on idle connections.",
    remedy: "Keep-alive in the program (SO_KEEPALIVE, TCP_KEEPIDLE) below the limit of the device, such as 60 s; \
             net.ipv4.tcp_keepalive_time for programs that set only SO_KEEPALIVE.",
    undo: "net.ipv4.tcp_keepalive_time=7200.",
    counters: &["TcpExtTCPTimeouts", "TcpExtTCPAbortOnTimeout"],
    references: &[
        "RFC 5382 section 5",
        "tcp(7), TCP_KEEPIDLE",
        "pgjdbc/pgjdbc#1508",
        "npgsql/npgsql#1596",
    ],
    ..Cause::new("nat-idle", check)
};

/// Shortest idle time of devices that are known, milliseconds.
const IDLE_MS: u32 = 300_000;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let forgotten: Vec<_> = stalled(window).into_iter().filter(|one| one.is_forgotten()).collect();
    let time = evidence.number("net/ipv4/tcp_keepalive_time").unwrap_or(7200);
    let change = (
        format!(
            "SO_KEEPALIVE and TCP_KEEPIDLE of 60 s in the program (often a setting of its client library); {}sysctl -w \
             net.ipv4.tcp_keepalive_time=60 if it sets only SO_KEEPALIVE",
            evidence.prefix()
        ),
        format!("{}sysctl -w net.ipv4.tcp_keepalive_time={time}", evidence.prefix()),
    );
    let because = "NAT and firewalls keep an entry for each connection, and drop it after some minutes without a \
                   packet; they tell neither end (RFC 5382). Linux sends keep-alives only if the program asks, and \
                   after 2 hours by default (tcp(7))";
    for (remote, sockets) in by_remote(forgotten.iter().map(|one| one.socket)).into_iter().take(8) {
        let own: Vec<_> = forgotten.iter().filter(|one| one.socket.remote == remote).collect();
        let Some(one) = own.first() else { continue };
        let (confidence, others) = match one.is_peer_alive {
            true => (Confidence::Now, "are answered"),
            false => {
                (Confidence::Possible, "there are none that are answered: the far end may be gone")
            }
        };
        let found = finding(
            severity_of_silence(window, one.socket),
            format!(
                "{} of {} to {remote} got no answer since a pause of {}: a NAT or firewall on the way has forgotten it",
                counted(sockets.len(), "connection"),
                programs(evidence, &sockets),
                time_text(one.pause_ms)
            ),
        )
        .seen(confidence)
        .costs(format!("{} without an answer for {}", counted(own.len(), "connection"), time_text(one.stalled_ms)))
        .read(format!("sock_diag: other connections with {}", remote.ip()), others)
        .read("/proc/sys/net/ipv4/tcp_keepalive_time", format!("{time} s"));
        notes.find(
            listed(found, evidence, sockets, "timer", timer_text)
                .because(because)
                .effect("the entry stays, and a dead one is noticed")
                .risk("a packet a minute for each idle connection")
                .change(&change.0, &change.1)
                .setting("tcp-keepalive-time", &Target::Netns, "60"),
        );
    }
    if forgotten.is_empty() {
        exposed(evidence, notes, window, because, change);
    }
}

/// Idle connections without keep-alive, on a host on which connections have timed out before.
fn exposed(
    evidence: &Evidence,
    notes: &mut Notes<'_>,
    window: &Window,
    because: &'static str,
    (change, undo): (String, String),
) {
    let aborted = window.sum(&["TcpExtTCPAbortOnTimeout"]);
    if aborted.total == 0 {
        return;
    }
    let own: HashSet<_> = window.after.tcp.iter().map(|one| one.local.ip()).collect();
    let is_idle = |one: &&TcpSocket| {
        one.state == TcpState::Established
            && one.timer == TcpTimer::Off
            && one.info.last_ack_recv >= IDLE_MS
            && !own.contains(&one.remote.ip())
    };
    let idle: Vec<&TcpSocket> = window.after.tcp.iter().filter(is_idle).collect();
    let Some(first) = idle.first() else { return };
    let found = finding(
        Severity::Low,
        format!(
            "{} of {} and others are idle for 5 minutes and more without keep-alive, and {} timed out here before",
            counted(idle.len(), "connection"),
            programs(evidence, &[*first]),
            counted(aborted.total as usize, "connection")
        ),
    )
    .seen(Confidence::Possible)
    .read("/proc/net/netstat: TcpExt TCPAbortOnTimeout", aborted.evidence());
    notes.find(
        listed(found, evidence, idle, "timer", |one: &TcpSocket| {
            format!("off, idle for {}", time_text(one.info.last_ack_recv.into()))
        })
        .because(because)
        .effect("the entry on a device stays, and a dead connection is noticed")
        .risk("a packet a minute for each idle connection")
        .change(change, undo)
        .setting("tcp-keepalive-time", &Target::Netns, "60"),
    );
}
