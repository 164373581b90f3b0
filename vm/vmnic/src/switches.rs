//! Switches of the path.

model::switches! {
    /// Switches of the virtual NIC, in the order of the ladder.
    pub enum Switch {
        RapInKernel {
            effect: "writes of the address register are recorded by the kernel instead of leaving the guest",
            scope: Guest,
            needs: "",
            source: "kernel documentation, virt/kvm/api.rst, KVM_CAP_COALESCED_PIO",
        },
        TdmdDoorbell {
            effect: "the transmit demand wakes a thread of the device instead of leaving the guest",
            scope: Guest,
            needs: "",
            source: "kernel documentation, virt/kvm/api.rst, KVM_IOEVENTFD",
        },
        SendCombining {
            effect: "frames stay in the ring until there are three, or a millisecond has passed",
            scope: Process,
            needs: "",
            source: "USENIX 2001, a hosted virtual machine monitor's I/O devices",
        },
        SharedRing {
            effect: "frames go through rings in shared memory (TPACKET_V3 on a veth); off: a TAP, a write a frame, poll() before each read",
            scope: Process,
            needs: "CAP_NET_RAW",
            source: "kernel documentation, networking/packet_mmap.rst",
        },
        CombineMore {
            effect: "sixteen frames go together instead of three, still within a millisecond; brings send-combining with it",
            scope: Process,
            needs: "",
            source: "send-combining with another limit: three was right for a world switch of microseconds",
        },
        IntModeration {
            effect: "an interrupt for sent frames alone waits for sixteen of them, or a millisecond",
            scope: Process,
            needs: "",
            source: "Intel 8254x software developer's manual, Interrupt Throttling Register",
        },
        OwnPolling {
            effect: "the device polls its ring; the guest rings the doorbell only after a pause",
            scope: Guest,
            needs: "a CPU to itself while frames flow",
            source: "AMD publication 19436, transmit polling",
        },
        TxIntMask {
            effect: "the guest masks the transmit interrupt and takes descriptors back when it sends",
            scope: Guest,
            needs: "",
            source: "AMD publication 19436, CSR3 TINTM",
        },
        IrqFd {
            effect: "interrupts are raised by a pulse, which needs no second call to lower the line",
            scope: Guest,
            needs: "",
            source: "kernel documentation, virt/kvm/api.rst, KVM_IRQFD",
        },
        XdpRing {
            effect: "the shared rings are AF_XDP's instead of TPACKET_V3's; brings shared-ring with it",
            scope: Process,
            needs: "CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW",
            source: "kernel documentation, networking/af_xdp.rst",
        },
        FlushAtExit {
            effect: "combined frames also go out when the guest exits to the process for another cause; brings send-combining with it",
            scope: Process,
            needs: "",
            source: "USENIX 2001, a hosted virtual machine monitor's I/O devices: sent at world switches that happen anyway",
        },
        VirtioNet {
            effect: "the card is virtio-net in memory instead of a Lance in ports, with its own driver",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, sections 2.7, 4.2 and 5.1",
        },
        EventIdx {
            effect: "card and driver say from which buffer on they want to be notified (VIRTIO_F_EVENT_IDX); off: by a flag",
            scope: Guest,
            needs: "the virtio-net card",
            source: "virtio 1.2, section 2.7.7",
        },
        PackedRing {
            effect: "one ring, in which the card writes its answer over the descriptors, instead of three areas",
            scope: Guest,
            needs: "",
            source: "virtio 1.2, section 2.8, VIRTIO_F_RING_PACKED",
        },
        GuestUmem {
            effect: "guest memory is the UMEM of AF_XDP rings, so the monitor copies no frame; brings xdp-ring with it",
            scope: Process,
            needs: "CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN and CAP_NET_RAW",
            source: "kernel documentation, networking/af_xdp.rst, XDP_UMEM_UNALIGNED_CHUNK_FLAG",
        },
    }
}

/// The monitor's switches that an arm has on.
#[cfg(target_arch = "x86_64")]
pub(super) fn monitor_switches(arm: &model::Arm) -> vmm::Switches {
    vmm::Switches {
        rap_in_kernel: arm.has(Switch::RapInKernel),
        tdmd_doorbell: arm.has(Switch::TdmdDoorbell),
        send_combining: [Switch::SendCombining, Switch::CombineMore, Switch::FlushAtExit]
            .iter()
            .any(|switch| arm.has(*switch)),
        combine_more: arm.has(Switch::CombineMore),
        shared_ring: [Switch::SharedRing, Switch::XdpRing, Switch::GuestUmem]
            .iter()
            .any(|switch| arm.has(*switch)),
        xdp_ring: arm.has(Switch::XdpRing) || arm.has(Switch::GuestUmem),
        guest_umem: arm.has(Switch::GuestUmem),
        int_moderation: arm.has(Switch::IntModeration),
        own_polling: arm.has(Switch::OwnPolling),
        tx_int_mask: arm.has(Switch::TxIntMask),
        irq_fd: arm.has(Switch::IrqFd),
        flush_at_exit: arm.has(Switch::FlushAtExit),
        virtio_net: arm.has(Switch::VirtioNet) || is_foreign(arm),
        event_idx: arm.has(Switch::EventIdx),
        packed_ring: arm.has(Switch::PackedRing),
    }
}

/// Peer that is our monitor's virtio-net card with the driver of the crate of that name.
pub(crate) const FOREIGN: &str = "virtio-drivers";

/// True for an arm of [`FOREIGN`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_foreign(arm: &model::Arm) -> bool {
    arm.kind == model::ArmKind::Peer && arm.name == FOREIGN
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use model::Arm;

    use super::*;

    #[test]
    fn each_switch_of_the_path_is_one_of_the_monitor() {
        let mut seen = vec![monitor_switches(&Arm::baseline())];
        assert_eq!(seen[0], vmm::Switches::default());
        for switch in Switch::ALL.iter().copied() {
            let one = monitor_switches(&Arm::with([switch]));
            assert!(!seen.contains(&one), "{switch} changes nothing of its own");
            seen.push(one);
        }
        let all = Arm::with(Switch::ALL.iter().copied());
        assert_eq!(monitor_switches(&all), vmm::Switches::ALL);
    }
}
