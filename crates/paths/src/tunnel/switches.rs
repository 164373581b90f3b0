//! The switches of the tunnel, and the forwarder that a set of them makes.

use model::{Arm, Scope, Switch};

use super::forward::Tuning;
use super::order::BATCH_FRAMES_MAX;

/// Empty chains at each of two hooks while `no-netfilter` is off.
pub(super) const EMPTY_CHAINS: u32 = 3;
/// Workers of `parallel` at most.
const WORKERS_MAX: usize = 4;

/// In the order of the ladder: first the kernel's forwarder put right, then one of our own.
pub static SWITCHES: [Switch; 13] = [
    Switch {
        id: "rps",
        effect: "received frames are forwarded on another CPU than the one that takes them in",
        scope: Scope::Interface,
        needs: "two CPUs; no effect under bypass, which takes frames before it",
        source: "kernel documentation, networking/scaling.rst, RPS",
    },
    Switch {
        id: "flow-hash",
        effect: "the NIC's driver gives each flow a hash of its own; off, all flows have the same",
        scope: Scope::Interface,
        needs: "a driver that gives hashes: a veth has none, and the stack hashes for itself",
        source: "kernel, skb_set_hash() of linux/skbuff.h",
    },
    Switch {
        id: "multi-tx-queue",
        effect: "the tunnel device has a transmit queue for each CPU",
        scope: Scope::Interface,
        needs: "",
        source: "ip-link(8), numtxqueues",
    },
    Switch {
        id: "headroom",
        effect: "the tunnel is bound to its interface and so knows the headroom that frames need",
        scope: Scope::Interface,
        needs: "",
        source: "kernel, needed_headroom of linux/netdevice.h",
    },
    Switch {
        id: "no-netfilter",
        effect: "no netfilter hook in the way; off, three empty chains each at output and postrouting",
        scope: Scope::Host,
        needs: "nftables in the kernel; no effect under bypass",
        source: "nft(8), hooks",
    },
    Switch {
        id: "no-capture",
        effect: "no packet socket hears the interfaces; off, one on each whose filter matches nothing",
        scope: Scope::Host,
        needs: "no effect under bypass",
        source: "packet(7), ETH_P_ALL",
    },
    Switch {
        id: "aligned-buffers",
        effect: "frames never cross 4 KiB, so that a DMA erratum forces no copy",
        scope: Scope::Interface,
        needs: "a NIC with that erratum",
        source: "kernel documentation, core-api/dma-api.rst, bounce buffers",
    },
    Switch {
        id: "bypass",
        effect: "our forwarder over AF_XDP instead of the kernel's bridge and VXLAN device",
        scope: Scope::Process,
        needs: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; Linux 5.9",
        source: "kernel documentation, networking/af_xdp.rst",
    },
    Switch {
        id: "batch",
        effect: "64 frames a turn; off, one",
        scope: Scope::Process,
        needs: "bypass",
        source: "kernel documentation, networking/af_xdp.rst",
    },
    Switch {
        id: "prepend",
        effect: "outer headers go into the headroom; off, the frame is copied into another first",
        scope: Scope::Process,
        needs: "bypass",
        source: "XDP_PACKET_HEADROOM of linux/bpf.h",
    },
    Switch {
        id: "parallel",
        effect: "as many workers as CPUs, up to four, for the one flow",
        scope: Scope::Process,
        needs: "bypass, and two CPUs",
        source: "RFC 4737 for what it does to the order",
    },
    Switch {
        id: "ordered",
        effect: "frames leave in the order of arrival; off, each batch as soon as it is done",
        scope: Scope::Process,
        needs: "bypass and parallel, without which nothing gets out of order",
        source: "RFC 4737 section 3.3",
    },
    Switch {
        id: "qos",
        effect: "behind the order a shaper (10 Gbit/s) and two classes by strict priority with tail drop",
        scope: Scope::Process,
        needs: "bypass",
        source: "RFC 2475 section 2.3.3",
    },
];

/// Those of our own forwarder.
pub(super) const OWN: [&str; 5] = ["batch", "prepend", "parallel", "ordered", "qos"];

