//! Receive buffers of sockets that overflow.

use super::{NAMED_MAX, datagrams_read, dropping, named};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, finding};
use crate::net::{SocketMemory, UdpSocket};

pub(super) const CAUSE: Cause = Cause {
    title: "a UDP socket's receive buffer is full",
    symptom: "a program misses datagrams, above all in bursts, while a capture on the same host shows all of them",
    evidence: "UdpRcvbufErrors and Udp6RcvbufErrors; size, use and drops of each socket's buffer (sock_diag, as \
               `ss -uam`); net.core.rmem_max and rmem_default; datagrams read by programs (UdpInDatagrams)",
    remedy: "raise the limit that binds: SO_RCVBUF in the program, or `sysctl -w net.core.rmem_max=8388608` if the \
             host cuts it; if the buffer is full all the time, the reader is the limit, and no buffer helps",
    undo: "the previous SO_RCVBUF; `sysctl -w net.core.rmem_max=212992`, or the number from before",
    counters: &["UdpRcvbufErrors", "Udp6RcvbufErrors"],
    reasons: &["SOCKET_RCVBUFF"],
    references: &[
        "socket(7)",
        "udp(7)",
        "netdata/netdata#4086",
        "eclipse-cyclonedds/cyclonedds#1304",
    ],
    ..Cause::new("udp-rcvbuf", check)
};

const WHY: &str = "datagrams that the program has not read wait in its socket, and each is charged at the size of \
                   its buffer in the kernel, which is more than its own (socket(7), SO_RCVBUF)";

/// The limit that binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The buffer was full at both samples.
    Reader,
    /// net.core.rmem_max cut what the program asked for.
    Host,
    /// The program sets no size.
    Default,
    /// The program asks for less than it may have.
    Program,
}

/// - `before`, `now`: the socket's memory at the samples; `before` is `None` if it was opened between them.
fn limit(
    before: Option<SocketMemory>,
    now: SocketMemory,
    max: Option<u64>,
    default: Option<u64>,
) -> Limit {
    let size = u64::from(now.receive_buffer_bytes);
    // The kernel doubles what a program asks for; the default it takes as it is.
    if before.is_some_and(is_full) && is_full(now) {
        Limit::Reader
    } else if max.is_some_and(|max| size >= max * 2) {
        Limit::Host
    } else if Some(size) == default {
        Limit::Default
    } else {
        Limit::Program
    }
}

fn is_full(memory: SocketMemory) -> bool {
    u64::from(memory.received_bytes) * 8 >= u64::from(memory.receive_buffer_bytes) * 7
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let counted = window.sum(&CAUSE_COUNTERS);
    if counted.total == 0 {
        return;
    }
    let mut is_explained = false;
    for (socket, mut lost) in dropping(window).into_iter().take(NAMED_MAX) {
        if counted.now == 0 {
            // Drops of the window are those of a filter or of wrong checksums.
            lost.now = 0;
        }
        is_explained |= lost.now > 0 || counted.now == 0;
        notes.find(of_socket(view, window, socket, lost));
    }
    if !is_explained {
        notes.find(
            finding(
                counted.severity(),
                counted.sentence("datagrams were dropped at full receive buffers of sockets that are closed now"),
            )
            .counted(counted, "datagrams")
            .read("/proc/net/snmp and snmp6: RcvbufErrors", counted.evidence())
            .because(WHY)
            .effect("bursts are kept until the program reads them")
            .risk("memory, and longer queueing if the program does not keep up")
            .change(
                "SO_RCVBUF of 4 MiB in the program that received them, and net.core.rmem_max on the host to \
                 allow it",
                "the program's previous setting",
            ),
        );
    }
}

const CAUSE_COUNTERS: [&str; 2] = ["UdpRcvbufErrors", "Udp6RcvbufErrors"];

