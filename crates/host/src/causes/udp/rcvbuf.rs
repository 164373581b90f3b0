//! Receive buffers of sockets that are too small for a burst.

use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};

/// Receive buffers below this size hold only a few dozen datagrams.
const SMALL_BYTES: u32 = 64 * 1024;

pub(super) fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let window = match view.window() {
        Ok(window) => window,
        Err(why) => return notes.unseen(why),
    };
    let dropped = window.sum(&["UdpRcvbufErrors", "Udp6RcvbufErrors"]);
    let mut is_explained = false;
    for socket in &window.after.udp {
        let (port, memory) = (socket.local.port(), socket.memory);
        let earlier = window.before.udp.iter().find(|other| other.inode == socket.inode);
        let before = earlier.map_or(0, |other| other.memory.drop_count);
        let mut lost = window.losses(before.into(), memory.drop_count.into());
        if dropped.total == 0 {
            // Its drops are those of a filter or of wrong checksums, which have findings of their own.
            lost.total = 0;
        }
        is_explained |= lost.total > 0;
        let is_small = memory.receive_buffer_bytes < SMALL_BYTES && port != 0;
        if !is_small && lost.total == 0 {
            continue;
        }
        let owner = view.owner(socket.inode);
        let (severity, what) = match lost.total {
            0 => (Severity::Low, "has a small receive buffer"),
            _ => (lost.severity(), "has dropped datagrams"),
        };
        let found = finding(severity, format!("UDP port {port} of {owner} {what}"));
        let found = if lost.total > 0 { found.counted(lost, "datagrams") } else { found };
        notes.find(
            found
                .read(
                    "sock_diag: SK_MEMINFO_RCVBUF",
                    format!("{} bytes, including the kernel's overhead", memory.receive_buffer_bytes),
                )
                .read("sock_diag: SK_MEMINFO_DROPS", lost.evidence())
                .because(
                    "datagrams that arrive while the program is not running wait there, and each \
                     is charged at its buffer's size, not its own (socket(7), SO_RCVBUF)",
                )
                .effect("bursts are kept until the program runs")
                .risk("memory, and longer queueing if the program does not keep up")
                .change(
                    "SO_RCVBUF (or SO_RCVBUFFORCE) of 4 MiB in the program, and net.core.rmem_max on \
                     the host to allow it (host-only)",
                    "the program's previous setting",
                ),
        );
    }
    // A socket that still exists has its own finding.
    if dropped.total == 0 || is_explained {
        return;
    }
    notes.find(
        finding(
            dropped.severity(),
            dropped.sentence("datagrams were dropped at full sockets, closed now,"),
        )
        .counted(dropped, "datagrams")
        .read("/proc/net/snmp and snmp6: RcvbufErrors", dropped.evidence())
        .because(
            "datagrams that arrive while the program is not running wait in its socket, whose room is \
             limited (socket(7), SO_RCVBUF)",
        )
        .effect("bursts are kept until the program runs")
        .risk("memory, and longer queueing if the program does not keep up")
        .change(
            "SO_RCVBUF (or SO_RCVBUFFORCE) of 4 MiB in the program that received them, and \
             net.core.rmem_max on the host to allow it (host-only)",
            "the program's previous setting",
        ),
    );
}
