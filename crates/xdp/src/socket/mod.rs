//! One AF_XDP socket on one queue.

mod receive;
mod send;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use libc::{SOL_XDP, xdp_desc};

use crate::bind::{Bind, bind_queue, system};
use crate::metadata::Requests;
use crate::os;
use crate::ring::{Consumer, Producer};
use crate::rings::{Rings, Unused, open_sender, raise_tx_budget};
use crate::umem::Ledger;
use crate::{Frames, LedgerBalance, XskError};

/// Fragments of one packet at most (MAX_SKB_FRAGS).
const FRAGMENTS_MAX: usize = 17;

/// Disposition of a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Free its frames.
    Release,
    /// Send it in place.
    Send,
}

/// Counters that the kernel keeps of a socket.
///
/// Source: XDP_STATISTICS, include/uapi/linux/if_xdp.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XskStatistics {
    /// Dropped for other reasons than those below.
    pub rx_dropped_count: u64,
    /// Dropped because a fill descriptor was invalid.
    pub rx_invalid_descriptor_count: u64,
    /// Not sent because the descriptor was invalid.
    pub tx_invalid_descriptor_count: u64,
    /// Arrivals that found the RX ring full.
    pub rx_ring_full_count: u64,
    /// Arrivals that found the fill ring empty.
    pub fill_ring_empty_count: u64,
    /// Times that the kernel found the TX ring empty.
    pub tx_ring_empty_count: u64,
}

/// An AF_XDP socket with its share of frames.
#[derive(Debug)]
pub struct Socket {
    // Field order is drop order: the rings are unmapped before the socket closes, and the UMEM is
    // freed last, when the kernel no longer uses it.
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<xdp_desc>,
    tx: Producer<xdp_desc>,
    fd: OwnedFd,
    ledger: Ledger,
    requests: Requests,
    frames: Frames,
    bind: Bind,
    zero_copy: bool,
    tx_budget_raised: bool,
    fragments: Vec<xdp_desc>,
    scratch: Vec<u8>,
    receiving: u32,
    /// System calls that notified the kernel.
    pub wakeup_count: u64,
    /// Echoes dropped because the TX ring was full.
    pub tx_full_count: u64,
    /// Most descriptors that were seen in the RX ring at once.
    pub rx_waiting_max: u32,
    /// Received descriptors with an offset above their address: those of unaligned frames.
    pub offset_count: u64,
}

impl Socket {
    /// Opens a socket with its share of a UMEM, fills its fill ring and binds it: a zero-copy driver
    /// takes frames from then on, and counts each time that there are none. The first socket on a UMEM
    /// passes `shared: None` and registers the memory; the others pass the first one.
    ///
    /// Must be called in the interface's network namespace.
    pub fn open(frames: Frames, bind: Bind, shared: Option<&Socket>) -> Result<Self, XskError> {
        let rings = Rings::open(&frames.umem.as_ref().into(), &bind, shared.is_none())?;
        let mut socket = Socket::new(rings, frames, bind);
        socket.rx_post();
        let fd = socket.fd.as_fd();
        socket.zero_copy = bind_queue(fd, &socket.bind, shared.map(AsFd::as_fd))?;
        socket.tx_budget_raised = raise_tx_budget(fd, &socket.bind);
        Ok(socket)
    }

    /// A socket that is not bound yet, or shares a bound one's descriptor.
    fn new(rings: Rings, frames: Frames, bind: Bind) -> Self {
        let Rings { fill, completion, rx, tx, fd } = rings;
        Socket {
            fill,
            completion,
            rx,
            tx,
            fd,
            ledger: Ledger::new(frames.first, frames.count),
            requests: stamp_requests(&frames),
            frames,
            bind,
            zero_copy: false,
            tx_budget_raised: false,
            fragments: Vec::with_capacity(FRAGMENTS_MAX + 1),
            scratch: Vec::new(),
            receiving: 0,
            wakeup_count: 0,
            tx_full_count: 0,
            rx_waiting_max: 0,
            offset_count: 0,
        }
    }

