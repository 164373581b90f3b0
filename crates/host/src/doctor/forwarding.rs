//! What a forwarder should and should not do.

use super::{Notes, Scene, Severity, finding};
use crate::net::ethtool;
use crate::tune::Profile;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    let mut forwards_any = false;
    for link in scene.interfaces() {
        // A bridge and a tunnel take over what their ports merged.
        if matches!(link.kind.as_deref(), Some("bridge" | "vxlan" | "gretap")) {
            continue;
        }
        let Some((source, value)) = scene.forwards(link) else { continue };
        forwards_any = true;
        let offloads = scene.system.within(|| ethtool::offloads(link.index));
        let Some(offloads) = notes.ask(offloads) else { continue };
        let command = format!("{}ethtool -K {}", scene.prefix(), link.name);
        let features = format!("ethtool features of {}", link.name);
        if offloads.get("rx-gro").is_some_and(|gro| gro.is_offered && !gro.is_on) {
            // A veth comes like that, and what its other end sends may be large already.
            let severity = match link.kind.as_deref() {
                Some("veth") => Severity::Low,
                _ => Severity::Medium,
            };
            notes.find(
                finding(severity, format!("GRO is off on {}, which forwards", link.name))
                    .read(&features, "rx-gro off")
                    .read(&source, &value)
                    .because(
                        "routing, filtering and bridging cost the same for one packet and for many \
                         that were merged (Documentation/networking/segmentation-offloads.rst)",
                    )
                    .effect("TCP, and UDP where asked for, is forwarded in large pieces")
                    .risk("packets wait for the end of a poll")
                    .change(format!("{command} gro on"), format!("{command} gro off")),
            );
        }
        if offloads.get("rx-lro").is_some_and(|lro| lro.is_on) {
            notes.find(
                finding(Severity::High, format!("LRO is on on {}, which forwards", link.name))
                    .read(&features, "rx-lro on")
                    .read(&source, &value)
                    .because(
                        "LRO merges so that headers are lost; what is merged cannot be forwarded \
                         (Documentation/networking/segmentation-offloads.rst)",
                    )
                    .effect("packets are forwarded as they came")
                    .change(format!("{command} lro off"), format!("{command} lro on")),
            );
        }
    }
    if !(forwards_any && scene.is_for(Profile::Forwarding)) {
        return;
    }
    let file = "net/ipv4/ip_early_demux";
    if scene.sysctl(file).as_deref() == Some("1") {
        notes.find(
            finding(Severity::Low, "sockets are looked for before the route")
                .read(format!("/proc/sys/{file}"), "1")
                .because(
                    "what is forwarded has no socket here \
                     (Documentation/networking/ip-sysctl.rst, ip_early_demux)",
                )
                .effect("a look-up less for each packet")
                .risk("packets for this host itself cost a little more")
                .change(
                    format!("{}sysctl -w net.ipv4.ip_early_demux=0", scene.prefix()),
                    format!("{}sysctl -w net.ipv4.ip_early_demux=1", scene.prefix()),
                ),
        );
    }
}
