//! A UMEM whose frames move between sockets and threads: received by one socket, processed by any
//! thread, sent by another socket.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::umem::Umem;

/// Owner of a frame. While the kernel owns it, the state also names the socket: only that socket's
/// half may reclaim it, so a load and a plain store suffice instead of an atomic exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u8);

impl State {
    const FREE: State = State(0);
    /// Owned by a [`Taken`].
    const TAKEN: State = State(1);
    /// In user space without a [`Taken`], known by its number.
    const PARKED: State = State(2);
    /// From here up: owned by the kernel. Odd to receive into, even to be sent.
    const FIRST: u8 = 3;

    fn is_receiving(self) -> bool {
        self.0 >= State::FIRST && self.0 % 2 == 1
    }

    fn is_sending(self) -> bool {
        self.0 >= State::FIRST && self.0.is_multiple_of(2)
    }
}

/// Most sockets over the life of a pool.
const SOCKET_COUNT_MAX: u8 = 126;

/// Right to reclaim the frames that the kernel owns through one half of a socket. There is one for
/// each half; it cannot be copied.
#[derive(Debug)]
pub(super) struct Claim(State);

impl Claim {
    /// State of the half's frames while the kernel owns them.
    pub(super) fn state(&self) -> State {
        self.0
    }
}

const LINE_BYTES: usize = 64;

/// Frames and the owner of each. Every frame named by the kernel or by number is checked against
/// it, so a frame never has two owners.
#[derive(Debug)]
pub struct Pool {
    umem: Umem,
    states: Box<[AtomicU8]>,
    /// Chunks of a frame in transmission that are not completed yet.
    unsent: Box<[AtomicU8]>,
    free: Mutex<Vec<u32>>,
    socket_count: AtomicU8,
    violation_count: AtomicU64,
    oversized_count: AtomicU64,
}

/// Frames of a pool by owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolBalance {
    /// All frames.
    pub frame_count: u64,
    /// Unused.
    pub free_count: u64,
    /// In user space, as [`Taken`] or parked.
    pub ours_count: u64,
    /// Owned by the kernel to receive into.
    pub receiving_count: u64,
    /// Owned by the kernel to be sent.
    pub sending_count: u64,
    /// Frames named by the kernel or by number that did not have that owner.
    pub violation_count: u64,
    /// Packets dropped because they did not fit a frame.
    pub oversized_count: u64,
}

impl PoolBalance {
    /// True if every frame has an owner and there was no violation.
    pub fn balances(&self) -> bool {
        let sum = self.free_count + self.ours_count + self.receiving_count + self.sending_count;
        sum == self.frame_count && self.violation_count == 0
    }
}

impl Pool {
    /// Allocates frames of 2048 bytes, or of one to four times 4096. AF_XDP receives packets of
    /// more than a page in pieces (XDP_USE_SG): of them all but the first are copied into one
    /// frame.
    ///
    /// Errors: `InvalidInput` for other sizes, no frames, or 4 GiB and more; errors of mmap.
    pub fn allocate(frame_bytes: u32, frame_count: u32) -> io::Result<Pool> {
        let umem = Umem::allocate(frame_bytes, frame_count)?;
        Ok(Pool {
            umem,
            states: (0..frame_count).map(|_| AtomicU8::new(State::FREE.0)).collect(),
            unsent: (0..frame_count).map(|_| AtomicU8::new(0)).collect(),
            // Lowest frame on top, as in the ledger.
            free: Mutex::new((0..frame_count).rev().collect()),
            socket_count: AtomicU8::new(0),
            violation_count: AtomicU64::new(0),
            oversized_count: AtomicU64::new(0),
        })
    }

    /// Size of a frame.
    pub fn frame_bytes(&self) -> u32 {
        self.umem.frame_bytes
    }

    /// Frames of the pool.
    pub fn frame_count(&self) -> u32 {
        self.states.len() as u32
    }

    /// True if frames consist of several kernel chunks.
    pub fn spans_chunks(&self) -> bool {
        self.umem.chunks() > 1
    }

    /// Counts a packet that no frame can hold.
    pub fn count_oversized(&self) {
        self.oversized_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes up to `count` unused frames.
    pub fn take<'p>(&'p self, frames: &mut Vec<Taken<'p>>, count: usize) {
        let mut free = self.free();
        for _ in 0..count {
            let Some(index) = free.pop() else { break };
            self.states[index as usize].store(State::TAKEN.0, Ordering::Relaxed);
            frames.push(Taken { pool: self, index });
        }
    }

