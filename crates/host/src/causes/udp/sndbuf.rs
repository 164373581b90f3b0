//! Send buffers of UDP sockets that are full.

use super::{NAMED_MAX, named};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};
use crate::net::UdpSocket;

pub(super) const CAUSE: Cause = Cause {
    title: "a UDP socket's send buffer is full, or the queue behind it",
    symptom: "sends fail with ENOBUFS or EAGAIN, or block; the program warns about its send buffer, and a larger \
              rmem_max changes nothing",
    evidence: "UdpSndbufErrors and Udp6SndbufErrors; bytes and size of each socket's send buffer (`ss -uam`, t and \
               tb); net.core.wmem_max; drops of the interface's queue",
    remedy: "SO_SNDBUF in the program, and `sysctl -w net.core.wmem_max=8388608` if the host cuts it; if the queue of \
             the interface is the limit, send more slowly or remove the shaper",
    undo: "the previous sizes",
    counters: &["UdpSndbufErrors", "Udp6SndbufErrors"],
    references: &["socket(7)", "udp(7)", "quic-go/quic-go#3923"],
    ..Cause::new("udp-sndbuf", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let refused = window.sum(&["UdpSndbufErrors", "Udp6SndbufErrors"]);
    if refused.total == 0 {
        return;
    }
    let is_filled = |one: &&UdpSocket| {
        u64::from(one.memory.sent_bytes) * 2 >= u64::from(one.memory.send_buffer_bytes)
    };
    let full: Vec<&UdpSocket> = window.after.udp.iter().filter(is_filled).take(NAMED_MAX).collect();
    let max = view.number("net/core/wmem_max").unwrap_or(0);
    let where_full = match full.first() {
        Some(one) => format!(
            "the send buffer of {} ({} bytes) is full",
            named(view, one),
            one.memory.send_buffer_bytes
        ),
        None => "a send buffer, or the queue of the interface, was full".to_owned(),
    };
    let mut found = finding(
        refused.severity(),
        format!(
            "{}: {where_full}",
            refused.sentence("sends of datagrams were refused or had to wait")
        ),
    )
    .counted(refused, "sends")
    .read("/proc/net/snmp and snmp6: SndbufErrors", refused.evidence())
    .read("/proc/sys/net/core/wmem_max", max.to_string());
    for one in &full {
        found = found.read(
            format!("sock_diag: {}", named(view, one)),
            format!(
                "{} of {} bytes wait to be sent",
                one.memory.sent_bytes, one.memory.send_buffer_bytes
            ),
        );
    }
    for (shaper, _, drops) in window.shapers() {
        found = found.read(
            format!("tc -s qdisc show dev {}: drops of {}", shaper.interface, shaper.kind),
            drops.evidence(),
        );
    }
    let is_cut = full.first().is_some_and(|one| u64::from(one.memory.send_buffer_bytes) >= max * 2);
    let (change, undo) = if is_cut {
        let sysctl = "sysctl -w net.core.wmem_max";
        (
            format!("on the host: {sysctl}=8388608, and restart the program"),
            format!("{sysctl}={max}"),
        )
    } else {
        (
            format!(
                "a larger SO_SNDBUF in the program (net.core.wmem_max allows {max}), or wait until the socket \
                 can be written (poll); if a shaper stands above, its rate is the limit"
            ),
            "the program's previous SO_SNDBUF".to_owned(),
        )
    };
    notes.find(
        found
            .because(
                "datagrams are charged to the socket that sent them until the interface has taken them \
                 (socket(7), SO_SNDBUF; net/ipv4/udp.c counts ENOBUFS and a lack of room)",
            )
            .effect("bursts are taken whole")
            .risk("a longer queue: datagrams leave later")
            .change(change, undo),
    );
}
