//! Sockets that a program does not close after its far end did.

use std::collections::BTreeMap;

use super::connections::{Connection, connections, listed, time_text};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "A program does not close connections that their far ends have closed (CLOSE-WAIT)",
    symptom: "Descriptors and memory of a program grow for days until accept or connect fails; `ss` shows many \
              sockets in CLOSE-WAIT.",
    evidence: "sock_diag: 20 and more sockets of one program in CLOSE-WAIT at both samples, nothing received \
               meanwhile; the descriptor limit of the program.",
    remedy: "The program has to close a socket when recv returns 0; its connection pool has to test idle \
             connections. A restart frees them.",
    undo: "None.",
    references: &["RFC 9293 section 3.3.2", "tcp(7)"],
    ..Cause::new("close-wait", check)
};

/// Fewest sockets of a program: a pool may have some that it will test.
const SOCKETS_MIN: usize = 20;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let open = connections(window);
    let is_left = |one: &&Connection<'_>| {
        one.before.state == TcpState::CloseWait
            && one.after.state == TcpState::CloseWait
            && one.after.inode != 0
    };
    let left: Vec<&TcpSocket> = open.iter().filter(is_left).map(|one| one.after).collect();
    if left.len() < SOCKETS_MIN {
        return;
    }
    let mut programs: BTreeMap<String, Vec<&TcpSocket>> = BTreeMap::new();
    for one in left {
        programs.entry(evidence.owner(one.inode)).or_default().push(one);
    }
    for (program, mut sockets) in programs {
        if sockets.len() < SOCKETS_MIN {
            continue;
        }
        sockets.sort_by_key(|one| std::cmp::Reverse(one.info.last_ack_recv));
        let oldest = u64::from(sockets[0].info.last_ack_recv);
        let severity = if sockets.len() >= 1000 { Severity::Medium } else { Severity::Low };
        let what = format!(
            "{program} has not closed {} connections whose far ends have closed, the oldest {} ago",
            sockets.len(),
            time_text(oldest)
        );
        let found = finding(severity, what)
            .seen(Confidence::Now)
            .costs(format!("{} descriptors", sockets.len()))
            .read("sock_diag: sockets in CLOSE-WAIT", sockets.len().to_string());
        notes.find(
            listed(found, evidence, sockets, "CLOSE-WAIT", |one| {
                format!("last packet from there {} ago, {} bytes unread", time_text(one.info.last_ack_recv.into()), one.receive_queue)
            })
            .because(
                "after a FIN, the kernel keeps the socket until the program closes it, without a time limit (RFC 9293)",
            )
            .effect("descriptors and memory are free again")
            .risk("a restart ends its other connections, too")
            .change("close sockets at the end of their data in the program (recv returns 0); until then restart it", "nothing to undo"),
        );
    }
}
