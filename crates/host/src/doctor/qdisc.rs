//! Queues on the way out that are too short.

use super::{Notes, Scene, Severity, finding};
use crate::net;
use crate::tune::Target;

/// Packets that a burst of one interrupt may bring.
const BURST: u32 = 64;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    for link in scene.interfaces() {
        let Some(qdisc) = notes.ask(scene.system.within(|| net::root_qdisc(link.index))).flatten()
        else {
            continue;
        };
        let name = &link.name;
        let length = notes.ask(scene.read("tx-queue-len", &Target::Interface(name.clone())));
        let length: u32 = length.and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        let limit = match (qdisc.kind.as_str(), qdisc.limit) {
            ("pfifo", Some(limit)) => limit,
            ("pfifo_fast", _) => length,
            _ => continue,
        };
        if limit >= BURST {
            continue;
        }
        let command = format!("{}tc qdisc", scene.prefix());
        notes.find(
            finding(Severity::Medium, format!("{name} queues {limit} packets on their way out"))
                .read(format!("RTM_GETQDISC of {name}"), format!("{} limit {limit}", qdisc.kind))
                .read(format!("/sys/class/net/{name}/tx_queue_len"), length.to_string())
                .because(
                    "a burst that one interrupt brings does not fit, and is dropped (tc-pfifo(8))",
                )
                .effect("bursts are kept")
                .risk("a longer queue may mean a longer wait")
                .change(
                    format!("{command} replace dev {name} root pfifo limit 1000"),
                    format!("{command} replace dev {name} root {} limit {limit}", qdisc.kind),
                ),
        );
    }
}
