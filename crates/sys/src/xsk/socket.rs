//! One AF_XDP socket on one queue.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use libc::{SOL_XDP, xdp_desc};

use super::bind::{Bind, absent, bind_queue, system};
use super::ring::{Consumer, Producer};
use super::rings::{Rings, Unused, open_sender, raise_tx_budget};
use super::umem::{Ledger, Owner};
use super::{Frames, LedgerBalance, XskError};
use crate::socket;

/// Fragments of one packet at most (MAX_SKB_FRAGS).
const FRAGMENTS_MAX: usize = 17;
/// Frames missing from the fill ring before it is refilled.
const FILL_BATCH: u32 = 64;

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
    frames: Frames,
    bind: Bind,
    zero_copy: bool,
    tx_budget_raised: bool,
    fragments: Vec<xdp_desc>,
    scratch: Vec<u8>,
    receiving: u32,
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
        let Rings { fill, completion, rx, tx, fd } = rings;
        let mut socket = Socket {
            fill,
            completion,
            rx,
            tx,
            fd,
            ledger: Ledger::new(frames.first, frames.count),
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
        };
        socket.rx_post();
        let fd = socket.fd.as_fd();
        socket.zero_copy = bind_queue(fd, &socket.bind, shared.map(AsFd::as_fd))?;
        socket.tx_budget_raised = raise_tx_budget(fd, &socket.bind);
        Ok(socket)
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
        let sender = Socket {
            fill: unused.fill,
            completion: std::mem::replace(&mut self.completion, unused.completion),
            rx: unused.rx,
            tx,
            fd,
            ledger: Ledger::new(share.first, share.count),
            frames: share,
            bind: Bind { fill_target: 0, ..self.bind.clone() },
            zero_copy: self.zero_copy,
            tx_budget_raised: self.tx_budget_raised,
            fragments: Vec::with_capacity(FRAGMENTS_MAX + 1),
            scratch: Vec::new(),
            receiving: 0,
            wakeup_count: 0,
            tx_full_count: 0,
            rx_waiting_max: 0,
            offset_count: 0,
        };
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

    pub fn bound_to(&self) -> &Bind {
        &self.bind
    }

    /// Size of the pages that hold its frames, in bytes; `None` if the kernel does not tell.
    pub fn page_bytes(&self) -> Option<usize> {
        self.frames.page_bytes()
    }

    /// Refills the fill ring to its target; returns how many frames were posted.
    ///
    /// Does nothing while only a few are missing: each publication takes the ring's cache line from
    /// the kernel's CPU.
    pub fn rx_post(&mut self) -> usize {
        let missing = self.bind.fill_target.saturating_sub(self.receiving);
        if missing < FILL_BATCH.min(self.bind.fill_target / 4).max(1) {
            return 0;
        }
        let want = missing.min(self.fill.room(missing));
        let mut posted = 0;
        while posted < want {
            let Some(frame) = self.ledger.take_free(Owner::Receiving) else { break };
            let addr = u64::from(frame) * u64::from(self.frames.umem.frame_bytes);
            if self.fill.push(addr).is_err() {
                self.ledger.pass(frame, Owner::Receiving, Owner::Free);
                break;
            }
            posted += 1;
        }
        if posted > 0 {
            self.receiving += posted;
            self.fill.publish();
        }
        posted as usize
    }

    /// Takes up to `max` packets; returns how many. `each` gets a packet's first frame (the whole
    /// packet unless it spans frames) and its length in bytes, may edit it, and returns its
    /// disposition.
    ///
    /// The next [`kick`](Self::kick) sends packets of [`Then::Send`].
    pub fn rx_take(&mut self, max: usize, each: impl FnMut(&mut [u8], usize) -> Then) -> usize {
        self.rx_take_from(0, max, each)
    }

    /// As [`rx_take`](Self::rx_take); the slice begins `front_bytes` before the packet, with what an XDP
    /// program wrote there by `bpf_xdp_adjust_meta`.
    pub fn rx_take_from(
        &mut self,
        front_bytes: u32,
        max: usize,
        mut each: impl FnMut(&mut [u8], usize) -> Then,
    ) -> usize {
        let waiting = self.rx.ready(max as u32);
        self.rx_waiting_max = self.rx_waiting_max.max(waiting);
        let ready = waiting.min(max as u32);
        if ready == 0 {
            return 0;
        }
        let mut packet_count = 0;
        let mut sent = false;
        for _ in 0..ready {
            let Some(mut desc) = self.rx.take() else { break };
            self.receiving = self.receiving.saturating_sub(1);
            let place = self.frames.umem.place_of(desc.addr);
            self.offset_count += u64::from(place != desc.addr);
            desc.addr = place;
            let Some(frame) = self.frame_of(&desc, front_bytes) else {
                self.ledger.violation();
                continue;
            };
            if !self.ledger.pass(frame, Owner::Receiving, Owner::Held) {
                continue;
            }
            self.fragments.push(desc);
            if desc.options & libc::XDP_PKT_CONTD != 0 {
                continue;
            }
            let total = self.fragments.iter().map(|d| d.len as usize).sum();
            let first = self.fragments[0];
            let (front, len) = (u64::from(front_bytes), first.len + front_bytes);
            let then = each(frame_bytes(&self.frames, first.addr - front, len), total);
            packet_count += 1;
            sent |= self.settle(then);
        }
        self.rx.release();
        if sent {
            self.tx.publish();
        }
        packet_count
    }

    /// Sends or frees the fragments of one packet; returns true if they were queued for sending.
    fn settle(&mut self, then: Then) -> bool {
        let count = self.fragments.len() as u32;
        let send = then == Then::Send && self.tx.room(count) >= count;
        if then == Then::Send && !send {
            self.tx_full_count += 1;
        }
        for desc in self.fragments.drain(..) {
            let frame = (desc.addr / u64::from(self.frames.umem.frame_bytes)) as u32;
            let pushed = send && self.tx.push(desc).is_ok();
            let to = if pushed { Owner::Sending } else { Owner::Free };
            self.ledger.pass(frame, Owner::Held, to);
        }
        send
    }

    /// Posts up to `want` packets of `len_bytes`, each written by `fill`; returns how many. The next
    /// [`kick`](Self::kick) sends them. If fewer were posted, ring or frames are used up: kick, reap
    /// and retry.
    ///
    /// Errors: a packet longer than the most fragments hold, or longer than one frame on a socket
    /// without multi-buffer.
    pub fn tx_post(
        &mut self,
        want: usize,
        len_bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, XskError> {
        let frame_bytes_max = self.frames.umem.frame_bytes as usize;
        if len_bytes > frame_bytes_max {
            return self.tx_post_fragmented(want, len_bytes, fill);
        }
        let mut posted = 0;
        let room = self.tx.room(want as u32) as usize;
        while posted < want.min(room) {
            let Some(frame) = self.ledger.take_free(Owner::Sending) else { break };
            let addr = u64::from(frame) * frame_bytes_max as u64;
            let len = len_bytes as u32;
            fill(frame_bytes(&self.frames, addr, len));
            if self.tx.push(xdp_desc { addr, len, options: 0 }).is_err() {
                self.ledger.pass(frame, Owner::Sending, Owner::Free);
                break;
            }
            posted += 1;
        }
        if posted > 0 {
            self.tx.publish();
        }
        Ok(posted)
    }

    fn tx_post_fragmented(
        &mut self,
        want: usize,
        len_bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, XskError> {
        let frame_bytes_max = self.frames.umem.frame_bytes as usize;
        let needed = len_bytes.div_ceil(frame_bytes_max);
        let most = if self.bind.multi_buffer { FRAGMENTS_MAX } else { 1 };
        if needed > most {
            let frame_bytes = self.frames.umem.frame_bytes;
            return Err(XskError::TooLong { len_bytes, needed, frame_bytes, most });
        }
        let mut posted = 0;
        self.scratch.resize(len_bytes, 0);
        while posted < want
            && self.tx.room(needed as u32) as usize >= needed
            && self.ledger.free_count() >= needed
        {
            fill(&mut self.scratch);
            for (n, part) in self.scratch.chunks(frame_bytes_max).enumerate() {
                let Some(frame) = self.ledger.take_free(Owner::Sending) else { break };
                let addr = u64::from(frame) * frame_bytes_max as u64;
                let len = part.len() as u32;
                frame_bytes(&self.frames, addr, len).copy_from_slice(part);
                let options = if n + 1 < needed { libc::XDP_PKT_CONTD } else { 0 };
                // Room for all fragments was seen above, and this is the only producer.
                let pushed = self.tx.push(xdp_desc { addr, len, options });
                debug_assert!(pushed.is_ok());
            }
            posted += 1;
        }
        if posted > 0 {
            self.tx.publish();
        }
        Ok(posted)
    }

    /// Reclaims frames that were sent; returns how many.
    pub fn tx_reap(&mut self) -> usize {
        let ready = self.completion.ready(self.bind.ring_entries);
        for _ in 0..ready {
            let Some(addr) = self.completion.take() else { break };
            let frame = self.frames.umem.place_of(addr) / u64::from(self.frames.umem.frame_bytes);
            match u32::try_from(frame) {
                Ok(frame) => {
                    self.ledger.pass(frame, Owner::Sending, Owner::Free);
                }
                Err(_) => self.ledger.violation(),
            }
        }
        if ready > 0 {
            self.completion.release();
        }
        ready as usize
    }

    /// Descriptors posted for sending that the kernel has not taken yet.
    pub fn tx_pending(&mut self) -> usize {
        self.tx.outstanding() as usize
    }

    /// Frames posted for sending that have not been reaped.
    pub fn tx_in_flight(&self) -> usize {
        self.ledger.balance().sending_count as usize
    }

    /// Notifies the kernel, if it needs a notification, that there are frames to send. Returns false
    /// if it must be called again.
    ///
    /// Errors: the device is gone.
    pub fn kick(&mut self) -> Result<bool, XskError> {
        if self.bind.need_wakeup && !self.tx.needs_wakeup() {
            return Ok(true);
        }
        self.wakeup_count += 1;
        socket::wake_sender(self.fd.as_fd()).map_err(|source| match source.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => absent(&self.bind, "a send", source),
            _ => system(&self.bind, "sendto", source),
        })
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
        let waited = socket::wait(self.fd.as_fd(), false, timeout);
        waited.map(|_| ()).map_err(|e| system(&self.bind, "poll", e))
    }

    /// True if a packet waits in the RX ring.
    pub fn rx_ready(&mut self) -> bool {
        self.rx.ready(1) > 0
    }

    pub fn statistics(&self) -> io::Result<XskStatistics> {
        statistics(self.fd.as_fd())
    }

    pub fn ledger(&self) -> LedgerBalance {
        self.ledger.balance()
    }

    /// Frame of a descriptor; `None` if it is out of range, or has less than `front_bytes` in front.
    fn frame_of(&self, desc: &xdp_desc, front_bytes: u32) -> Option<u32> {
        let frame_bytes = u64::from(self.frames.umem.frame_bytes);
        let offset = desc.addr % frame_bytes;
        let fits = offset + u64::from(desc.len) <= frame_bytes && offset >= u64::from(front_bytes);
        let frame = desc.addr / frame_bytes;
        (fits && frame < u64::from(self.frames.umem.frame_count)).then_some(frame as u32)
    }
}

/// The kernel's counters of an AF_XDP socket.
///
/// Errors: `socket` is no AF_XDP socket.
pub fn statistics(socket: BorrowedFd<'_>) -> io::Result<XskStatistics> {
    // SAFETY: xdp_statistics is a plain C struct of integers.
    let s: libc::xdp_statistics = unsafe { socket::get(socket, SOL_XDP, libc::XDP_STATISTICS) }?;
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
