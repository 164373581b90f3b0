//! A socket whose UMEM is memory of the caller, such as that of a virtual machine: the kernel reads and
//! writes frames where the caller has them, and nothing is copied on the way.
//!
//! Chunks are unaligned (XDP_UMEM_UNALIGNED_CHUNK_FLAG), because frames lie anywhere, for instance each behind
//! a header of 12 bytes. Addresses are offsets of a frame's first byte into the memory.
//!
//! Source: kernel documentation, networking/af_xdp.rst, "XDP_UMEM_REG"; net/xdp/xsk_queue.h.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::xdp_desc;

use crate::bind::{Bind, bind_queue, system};
use crate::os;
use crate::ring::{Consumer, Producer};
use crate::rings::{Registration, Rings, raise_tx_budget};
use crate::{XskError, XskStatistics, statistics};

/// Memory that the kernel may read frames from and write frames into.
///
/// # Safety
/// From the first call on, and until the value is dropped, `address` and `len_bytes` are always the same, and
/// that many bytes from the address on are mapped, readable and writable. The address is a multiple of the
/// page size. The kernel writes to places that were posted to receive into at any time, so that no reference
/// to them may exist meanwhile: they are read by raw pointers, volatile or atomic.
pub unsafe trait ExternalMemory {
    /// First byte.
    fn address(&self) -> *mut u8;

    /// Length in bytes.
    fn len_bytes(&self) -> usize;
}

/// Smallest chunk that the kernel accepts, and the next.
const CHUNK_BYTES: [u32; 2] = [2048, 4096];
/// Bytes that the kernel reserves in each chunk (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM_BYTES: u32 = 256;
/// Bit from which on an address has the offset into its chunk.
const OFFSET_SHIFT: u32 = 48;
/// Address that the kernel skips in a fill ring: beyond every UMEM.
const CANCELLED: u64 = u64::MAX;
/// Reads of the ring while a frame that was being received at a cancellation arrives.
const LATE_LOOKS: u32 = 100_000;

/// A socket over memory of the caller, which owns all frames.
///
/// The driver of the queue must copy: one with zero-copy takes frames of the fill ring in advance, and those
/// could not be [cancelled](Self::rx_cancel).
#[derive(Debug)]
pub struct ExternalSocket<M: ExternalMemory> {
    // Field order is drop order, as in `Socket`: the memory is released last.
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<xdp_desc>,
    tx: Producer<xdp_desc>,
    fd: OwnedFd,
    memory: M,
    frame_bytes_max: u32,
    chunk_bytes: u32,
    /// Frames with the kernel, to receive into.
    receiving_count: u32,
    /// Frames with the kernel, to be sent.
    sending_count: u32,
    /// Those of them with odd addresses: Linux 6.18 has a flag in the lowest bit of an address while a frame is
    /// being sent, and completes 776 for 777.
    odd_sending: Vec<u64>,
    ring_entries: u32,
    /// System calls that notified the kernel to send.
    pub wakeup_count: u64,
}

impl<M: ExternalMemory> ExternalSocket<M> {
    /// Registers all of `memory` and binds; `bind` must ask for copy mode.
    ///
    /// - `frame_bytes_max`: longest frame that is received, 1 to 3,840 bytes.
    ///
    /// Errors: [`XskError::Memory`] where the kernel refuses the registration: without CAP_IPC_LOCK,
    /// above the limit of locked memory, or before Linux 5.4, which has no unaligned chunks.
    pub fn open(memory: M, frame_bytes_max: u32, bind: &Bind) -> Result<Self, XskError> {
        let fits = |chunk: &u32| (1..=chunk - KERNEL_HEADROOM_BYTES).contains(&frame_bytes_max);
        let Some(chunk_bytes) = CHUNK_BYTES.into_iter().find(fits) else {
            let what = format!("frames of {frame_bytes_max} bytes: 1 to 3840 bytes are possible");
            let source = io::Error::new(io::ErrorKind::InvalidInput, what);
            return Err(system(bind, "XDP_UMEM_REG", source));
        };
        let umem = Registration {
            address: memory.address() as u64,
            len_bytes: memory.len_bytes() as u64,
            chunk_bytes,
            // With this the room for a frame is exactly the longest one: the kernel writes nothing behind it.
            headroom_bytes: chunk_bytes - frame_bytes_max - KERNEL_HEADROOM_BYTES,
            flags: libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
            tx_metadata_bytes: 0,
        };
        let Rings { fill, completion, rx, tx, fd } = Rings::open(&umem, bind, true)?;
        bind_queue(fd.as_fd(), bind, None)?;
        raise_tx_budget(fd.as_fd(), bind);
        Ok(ExternalSocket {
            fill,
            completion,
            rx,
            tx,
            fd,
            memory,
            frame_bytes_max,
            chunk_bytes,
            receiving_count: 0,
            sending_count: 0,
            odd_sending: Vec::new(),
            ring_entries: bind.ring_entries,
            wakeup_count: 0,
        })
    }

