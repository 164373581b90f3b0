//! The TAP back end: a write a frame, a read a frame, and poll() before each.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sys::tap::Tap;

use super::backend::{Receiver, Sender};
use crate::lance::Sent;

/// Sends by write().
#[derive(Debug)]
pub struct TapSender {
    tap: Tap,
    calls: u64,
    /// The interface is down, or they are too long.
    refused_count: u64,
}

/// Receives by read().
#[derive(Debug)]
pub struct TapReceiver {
    tap: Tap,
    calls: u64,
}

/// Both halves of a TAP interface.
pub fn tap_backend(tap: &Tap) -> io::Result<(TapSender, TapReceiver)> {
    let sender = TapSender { tap: tap.try_clone()?, calls: 0, refused_count: 0 };
    Ok((sender, TapReceiver { tap: tap.try_clone()?, calls: 0 }))
}

impl Sender for TapSender {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.calls += 1;
        match self.tap.write(frame) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Busy,
            // As on a wire whose other end is off.
            Err(_) => self.refused_count += 1,
        }
        Sent::Taken
    }

    fn call_count(&self) -> u64 {
        self.calls
    }

    fn refused_count(&self) -> u64 {
        self.refused_count
    }
}

impl Receiver for TapReceiver {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        self.calls += 1;
        match self.tap.read(into) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tap.as_fd())
    }

    fn call_count(&self) -> u64 {
        self.calls
    }
}
