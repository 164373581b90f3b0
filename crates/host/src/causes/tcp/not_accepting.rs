//! Listeners whose program accepts nothing.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::connections::counted;
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "Connections wait at a listener whose program accepts none",
    symptom: "Clients connect at once and get no answer, some of them or all; with several workers (SO_REUSEPORT) only \
              a part hangs, always the same part.",
    evidence: "sock_diag: a listener with connections in its queue at both samples, none fewer, and no new \
               connection of its port that a program has.",
    remedy: "Find what the program waits for: a blocked thread, a worker that stopped, a child that inherited the \
             socket and does not serve it; restart it.",
    undo: "None.",
    references: &["accept(2)", "socket(7), SO_REUSEPORT"],
    ..Cause::new("not-accepting", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    for one in stuck(window).into_iter().take(8) {
        let owner = evidence.owner(one.inode);
        let what = format!(
            "{} at TCP port {} of {owner}, which accepted none within a second",
            match one.receive_queue {
                1 => "1 connection waits".to_owned(),
                count => format!("{count} connections wait"),
            },
            one.local.port()
        );
        let others = window.after.tcp.iter().filter(|other| {
            other.state == TcpState::Listen && other.local == one.local && other.inode != one.inode
        });
        let others = counted(others.count(), "other listener");
        notes.find(
            finding(Severity::Medium, what)
                .seen(Confidence::Now)
                .costs(format!("{} without an answer", counted(one.receive_queue as usize, "connection")))
                .read(
                    format!("sock_diag: listener of {}", one.local),
                    format!("{} wait, {} may", one.receive_queue, one.send_queue),
                )
                .read(format!("sock_diag: {}", one.local), format!("{others} (SO_REUSEPORT)"))
                .because(
                    "the kernel completes handshakes without the program, and spreads them over all listeners of a \
                     port: those of a worker that does not accept hang (accept(2), socket(7))",
                )
                .effect("connections are answered")
                .risk("a restart ends the connections that it has")
                .change(
                    format!("find what {owner} waits for (`cat /proc/PID/stack`, a debugger), or restart it"),
                    "nothing to undo",
                ),
        );
    }
}

/// Listeners with a queue that did not shrink, at whose port no program got a connection meanwhile.
fn stuck(window: &Window) -> Vec<&TcpSocket> {
    let waits = window.tcp_pairs().filter(|(before, after)| {
        after.state == TcpState::Listen && (1..=after.receive_queue).contains(&before.receive_queue)
    });
    let waits: Vec<&TcpSocket> = waits.map(|(_, after)| after).collect();
    if waits.is_empty() {
        return waits;
    }
    let known: HashSet<_> = window.before.tcp.iter().map(name).collect();
    // One that waits to be accepted has no inode.
    let is_served = |one: &&TcpSocket| {
        let is_of_program = one.inode != 0 || one.state == TcpState::TimeWait;
        one.state != TcpState::Listen && is_of_program && !known.contains(&name(one))
    };
    let served: HashSet<u16> =
        window.after.tcp.iter().filter(is_served).map(|one| one.local.port()).collect();
    // With SO_REUSEPORT, the one that was accepted may be another worker's.
    let is_shared = |one: &TcpSocket| waits_at(window, one) > 1;
    waits.into_iter().filter(|one| is_shared(one) || !served.contains(&one.local.port())).collect()
}

fn name(socket: &TcpSocket) -> (SocketAddr, SocketAddr, u32) {
    (socket.local, socket.remote, socket.inode)
}

/// Number of listeners of the same address and port.
fn waits_at(window: &Window, listener: &TcpSocket) -> usize {
    let all = window.after.tcp.iter();
    all.filter(|one| one.state == TcpState::Listen && one.local == listener.local).count()
}
