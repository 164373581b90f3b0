//! Receive buffers of sockets that are too small for a burst.

use super::finding::{Notes, Severity, finding};
use super::host_view::HostView;
use crate::net;

/// Receive buffers below this size hold only a few dozen datagrams.
const SMALL_BYTES: u32 = 64 * 1024;

pub(super) fn check(view: &HostView, notes: &mut Notes<'_>) {
    let Some(mut sockets) = notes.ask(view.system.within(net::udp_sockets)) else { return };
    let dropped = match view.counters() {
        Ok(counters) => counters.sum(&["Udp RcvbufErrors", "Udp6RcvbufErrors"]),
        Err(why) => return notes.unseen(why),
    };
    if dropped.total == 0 {
        // Its drops are those of a filter or of wrong checksums, which have findings of their own.
        sockets.iter_mut().for_each(|socket| socket.drop_count = 0);
    }
    let is_explained = sockets.iter().any(|socket| socket.drop_count > 0);
    for socket in sockets {
        let is_small = socket.receive_buffer_bytes < SMALL_BYTES && socket.port != 0;
        if !is_small && socket.drop_count == 0 {
            continue;
        }
        let owner = view.owner(socket.inode);
        let (severity, what) = match socket.drop_count {
            0 => (Severity::Medium, "has a small receive buffer"),
            _ => (Severity::High, "has dropped datagrams"),
        };
        notes.find(
            finding(severity, format!("UDP port {} of {owner} {what}", socket.port))
                .read(
                    "sock_diag: SK_MEMINFO_RCVBUF",
                    format!("{} bytes, including the kernel's overhead", socket.receive_buffer_bytes),
                )
                .read("sock_diag: SK_MEMINFO_DROPS", socket.drop_count.to_string())
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
