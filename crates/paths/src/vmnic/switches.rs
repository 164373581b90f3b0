//! What can be switched on in the path.

use model::{Scope, Switch};

/// In the order of the ladder: the source's three in four steps, then what it did not have.
pub static SWITCHES: [Switch; 10] = [
    Switch {
        id: "rap-in-kernel",
        effect: "writes of the address register are recorded by the kernel instead of leaving the guest",
        scope: Scope::Guest,
        needs: "",
        source: "kernel documentation, virt/kvm/api.rst, KVM_CAP_COALESCED_PIO",
    },
    Switch {
        id: "tdmd-doorbell",
        effect: "the transmit demand wakes a thread of the device instead of leaving the guest",
        scope: Scope::Guest,
        needs: "",
        source: "kernel documentation, virt/kvm/api.rst, KVM_IOEVENTFD",
    },
    Switch {
        id: "send-combining",
        effect: "frames stay in the ring until there are three, or a millisecond has passed",
        scope: Scope::Process,
        needs: "",
        source: "USENIX 2001, a hosted virtual machine monitor's I/O devices",
    },
    Switch {
        id: "shared-ring",
        effect: "frames go through rings in shared memory (TPACKET_V3 on a veth); off: a TAP, a write a frame, poll() before each read",
        scope: Scope::Process,
        needs: "CAP_NET_RAW",
        source: "kernel documentation, networking/packet_mmap.rst",
    },
    Switch {
        id: "combine-more",
        effect: "sixteen frames go together instead of three, still within a millisecond; brings send-combining with it",
        scope: Scope::Process,
        needs: "",
        source: "send-combining with another limit: three was right for a world switch of microseconds",
    },
    Switch {
        id: "int-moderation",
        effect: "an interrupt that tells only of frames sent waits for sixteen of them, or a millisecond",
        scope: Scope::Process,
        needs: "",
        source: "Intel 8254x software developer's manual, Interrupt Throttling Register",
    },
    Switch {
        id: "own-polling",
        effect: "the device looks at its ring without being told, and the guest tells it only after a pause",
        scope: Scope::Guest,
        needs: "a CPU to itself while frames flow",
        source: "AMD publication 19436, transmit polling",
    },
    Switch {
        id: "tx-int-mask",
        effect: "the guest masks the transmit interrupt and takes descriptors back when it sends",
        scope: Scope::Guest,
        needs: "",
        source: "AMD publication 19436, CSR3 TINTM",
    },
    Switch {
        id: "irq-fd",
        effect: "interrupts are raised by a pulse that needs no call to take back",
        scope: Scope::Guest,
        needs: "",
        source: "kernel documentation, virt/kvm/api.rst, KVM_IRQFD",
    },
    Switch {
        id: "xdp-ring",
        effect: "the shared rings are AF_XDP's instead of TPACKET_V3's; brings shared-ring with it",
        scope: Scope::Process,
        needs: "CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW",
        source: "kernel documentation, networking/af_xdp.rst",
    },
];

/// The monitor's switches that an arm has on.
#[cfg(target_arch = "x86_64")]
pub(super) fn of_arm(arm: &model::Arm) -> super::vmm::Switches {
    super::vmm::Switches {
        rap_in_kernel: arm.has("rap-in-kernel"),
        tdmd_doorbell: arm.has("tdmd-doorbell"),
        send_combining: arm.has("send-combining") || arm.has("combine-more"),
        combine_more: arm.has("combine-more"),
        shared_ring: arm.has("shared-ring") || arm.has("xdp-ring"),
        xdp_ring: arm.has("xdp-ring"),
        int_moderation: arm.has("int-moderation"),
        own_polling: arm.has("own-polling"),
        tx_int_mask: arm.has("tx-int-mask"),
        irq_fd: arm.has("irq-fd"),
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use model::Arm;

    use super::*;
    use crate::vmnic::vmm;

    #[test]
    fn each_switch_of_the_path_is_one_of_the_monitor() {
        let mut seen = vec![of_arm(&Arm::baseline())];
        assert_eq!(seen[0], vmm::Switches::default());
        for switch in &SWITCHES {
            let one = of_arm(&Arm::of([switch.id]));
            assert!(!seen.contains(&one), "{} changes nothing of its own", switch.id);
            seen.push(one);
        }
        let all = Arm::of(SWITCHES.iter().map(|switch| switch.id));
        assert_eq!(of_arm(&all), vmm::Switches::ALL);
    }
}