fn of_socket(view: &Evidence, window: &Window, socket: &UdpSocket, lost: Losses) -> Finding {
    let memory = socket.memory;
    let earlier = window.before.udp.iter().find(|one| one.inode == socket.inode);
    let (max, default) = (view.number("net/core/rmem_max"), view.number("net/core/rmem_default"));
    let (name, size) = (named(view, socket), memory.receive_buffer_bytes);
    let asked = size / 2;
    let max_text = max.map_or("its limit".to_owned(), |max| max.to_string());
    let sysctl = |bytes: &str| format!("sysctl -w net.core.rmem_max={bytes} (on the host)");
    let read = datagrams_read(window);
    let limit = limit(earlier.map(|one| one.memory), memory, max, default);
    let (binds, change, undo) = match limit {
        Limit::Reader if read.now == 0 => (
            "and the program reads nothing".to_owned(),
            format!("find out why {name} does not read: it is stopped, busy elsewhere, or has forgotten the socket"),
            "nothing was changed".to_owned(),
        ),
        Limit::Reader => (
            "and it is full all the time: the program reads more slowly than datagrams arrive".to_owned(),
            "a faster reader: several datagrams a call (recvmmsg), a CPU of its own, several sockets with \
             SO_REUSEPORT; a larger buffer only delays the loss"
                .to_owned(),
            "the program's previous form".to_owned(),
        ),
        Limit::Host => (
            format!("which net.core.rmem_max ({max_text}) limits"),
            format!("{}, and restart the program", sysctl("8388608")),
            format!("{}, and restart the program", sysctl(&max_text)),
        ),
        Limit::Default => (
            "the host's default, as the program sets none".to_owned(),
            format!("SO_RCVBUF in the program; net.core.rmem_max allows {max_text} without a change of the host"),
            "no SO_RCVBUF".to_owned(),
        ),
        Limit::Program => (
            format!("which the program chose (SO_RCVBUF {asked}); the host allows {max_text}"),
            format!("a larger SO_RCVBUF in the program; net.core.rmem_max ({max_text}) is not the limit"),
            format!("SO_RCVBUF {asked}"),
        ),
    };
    let lost_text = lost.sentence("datagrams were dropped");
    let found = finding(
        lost.severity(),
        format!("{lost_text} at the full receive buffer of {name}: {size} bytes, {binds}"),
    )
    .counted(lost, "datagrams")
    .read("sock_diag: SK_MEMINFO_DROPS", lost.evidence())
    .read(
        "sock_diag: SK_MEMINFO_RMEM_ALLOC of SK_MEMINFO_RCVBUF",
        format!(
            "{} of {size} bytes are used, the kernel's overhead included",
            memory.received_bytes
        ),
    )
    .read("/proc/sys/net/core/rmem_max", max_text)
    .read(
        "/proc/net/snmp and snmp6: InDatagrams, read by all programs here",
        format!("{:.0} a second", read.per_second()),
    );
    found
        .because(WHY)
        .effect("bursts are kept until the program reads them")
        .risk("memory, and longer queueing if the program does not keep up")
        .change(change, undo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_binds_is_told_by_the_buffer_s_size_and_use() {
        let memory = |size, used| SocketMemory {
            receive_buffer_bytes: size,
            received_bytes: used,
            ..SocketMemory::default()
        };
        let (empty, max, default) = (memory(212_992, 0), Some(425_984), Some(212_992));
        let of = |now| limit(Some(empty), now, max, default);
        assert_eq!(of(memory(212_992, 0)), Limit::Default);
        assert_eq!(of(memory(851_968, 0)), Limit::Host);
        assert_eq!(of(memory(8192, 8000)), Limit::Program);
        let full = memory(8192, 8000);
        assert_eq!(limit(Some(full), full, max, default), Limit::Reader);
        // SO_RCVBUFFORCE may exceed the host's limit.
        assert_eq!(limit(None, memory(4_000_000, 0), Some(212_992), default), Limit::Host);
        assert_eq!(limit(None, memory(4_000_000, 0), None, default), Limit::Program);
    }
}
