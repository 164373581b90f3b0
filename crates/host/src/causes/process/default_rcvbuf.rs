//! The default receive buffer under bursts.

use super::FEW;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "a receiving program has the default receive buffer, or bursts that nearly fill it",
    symptom: "datagrams are lost in bursts only",
    evidence: "sock_diag SK_MEMINFO_RCVBUF against `net.core.rmem_default` and the largest backlog of `/proc/PID/net/udp` in 100 looks a second",
    remedy: "SO_RCVBUF of the program, up to `net.core.rmem_max`; SO_RCVBUFFORCE with CAP_NET_ADMIN",
    undo: "the earlier size",
    references: &["socket(7), SO_RCVBUF", "Documentation/admin-guide/sysctl/net.rst, rmem_default"],
    subject: CauseSubject::Program,
    ..Cause::new("default-rcvbuf", check)
};

/// Memory of a small datagram on most drivers: its buffer and the kernel's structure.
const SMALL_DATAGRAM_BYTES: u64 = 768;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let Some(window) = notes.window(view) else { return };
    let host = |name: &str| {
        let text = view.system.read_host(&format!("proc/sys/net/core/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().ok()
    };
    let default = host("rmem_default");
    for (inode, seen) in &program.seen.sockets {
        let Some(socket) = window.after.udp.iter().find(|one| u64::from(one.inode) == *inode)
        else {
            continue;
        };
        let buffer = u64::from(socket.memory.receive_buffer_bytes);
        let is_used = match &program.calls {
            Ok(calls) => calls.by_socket.get(inode).is_some_and(|datagrams| *datagrams >= FEW),
            Err(_) => seen.backlog_bytes_max > 0,
        };
        let is_default = Some(buffer) == default && is_used;
        let share = seen.backlog_bytes_max as f64 / buffer.max(1) as f64;
        // One that has dropped datagrams is a cause of its own.
        if seen.drops > 0 || buffer == 0 || (!is_default && share < 0.5) {
            continue;
        }
        let port = seen.port;
        let found = if share >= 0.5 {
            let what = format!(
                "bursts filled {:.0} % of the receive buffer of UDP port {port} of {}",
                share * 100.0,
                program.title()
            );
            finding(Severity::Medium, what).seen(Confidence::Now)
        } else {
            let what = format!(
                "UDP port {port} of {} has the default receive buffer, {buffer} bytes: at most {} small datagrams",
                program.title(),
                buffer / SMALL_DATAGRAM_BYTES
            );
            finding(Severity::Low, what)
        };
        notes.find(
            found
                .read("sock_diag: SK_MEMINFO_RCVBUF", format!("{buffer} bytes"))
                .read(
                    format!("/proc/{}/net/udp: largest rx_queue seen", program.now.pid),
                    format!("{} bytes", seen.backlog_bytes_max),
                )
                .read("/proc/sys/net/core/rmem_default", default.map_or("unknown".into(), |it| it.to_string()))
                .read("/proc/sys/net/core/rmem_max", host("rmem_max").map_or("unknown".into(), |it| it.to_string()))
                .because(
                    "datagrams that come while the program does not run wait there, each charged at its buffer's \
                     size (socket(7), SO_RCVBUF)",
                )
                .effect("longer bursts and pauses without a loss")
                .risk("memory, and longer queueing if the program does not keep up")
                .change(
                    "SO_RCVBUF of 4 MiB in the program, and net.core.rmem_max on the host to allow it (host-only)",
                    "the program's previous setting",
                ),
        );
    }
}
