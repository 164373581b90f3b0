//! Settings of interfaces that forward packets.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::ethtool;
use crate::tune::{Profile, Target};

pub(super) const CAUSE: Cause = Cause {
    title: "An interface that forwards merges too little, or in a way that loses headers",
    symptom: "a router, bridge or container host forwards less than its cards carry, with one CPU at its limit; or, with LRO, forwarded \
              connections crawl and TCP retransmits",
    evidence: "rx-gro is off, or rx-lro on, on an interface with net.ipv4.conf.IF.forwarding=1 or in a bridge",
    remedy: "ethtool -K IF gro on lro off",
    undo: "the old features of ethtool -k",
    references: &[
        "https://docs.kernel.org/networking/segmentation-offloads.html",
        "https://docs.kernel.org/networking/ip-sysctl.html",
    ],
    is_of_forwarding: true,
    ..Cause::new("forwarding", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let mut forwards_any = false;
    for link in view.interfaces() {
        // A bridge or tunnel takes packets as its ports merged them.
        if matches!(link.kind.as_deref(), Some("bridge" | "vxlan" | "gretap")) {
            continue;
        }
        let Some((source, value)) = view.forwards(link) else { continue };
        forwards_any = true;
        let offloads = view.system.within(|| ethtool::offloads(link.index));
        let Some(offloads) = notes.ask(offloads) else { continue };
        let command = format!("{}ethtool -K {}", view.prefix(), link.name);
        let features = format!("ethtool features of {}", link.name);
        if offloads.get("rx-gro").is_some_and(|gro| gro.is_offered && !gro.is_on) {
            notes.find(
                finding(Severity::Low, format!("GRO is off on {}, which forwards", link.name))
                    .read(&features, "rx-gro off")
                    .read(&source, &value)
                    .because(
                        "routing, filtering and bridging cost the same for one packet and for many \
                         that were merged (Documentation/networking/segmentation-offloads.rst)",
                    )
                    .effect("TCP, and UDP if configured, is forwarded in large pieces")
                    .risk("packets wait for the end of a poll")
                    .change(format!("{command} gro on"), format!("{command} gro off"))
                    .setting("gro", &Target::Interface(link.name.clone()), "on"),
            );
        }
        if offloads.get("rx-lro").is_some_and(|lro| lro.is_on) {
            notes.find(
                finding(Severity::High, format!("LRO is on on {}, which forwards", link.name))
                    .read(&features, "rx-lro on")
                    .read(&source, &value)
                    .because(
                        "LRO loses headers when it merges; merged packets cannot be forwarded \
                         (Documentation/networking/segmentation-offloads.rst)",
                    )
                    .effect("packets are forwarded unmodified")
                    .change(format!("{command} lro off"), format!("{command} lro on"))
                    .setting("lro", &Target::Interface(link.name.clone()), "off"),
            );
        }
    }
    if !(forwards_any && view.is_for(Profile::Forwarding)) {
        return;
    }
    let file = "net/ipv4/ip_early_demux";
    if view.sysctl(file).as_deref() == Some("1") {
        notes.find(
            finding(Severity::Low, "sockets are looked up before the route")
                .read(format!("/proc/sys/{file}"), "1")
                .because(
                    "forwarded packets have no socket here \
                     (Documentation/networking/ip-sysctl.rst, ip_early_demux)",
                )
                .effect("saves a lookup for each packet")
                .risk("packets for this host itself cost a little more")
                .change(
                    format!("{}sysctl -w net.ipv4.ip_early_demux=0", view.prefix()),
                    format!("{}sysctl -w net.ipv4.ip_early_demux=1", view.prefix()),
                )
                .setting("ip-early-demux", &Target::Netns, "0"),
        );
    }
}
