//! The switches of the guest: what the firmware is told at boot, and what is done on the host.

use model::{Arm, Scope, Switch};

/// Priority of `vcpu-fifo`: any is above all that is not real-time.
pub(super) const FIFO_PRIORITY: i32 = 10;

/// Switches of the host, which the firmware does not know.
const OF_THE_HOST: [&str; 2] = ["vcpu-split", "vcpu-fifo"];

/// Switch for which the card must be made with packed rings on offer.
pub(super) const PACKED: &str = "packed";

/// In the order of the ladder; those of the firmware in the order of its switch word.
pub static SWITCHES: [Switch; 13] = [
    Switch {
        id: "quiet",
        effect: "counters instead of two lines a packet on the console",
        scope: Scope::Guest,
        needs: "",
        source: "PrimeCell UART (PL011) manual: a character at a time, each awaited",
    },
    Switch {
        id: "async-tx",
        effect: "kick and return, refused when the ring is full; off: completion polled for",
        scope: Scope::Guest,
        needs: "",
        source: "virtio 1.2, 2.7.13 and 2.7.14",
    },
    Switch {
        id: "lazy-reap",
        effect: "completions reaped when frames arrive and before the next send; off: in an interrupt each",
        scope: Scope::Guest,
        needs: "async-tx: who polls has reaped",
        source: "virtio 1.2, 5.1.6.2",
    },
    Switch {
        id: "rx-task",
        effect: "frames handled in a task that the interrupt wakes; off: in the interrupt",
        scope: Scope::Guest,
        needs: "",
        source: "field practice: short interrupts, work in tasks",
    },
    Switch {
        id: "no-tx-interrupt",
        effect: "the device is asked not to interrupt for frames sent, unless the ring is full",
        scope: Scope::Guest,
        needs: "",
        source: "virtio 1.2, 2.7.7, VIRTQ_AVAIL_F_NO_INTERRUPT",
    },
    Switch {
        id: "event-idx",
        effect: "interrupts and doorbells only at the index that the other side named",
        scope: Scope::Guest,
        needs: "",
        source: "virtio 1.2, 2.7.10, VIRTIO_F_EVENT_IDX",
    },
    Switch {
        id: "icmp-in-irq",
        effect: "ICMP echoes turned round where they lie, in the interrupt",
        scope: Scope::Guest,
        needs: "a load of ICMP echoes",
        source: "field practice; the source tried it and kept it off",
    },
    Switch {
        id: "vcpu-split",
        effect: "QEMU's main thread and its vCPU on a CPU each; off: where the scheduler puts them",
        scope: Scope::Host,
        needs: "two CPUs",
        source: "sched_setaffinity(2)",
    },
    Switch {
        id: "vcpu-fifo",
        effect: "the vCPU's thread has real-time priority 10",
        scope: Scope::Host,
        needs: "CAP_SYS_NICE",
        source: "sched(7), SCHED_FIFO",
    },
    Switch {
        id: PACKED,
        effect: "one ring for both directions, descriptors overwritten by what was used; off: split ring",
        scope: Scope::Guest,
        needs: "QEMU 4.2 or later, which these arms start with packed=on",
        source: "virtio 1.2, 2.8, VIRTIO_F_RING_PACKED",
    },
    Switch {
        id: "indirect",
        effect: "a frame is sent as a table of its header and itself; off: one descriptor for both",
        scope: Scope::Guest,
        needs: "",
        source: "virtio 1.2, 2.7.5.3, VIRTIO_F_INDIRECT_DESC",
    },
    Switch {
        id: "batching",
        effect: "a doorbell for the answers, and one refill, a pass of up to 16 frames; off: per frame",
        scope: Scope::Guest,
        needs: "async-tx: who polls has kicked; several frames at once, as under flood",
        source: "virtio 1.2, 2.7.13: a driver may make a batch available at once",
    },
    Switch {
        id: "poll-mode",
        effect: "the idle CPU looks at the receive ring; no receive interrupts, no sleep",
        scope: Scope::Guest,
        needs: "a CPU to spare: the vCPU never sleeps",
        source: "field practice: poll-mode drivers; virtio 1.2, 2.7.7",
    },
];

/// What the firmware is told: the names of its switches, between commas.
pub(super) fn word_of(arm: &Arm) -> String {
    let of_the_guest = |id: &&str| !OF_THE_HOST.contains(id) && arm.has(id);
    let names: Vec<&str> = SWITCHES.iter().map(|switch| switch.id).filter(of_the_guest).collect();
    names.join(",")
}

/// Why a set of switches makes no sense, if it does not.
pub(super) fn contradiction(arm: &Arm) -> Option<String> {
    if arm.has("async-tx") {
        return None;
    }
    let done = [
        ("lazy-reap", "each completion is polled for and reaped by that"),
        ("batching", "each frame is polled for before the next: none can wait for a doorbell"),
    ];
    let (id, why) = done.iter().find(|(id, _)| arm.has(id))?;
    Some(format!("without async-tx {why}; try async-tx+{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmware_is_told_its_own_switches_in_their_order_and_no_other() {
        assert_eq!(word_of(&Arm::baseline()), "");
        assert_eq!(word_of(&Arm::of(["vcpu-fifo", "event-idx", "quiet"])), "quiet,event-idx");
        let all: Vec<&str> = SWITCHES.iter().map(|switch| switch.id).collect();
        let of_the_guest = SWITCHES.iter().filter(|switch| switch.scope == Scope::Guest);
        let of_the_guest: Vec<&str> = of_the_guest.map(|switch| switch.id).collect();
        assert_eq!(word_of(&Arm::of(all.clone())), of_the_guest.join(","));
        assert_eq!(of_the_guest.len() + OF_THE_HOST.len(), all.len());
        assert!(OF_THE_HOST.iter().all(|id| all.contains(id)));
    }

    #[test]
    fn what_polling_has_done_already_is_refused_with_the_way_to_ask() {
        for id in ["lazy-reap", "batching"] {
            let why = contradiction(&Arm::of(["quiet", id])).unwrap();
            assert!(why.contains(&format!("try async-tx+{id}")), "{why}");
            assert!(contradiction(&Arm::of(["async-tx", id])).is_none());
        }
        for id in ["packed", "indirect"] {
            assert!(contradiction(&Arm::of([id])).is_none());
        }
        assert!(contradiction(&Arm::baseline()).is_none());
    }
}
