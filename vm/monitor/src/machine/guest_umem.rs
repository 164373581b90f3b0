//! The back end over guest memory: AF_XDP rings whose UMEM is the guest's own, so that this process copies no
//! frame.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ::io::{GuestFrames, IoError, open_guest_frames};
use host::kvm::GuestRam;

use super::backend::{Receiver, Sender};
use crate::bus::{InPlace, Posted};
use crate::lance::Sent;

/// Both directions; the device has it, because its frames are the device's buffers.
#[derive(Debug)]
pub struct GuestUmem {
    frames: GuestFrames,
}

/// The descriptor that becomes readable when a frame has arrived.
#[derive(Debug)]
pub struct GuestUmemWait {
    fd: OwnedFd,
}

/// Rings on queue 0 of an interface of the calling thread's network namespace, over all of `ram`.
///
/// Errors: as of [`xdp_backend`](crate::xdp_backend), and a kernel that does not take `ram` as UMEM.
pub fn guest_umem_backend(
    ifindex: u32,
    ifname: &str,
    ram: &GuestRam,
) -> Result<(GuestUmem, GuestUmemWait), IoError> {
    let (frames, fd) = open_guest_frames(ifindex, ifname, ram)?;
    Ok((GuestUmem { frames }, GuestUmemWait { fd }))
}

impl Sender for GuestUmem {
    fn send(&mut self, _: &[u8]) -> Sent {
        // The card passes addresses instead; a frame that is not guest memory has no place here.
        Sent::Taken
    }

    fn flush(&mut self) {
        // A link that is down loses frames; a ring that is not empty is kicked with the next.
        let _ = self.frames.socket.kick();
    }

    fn unsent_count(&self) -> u64 {
        self.frames.socket.sending_count().into()
    }

    fn call_count(&self) -> u64 {
        self.frames.socket.wakeup_count
    }

    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        Some(self)
    }
}

impl InPlace for GuestUmem {
    fn post_send(&mut self, at: u32, len_bytes: u32) -> Posted {
        let socket = &mut self.frames.socket;
        if !socket.is_sendable(at.into(), len_bytes) {
            return Posted::Refused;
        }
        if socket.tx_post(at.into(), len_bytes) { Posted::Taken } else { Posted::Busy }
    }

    fn take_sent(&mut self) -> Option<u32> {
        // Addresses that were posted, and so of 32 bits.
        u32::try_from(self.frames.socket.tx_reap()?).ok()
    }

    fn post_receive(&mut self, at: u32) -> Posted {
        let socket = &mut self.frames.socket;
        if !socket.is_place(at.into()) {
            return Posted::Refused;
        }
        if socket.rx_post(at.into()) { Posted::Taken } else { Posted::Busy }
    }

    fn take_received(&mut self) -> Option<(u32, u32)> {
        let (at, len_bytes) = self.frames.socket.rx_take()?;
        Some((u32::try_from(at).ok()?, len_bytes))
    }

    fn cancel(&mut self) {
        self.frames.socket.rx_cancel();
    }
}

impl Receiver for GuestUmemWait {
    fn receive(&mut self, _: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn looks(&self) -> Option<bool> {
        Some(false)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn call_count(&self) -> u64 {
        0
    }
}
