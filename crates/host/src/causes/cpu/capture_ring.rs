//! Programs that capture packets and miss some.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The buffer of a capturing program overflows",
    symptom: "a capture, monitor or intrusion detection misses packets that arrived; tcpdump says dropped by \
              kernel",
    evidence: "drops of its packet socket (packet_diag, `ss -0 -m`: d); sockets with a ring count theirs in \
               PACKET_STATISTICS, which only the program sees; drop reason PACKET_SOCK_ERROR",
    remedy: "a larger buffer (tcpdump -B KIB, SO_RCVBUF), a filter in the kernel, several sockets with fanout",
    undo: "the old size",
    reasons: &["PACKET_SOCK_ERROR"],
    references: &[
        "packet(7), PACKET_STATISTICS",
        "https://github.com/Security-Onion-Solutions/securityonion/issues/1504",
    ],
    ..Cause::new("capture-ring", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let hears = |index: u32| index == 0 || view.path.contains(&index);
    for socket in window.after.packet.iter().filter(|one| one.protocol != 0 && hears(one.interface))
    {
        if socket.ring_bytes > 0 {
            notes.fact(format!(
                "{} captures with a ring of {} KiB; what it misses is counted by itself alone",
                view.owner(socket.inode),
                socket.ring_bytes / 1024
            ));
        }
        let earlier = window.before.packet.iter().find(|other| other.inode == socket.inode);
        let memory = socket.memory;
        let before = earlier.map_or(memory.drop_count, |other| other.memory.drop_count);
        let lost = window.losses(before.into(), memory.drop_count.into());
        if lost.total == 0 {
            continue;
        }
        let owner = view.owner(socket.inode);
        let on = view.links.get(&socket.interface).map_or("all interfaces", |link| &link.name);
        let buffer = memory.receive_buffer_bytes;
        notes.find(
            finding(
                lost.severity(),
                format!(
                    "{owner} captures on {on} and misses packets: {}, its buffer has {buffer} bytes",
                    lost.sentence("copies did not fit")
                ),
            )
            .counted(lost, "copies")
            .read(format!("packet_diag, inode {}: SK_MEMINFO_DROPS", socket.inode), lost.evidence())
            .read(format!("packet_diag, inode {}: SK_MEMINFO_RCVBUF", socket.inode), buffer.to_string())
            .because(
                "copies wait in the buffer of the packet socket until the program reads them; the packets \
                 themselves reach their receivers (packet(7))",
            )
            .effect("bursts are captured whole; a program that is too slow needs a filter")
            .risk("memory")
            .change(
                format!("SO_RCVBUF (SO_RCVBUFFORCE) of 16 MiB or a mapped ring in {owner}, or a filter in the kernel"),
                format!("SO_RCVBUF of {} again", buffer / 2),
            ),
        );
    }
}
