//! Switches of the monitor.

/// Maximum number of frames that `send-combining` combines.
pub const COMBINE_FRAMES: u64 = 3;
/// The same where more is asked for: as many as a guest sends in a tick, where telling takes tens of
/// microseconds.
pub const COMBINE_MORE_FRAMES: u64 = 16;
/// Longest time that a combined frame waits, in microseconds: a tick of a kernel with 1000 Hz.
pub const COMBINE_TICK_US: u64 = 1000;

/// The optimisations that are on. None is the baseline: every access to a port of the device
/// leaves the guest for this process, which does what it says at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// Writes to the address register are collected by the kernel; they are applied before the
    /// next access that depends on them.
    pub rap_in_kernel: bool,
    /// The transmit demand wakes a thread of the device instead of leaving the guest.
    pub tdmd_doorbell: bool,
    /// Frames stay in the ring until there are [`COMBINE_FRAMES`], or a tick has passed.
    pub send_combining: bool,
    /// Of those, until there are [`COMBINE_MORE_FRAMES`].
    pub combine_more: bool,
    /// The back end is asked in shared memory whether frames wait, not by poll().
    pub shared_ring: bool,
    /// The rings of that back end are AF_XDP's. The opener of the back end chooses the rings; the
    /// monitor treats both alike.
    pub xdp_ring: bool,
    /// The UMEM of those rings is guest memory: frames stay where the guest has them. The opener of the back end
    /// chooses it; for a virtio card only.
    pub guest_umem: bool,
    /// Interrupts that tell only of frames sent wait for [`MODERATE_FRAMES`](super::MODERATE_FRAMES)
    /// of them, or a tick.
    pub int_moderation: bool,
    /// The device polls the ring; the guest sends no doorbell while the device is busy.
    pub own_polling: bool,
    /// The guest masks the transmit interrupt.
    pub tx_int_mask: bool,
    /// Interrupts are raised by a pulse that needs no call to take back.
    pub irq_fd: bool,
    /// Combined frames go out at the guest's next exit to the process, whatever caused it.
    pub flush_at_exit: bool,
    /// The card is virtio-net instead of a Lance.
    pub virtio_net: bool,
    /// A virtio card offers VIRTIO_F_EVENT_IDX; a Lance has no such thing.
    pub event_idx: bool,
    /// A virtio card offers VIRTIO_F_RING_PACKED.
    pub packed_ring: bool,
}

impl Switches {
    /// Frames that go out together at most; 1 where each goes by itself.
    pub(super) fn combine_frames(&self) -> u64 {
        match (self.send_combining, self.combine_more) {
            (false, _) => 1,
            (true, false) => COMBINE_FRAMES,
            (true, true) => COMBINE_MORE_FRAMES,
        }
    }

    /// The three of the source.
    pub const SOURCE: Switches = Switches {
        rap_in_kernel: true,
        tdmd_doorbell: true,
        send_combining: true,
        shared_ring: true,
        xdp_ring: false,
        combine_more: false,
        int_moderation: false,
        own_polling: false,
        tx_int_mask: false,
        irq_fd: false,
        flush_at_exit: false,
        virtio_net: false,
        event_idx: false,
        packed_ring: false,
        guest_umem: false,
    };

    /// All of them.
    pub const ALL: Switches = Switches {
        combine_more: true,
        int_moderation: true,
        own_polling: true,
        tx_int_mask: true,
        irq_fd: true,
        xdp_ring: true,
        flush_at_exit: true,
        virtio_net: true,
        event_idx: true,
        packed_ring: true,
        guest_umem: true,
        ..Switches::SOURCE
    };
}
