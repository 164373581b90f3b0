//! An AF_XDP socket whose UMEM is the memory of a virtual machine: the kernel reads and writes frames
//! where the guest has them, and this process copies none.
//!
//! Chunks are unaligned (XDP_UMEM_UNALIGNED_CHUNK_FLAG), because a virtio header of 12 bytes comes before each
//! frame. Addresses are guest physical addresses of a frame's first byte.
//!
//! Source: kernel documentation, networking/af_xdp.rst, "XDP_UMEM_REG"; net/xdp/xsk_queue.h.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::xdp_desc;

use super::bind::{Bind, bind_queue};
use super::ring::{Consumer, Producer};
use super::rings::{Registration, Rings, raise_tx_budget};
use super::{XskError, XskStatistics, statistics};
use crate::kvm::GuestRam;
use crate::socket;

/// Longest frame: Ethernet header and 1,500 bytes.
pub const GUEST_FRAME_BYTES_MAX: u32 = 1514;
/// Smallest chunk that the kernel accepts.
const CHUNK_BYTES: u32 = 2048;
/// Bytes that the kernel reserves in each chunk (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM_BYTES: u32 = 256;
/// Bytes of a chunk in front of a received frame. With these the room for a frame is exactly the longest one, so
/// the kernel writes nothing behind it.
const FRONT_BYTES: u32 = CHUNK_BYTES - GUEST_FRAME_BYTES_MAX;
/// Bit from which on an address has the offset into its chunk.
const OFFSET_SHIFT: u32 = 48;
/// Address that the kernel skips in a fill ring: beyond every UMEM.
const CANCELLED: u64 = u64::MAX;
/// Reads of the ring while a frame that was being received at a cancellation arrives.
const LATE_LOOKS: u32 = 100_000;

/// A socket on queue 0 over guest memory.
///
/// The driver of the queue must copy: one with zero-copy takes frames of the fill ring in advance, and those
/// could not be [cancelled](Self::rx_cancel).
#[derive(Debug)]
pub struct GuestSocket {
    // Field order is drop order, as in `Socket`: the memory is released last.
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<xdp_desc>,
    tx: Producer<xdp_desc>,
    fd: OwnedFd,
    ram: GuestRam,
    /// Frames with the kernel, to receive into.
    receiving_count: u32,
    /// Frames with the kernel, to be sent.
    sending_count: u32,
    ring_entries: u32,
    /// System calls that notified the kernel to send.
    pub wakeup_count: u64,
}

impl GuestSocket {
    /// Registers all of `ram` and binds; `bind` must ask for copy mode.
    ///
    /// Errors: [`XskError::Memory`] where the kernel refuses the registration: without CAP_IPC_LOCK,
    /// above the limit of locked memory, or before Linux 5.4, which has no unaligned chunks.
    pub fn open(ram: GuestRam, bind: &Bind) -> Result<Self, XskError> {
        let umem = Registration {
            address: ram.host_address(),
            len_bytes: ram.len_bytes() as u64,
            chunk_bytes: CHUNK_BYTES,
            headroom_bytes: FRONT_BYTES - KERNEL_HEADROOM_BYTES,
            flags: libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        };
        let Rings { fill, completion, rx, tx, fd } = Rings::open(&umem, bind, true)?;
        bind_queue(fd.as_fd(), bind, None)?;
        raise_tx_budget(fd.as_fd(), bind);
        Ok(GuestSocket {
            fill,
            completion,
            rx,
            tx,
            fd,
            ram,
            receiving_count: 0,
            sending_count: 0,
            ring_entries: bind.ring_entries,
            wakeup_count: 0,
        })
    }

    fn is_ram(&self, at: u32, len_bytes: u32) -> bool {
        u64::from(at) + u64::from(len_bytes) <= self.ram.len_bytes() as u64
    }