/// How our forwarder works under an arm's switches; read once, when a trial begins.
pub(super) fn tuning_of(arm: &Arm) -> Tuning {
    Tuning {
        batch_frames: if arm.has("batch") { BATCH_FRAMES_MAX } else { 1 },
        is_ordered: arm.has("ordered"),
        prepends: arm.has("prepend"),
        ..Tuning::default()
    }
}

/// How many workers an arm has.
pub(super) fn workers_of(arm: &Arm, cpus: usize) -> usize {
    if arm.has("parallel") { cpus.clamp(1, WORKERS_MAX) } else { 1 }
}

/// Why an arm says nothing under a load that is work inside our own forwarder, if so, and what to
/// ask for instead. `bypass` beside switches of that forwarder may be said again.
pub(super) fn misplaced(arm: &Arm, load: &str) -> Option<String> {
    let ids = arm.switches.iter().map(String::as_str);
    let (own, others): (Vec<_>, Vec<_>) = ids.partition(|id| OWN.contains(id));
    let is_said_again = others == ["bypass"] && !own.is_empty();
    let other = others.iter().find(|id| **id != "bypass").or(others.first())?;
    let instead = match own.is_empty() {
        true => format!("switches that do: {}", OWN.join(", ")),
        false => own.join("+"),
    };
    (!is_said_again).then(|| {
        format!(
            "under load {load} every arm, the baseline too, is our own forwarder, and {other} \
             changes nothing; take {instead}; for a second worker give --arms \
             batch+prepend,batch+prepend+parallel+ordered"
        )
    })
}

/// Why a set of switches makes no sense, if it does not.
pub(super) fn contradiction(arm: &Arm) -> Option<String> {
    let without_bypass = OWN.into_iter().find(|id| arm.has(id) && !arm.has("bypass"));
    if let Some(id) = without_bypass {
        return Some(format!(
            "{id} is a property of our own forwarder and means nothing without bypass; try \
             bypass+{id}"
        ));
    }
    (arm.has("ordered") && !arm.has("parallel")).then(|| {
        "one worker keeps the order whatever it does; try bypass+parallel+ordered".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_of_our_forwarder_changes_it() {
        let base = tuning_of(&Arm::of(["bypass"]));
        assert_eq!((base.batch_frames, base.is_ordered, base.prepends), (1, false, false));
        for id in ["batch", "prepend", "ordered"] {
            assert_ne!(tuning_of(&Arm::of(["bypass", id])), base, "{id}");
        }
        assert_eq!(workers_of(&Arm::of(["bypass"]), 8), 1);
        assert_eq!(workers_of(&Arm::of(["bypass", "parallel"]), 8), 4);
        assert_eq!(workers_of(&Arm::of(["bypass", "parallel"]), 2), 2);
    }

    #[test]
    fn switches_of_our_forwarder_without_it_are_refused_with_the_way_to_ask() {
        for id in OWN {
            assert!(contradiction(&Arm::of([id])).unwrap().contains("bypass+"), "{id}");
        }
        assert!(contradiction(&Arm::of(["bypass", "ordered"])).is_some());
        assert!(contradiction(&Arm::of(["bypass", "parallel", "ordered"])).is_none());
        assert!(contradiction(&Arm::of(["rps", "no-capture"])).is_none());
    }

    #[test]
    fn under_a_load_of_extra_work_arms_that_change_nothing_are_refused_with_what_to_take() {
        let refusal = |ids: &[&'static str]| misplaced(&Arm::of(ids.to_vec()), "work-35");
        for fine in [&[][..], &["batch"], &["bypass", "batch"], &["batch", "parallel", "ordered"]] {
            assert_eq!(refusal(fine), None, "{fine:?}");
        }
        assert!(refusal(&["bypass"]).unwrap().contains("take switches that do: batch, prepend"));
        let said = refusal(&["rps", "bypass", "batch", "prepend"]).unwrap();
        assert!(said.contains("rps changes nothing; take batch+prepend;"), "{said}");
    }

    #[test]
    fn every_prefix_of_the_ladder_makes_sense() {
        for n in 0..=SWITCHES.len() {
            let ids: Vec<_> = SWITCHES[..n].iter().map(|s| s.id).collect();
            assert_eq!(contradiction(&Arm::of(ids.clone())), None, "{ids:?}");
        }
    }
}
