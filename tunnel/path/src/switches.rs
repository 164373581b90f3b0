//! The switches of the tunnel, and the forwarder that a set of them makes.

use model::{Arm, PathSwitch, SwitchSet};

use forward::forwarder::Tuning;
use forward::order::BATCH_FRAMES_MAX;

use crate::path::TunnelLoad;
use crate::topology::{Extra, Limit, Offloads};
use crate::traffic::Traffic;

/// Workers of `parallel` at most.
const WORKERS_MAX: usize = 4;

model::switches! {
    /// Switches of the tunnel, in the order of the ladder.
    pub enum Switch {
        Rps {
            effect: "received frames are forwarded on another CPU than the one that takes them in",
            scope: Interface,
            needs: "two CPUs; no effect under bypass, which takes frames before it",
            source: "kernel documentation, networking/scaling.rst, RPS",
        },
        NoNetfilter {
            effect: "no netfilter hook in the way, also of bridged packets; off, three empty chains each at output and postrouting",
            scope: Host,
            needs: "nftables in the kernel; no effect under bypass",
            source: "nft(8), hooks",
        },
        NoCapture {
            effect: "no packet socket hears the interfaces; off, one on each whose filter matches nothing",
            scope: Host,
            needs: "no effect under bypass",
            source: "packet(7), ETH_P_ALL",
        },
        Bypass {
            effect: "our forwarder over AF_XDP instead of the kernel's bridge and VXLAN device",
            scope: Process,
            needs: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; Linux 5.9",
            source: "kernel documentation, networking/af_xdp.rst",
        },
        Batch {
            effect: "64 frames a turn; off, one",
            scope: Process,
            needs: "bypass",
            source: "kernel documentation, networking/af_xdp.rst",
        },
        Prepend {
            effect: "outer headers go into the headroom; off, the frame is copied into another first",
            scope: Process,
            needs: "bypass",
            source: "XDP_PACKET_HEADROOM of linux/bpf.h",
        },
        Parallel {
            effect: "as many workers as CPUs, up to four, for the one flow",
            scope: Process,
            needs: "bypass, and two CPUs",
            source: "RFC 4737 for what it does to the order",
        },
        Ordered {
            effect: "frames leave in the order of arrival; off, each batch as soon as it is done",
            scope: Process,
            needs: "bypass and parallel, without which nothing gets out of order",
            source: "RFC 4737 section 3.3",
        },
        InKernel {
            effect: "programs at XDP (load tcp: at tcx) forward the frames of known stations; our forwarder takes the others",
            scope: Process,
            needs: "bypass; native XDP and type information of the kernel (BTF), or Linux 6.6",
            source: "kernel documentation, bpf/redirect.rst",
        },
        Gretap {
            effect: "the tunnel is GRETAP, with 38 bytes of outer headers; off, VXLAN, with 50",
            scope: Process,
            needs: "without bypass the kernel's module ip_gre; not load tcp",
            source: "RFC 2784 and RFC 1701",
        },
        Sequence {
            effect: "each packet of the tunnel has a number; off, none has",
            scope: Process,
            needs: "gretap; no effect on frames out of the tunnel; beside in-kernel the workers take every frame",
            source: "RFC 2890",
        },
        FlowHash {
            effect: "each flow has its own hash; off, every frame has the hash 1, as of a driver that sets a constant",
            scope: Interface,
            needs: "load multi-flow-hash, and rps, without which no hash chooses a CPU; no effect under bypass",
            source: "bpf-helpers(7), bpf_set_hash; kernel documentation, networking/scaling.rst, RPS",
        },
    }
}

/// Those of our own forwarder.
pub(super) const OWN: [Switch; 5] =
    [Switch::Batch, Switch::Prepend, Switch::Parallel, Switch::Ordered, Switch::InKernel];

/// How our forwarder works under an arm's switches; read once, when a trial begins.
pub(super) fn tuning(arm: &Arm) -> Tuning {
    Tuning {
        batch_frames: if arm.has(Switch::Batch) { BATCH_FRAMES_MAX } else { 1 },
        is_ordered: arm.has(Switch::Ordered),
        prepends: arm.has(Switch::Prepend),
        ..Tuning::default()
    }
}

