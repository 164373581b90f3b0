//! Sends by MSG_ZEROCOPY: batches that the kernel reads in place, written again when it reports their
//! end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use sys::socket;
use sys::udp::Batch;
use sys::zero_copy::{self, Finished};

use super::{POLL_TIMEOUT, STALL_TIMEOUT, UdpEngine};
use crate::engine::EngineReport;
use crate::error::IoError;

/// Batches of a socket: one is filled while others are on their way.
const BATCHES: usize = 8;

/// A batch and the numbers of its sends.
#[derive(Debug)]
struct Slab {
    batch: Batch,
    first: u32,
    sent: u32,
    unfinished: u32,
}

/// The sends of one socket.
#[derive(Debug)]
pub(super) struct Pinned {
    slabs: Vec<Slab>,
    at: usize,
    /// Number of the next send: the kernel counts them from 0.
    next: u32,
    /// Sends whose pages the kernel used.
    pub(super) used_count: u64,
    /// Sends that it copied after all.
    pub(super) copied_count: u64,
}

impl Pinned {
    pub(super) fn new(fd: BorrowedFd<'_>, slots: usize, slot_bytes: usize) -> io::Result<Self> {
        zero_copy::enable(fd)?;
        let batches = (0..BATCHES).map(|_| Batch::new(slots, slot_bytes));
        let slabs =
            batches.map(|batch| Ok(Slab { batch: batch?, first: 0, sent: 0, unfinished: 0 }));
        let slabs = slabs.collect::<io::Result<Vec<_>>>()?;
        Ok(Pinned { slabs, at: 0, next: 0, used_count: 0, copied_count: 0 })
    }

    /// The batch to fill; `None` while the kernel still reads it.
    pub(super) fn free(&mut self) -> Option<&mut Batch> {
        let slab = &mut self.slabs[self.at];
        (slab.unfinished == 0).then_some(&mut slab.batch)
    }

    /// Sends `count` slots from `first` of the batch to fill; returns how many went.
    pub(super) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        first: usize,
        count: usize,
    ) -> io::Result<usize> {
        let slab = &mut self.slabs[self.at];
        let went = slab.batch.send_pinned(fd, first, count)?;
        if first == 0 {
            (slab.first, slab.sent) = (self.next, 0);
        }
        slab.sent += went as u32;
        slab.unfinished += went as u32;
        self.next = self.next.wrapping_add(went as u32);
        Ok(went)
    }

    /// Turns to the next batch.
    pub(super) fn turn(&mut self) {
        self.at = (self.at + 1) % self.slabs.len();
    }

    pub(super) fn unfinished(&self) -> u32 {
        self.slabs.iter().map(|slab| slab.unfinished).sum()
    }

    /// Reads all notifications that are there.
    pub(super) fn reap(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        while let Some(end) = zero_copy::finished(fd)? {
            self.finish(end);
        }
        Ok(())
    }

    fn finish(&mut self, end: Finished) {
        for slab in self.slabs.iter_mut().filter(|slab| slab.unfinished > 0) {
            // Numbers from the slab's first on, which pass 2^32.
            let (low, high) = (since(slab.first, end.first), since(slab.first, end.last));
            let count = (high.min(i64::from(slab.sent) - 1) - low.max(0) + 1).max(0) as u32;
            let count = count.min(slab.unfinished);
            slab.unfinished -= count;
            let counter = if end.is_copied { &mut self.copied_count } else { &mut self.used_count };
            *counter += u64::from(count);
        }
    }
}

