//! XDP programs where they cost more than they save.

use super::{Notes, Scene, Severity, finding};
use crate::net::AttachedMode;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    for link in scene.interfaces() {
        for attached in link.xdp.iter().filter(|attached| attached.mode == AttachedMode::Skb) {
            let command = format!("{}ip link set {}", scene.prefix(), link.name);
            notes.find(
                finding(
                    Severity::Medium,
                    format!("an XDP program runs in generic mode on {}", link.name),
                )
                .read(
                    format!("IFLA_XDP_SKB_PROG_ID of {}", link.name),
                    format!("program {} (`bpftool prog show id {0}`)", attached.program_id),
                )
                .because(
                    "the frame has a socket buffer by then, which is made linear and given \
                         headroom, by a copy if need be (bpf(2), XDP_FLAGS_SKB_MODE)",
                )
                .effect("the copy, and the program where nobody needs it, are saved")
                .risk("whoever attached it wants it: ask, or attach it in native mode")
                .change(
                    format!("{command} xdpgeneric off"),
                    "attach it again by the program that did",
                ),
            );
        }
    }
}
