//! The switches of the guest: for the firmware, read at boot, and for QEMU's threads on the host.

use model::{Arm, PathSwitch};

use super::loads::GuestLoad;

/// Priority of `vcpu-fifo`: any value precedes every normal thread.
pub(super) const FIFO_PRIORITY: i32 = 10;

/// Switches of the host, unknown to the firmware.
const HOST_SWITCHES: [Switch; 2] = [Switch::VcpuSplit, Switch::VcpuFifo];

model::switches! {
    /// Switches of the guest, in the order of the ladder; those of the firmware in the order of its
    /// switch word.
    pub enum Switch {
        Quiet {
            effect: "no line per packet on the console; off: two. Counters and trace are kept in either state",
            scope: Guest,
            needs: "",
            source: "PrimeCell UART (PL011) manual: one character at a time, each waited for",
        },
        AsyncTx {
            effect: "kick and return, refuse when the ring is full; off: poll for the completion",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, 2.7.13 and 2.7.14",
        },
        LazyReap {
            effect: "completions reaped when frames arrive and before the next send; off: each in an interrupt",
            scope: Guest,
            needs: "async-tx: polling has already reaped",
            source: "virtio 1.2, 5.1.6.2",
        },
        RxTask {
            effect: "frames handled in a task that the interrupt wakes, with other interrupts allowed; off: in the interrupt",
            scope: Guest,
            needs: "",
            source: "field practice: short interrupts, work in tasks",
        },
        NoTxInterrupt {
            effect: "the device is asked not to interrupt for frames sent, unless the ring is full",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, 2.7.7, VIRTQ_AVAIL_F_NO_INTERRUPT",
        },
        EventIdx {
            effect: "interrupts and doorbells only at the index named by the other side",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, 2.7.10, VIRTIO_F_EVENT_IDX",
        },
        IcmpInIrq {
            effect: "ICMP echoes answered in place, in the interrupt",
            scope: Guest,
            needs: "a load of ICMP echoes",
            source: "field practice; the source tried it and rejected it",
        },
        VcpuSplit {
            effect: "QEMU's main thread and its vCPU pinned to a CPU each; off: placed by the scheduler",
            scope: Host,
            needs: "two CPUs",
            source: "sched_setaffinity(2)",
        },
        VcpuFifo {
            effect: "the vCPU's thread has real-time priority 10",
            scope: Host,
            needs: "CAP_SYS_NICE",
            source: "sched(7), SCHED_FIFO",
        },
        Packed {
            effect: "one ring for both directions, used elements overwrite descriptors; off: split ring",
            scope: Guest,
            needs: "QEMU 4.2 or later, which these arms start with packed=on",
            source: "virtio 1.2, 2.8, VIRTIO_F_RING_PACKED",
        },
        Indirect {
            effect: "a frame is sent as a table of header and frame; off: one descriptor for both",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, 2.7.5.3, VIRTIO_F_INDIRECT_DESC",
        },
        Batching {
            effect: "one doorbell for the answers and one refill per pass of up to 16 frames; off: per frame",
            scope: Guest,
            needs: "async-tx: polling has already kicked; several frames at once, as under flood",
            source: "virtio 1.2, 2.7.13: a driver may make a batch available at once",
        },
        PollMode {
            effect: "the idle CPU polls the receive ring; no receive interrupts, no sleep",
            scope: Guest,
            needs: "a CPU to spare: the vCPU never sleeps",
            source: "field practice: poll-mode drivers; virtio 1.2, 2.7.7",
        },
        RxBudget {
            effect: "an interrupt handles 16 frames at most, the receive task the rest; off: until the ring is empty",
            scope: Guest,
            needs: "a load of many frames at once, as flood; frames handled in the interrupt",
            source: "field practice: Linux's NAPI, a weight for each poll",
        },
        Ring64 {
            effect: "rings of 64 descriptors; off: 256",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, 4.2.2, QueueNum: the driver may use less than QueueNumMax",
        },
        NoTrace {
            effect: "no trace, and no clock read for it; off: several entries a packet, with time stamps",
            scope: Guest,
            needs: "",
            source: "field practice; under TCG reading the counter takes QEMU's big lock",
        },
        NoCounters {
            effect: "packets, interrupts and wake-ups are not counted; off: up to 14 additions for an echo. Errors are counted in either state",
            scope: Guest,
            needs: "",
            source: "field practice: counters instead of prints; an atomic addition each",
        },
    }
}