impl UdpEngine {
    /// Sends up to `want` datagrams by MSG_ZEROCOPY, once the kernel has finished with a batch.
    pub(super) fn send_pinned(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        let (size, segments) = (self.payload_bytes, self.segments);
        let begun = Instant::now();
        while self.pinned[flow].free().is_none() {
            self.reap_pinned()?;
            if self.pinned[flow].free().is_none() {
                // The error queue makes the socket ready, without being asked for.
                let ready = socket::wait(self.sockets[flow].as_fd(), false, POLL_TIMEOUT);
                ready.map_err(|e| self.system("poll", e))?;
                self.check_stall(begun)?;
            }
        }
        let Some(batch) = self.pinned[flow].free() else { return Ok(0) };
        let (mut left, mut slots) = (want, 0);
        while left > 0 && slots < batch.slots() {
            let count = left.min(segments);
            for part in batch.payload(slots)[..count * size].chunks_mut(size) {
                fill(part);
            }
            batch.set(slots, count * size, None, if count > 1 { size as u16 } else { 0 });
            left -= count;
            slots += 1;
        }
        let mut sent = 0;
        while sent < slots {
            self.syscall_count += 1;
            let fd = self.sockets[flow].as_fd();
            match self.pinned[flow].send(fd, sent, slots - sent) {
                Ok(went) => sent += went,
                Err(e) if self.passing(&e) => {
                    // ENOBUFS: notifications occupy the socket's memory for options.
                    self.reap_pinned()?;
                    self.check_stall(begun)?;
                }
                Err(e) => return Err(self.system("sendmmsg", e)),
            }
        }
        if slots > 0 {
            self.pinned[flow].turn();
        }
        Ok(want - left)
    }

    /// True if this end sends by MSG_ZEROCOPY.
    pub(super) fn sends_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }

    /// Reads the notifications of finished sends.
    pub(super) fn reap_pinned(&mut self) -> Result<(), IoError> {
        for flow in 0..self.pinned.len() {
            self.syscall_count += 1;
            let reaped = self.pinned[flow].reap(self.sockets[flow].as_fd());
            reaped.map_err(|e| self.system("MSG_ERRQUEUE", e))?;
        }
        Ok(())
    }

    /// Sends whose end was not reported yet.
    fn unfinished_count(&self) -> u32 {
        self.pinned.iter().map(Pinned::unfinished).sum()
    }

    /// Waits for the last notifications, and reports.
    pub(super) fn finish_pinned(&mut self, report: &mut EngineReport) {
        let begun = Instant::now();
        while self.unfinished_count() > 0 && begun.elapsed() < STALL_TIMEOUT {
            if self.reap_pinned().is_err() {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let used: u64 = self.pinned.iter().map(|pinned| pinned.used_count).sum();
        let copied: u64 = self.pinned.iter().map(|pinned| pinned.copied_count).sum();
        report.counters.extend([
            ("zero_copy_send_count".into(), used),
            ("zero_copy_send_copied_count".into(), copied),
            ("zero_copy_send_unfinished_count".into(), self.unfinished_count().into()),
        ]);
        if used == 0 && copied > 0 {
            report.not_effective.push((
                "zero-copy-send".into(),
                format!(
                    "the kernel copied all {copied} sends of {} (SO_EE_CODE_ZEROCOPY_COPIED)",
                    self.ifname
                ),
            ));
        }
    }
}

/// Distance from `first` to `number`, modulo 2^32.
fn since(first: u32, number: u32) -> i64 {
    i64::from(number.wrapping_sub(first) as i32)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    fn left(pinned: &Pinned) -> [u32; 3] {
        [0, 1, 2].map(|n| pinned.slabs[n].unfinished)
    }

    #[test]
    fn a_batch_is_free_when_all_its_sends_are_reported_in_any_order() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut pinned = Pinned::new(socket.as_fd(), 4, 64).unwrap();
        // Slabs of four sends, whose numbers pass 2^32.
        let firsts = [u32::MAX - 5, u32::MAX - 1, 2];
        for (slab, first) in pinned.slabs.iter_mut().zip(firsts) {
            (slab.first, slab.sent, slab.unfinished) = (first, 4, 4);
        }
        pinned.finish(Finished { first: 2, last: 3, is_copied: true });
        assert_eq!(left(&pinned), [4, 4, 2]);
        pinned.finish(Finished { first: u32::MAX - 3, last: u32::MAX, is_copied: false });
        assert_eq!(left(&pinned), [2, 2, 2]);
        pinned.finish(Finished { first: 0, last: 1, is_copied: true });
        pinned.finish(Finished { first: u32::MAX - 5, last: u32::MAX - 4, is_copied: true });
        assert_eq!(left(&pinned), [0, 0, 2]);
        assert_eq!((pinned.used_count, pinned.copied_count), (4, 6));
        assert!(pinned.free().is_some());
        pinned.at = 2;
        assert!(pinned.free().is_none());
    }
}
