//! Receive buffers of sockets that are too small for a burst.

use super::finding::{Notes, Severity, finding};
use super::host_view::HostView;
use crate::net::{self, snmp_counter};

/// Receive buffers below this size hold only a few dozen datagrams.
const SMALL_BYTES: u32 = 64 * 1024;

pub(super) fn check(view: &HostView, notes: &mut Notes<'_>) {
    let Some(sockets) = notes.ask(view.system.within(net::udp_sockets)) else { return };
    for socket in sockets {
        let is_small = socket.receive_buffer_bytes < SMALL_BYTES && socket.port != 0;
        if !is_small && socket.drop_count == 0 {
            continue;
        }
        let owners = view.owners();
        let owner = owners.by_inode.get(&u64::from(socket.inode));
        let owner = owner.map_or("an unknown process", String::as_str);
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
    let overflows =
        view.proc_net("snmp").ok().and_then(|text| snmp_counter(&text, "Udp", "RcvbufErrors"));
    if let Some(count) = overflows.filter(|count| *count > 0) {
        notes.fact(format!(
            "{count} datagrams were dropped at full sockets since the namespace was created (/proc/net/snmp)"
        ));
    }
}
