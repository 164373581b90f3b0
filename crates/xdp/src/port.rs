//! The receive and send halves of a socket of a [`Pool`], with the four verbs. There are two halves
//! because different workers may receive and send.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use libc::xdp_desc;

use crate::XskError;
use crate::bind::{Bind, absent, bind_queue, system};
use crate::os;
use crate::pool::{Claim, Pool, Taken};
use crate::ring::{Consumer, Producer};
use crate::rings::{Rings, raise_tx_budget};

/// Receive half: fill ring and RX ring of a queue.
#[derive(Debug)]
pub struct PoolRx<'p> {
    fill: Producer<u64>,
    rx: Consumer<xdp_desc>,
    shared: Arc<Shared<'p>>,
    claim: Claim,
    receiving: u32,
    /// A packet whose last piece has not arrived yet.
    partial: Option<Partial<'p>>,
}

/// Pieces of a packet, reassembled in the frame of the first.
#[derive(Debug)]
struct Partial<'p> {
    frame: Taken<'p>,
    offset: usize,
    len: usize,
    /// A piece did not fit or is missing.
    is_cut: bool,
}

/// Send half: TX ring and completion ring of a queue.
#[derive(Debug)]
pub struct PoolTx<'p> {
    completion: Consumer<u64>,
    tx: Producer<xdp_desc>,
    shared: Arc<Shared<'p>>,
    claim: Claim,
    /// System calls made so far to notify the kernel.
    pub wakeup_count: u64,
}

/// State of both halves. The rings are mappings of the socket, which stays open until both halves
/// are dropped; the pool outlives them.
#[derive(Debug)]
struct Shared<'p> {
    fd: OwnedFd,
    pool: &'p Pool,
    bind: Bind,
    zero_copy: bool,
}

/// Opens and binds a socket. The first socket of a pool passes `shared: None`; the others, on this
/// or other interfaces, pass the first one's half.
///
/// Must be called in the interface's network namespace. `bind.multi_buffer` must equal
/// [`Pool::spans_chunks`]: [`XskError::System`] otherwise. Frames that the kernel owns when the
/// socket closes are not reclaimed; the pool's balance shows them.
pub fn open_port<'p>(
    pool: &'p Pool,
    bind: Bind,
    shared: Option<&PoolRx<'p>>,
) -> Result<(PoolRx<'p>, PoolTx<'p>), XskError> {
    let is_others = shared.is_some_and(|first| !std::ptr::eq(first.shared.pool, pool));
    if bind.multi_buffer != pool.spans_chunks() || is_others {
        let source = std::io::ErrorKind::InvalidInput.into();
        return Err(system(&bind, "sharing the pool", source));
    }
    let Some([rx_claim, tx_claim]) = pool.claims() else {
        let source = std::io::ErrorKind::QuotaExceeded.into();
        return Err(system(&bind, "one more socket on this pool", source));
    };
    let rings = Rings::open(&pool.umem().into(), &bind, shared.is_none())?;
    let Rings { fill, completion, rx, tx, fd } = rings;
    let zero_copy = bind_queue(fd.as_fd(), &bind, shared.map(AsFd::as_fd))?;
    raise_tx_budget(fd.as_fd(), &bind);
    let shared = Arc::new(Shared { fd, pool, bind, zero_copy });
    let receiver =
        PoolRx { fill, rx, shared: shared.clone(), claim: rx_claim, receiving: 0, partial: None };
    Ok((receiver, PoolTx { completion, tx, shared, claim: tx_claim, wakeup_count: 0 }))
}

impl<'p> PoolRx<'p> {
    /// True if the kernel runs this socket in zero-copy mode.
    pub fn is_zero_copy(&self) -> bool {
        self.shared.zero_copy
    }

    /// Frames missing from the fill ring, up to the target.
    pub fn rx_missing(&mut self) -> usize {
        let missing = self.shared.bind.fill_target.saturating_sub(self.receiving);
        missing.min(self.fill.room(missing)) as usize
    }

    /// Posts frames to receive into; frees those that do not fit.
    pub fn rx_post(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        let frame_bytes = u64::from(self.shared.pool.frame_bytes());
        let mut posted = 0;
        for frame in frames.drain(..) {
            // This is the only producer: room that was seen stays.
            if !frame.is_from(self.shared.pool) || self.fill.room(1) == 0 {
                continue;
            }
            let addr = u64::from(frame.leave(self.claim.state())) * frame_bytes;
            let pushed = self.fill.push(addr);
            debug_assert!(pushed.is_ok());
            posted += 1;
        }
        if posted > 0 {
            self.receiving += posted as u32;
            self.fill.publish();
        }
        posted
    }