/// Switches that can act under a load, in the order of the ladder's rungs.
pub(super) fn ladder(load: TunnelLoad, cpu_count: usize) -> Vec<Switch> {
    let is_own_work = !Extra::of(load).is_none();
    let is_of_sockets = Offloads::of(load) == Offloads::Default;
    let mut switches = Switch::ALL.to_vec();
    // Steering needs the hash: its rung is the next one.
    switches.retain(|switch| *switch != Switch::FlowHash);
    if Traffic::of(load).has_hash {
        switches.insert(1, Switch::FlowHash);
    }
    switches.retain(|switch| match switch {
        Switch::Rps => cpu_count >= 2 && !is_own_work,
        Switch::FlowHash => cpu_count >= 2,
        Switch::NoNetfilter | Switch::NoCapture => !is_own_work,
        Switch::Parallel | Switch::Ordered => cpu_count >= 2 && !is_of_sockets,
        // The first rung of our forwarder cannot carry what sockets leave unfinished.
        Switch::Bypass => !is_of_sockets && !is_own_work,
        Switch::Batch | Switch::Prepend => !is_of_sockets,
        Switch::InKernel => {
            !is_of_sockets && only_slow(&Arm::with([Switch::InKernel]), load).is_none()
        }
        // Another tunnel is no remedy: gretap+ladder has the same rungs in it.
        Switch::Gretap | Switch::Sequence => false,
    });
    switches
}

/// The arm with the switches that its load implies.
pub(crate) fn effective(arm: &Arm, load: TunnelLoad) -> Arm {
    let mut arm = arm.clone();
    if !Extra::of(load).is_none() {
        arm.switches.insert(Switch::Bypass);
    }
    arm
}

/// Number of workers of an arm.
pub(super) fn worker_count(arm: &Arm, cpus: usize) -> usize {
    if arm.has(Switch::Parallel) { cpus.clamp(1, WORKERS_MAX) } else { 1 }
}

/// Why an arm says nothing under a load that is work inside our own forwarder, if so, and what to
/// ask for instead. `bypass` beside switches of that forwarder may be said again.
pub(super) fn misplaced(arm: &Arm, load: TunnelLoad) -> Option<String> {
    let on = Switch::ALL.iter().copied().filter(|switch| arm.has(*switch));
    let (own, others): (Vec<Switch>, Vec<Switch>) = on.partition(|switch| {
        OWN.contains(switch) || matches!(switch, Switch::Gretap | Switch::Sequence)
    });
    let is_said_again = others == [Switch::Bypass] && !own.is_empty();
    let other = others.iter().find(|switch| **switch != Switch::Bypass).or(others.first())?;
    let instead = if own.is_empty() {
        format!("switches that do: {}", OWN.map(Switch::id).join(", "))
    } else {
        own.into_iter().collect::<SwitchSet>().joined()
    };
    (!is_said_again).then(|| {
        format!(
            "under load {load} every arm, the baseline too, is our own forwarder, and {other} \
             changes nothing; take {instead}; for a second worker give --arms \
             batch+prepend,batch+prepend+parallel+ordered"
        )
    })
}

/// Why an arm says nothing under a load whose frames have no hash of a driver, if so.
pub(super) fn without_hash(arm: &Arm, load: TunnelLoad) -> Option<String> {
    (arm.has(Switch::FlowHash) && !Traffic::of(load).has_hash).then(|| {
        format!("frames of load {load} have no hash of a driver; take load multi-flow-hash")
    })
}

/// Why the fast path does nothing under a load, if so.
pub(super) fn only_slow(arm: &Arm, load: TunnelLoad) -> Option<String> {
    let extra = Extra::of(load);
    let is_slow = extra.work_ns > 0 || extra.limit == Some(Limit::Shaper);
    (arm.has(Switch::InKernel) && is_slow).then(|| {
        format!(
            "load {load} is work of the AF_XDP forwarder, which in-kernel leaves every frame to; take \
             load flood or police-50"
        )
    })
}