    /// True if guest memory at `at` has room for the longest frame, and in front of it for what the kernel reserves.
    pub fn is_place(&self, at: u32) -> bool {
        at >= FRONT_BYTES && self.is_ram(at, GUEST_FRAME_BYTES_MAX)
    }

    /// Posts a [place](Self::is_place) to receive a frame into; false if it is none or the ring is full.
    pub fn rx_post(&mut self, at: u32) -> bool {
        // All that is posted must fit into the RX ring: frames that do not are kept by the kernel.
        if !self.is_place(at) || self.receiving_count >= self.ring_entries {
            return false;
        }
        if self.fill.push(u64::from(at - FRONT_BYTES)).is_err() {
            return false;
        }
        self.fill.publish();
        self.receiving_count += 1;
        true
    }

    /// Takes an arrived frame: address and length.
    pub fn rx_take(&mut self) -> Option<(u32, u32)> {
        let desc = self.rx.take()?;
        self.rx.release();
        self.receiving_count = self.receiving_count.saturating_sub(1);
        let base = desc.addr & ((1 << OFFSET_SHIFT) - 1);
        let at = u32::try_from(base.checked_add(desc.addr >> OFFSET_SHIFT)?).ok()?;
        (desc.len <= GUEST_FRAME_BYTES_MAX && self.is_ram(at, desc.len)).then_some((at, desc.len))
    }

    /// Withdraws all places to receive into, and drops what has arrived: after this the kernel writes guest
    /// memory no more.
    pub fn rx_cancel(&mut self) {
        let cancelled_count = self.fill.overwrite(CANCELLED);
        self.receiving_count = self.receiving_count.saturating_sub(cancelled_count);
        for _ in 0..LATE_LOOKS {
            while self.receiving_count > 0 && self.rx.ready(1) > 0 {
                let _ = self.rx_take();
            }
            if self.receiving_count == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        self.receiving_count = 0;
    }

    /// True for a range of guest memory that is no longer than a chunk: the kernel skips others without a word.
    pub fn is_sendable(&self, at: u32, len_bytes: u32) -> bool {
        (1..=CHUNK_BYTES).contains(&len_bytes) && self.is_ram(at, len_bytes)
    }

    /// Queues a frame in guest memory, which [`Self::kick`] sends; false if the ring is full or the range is no
    /// guest memory.
    pub fn tx_post(&mut self, at: u32, len_bytes: u32) -> bool {
        // Each must fit into the completion ring.
        if !self.is_sendable(at, len_bytes) || self.sending_count >= self.ring_entries {
            return false;
        }
        let desc = xdp_desc { addr: at.into(), len: len_bytes, options: 0 };
        if self.tx.push(desc).is_err() {
            return false;
        }
        self.sending_count += 1;
        true
    }

    /// Takes the address of a frame that the kernel does not read any more.
    pub fn tx_reap(&mut self) -> Option<u32> {
        let at = self.completion.take()?;
        self.completion.release();
        self.sending_count = self.sending_count.saturating_sub(1);
        u32::try_from(at).ok()
    }

    /// Shows the kernel what was queued, and has it send. Frames that it leaves go with a later call.
    ///
    /// Errors: the device is gone.
    pub fn kick(&mut self) -> io::Result<()> {
        self.tx.publish();
        // In copy mode one call may send a part only.
        for _ in 0..self.ring_entries / 32 {
            if self.tx.outstanding() == 0 {
                break;
            }
            self.wakeup_count += 1;
            if !socket::wake_sender(self.fd.as_fd())? {
                break;
            }
        }
        Ok(())
    }

    /// Frames that were queued and not reaped.
    pub fn sending_count(&self) -> u32 {
        self.sending_count
    }

    /// True if a frame has arrived.
    pub fn rx_ready(&mut self) -> bool {
        self.rx.ready(1) > 0
    }

    pub fn statistics(&self) -> io::Result<XskStatistics> {
        statistics(self.fd.as_fd())
    }
}

impl AsFd for GuestSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
