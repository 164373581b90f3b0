//! Frames that are copied on their way, by the function that does it.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, FRAMES_MIN};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::Link;
use crate::observer::ObservedCopies;

/// Shorter copies are of headers.
const BYTES_MIN: u64 = 128;

pub(super) const CAUSE: Cause = Cause {
    title: "A driver or the stack copies each frame",
    symptom: "throughput falls with the size of the frames, and `memcpy` is high in a profile",
    evidence: "calls of pskb_expand_head, skb_copy, skb_copy_bits and their like by caller, counted by the observer \
               (`doctor --observe 5s`); kernels that let no program trace functions do not show them",
    remedy: "by caller: native instead of generic XDP, no XDP on a veth, scatter-gather on, fewer captures",
    undo: "as it was before",
    references: &[
        "https://docs.kernel.org/networking/skbuff.html",
        "https://www.kernel.org/doc/html/latest/networking/device_drivers/ethernet/freescale/dpaa.html",
    ],
    is_of_forwarding: true,
    ..Cause::new("frame-copies", check)
};

/// Callers that hand frames to packet sockets: their copies are of cause `taps`.
pub(super) const CAPTURES: [&str; 6] = [
    "packet_rcv",
    "packet_rcv_spkt",
    "packet_rcv_fanout",
    "tpacket_rcv",
    "dev_queue_xmit_nit",
    "packet_direct_xmit",
];

/// Callers of copies for XDP programs.
const GENERIC_XDP: [&str; 5] = [
    "netif_receive_generic_xdp",
    "bpf_prog_run_generic_xdp",
    "do_xdp_generic",
    "netif_skb_check_for_xdp",
    "netif_skb_segment_for_xdp",
];

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    if evidence.observed.as_ref().is_some_and(|observed| !observed.sees_functions) {
        notes.unseen("copies by caller: the kernel does not let programs trace its functions");
        return;
    }
    for copies in evidence.observed_copies() {
        let Some(link) = evidence.interfaces().find(|link| link.index == copies.index) else {
            continue;
        };
        let at = evidence.observed_at(link.index);
        let frames = at.map_or(0, |at| at.received.count.max(at.sent.count));
        let is_of_most = copies.count >= FRAMES_MIN && copies.count * 5 >= frames;
        let is_of_others = CAPTURES.contains(&copies.caller.as_str()) || is_of_tunnel(link, copies);
        if is_of_most && copies.bytes_each() >= BYTES_MIN && !is_of_others {
            notes.find(copied(evidence, link, copies, frames));
        }
    }
}

/// Copies for outer headers are of cause `tunnel-headroom`.
fn is_of_tunnel(link: &Link, copies: &ObservedCopies) -> bool {
    crate::causes::tunnels::is_tunnel(link) && copies.function == "pskb_expand_head"
}

fn copied(evidence: &Evidence, link: &Link, copies: &ObservedCopies, frames: u64) -> Finding {
    let (name, by, bytes) = (&link.name, copies.by(), copies.bytes_each());
    let found =
        finding(Severity::Medium, format!("{by} copies frames of {name}, {bytes} bytes each"))
            .seen(Confidence::Now)
            .costs(format!("{} copies for {frames} frames in the window", copies.count))
            .read(
                format!("calls of {} (observer)", copies.function),
                format!("{} by {by}, called by {}", copies.count, copies.chain[1..].join(" < ")),
            )
            .because(
                "a copied frame is read and written once more, which takes longer the longer it is",
            )
            .effect("saves a copy of each frame");
    let xdp = format!("{}ip link set {name} xdp off", evidence.prefix());
    let caller = copies.caller.as_str();
    if GENERIC_XDP.contains(&caller) {
        found.risk("without the program its work is not done").change(
            format!(
                "attach the program in native mode if the driver of {name} has it (`{}ip link set {name} xdpdrv obj \
                 FILE`); else {xdp}generic",
                evidence.prefix()
            ),
            format!("{}ip link set {name} xdpgeneric obj FILE", evidence.prefix()),
        )
    } else if copies.module.as_deref() == Some("veth") || caller.starts_with("veth_") {
        found.risk("without the program its work is not done").change(
            format!("{xdp}: the driver copies frames that have no 256 bytes of headroom for the XDP program"),
            format!("{}ip link set {name} xdp obj FILE", evidence.prefix()),
        )
    } else if matches!(caller, "validate_xmit_skb" | "skb_segment") {
        let command = format!("{}ethtool -K {name} sg", evidence.prefix());
        found.change(format!("{command} on"), format!("{command} off"))
    } else {
        found.change(
            format!(
                "none known for {by}: look it up in its source; `{}wirepath explain --flame FILE.svg` shows its time",
                evidence.prefix()
            ),
            "none: nothing is changed",
        )
    }
}