/// Why a set of switches makes no sense, if it does not.
pub(super) fn contradiction(arm: &Arm) -> Option<String> {
    let without_bypass = OWN.into_iter().find(|id| arm.has(*id) && !arm.has(Switch::Bypass));
    if let Some(id) = without_bypass {
        return Some(format!(
            "{id} is a property of our own forwarder and means nothing without bypass; try \
             bypass+{id}"
        ));
    }
    if arm.has(Switch::Sequence) && !arm.has(Switch::Gretap) {
        return Some("VXLAN has no sequence numbers; try gretap+sequence".to_owned());
    }
    (arm.has(Switch::Ordered) && !arm.has(Switch::Parallel)).then(|| {
        "one worker keeps the order whatever it does; try bypass+parallel+ordered".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use model::PathLoad;

    use super::*;

    #[test]
    fn each_switch_of_our_forwarder_changes_it() {
        let base = tuning(&Arm::with([Switch::Bypass]));
        assert_eq!((base.batch_frames, base.is_ordered, base.prepends), (1, false, false));
        for id in [Switch::Batch, Switch::Prepend, Switch::Ordered] {
            assert_ne!(tuning(&Arm::with([Switch::Bypass, id])), base, "{id}");
        }
        assert_eq!(worker_count(&Arm::with([Switch::Bypass]), 8), 1);
        assert_eq!(worker_count(&Arm::with([Switch::Bypass, Switch::Parallel]), 8), 4);
        assert_eq!(worker_count(&Arm::with([Switch::Bypass, Switch::Parallel]), 2), 2);
    }

    #[test]
    fn switches_of_our_forwarder_without_it_are_refused_with_the_way_to_ask() {
        for id in OWN {
            assert!(contradiction(&Arm::with([id])).unwrap().contains("bypass+"), "{id}");
        }
        assert!(contradiction(&Arm::with([Switch::Bypass, Switch::Ordered])).is_some());
        let unnumbered = contradiction(&Arm::with([Switch::Sequence]));
        assert!(unnumbered.unwrap().contains("gretap+sequence"));
        assert!(contradiction(&Arm::with([Switch::Gretap, Switch::Sequence])).is_none());
        assert!(
            contradiction(&Arm::with([Switch::Bypass, Switch::Parallel, Switch::Ordered]))
                .is_none()
        );
        assert!(contradiction(&Arm::with([Switch::Rps, Switch::NoCapture])).is_none());
    }

    fn refusal(ids: &[Switch]) -> Option<String> {
        misplaced(&Arm::with(ids.to_vec()), TunnelLoad::Work35)
    }

    #[test]
    fn under_a_load_of_extra_work_arms_that_change_nothing_are_refused_with_what_to_take() {
        use Switch::{Batch, Bypass, Ordered, Parallel, Prepend, Rps};
        use Switch::{Gretap, Sequence};
        for fine in [
            &[][..],
            &[Batch],
            &[Bypass, Batch],
            &[Batch, Parallel, Ordered],
            &[Bypass, Gretap, Sequence],
        ] {
            assert_eq!(refusal(fine), None, "{fine:?}");
        }
        assert!(refusal(&[Bypass]).unwrap().contains("take switches that do: batch, prepend"));
        let said = refusal(&[Rps, Bypass, Batch, Prepend]).unwrap();
        assert!(said.contains("rps changes nothing; take batch+prepend;"), "{said}");
    }

    #[test]
    fn every_rung_of_the_ladders_makes_sense() {
        for load in TunnelLoad::ALL.iter().copied() {
            for cpu_count in [1, 2, 8] {
                let rungs = ladder(load, cpu_count);
                assert!(!rungs.is_empty(), "{load}");
                for count in 1..=rungs.len() {
                    let rung = Arm::with(rungs[..count].iter().copied());
                    let is_misplaced =
                        !Extra::of(load).is_none() && misplaced(&rung, load).is_some();
                    assert!(!is_misplaced, "{load} {}", rung.name);
                    let rung = effective(&rung, load);
                    assert_eq!(contradiction(&rung), None, "{load} {}", rung.name);
                    assert_eq!(only_slow(&rung, load), None, "{load} {}", rung.name);
                    assert_eq!(without_hash(&rung, load), None, "{load} {}", rung.name);
                }
            }
        }
        let remedies = Switch::ALL.split_last_chunk::<3>().unwrap().0;
        assert_eq!(ladder(TunnelLoad::Flood, 2), remedies);
        let of_hash = ladder(TunnelLoad::MultiFlowHash, 2);
        assert_eq!(of_hash[..3], [Switch::Rps, Switch::FlowHash, Switch::NoNetfilter]);
    }
}
