//! The other shared-ring back end: AF_XDP rings on one end of a veth.
//!
//! Frames that arrive are taken in front of the stack; a pass over the device's ring is a call for
//! every 32 frames where the kernel copies them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ::io::{IoError, XdpFrameRx, XdpFrameTx, XdpMode, open_xdp_frames};

use super::backend::{Copies, Receiver, Sender};
use crate::lance::Sent;

/// Sends through AF_XDP.
#[derive(Debug)]
pub struct XdpSender {
    ring: XdpFrameTx,
}

/// Receives from AF_XDP.
#[derive(Debug)]
pub struct XdpReceiver {
    ring: XdpFrameRx,
    taken: Copies,
}

/// Both rings on queue 0 of an interface of the calling thread's network namespace.
///
/// Errors: without CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW; an interface that is gone or down.
pub fn xdp_backend(ifindex: u32, ifname: &str) -> Result<(XdpSender, XdpReceiver), IoError> {
    let (tx, rx) = open_xdp_frames(ifindex, ifname, XdpMode::Native)?;
    Ok((XdpSender { ring: tx }, XdpReceiver { ring: rx, taken: Copies::default() }))
}

impl Sender for XdpSender {
    fn send(&mut self, frame: &[u8]) -> Sent {
        if self.ring.post(frame) {
            return Sent::Taken;
        }
        self.flush();
        if self.ring.post(frame) { Sent::Taken } else { Sent::Busy }
    }

    fn flush(&mut self) {
        // A link that is down loses frames; a ring that is not empty is kicked with the next.
        let _ = self.ring.kick();
    }

    fn unsent_count(&self) -> u64 {
        self.ring.unsent_count()
    }

    fn call_count(&self) -> u64 {
        self.ring.kick_count
    }

    fn refused_count(&self) -> u64 {
        self.ring.refused_count
    }
}

impl Receiver for XdpReceiver {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if self.taken.is_empty() {
            let taken = &mut self.taken;
            self.ring.take(|frame| taken.push(frame));
        }
        Ok(self.taken.pop(into))
    }

    fn looks(&self) -> Option<bool> {
        Some(!self.taken.is_empty() || self.ring.ready())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn call_count(&self) -> u64 {
        0
    }
}