    /// Splits sending from receiving, so that each may be on a thread of its own: the rings of one
    /// direction share no index with those of the other. In copy mode the sender is a socket of its own on
    /// the same queue: poll(2) sends too in that mode, so on one socket the receiver's CPU would send a part of
    /// the sender's frames, which overtake each other between the CPUs.
    ///
    /// - `share`: frames for sending, of the same UMEM; the receiver keeps the socket's own.
    /// - Returns the sender, then the receiver. Neither may be used for the other's work: its rings
    ///   of that direction are private memory that the kernel does not see.
    ///
    /// Errors: `InvalidInput` if `share` is of another UMEM or the socket has sent already; those of
    /// [`open`](Self::open).
    pub fn split(mut self, share: Frames) -> Result<(Socket, Socket), XskError> {
        let is_new = self.tx_in_flight() == 0 && self.tx_pending() == 0;
        if !Arc::ptr_eq(&share.umem, &self.frames.umem) || !is_new {
            let why = "only a socket that has not sent can be split, with frames of its own UMEM";
            let why = io::Error::new(io::ErrorKind::InvalidInput, why);
            return Err(system(&self.bind, "splitting the socket", why));
        }
        let unused = Unused::new().map_err(|e| system(&self.bind, "mmap", e))?;
        let (fd, tx) = if self.zero_copy {
            let fd = self.fd.try_clone().map_err(|e| system(&self.bind, "dup", e))?;
            (fd, std::mem::replace(&mut self.tx, unused.tx))
        } else {
            open_sender(&self.bind, self.fd.as_fd())?
        };
        let completion = std::mem::replace(&mut self.completion, unused.completion);
        let rings = Rings { fill: unused.fill, completion, rx: unused.rx, tx, fd };
        let bind = Bind { fill_target: 0, ..self.bind.clone() };
        let mut sender = Socket::new(rings, share, bind);
        sender.zero_copy = self.zero_copy;
        sender.tx_budget_raised = self.tx_budget_raised;
        Ok((sender, self))
    }

    /// True if the kernel runs this socket in zero-copy mode.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// True if the kernel accepted a larger number of sends for each notification.
    pub fn tx_budget_raised(&self) -> bool {
        self.tx_budget_raised
    }

    /// Queue and mode that it was opened with.
    pub fn bound_to(&self) -> &Bind {
        &self.bind
    }

    /// Size of the pages that hold its frames, in bytes; `None` if the kernel does not tell.
    pub fn page_bytes(&self) -> Option<usize> {
        self.frames.page_bytes()
    }

    /// Makes the driver poll for arrivals: needed by busy polling, and by a driver that sleeps
    /// because its fill ring was empty.
    pub fn poll_device(&mut self) {
        self.wakeup_count += 1;
        // The result is ignored: the next poll of the ring shows whether something arrived.
        // SAFETY: no data is passed; `self` owns the open descriptor.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// True if the driver needs a notification before it fills more frames.
    pub fn fill_needs_wakeup(&self) -> bool {
        self.bind.need_wakeup && self.fill.needs_wakeup()
    }

    /// Sleeps at most `timeout` until a packet arrives.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), XskError> {
        self.wakeup_count += 1;
        let waited = os::wait(self.fd.as_fd(), false, timeout);
        waited.map(|_| ()).map_err(|e| system(&self.bind, "poll", e))
    }

    /// True if a packet waits in the RX ring.
    pub fn rx_ready(&mut self) -> bool {
        self.rx.ready(1) > 0
    }

    /// The kernel's counters.
    ///
    /// Errors: those of getsockopt(2).
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        statistics(self.fd.as_fd())
    }

    /// Frames by owner.
    pub fn ledger(&self) -> LedgerBalance {
        self.ledger.balance()
    }
}

/// The kernel's counters of an AF_XDP socket.
///
/// Errors: `socket` is no AF_XDP socket.
pub fn statistics(socket: BorrowedFd<'_>) -> io::Result<XskStatistics> {
    // SAFETY: xdp_statistics is a plain C struct of integers.
    let s: libc::xdp_statistics = unsafe { os::get(socket, SOL_XDP, libc::XDP_STATISTICS) }?;
    Ok(XskStatistics {
        rx_dropped_count: s.rx_dropped,
        rx_invalid_descriptor_count: s.rx_invalid_descs,
        tx_invalid_descriptor_count: s.tx_invalid_descs,
        rx_ring_full_count: s.rx_ring_full,
        fill_ring_empty_count: s.rx_fill_ring_empty_descs,
        tx_ring_empty_count: s.tx_ring_empty_descs,
    })
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn stamp_requests(frames: &Frames) -> Requests {
    Requests::new(frames.first, frames.count, frames.umem.send_metadata())
}

/// Bytes of a frame that the ledger has passed to the caller.
#[expect(
    clippy::mut_from_ref,
    reason = "the frames are shared with the kernel, not with Rust; the ledger makes access exclusive"
)]
fn frame_bytes(frames: &Frames, addr: u64, len: u32) -> &mut [u8] {
    let at = frames.umem.area.at(addr as usize, len as usize);
    // SAFETY: `at` checked that the range is in the UMEM. The ledger moved this frame to user space
    // and moves it on only after the slice is dropped, so the kernel and other slices do not
    // touch it; shares of other sockets do not overlap.
    unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len as usize) }
}