    /// Bytes of a chunk in front of a received frame.
    fn front_bytes(&self) -> u64 {
        u64::from(self.chunk_bytes - self.frame_bytes_max)
    }

    fn is_inside(&self, at: u64, len_bytes: u32) -> bool {
        let end = at.checked_add(len_bytes.into());
        end.is_some_and(|end| end <= (self.memory.len_bytes() as u64).min(1 << OFFSET_SHIFT))
    }

    /// True if there is room at `at` for the longest frame, and in front of it for what the kernel reserves.
    pub fn is_place(&self, at: u64) -> bool {
        at >= self.front_bytes() && self.is_inside(at, self.frame_bytes_max)
    }

    /// Posts a [place](Self::is_place) to receive a frame into; false if it is none or the ring is full.
    pub fn rx_post(&mut self, at: u64) -> bool {
        // All that is posted must fit into the RX ring: frames that do not are kept by the kernel.
        if !self.is_place(at) || self.receiving_count >= self.ring_entries {
            return false;
        }
        if self.fill.push(at - self.front_bytes()).is_err() {
            return false;
        }
        self.fill.publish();
        self.receiving_count += 1;
        true
    }

    /// Takes an arrived frame: address and length.
    pub fn rx_take(&mut self) -> Option<(u64, u32)> {
        let desc = self.rx.take()?;
        self.rx.release();
        self.receiving_count = self.receiving_count.saturating_sub(1);
        let base = desc.addr & ((1 << OFFSET_SHIFT) - 1);
        let at = base + (desc.addr >> OFFSET_SHIFT);
        let fits = desc.len <= self.frame_bytes_max && self.is_inside(at, desc.len);
        fits.then_some((at, desc.len))
    }

    /// Withdraws all places to receive into, and drops what has arrived: after this the kernel writes
    /// the memory no more.
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

    /// True for a range of the memory that is no longer than a chunk: the kernel skips others without an error.
    pub fn is_sendable(&self, at: u64, len_bytes: u32) -> bool {
        (1..=self.chunk_bytes).contains(&len_bytes) && self.is_inside(at, len_bytes)
    }

    /// Queues a frame, which [`Self::kick`] sends; false if the ring is full or the range is not
    /// [sendable](Self::is_sendable).
    pub fn tx_post(&mut self, at: u64, len_bytes: u32) -> bool {
        // Each must fit into the completion ring.
        if !self.is_sendable(at, len_bytes) || self.sending_count >= self.ring_entries {
            return false;
        }
        let desc = xdp_desc { addr: at, len: len_bytes, options: 0 };
        if self.tx.push(desc).is_err() {
            return false;
        }
        self.sending_count += 1;
        if at % 2 == 1 {
            self.odd_sending.push(at);
        }
        true
    }

    /// Takes the address of a frame that the kernel does not read any more.
    pub fn tx_reap(&mut self) -> Option<u64> {
        let at = self.completion.take()?;
        self.completion.release();
        self.sending_count = self.sending_count.saturating_sub(1);
        match self.odd_sending.iter().position(|odd| *odd == at | 1) {
            Some(place) => Some(self.odd_sending.swap_remove(place)),
            None => Some(at),
        }
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
            if !os::wake_sender(self.fd.as_fd())? {
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

    /// The kernel's counters.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        statistics(self.fd.as_fd())
    }
}

impl<M: ExternalMemory> AsFd for ExternalSocket<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
