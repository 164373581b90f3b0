//! Programs that do not read, so that their senders wait.

use super::connections::{
    Connection, connections, counted, is_internal, listed, name, size_text, time_text,
};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState, TcpTimer};

pub(super) const CAUSE: Cause = Cause {
    title: "A program does not read its connection: the window is closed and the sender waits",
    symptom: "Writes hang or a transfer stands still, without loss; both hosts and the network are idle.",
    evidence: "At the sender: the timer of window probes and snd_wnd 0 in sock_diag, and unsent data. At the \
               receiver: unread bytes (Recv-Q) that fill the buffer and do not change; \
               TcpExtTCPToZeroWindowAdv, TCPWantZeroWindowAdv, TCPWinProbe.",
    remedy: "The program that does not read: blocked in something else, out of threads, or waiting for its own \
             send. A larger buffer only delays it.",
    undo: "None.",
    counters: &["TcpExtTCPToZeroWindowAdv", "TcpExtTCPWantZeroWindowAdv", "TcpExtTCPWinProbe"],
    reasons: &["TCP_ZEROWINDOW"],
    references: &["RFC 9293 section 3.8.6", "tcp(7)"],
    ..Cause::new("zero-window", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let open = connections(window);
    let is_unread =
        |one: &&Connection<'_>| is_unread(one.before) && is_unread(one.after) && is_still(one);
    let unread: Vec<&TcpSocket> = open.iter().filter(is_unread).map(|one| one.after).collect();
    let is_closed = |one: &&Connection<'_>| {
        is_probing(one.before) && is_probing(one.after) && one.acked_bytes() == 0
    };
    let closed: Vec<&TcpSocket> = open.iter().filter(is_closed).map(|one| one.after).collect();
    let probes = window.sum(&["TcpExtTCPWinProbe"]);
    let adverts = window.sum(&["TcpExtTCPToZeroWindowAdv", "TcpExtTCPWantZeroWindowAdv"]);
    if let Some(one) = unread.first() {
        let found = judged(&unread)(format!(
            "{} has left {} unread for {}{}: its sender waits",
            name(evidence, one),
            size_text(one.receive_queue.into()),
            time_text(one.info.last_data_recv.into()),
            more(&unread)
        ))
        .read(
            "/proc/net/netstat: TcpExt TCPToZeroWindowAdv, TCPWantZeroWindowAdv",
            adverts.evidence(),
        );
        let text = |one: &TcpSocket| {
            format!(
                "{} bytes unread, buffer {}",
                one.receive_queue, one.memory.receive_buffer_bytes
            )
        };
        notes.find(explained(listed(found, evidence, unread, "receive queue", text)).change(
            "find what the program waits for (`cat /proc/PID/stack`, a debugger), and let it read",
            "nothing to undo",
        ));
    }
    if let Some(one) = closed.first() {
        let found = judged(&closed)(format!(
            "{} cannot send {} since {}{}: the program at the far end does not read",
            name(evidence, one),
            size_text(one.send_queue.into()),
            time_text(one.info.last_data_sent.into()),
            more(&closed)
        ))
        .read("/proc/net/netstat: TcpExt TCPWinProbe", probes.evidence());
        let text = |one: &TcpSocket| {
            format!("{} probes, window of the far end {} bytes", one.retry_count, one.info.snd_wnd)
        };
        notes.find(explained(listed(found, evidence, closed.clone(), "timer", text)).change(
            format!(
                "at {}: find why the program does not read TCP port {}",
                one.remote.ip(),
                one.remote.port()
            ),
            "nothing to undo",
        ));
    }
}

/// Begins a finding; programs of strangers may stop reading as they like.
fn judged(sockets: &[&TcpSocket]) -> impl FnOnce(String) -> Finding {
    let is_own = sockets.iter().any(|one| is_internal(one.remote.ip()));
    let severity = if is_own { Severity::Medium } else { Severity::Low };
    let cost = format!("{} that wait", counted(sockets.len(), "connection"));
    move |what| finding(severity, what).seen(Confidence::Now).costs(cost)
}

fn more(sockets: &[&TcpSocket]) -> String {
    match sockets.len() {
        1 => String::new(),
        count => format!(" (and {} others)", count - 1),
    }
}

fn explained(found: Finding) -> Finding {
    found
        .because(
            "a receiver whose buffer is full closes its window, and the sender only asks now and then whether it is \
             open (RFC 9293 section 3.8.6)",
        )
        .effect("the transfer goes on")
}

/// Unread data fills the buffer.
fn is_unread(socket: &TcpSocket) -> bool {
    let memory = socket.memory;
    let is_open =
        matches!(socket.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2);
    is_open && socket.receive_queue > 0 && memory.received_bytes >= memory.receive_buffer_bytes / 2
}

/// Nothing was read, and nothing new came.
fn is_still(one: &Connection<'_>) -> bool {
    one.before.receive_queue == one.after.receive_queue
        && one.growth(|info| info.bytes_received) == 0
}

/// Data waits for a window that is closed.
fn is_probing(socket: &TcpSocket) -> bool {
    socket.timer == TcpTimer::WindowProbe
        && socket.info.notsent_bytes > 0
        && socket.info.snd_wnd < socket.info.snd_mss
}