    /// Frees frames under one lock.
    pub fn give_back<'a>(&self, frames: impl IntoIterator<Item = Taken<'a>>) {
        let mut free = None;
        for frame in frames {
            if std::ptr::eq(frame.pool, self) {
                let index = frame.leave(State::FREE);
                free.get_or_insert_with(|| self.free()).push(index);
            }
        }
    }

    /// Frame parked under this number. `None` and a counted violation if there is none.
    #[inline]
    pub fn claim(&self, index: u32) -> Option<Taken<'_>> {
        let moved = self.states.get(index as usize).is_some_and(|state| {
            let (from, to) = (State::PARKED.0, State::TAKEN.0);
            // Acquire: writes of the last owner are visible before the frame is read.
            state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        // Created only for an owned frame: dropping a `Taken` frees it.
        self.taken_if(moved, index)
    }

    /// Frames by owner. Exact while no other thread moves frames.
    pub fn balance(&self) -> PoolBalance {
        let mut balance = PoolBalance {
            frame_count: self.states.len() as u64,
            // From the list, not the states: the two must agree to balance.
            free_count: self.free().len() as u64,
            violation_count: self.violation_count.load(Ordering::Relaxed),
            oversized_count: self.oversized_count.load(Ordering::Relaxed),
            ..PoolBalance::default()
        };
        for state in &self.states {
            match State(state.load(Ordering::Relaxed)) {
                State::TAKEN | State::PARKED => balance.ours_count += 1,
                state if state.is_receiving() => balance.receiving_count += 1,
                state if state.is_sending() => balance.sending_count += 1,
                _ => {}
            }
        }
        balance
    }

    pub(super) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Receive and send claims of a new socket. `None` after [`SOCKET_COUNT_MAX`] sockets.
    pub(super) fn claims(&self) -> Option<[Claim; 2]> {
        let order = Ordering::Relaxed;
        let number = self
            .socket_count
            .fetch_update(order, order, |count: u8| (count < SOCKET_COUNT_MAX).then_some(count + 1))
            .ok()?;
        let first = State::FIRST + 2 * number;
        Some([Claim(State(first)), Claim(State(first + 1))])
    }

    /// Reclaims a frame from the kernel through the socket half that has the claim. `None` and a
    /// counted violation if the kernel does not own it through that half.
    #[inline]
    pub(super) fn arrive(&self, index: u32, claim: &mut Claim) -> Option<Taken<'_>> {
        let moved = self.states.get(index as usize).is_some_and(|state| {
            // The claim is unique and borrowed mutably, so no other thread moves a frame out of this
            // state between the load and the store.
            let is_there = state.load(Ordering::Acquire) == claim.0.0;
            if is_there {
                state.store(State::TAKEN.0, Ordering::Relaxed);
            }
            is_there
        });
        self.taken_if(moved, index)
    }

    /// - `moved`: the caller has put the frame into state Taken.
    #[inline]
    fn taken_if(&self, moved: bool, index: u32) -> Option<Taken<'_>> {
        if !moved {
            self.violation();
        }
        moved.then(|| Taken { pool: self, index })
    }

    /// Completes a chunk of the frame; returns the frame with the last chunk.
    #[inline]
    pub(super) fn chunk_sent(&self, index: u32, claim: &mut Claim) -> Option<Taken<'_>> {
        if let Some(unsent) = self.unsent.get(index as usize) {
            // Only one thread reaps a socket's completions.
            let left = unsent.load(Ordering::Relaxed);
            if left > 1 {
                unsent.store(left - 1, Ordering::Relaxed);
                return None;
            }
        }
        self.arrive(index, claim)
    }

    /// Number of the frame that an address of the UMEM is in; it may not exist.
    #[inline]
    pub(super) fn index_of(&self, addr: u64) -> u32 {
        self.umem.index_of(addr)
    }

    /// Prefetches the first bytes of a frame and the line in front of them, for outer headers. The
    /// kernel usually wrote them on another CPU.
    #[inline]
    pub(super) fn prefetch(&self, index: u32, offset: usize) {
        let at = index as usize * self.umem.frame_bytes as usize + offset;
        for line in [0, LINE_BYTES, 2 * LINE_BYTES] {
            self.umem.area.prefetch((at + line).saturating_sub(LINE_BYTES));
        }
    }

    #[cold]
    pub(super) fn violation(&self) {
        self.violation_count.fetch_add(1, Ordering::Relaxed);
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        // A panic cannot leave the list of numbers inconsistent.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Exclusive ownership of a frame in user space; dropping it frees the frame.
#[derive(Debug)]
pub struct Taken<'p> {
    pool: &'p Pool,
    index: u32,
}

