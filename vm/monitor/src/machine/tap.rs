//! The TAP back end: a write a frame, a read a frame, and poll() before each.
//!
//! Frames of an interface with headers carry offloads: a frame is then up to 64 KiB, and the kernel cuts it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sys::tap::{OFFLOAD_CHECKSUM, OFFLOAD_TCP_V4, OFFLOAD_TCP_V6, Tap};

use super::backend::{Receiver, Sender};
use crate::lance::Sent;
use crate::offload::{OffloadHeader, Offloads};

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
    header: OffloadHeader,
}

/// Both halves of a TAP interface.
pub fn tap_backend(tap: &Tap) -> io::Result<(TapSender, TapReceiver)> {
    let sender = TapSender { tap: tap.try_clone()?, calls: 0, refused_count: 0 };
    let header = OffloadHeader::FINISHED;
    Ok((sender, TapReceiver { tap: tap.try_clone()?, calls: 0, header }))
}

impl TapSender {
    /// Sends one frame, with the work that `header` leaves to the kernel: only an interface with headers takes any.
    pub fn send_offloaded(&mut self, header: &OffloadHeader, frame: &[u8]) -> Sent {
        self.calls += 1;
        let written = if self.tap.has_header() {
            self.tap.write_with_header(&header.to_bytes(), frame)
        } else {
            self.tap.write(frame)
        };
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Busy,
            // As on a wire whose other end is off.
            Err(_) => self.refused_count += 1,
        }
        Sent::Taken
    }

    /// Sets the work that the kernel may leave on received frames, at first all that it knows.
    pub fn set_offloads(&mut self, offloads: Offloads) {
        let Offloads { checksum, tcp_v4, tcp_v6 } = offloads;
        let bits =
            [(checksum, OFFLOAD_CHECKSUM), (tcp_v4, OFFLOAD_TCP_V4), (tcp_v6, OFFLOAD_TCP_V6)];
        let bits = bits.iter().filter(|(is_on, _)| *is_on).fold(0, |all, (_, bit)| all | bit);
        if self.tap.has_header() {
            self.calls += 1;
            // The kernel refuses only what it does not know. A card drops frames with work that its driver does not
            // accept.
            let _ = self.tap.set_offloads(bits);
        }
    }
}

impl Sender for TapSender {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.send_offloaded(&OffloadHeader::FINISHED, frame)
    }

    fn call_count(&self) -> u64 {
        self.calls
    }

    fn refused_count(&self) -> u64 {
        self.refused_count
    }
}

impl TapReceiver {
    /// Work that is left on the frame that was received last.
    pub fn header(&self) -> OffloadHeader {
        self.header
    }
}

impl Receiver for TapReceiver {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        self.calls += 1;
        let mut header = OffloadHeader::FINISHED.to_bytes();
        let read = if self.tap.has_header() {
            self.tap.read_with_header(&mut header, into)
        } else {
            self.tap.read(into)
        };
        self.header = OffloadHeader::from_bytes(&header);
        match read {
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