/// Names of the firmware's switches in an arm, comma-separated, for its command line.
pub(super) fn firmware_switches(arm: &Arm) -> String {
    let own = Switch::ALL.iter().filter(|switch| !HOST_SWITCHES.contains(switch));
    let names: Vec<&str> = own.filter(|it| arm.has(**it)).map(|switch| switch.id()).collect();
    names.join(",")
}

/// Switches that can act under a load, in the order of the ladder's rungs.
pub(super) fn ladder(load: GuestLoad, cpu_count: usize) -> Vec<Switch> {
    let switches = Switch::ALL.iter().copied().filter(|switch| match switch {
        Switch::IcmpInIrq => !matches!(load, GuestLoad::UdpPing | GuestLoad::Flood),
        Switch::VcpuSplit => cpu_count >= 2,
        // Several frames at once.
        Switch::Batching => load == GuestLoad::Flood,
        // Frames are handled in the task, by an earlier rung.
        Switch::RxBudget => false,
        _ => true,
    });
    switches.collect()
}

/// Reason why a set of switches is contradictory; `None` if it is not.
pub(super) fn contradiction(arm: &Arm) -> Option<String> {
    if arm.has(Switch::AsyncTx) {
        return None;
    }
    let done = [
        (Switch::LazyReap, "polling reaps each completion"),
        (
            Switch::Batching,
            "each completion is polled for before the next frame, so no frame can wait for a doorbell",
        ),
    ];
    let (id, why) = done.iter().find(|(switch, _)| arm.has(*switch))?;
    Some(format!("without async-tx {why}; try async-tx+{id}"))
}

#[cfg(test)]
mod tests {
    use model::{PathLoad, SwitchScope};

    use super::*;

    #[test]
    fn a_ladder_leaves_out_what_cannot_act_and_each_rung_is_valid() {
        for load in GuestLoad::ALL.iter().copied() {
            let rungs = ladder(load, 2);
            for count in 1..=rungs.len() {
                let arm = Arm::with(rungs[..count].iter().copied());
                assert_eq!(contradiction(&arm), None, "{load} {}", arm.name);
            }
            assert_eq!(rungs.contains(&Switch::Batching), load == GuestLoad::Flood, "{load}");
        }
        assert!(ladder(GuestLoad::Ping, 2).contains(&Switch::IcmpInIrq));
        assert!(!ladder(GuestLoad::UdpPing, 2).contains(&Switch::IcmpInIrq));
        assert!(!ladder(GuestLoad::Ping, 1).contains(&Switch::VcpuSplit));
    }

    #[test]
    fn firmware_gets_only_its_own_switches_in_their_order() {
        assert_eq!(firmware_switches(&Arm::baseline()), "");
        assert_eq!(
            firmware_switches(&Arm::with([Switch::VcpuFifo, Switch::EventIdx, Switch::Quiet])),
            "quiet,event-idx"
        );
        let guest_switches = Switch::SPECS.iter().filter(|spec| spec.scope == SwitchScope::Guest);
        let guest_switches: Vec<&str> = guest_switches.map(|spec| spec.id).collect();
        assert_eq!(
            firmware_switches(&Arm::with(Switch::ALL.iter().copied())),
            guest_switches.join(",")
        );
        assert_eq!(guest_switches.len() + HOST_SWITCHES.len(), Switch::ALL.len());
    }

    #[test]
    fn switches_that_polling_makes_useless_are_refused_with_a_remedy() {
        for id in [Switch::LazyReap, Switch::Batching] {
            let why = contradiction(&Arm::with([Switch::Quiet, id])).unwrap();
            assert!(why.contains(&format!("try async-tx+{id}")), "{why}");
            assert!(contradiction(&Arm::with([Switch::AsyncTx, id])).is_none());
        }
        for id in [Switch::Packed, Switch::Indirect] {
            assert!(contradiction(&Arm::with([id])).is_none());
        }
        assert!(contradiction(&Arm::baseline()).is_none());
    }
}
