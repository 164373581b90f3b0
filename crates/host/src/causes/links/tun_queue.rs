//! Queues of TUN and TAP devices whose program reads too slowly.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The queue of a TUN or TAP device overflows: its program reads too slowly",
    symptom: "a VPN or a virtual machine loses packets at high rates and its connections retransmit, while \
              the link below is not full",
    evidence: "tx_dropped of the tun (`ip -s link`) grows; drop reason FULL_RING; tx_queue_len (500 or 1000 \
               packets); the program that has the device (`/proc/PID/fdinfo`: iff)",
    remedy: "a faster reader or several queues (multi_queue); a longer queue for bursts: ip link set IF \
             txqueuelen N",
    undo: "ip link set IF txqueuelen with the old length",
    counters: &["tx_dropped"],
    reasons: &["FULL_RING"],
    references: &[
        "Documentation/networking/tuntap.rst",
        "https://github.com/ravinet/mahimahi/issues/132",
    ],
    is_of_forwarding: true,
    ..Cause::new("tun-queue", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces().filter(|link| link.kind.as_deref() == Some("tun")) {
        let Some(window) = notes.window(view) else { return };
        let name = &link.name;
        let (dropped, taken): (Losses, Losses) =
            (window.link(name, "tx_dropped"), window.link(name, "tx_packets"));
        if dropped.total == 0 {
            continue;
        }
        let length = view.system.read_net(&format!("{name}/tx_queue_len")).unwrap_or_default();
        let packets: u64 = length.parse().unwrap_or(500);
        let owner = super::tun_owner(view, name);
        let reader = owner.clone().unwrap_or_else(|| "its program".to_owned());
        let command = format!("{}ip link set {name} txqueuelen", view.prefix());
        notes.find(
            finding(
                dropped.severity(),
                format!(
                    "{} because {reader} reads {name} too slowly: it took {:.0} packets a second, and {length} \
                     may wait",
                    dropped.sentence("packets were dropped"),
                    taken.per_second()
                ),
            )
            .counted(dropped, "packets")
            .read(format!("/sys/class/net/{name}/statistics/tx_dropped"), dropped.evidence())
            .read(format!("/sys/class/net/{name}/statistics/tx_packets"), taken.evidence())
            .read(format!("/sys/class/net/{name}/tx_queue_len"), &length)
            .read("/proc/PID/fdinfo: iff", owner.as_deref().unwrap_or("no process that may be inspected"))
            .because(
                "packets for a TUN or TAP device wait in a ring of tx_queue_len for its program, and are \
                 dropped when it is full (drivers/net/tun.c, tun_net_xmit)",
            )
            .effect("bursts are kept; only a faster reader helps against a lasting overload")
            .risk("a longer queue adds latency, and delays the loss that tells senders the rate")
            .change(
                format!("{command} {}   (and more threads or queues in {reader})", (packets * 4).max(2000)),
                format!("{command} {length}"),
            ),
        );
    }
}