impl<'p> Taken<'p> {
    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// All of its bytes.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        let len = self.pool.umem.frame_bytes as usize;
        let at = self.pool.umem.area.at(self.index as usize * len, len);
        // SAFETY: `at` checked that the range lies in the UMEM, which lives as long as the
        // pool. The frame is in state Taken, which is entered by taking it off the list, by a
        // compare-exchange from Parked, or from a socket's state through its only `Claim`: there
        // is one `Taken` of it, borrowed mutably here, and the kernel does not own it.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) }
    }

    /// Parks the frame under its number, for [`Pool::claim`] by any thread.
    #[inline]
    pub fn park(self) -> u32 {
        self.leave(State::PARKED)
    }

    /// Passes the frame to the kernel, to be sent in `chunks` chunks.
    #[inline]
    pub(super) fn leave_to_send(self, chunks: u8, claim: &Claim) -> u32 {
        self.pool.unsent[self.index as usize].store(chunks, Ordering::Relaxed);
        self.leave(claim.0)
    }

    pub(super) fn is_from(&self, pool: &Pool) -> bool {
        std::ptr::eq(self.pool, pool)
    }

    /// Moves the frame to another state; its next owner sees all writes.
    #[inline]
    pub(super) fn leave(self, to: State) -> u32 {
        let index = self.index;
        self.pool.states[index as usize].store(to.0, Ordering::Release);
        std::mem::forget(self);
        index
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.pool.states[self.index as usize].store(State::FREE.0, Ordering::Release);
        self.pool.free().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_frames_do_not_overlap_and_come_back_when_dropped() {
        let pool = Pool::allocate(2048, 3).expect("it is small");
        let mut frames = Vec::new();
        pool.take(&mut frames, 9);
        assert_eq!(frames.len(), 3);
        for (n, frame) in frames.iter_mut().enumerate() {
            frame.bytes().fill(n as u8);
        }
        for (n, frame) in frames.iter_mut().enumerate() {
            assert!(frame.bytes().iter().all(|byte| *byte == n as u8));
        }
        drop(frames.pop());
        pool.give_back(frames);
        let all = PoolBalance { frame_count: 3, free_count: 3, ..PoolBalance::default() };
        assert_eq!(pool.balance(), all);
        assert!(all.balances());
    }

    #[test]
    fn parked_frame_is_claimed_once_and_others_not_at_all() {
        let pool = Pool::allocate(2048, 2).expect("it is small");
        let mut frames = Vec::new();
        pool.take(&mut frames, 1);
        let mut frame = frames.pop().expect("there are two");
        frame.bytes()[7] = 42;
        let index = frame.park();
        assert_eq!(pool.balance().ours_count, 1);
        let mut claimed = pool.claim(index).expect("it is parked");
        assert_eq!(claimed.bytes()[7], 42);
        assert!(pool.claim(index).is_none(), "taken");
        assert!(pool.claim(1).is_none(), "free");
        assert!(pool.claim(2).is_none(), "beyond the last");
        drop(claimed);
        let balance = pool.balance();
        assert_eq!((balance.free_count, balance.violation_count), (2, 3));
        assert!(!balance.balances());
    }

    #[test]
    fn frame_of_several_chunks_comes_back_with_the_last_of_them() {
        let pool = Pool::allocate(12_288, 2).expect("it is small");
        assert!(pool.spans_chunks() && !Pool::allocate(4096, 1).expect("it is").spans_chunks());
        assert!(Pool::allocate(6144, 1).is_err() && Pool::allocate(5 * 4096, 1).is_err());
        let [_, mut claim] = pool.claims().expect("it is the first socket");
        let mut frames = Vec::new();
        pool.take(&mut frames, 1);
        let mut frame = frames.pop().expect("there are two");
        assert_eq!(frame.bytes().len(), 12_288);
        let index = frame.leave_to_send(3, &claim);
        for _ in 0..2 {
            assert!(pool.chunk_sent(index, &mut claim).is_none());
        }
        assert_eq!(pool.balance().sending_count, 1);
        drop(pool.chunk_sent(index, &mut claim).expect("the last"));
        assert!(pool.chunk_sent(index, &mut claim).is_none(), "there was no fourth");
        let balance = pool.balance();
        assert_eq!((balance.free_count, balance.violation_count), (2, 1));
    }

    #[test]
    fn frame_that_one_socket_has_does_not_arrive_through_another() {
        let pool = Pool::allocate(2048, 2).expect("it is small");
        let [mut rx, mut tx] = pool.claims().expect("there is room");
        let [mut other_rx, mut other_tx] = pool.claims().expect("there is room");
        let mut frames = Vec::new();
        pool.take(&mut frames, 2);
        let sent = frames.pop().expect("there are two").leave_to_send(1, &tx);
        let posted = frames.pop().expect("there are two").leave(rx.state());
        let balance = pool.balance();
        assert_eq!((balance.receiving_count, balance.sending_count), (1, 1));
        for claim in [&mut rx, &mut other_rx, &mut other_tx] {
            assert!(pool.arrive(sent, claim).is_none());
        }
        for claim in [&mut tx, &mut other_rx, &mut other_tx] {
            assert!(pool.arrive(posted, claim).is_none());
        }
        assert!(pool.claim(sent).is_none(), "it is not parked");
        drop(pool.chunk_sent(sent, &mut tx).expect("it is its own"));
        drop(pool.arrive(posted, &mut rx).expect("it is its own"));
        assert_eq!((pool.balance().free_count, pool.balance().violation_count), (2, 7));
    }

    #[test]
    fn sockets_beyond_the_last_get_no_claims() {
        let pool = Pool::allocate(2048, 1).expect("it is small");
        let claims: Vec<_> = std::iter::from_fn(|| pool.claims()).collect();
        assert_eq!(claims.len(), usize::from(SOCKET_COUNT_MAX));
        let mut states: Vec<_> = claims.iter().flatten().map(|claim| claim.0.0).collect();
        states.dedup();
        assert_eq!(states.len(), 2 * usize::from(SOCKET_COUNT_MAX), "each has its own");
        assert!(claims.iter().all(|[rx, tx]| rx.0.is_receiving() && tx.0.is_sending()));
    }

    #[test]
    fn address_is_in_the_frame_that_it_is_in() {
        for frame_bytes in [2048, 4096, 8192, 12_288, 16_384] {
            let pool = Pool::allocate(frame_bytes, 4).expect("it is small");
            for addr in (0..u64::from(frame_bytes) * 5).step_by(512) {
                assert_eq!(u64::from(pool.index_of(addr)), addr / u64::from(frame_bytes));
            }
            assert!(pool.index_of(u64::MAX) >= 4, "no frame has this number");
        }
    }

    #[test]
    fn frame_of_another_pool_is_not_taken_in() {
        let (one, other) = (Pool::allocate(2048, 1), Pool::allocate(2048, 1));
        let (one, other) = (one.expect("it is small"), other.expect("it is small"));
        let mut frames = Vec::new();
        one.take(&mut frames, 1);
        other.give_back(frames);
        assert_eq!((one.balance().free_count, other.balance().free_count), (1, 1));
    }

    #[test]
    fn frames_pass_between_threads_by_number() {
        let pool = Pool::allocate(2048, 8).expect("it is small");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Miri takes its time.
                for round in 0..if cfg!(miri) { 50 } else { 1000_u32 } {
                    let mut frames = Vec::new();
                    while frames.is_empty() {
                        pool.take(&mut frames, 1);
                    }
                    for mut frame in frames {
                        frame.bytes()[..4].copy_from_slice(&round.to_ne_bytes());
                        sender.send(frame.park()).expect("the receiver waits");
                    }
                }
                drop(sender);
            });
            for (round, index) in receiver.iter().enumerate() {
                let mut frame = pool.claim(index).expect("it was parked");
                assert_eq!(frame.bytes()[..4], (round as u32).to_ne_bytes());
            }
        });
        assert_eq!(pool.balance().free_count, 8);
    }
}
