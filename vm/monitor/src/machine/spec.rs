//! A guest to be run, and the result of its run.

use guest_pages::boot as boot_page;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::counters::Snapshot;
use super::switches::Switches;

/// Task of the guest; see [`guest_pages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestTask {
    pub mode: guest_pages::Mode,
    /// Bytes of a frame, or of a write.
    pub size_bytes: u64,
    /// Frames of the measured part; 0 for as many as there is time for.
    pub count: u64,
    /// Microseconds after which the measured part ends; 0 without end.
    pub duration_us: u64,
    /// Frames before it.
    pub warm_up: u64,
    /// The guest digests its stream.
    pub digest: bool,
    /// A virtio-net card has the driver of crate `virtio-drivers`.
    pub foreign_driver: bool,
    /// Base-2 logarithm of the transmit ring's length.
    pub tx_ring_log2: u64,
    /// Base-2 logarithm of the receive ring's length.
    pub rx_ring_log2: u64,
    /// MAC address of the other end.
    pub peer_mac: [u8; 6],
    /// Address of the guest.
    pub ip: std::net::Ipv4Addr,
    /// Address of the other end.
    pub peer_ip: std::net::Ipv4Addr,
}

impl GuestTask {
    /// Raw frames of `size_bytes`: `count` of them, after a tenth as many.
    pub fn send(size_bytes: u64, count: u64) -> Self {
        GuestTask {
            mode: guest_pages::Mode::Send,
            size_bytes,
            count,
            duration_us: 0,
            warm_up: count / 10,
            digest: false,
            foreign_driver: false,
            tx_ring_log2: 4,
            rx_ring_log2: 5,
            peer_mac: [0xff; 6],
            ip: std::net::Ipv4Addr::UNSPECIFIED,
            peer_ip: std::net::Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The boot page for it, but for what only a machine knows: clock and addresses.
    pub fn words(&self, switches: &Switches) -> [u64; boot_page::LEN] {
        let mut words = [0; boot_page::LEN];
        words[boot_page::MAGIC] = guest_pages::MAGIC;
        words[boot_page::MODE] = self.mode.to_word();
        words[boot_page::SIZE_BYTES] = self.size_bytes;
        words[boot_page::COUNT] = self.count;
        words[boot_page::DURATION_US] = self.duration_us;
        words[boot_page::WARM_UP] = self.warm_up;
        for (is_on, bit) in [
            (switches.tx_int_mask, guest_pages::driver::MASK_TX_INTERRUPT),
            (switches.own_polling, guest_pages::driver::DEVICE_POLLS),
            (self.digest, guest_pages::driver::DIGEST),
            (self.foreign_driver, guest_pages::driver::FOREIGN),
        ] {
            words[boot_page::DRIVER] |= if is_on { bit } else { 0 };
        }
        words[boot_page::TX_RING_LOG2] = self.tx_ring_log2;
        words[boot_page::RX_RING_LOG2] = self.rx_ring_log2;
        let mac = self.peer_mac;
        words[boot_page::PEER_MAC] =
            u64::from_le_bytes([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], 0, 0]);
        words[boot_page::IP] = u32::from(self.ip).into();
        words[boot_page::PEER_IP] = u32::from(self.peer_ip).into();
        words
    }
}

/// A guest to be run.
pub struct Spec<'a> {
    /// Its image, a static ELF file.
    pub image: &'a [u8],
    /// Memory in bytes.
    pub ram_bytes: usize,
    /// MAC address of its device.
    pub mac: [u8; 6],
    pub task: GuestTask,
    pub switches: Switches,
}

/// How a guest ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestEnd {
    /// It said that all is done.
    Done,
    /// It was stopped.
    Stopped,
    /// It said that it failed: source line of a panic, vector and address of an exception.
    GuestFailed {
        /// Line, or 0.
        line: u64,
        /// Vector.
        exception: u64,
        /// Instruction pointer.
        at: u64,
    },
    /// A triple fault.
    Shutdown,
    /// KVM could not go on.
    Stuck {
        /// KVM's name for it.
        what: String,
        /// Its detail.
        detail: u64,
        /// Instruction pointer.
        at: u64,
    },
}

/// Result of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestOutcome {
    /// How it ended.
    pub end: GuestEnd,
    /// The part that the guest declared measured.
    pub measured: Option<Snapshot>,
    /// The whole run.
    pub total: Snapshot,
    /// How it left the device.
    pub condition: Condition,
}