    /// Takes up to `max` arrived frames; `each` gets every frame with the offset and length of its
    /// bytes. Packets in pieces are reassembled; the pool counts those that are too long.
    #[inline]
    pub fn rx_take(&mut self, max: usize, mut each: impl FnMut(Taken<'p>, usize, usize)) -> usize {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let ready = self.rx.ready(max).min(max);
        let mut taken = 0;
        for _ in 0..ready {
            let Some(desc) = self.rx.take() else { break };
            self.receiving = self.receiving.saturating_sub(1);
            let pool = self.shared.pool;
            let Some((index, offset, len)) = place_of(pool, &desc) else {
                pool.violation();
                self.spoil();
                continue;
            };
            let Some(frame) = pool.arrive(index, &mut self.claim) else {
                self.spoil();
                continue;
            };
            // Frames are read after the whole batch is taken; the prefetch is done by then.
            pool.prefetch(index, offset);
            let is_last = desc.options & libc::XDP_PKT_CONTD == 0;
            if is_last && self.partial.is_none() {
                each(frame, offset, len);
                taken += 1;
                continue;
            }
            let packet = match self.partial.take() {
                None => Partial { frame, offset, len, is_cut: false },
                Some(packet) => packet.with(frame, offset, len),
            };
            match (is_last, packet.is_cut) {
                (false, _) => self.partial = Some(packet),
                (true, true) => pool.count_oversized(),
                (true, false) => {
                    each(packet.frame, packet.offset, packet.len);
                    taken += 1;
                }
            }
        }
        if ready > 0 {
            self.rx.release();
        }
        taken
    }

    fn spoil(&mut self) {
        if let Some(partial) = &mut self.partial {
            partial.is_cut = true;
        }
    }

    /// Sleeps at most `timeout` until a frame arrives.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), XskError> {
        let waited = os::wait(self.shared.fd.as_fd(), false, timeout);
        waited.map(|_| ()).map_err(|source| system(&self.shared.bind, "poll", source))
    }
}

impl Partial<'_> {
    /// Appends a piece.
    fn with(mut self, mut piece: Taken<'_>, offset: usize, len: usize) -> Self {
        let at = self.offset + self.len;
        let from = piece.bytes().get(offset..offset + len);
        match (from, self.frame.bytes().get_mut(at..at + len)) {
            (Some(from), Some(to)) if !self.is_cut => to.copy_from_slice(from),
            _ => self.is_cut = true,
        }
        self.len += len;
        self
    }
}

impl AsFd for PoolRx<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl<'p> PoolTx<'p> {
    /// Frames that fit into the TX ring; polls the ring only if fewer than `want` are known to fit.
    pub fn tx_room(&mut self, want: usize) -> usize {
        let chunks = self.shared.pool.umem().chunks();
        let want = u32::try_from(want).unwrap_or(u32::MAX).saturating_mul(chunks);
        (self.tx.room(want) / chunks) as usize
    }

    /// Queues a frame, visible to the kernel after [`Self::tx_publish`].
    ///
    /// Errors: the frame, if the ring is full, the range is outside the frame, or the frame belongs
    /// to another pool.
    pub fn tx_post(
        &mut self,
        frame: Taken<'p>,
        offset: usize,
        len: usize,
    ) -> Result<(), Taken<'p>> {
        let pool = self.shared.pool;
        let frame_bytes = pool.frame_bytes() as usize;
        let chunk_bytes = pool.umem().chunk_bytes as usize;
        let chunk_shift = pool.umem().chunk_shift();
        let Some(end) = offset.checked_add(len).filter(|end| *end <= frame_bytes) else {
            return Err(frame);
        };
        // No descriptor may cross from one chunk to the next.
        let until_chunk = (end + chunk_bytes - 1) >> chunk_shift;
        let pieces = (until_chunk - (offset >> chunk_shift)).max(1) as u32;
        if !frame.is_from(pool) || self.tx.room(pieces) < pieces {
            return Err(frame);
        }
        let base = u64::from(frame.leave_to_send(pieces as u8, &self.claim)) * frame_bytes as u64;
        let mut at = offset;
        for left in (0..pieces).rev() {
            let until = if left == 0 { end } else { ((at >> chunk_shift) + 1) << chunk_shift };
            let options = if left == 0 { 0 } else { libc::XDP_PKT_CONTD };
            let (addr, len) = (base + at as u64, (until - at) as u32);
            let pushed = self.tx.push(xdp_desc { addr, len, options });
            debug_assert!(pushed.is_ok());
            at = until;
        }
        Ok(())
    }

    /// Makes posted frames visible to the kernel.
    pub fn tx_publish(&mut self) {
        self.tx.publish();
    }

    /// Reclaims frames that were sent; returns the completions that it read.
    pub fn tx_reap(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        let pool = self.shared.pool;
        let ready = self.completion.ready(self.shared.bind.ring_entries);
        for _ in 0..ready {
            let Some(addr) = self.completion.take() else { break };
            frames.extend(pool.chunk_sent(pool.index_of(addr), &mut self.claim));
        }
        if ready > 0 {
            self.completion.release();
        }
        ready as usize
    }

    /// Frames posted that the kernel has not taken yet.
    pub fn tx_pending(&mut self) -> usize {
        self.tx.outstanding() as usize
    }

    /// Notifies the kernel, if it needs a notification, that there are frames to send. Returns false
    /// if it must be called again.
    pub fn kick(&mut self) -> Result<bool, XskError> {
        let bind = &self.shared.bind;
        if bind.need_wakeup && !self.tx.needs_wakeup() {
            return Ok(true);
        }
        self.wakeup_count += 1;
        os::wake_sender(self.shared.fd.as_fd()).map_err(|source| match source.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => absent(bind, "a send", source),
            _ => system(bind, "sendto", source),
        })
    }
}

/// Frame number, offset and length of a descriptor; `None` if they do not fit.
fn place_of(pool: &Pool, desc: &xdp_desc) -> Option<(u32, usize, usize)> {
    let frame_bytes = u64::from(pool.frame_bytes());
    let index = pool.index_of(desc.addr);
    let offset = desc.addr.checked_sub(u64::from(index) * frame_bytes)?;
    // Only the first chunk of a frame is posted to receive into; the others fail this check.
    let fits = offset.checked_add(desc.len.into())? <= u64::from(pool.umem().chunk_bytes);
    fits.then_some((index, offset as usize, desc.len as usize))
}
