//! The network side: a sender, which the device holds, and a receiver, which its thread asks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use sys::clock::monotonic_ns;

use crate::bus::InPlace;
use crate::lance::{NetworkSide, Sent};

/// Transmit half of a back end.
pub trait Sender: Send {
    /// Sends one frame; [`Sent::Busy`] if there is no room now.
    fn send(&mut self, frame: &[u8]) -> Sent;

    /// Hands over what was collected, when the device has looked through its ring.
    fn flush(&mut self) {}

    /// Frames that were taken and that the last [`flush`](Sender::flush) did not hand over: it is
    /// to be asked again soon, also when no other frame is sent.
    fn unsent_count(&self) -> u64 {
        0
    }

    /// System calls so far.
    fn call_count(&self) -> u64;

    /// Frames that were taken and that the kernel then refused.
    fn refused_count(&self) -> u64 {
        0
    }

    /// The side that has guest memory; `None` if frames are copied.
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        None
    }
}

/// Both halves of a back end.
pub type Halves = (Box<dyn Sender>, Box<dyn Receiver>);

/// Receive half of a back end, read by the device's thread.
pub trait Receiver: Send {
    /// Copies the next frame into `into` and returns its length; `None` when none waits.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// True if a frame waits, read from shared memory without a system call; `None` if that needs
    /// poll().
    fn looks(&self) -> Option<bool> {
        None
    }

    /// Becomes readable when a frame waits; `None` for a back end that never receives.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// System calls so far.
    fn call_count(&self) -> u64;
}

/// The device's wire over a [`Sender`].
pub(super) struct SenderWire<'a> {
    pub(super) sender: &'a mut dyn Sender,
    /// Time spent sending, nanoseconds; `None` if it is not measured, since reading the clock for
    /// every frame has a cost.
    pub(super) send_ns: Option<u64>,
}

impl NetworkSide for SenderWire<'_> {
    fn send(&mut self, frame: &[u8]) -> Sent {
        let Some(before_ns) = self.send_ns else { return self.sender.send(frame) };
        let begin_ns = monotonic_ns();
        let sent = self.sender.send(frame);
        self.send_ns = Some(before_ns + (monotonic_ns() - begin_ns));
        sent
    }

    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        self.sender.in_place()
    }
}

/// Frames copied out of a ring's block, which goes back to the kernel at once.
#[derive(Debug, Default)]
pub(super) struct Copies {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Copies {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, frame: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        self.waiting.push_back(copy);
    }

    /// Copies the oldest into `into`, as much as there is room for; its length there.
    pub(super) fn pop(&mut self, into: &mut [u8]) -> Option<usize> {
        let frame = self.waiting.pop_front()?;
        let len = frame.len().min(into.len());
        into[..len].copy_from_slice(&frame[..len]);
        self.spare.push(frame);
        Some(len)
    }
}

/// A back end that counts what is sent and never receives: the device without a network.
#[derive(Debug, Default)]
pub struct CountingSink {
    /// Frames sent.
    pub frame_count: u64,
}

impl Sender for CountingSink {
    fn send(&mut self, _: &[u8]) -> Sent {
        self.frame_count += 1;
        Sent::Taken
    }

    fn call_count(&self) -> u64 {
        0
    }
}

/// The receiving side of a [`CountingSink`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Silence;

impl Receiver for Silence {
    fn receive(&mut self, _: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn call_count(&self) -> u64 {
        0
    }
}
