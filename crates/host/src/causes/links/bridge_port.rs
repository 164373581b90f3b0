//! Ports of bridges that do not forward, or not yet.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "A port of a bridge does not forward: spanning tree waits or blocks it",
    symptom: "a virtual machine or container has no network for the first 30 seconds, its DHCP times out; or a \
              port with a link passes nothing",
    evidence: "`/sys/class/net/PORT/brport/state`: listening, learning, blocking or disabled (`bridge link`); \
               forward_delay and stp_state of the bridge; drop reason BRIDGE_INGRESS_STP_STATE",
    remedy: "no spanning tree where the bridge has no loop (ip link set BR type bridge stp_state 0), or a \
             forward_delay of 2 s",
    undo: "stp_state 1, the old forward_delay",
    reasons: &["BRIDGE_INGRESS_STP_STATE"],
    references: &["Documentation/networking/bridge.rst", "ip-link(8), bridge: forward_delay"],
    is_of_forwarding: true,
    ..Cause::new("bridge-port", check)
};

/// Source: include/uapi/linux/if_bridge.h, BR_STATE_*.
const STATES: [&str; 5] = ["disabled", "listening", "learning", "forwarding", "blocking"];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces().filter(|link| link.is_up && link.has_carrier) {
        let port = &link.name;
        let read = |file: &str| -> Option<u64> {
            view.system.read_net(&format!("{port}/{file}")).ok()?.parse().ok()
        };
        let Some(state) = read("brport/state") else { continue };
        let state = STATES.get(state as usize).copied().unwrap_or("unknown");
        if state == "forwarding" {
            continue;
        }
        let master = view.details.get(&link.index).and_then(|detail| detail.master);
        let Some(bridge) = master.and_then(|index| view.links.get(&index)) else { continue };
        let of_bridge = |file: &str| -> Option<u64> {
            view.system.read_net(&format!("{}/bridge/{file}", bridge.name)).ok()?.parse().ok()
        };
        // In hundredths of a second.
        let delay_s = of_bridge("forward_delay").unwrap_or(1500) / 100;
        let waits = state == "listening" || state == "learning";
        // One that blocks keeps a loop open, which is what spanning tree is for.
        let (severity, what) = if waits {
            (Severity::Medium, format!("for {} s from when its link came up", delay_s * 2))
        } else {
            (Severity::Low, "while spanning tree holds it so".to_owned())
        };
        let command = format!("{}ip link set {} type bridge", view.prefix(), bridge.name);
        let stp = of_bridge("stp_state").unwrap_or(0);
        notes.find(
            finding(
                severity,
                format!("port {port} of bridge {} is {state} and passes no packets {what}", bridge.name),
            )
            .seen(Confidence::Now)
            .costs("all packets of that port")
            .read(format!("/sys/class/net/{port}/brport/state"), state)
            .read(format!("/sys/class/net/{}/bridge/forward_delay", bridge.name), format!("{delay_s} s"))
            .read(format!("/sys/class/net/{}/bridge/stp_state", bridge.name), stp.to_string())
            .because(
                "a port with spanning tree listens and learns for forward_delay each before it forwards, and \
                 blocks where a loop would close (Documentation/networking/bridge.rst)",
            )
            .effect("a port forwards as soon as it has a link")
            .risk("without spanning tree a loop between bridges floods the network")
            .change(
                if waits { format!("{command} forward_delay 200   (or stp_state 0)") } else { format!("{command} stp_state 0") },
                if waits { format!("{command} forward_delay {}", delay_s * 100) } else { format!("{command} stp_state {stp}") },
            ),
        );
    }
}
