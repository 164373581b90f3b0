//! The shared-ring back end: TPACKET_V3 rings on one end of a veth.
//!
//! A word in shared memory shows waiting frames; a pass over the device's ring is one call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sys::packet::{PacketRx, PacketTx};

use super::backend::{Copies, Receiver, Sender};
use crate::lance::{FRAME_BYTES_MAX, Sent};

/// Slots of the transmit ring.
const TX_SLOTS: usize = 256;
/// Bytes of the receive ring.
const RX_BYTES: usize = 1 << 20;
/// Frames taken from the ring at a time: as many as are copied out of a block before it goes
/// back to the kernel.
const BATCH: usize = 64;

/// Sends through a ring.
#[derive(Debug)]
pub struct RingSender {
    ring: PacketTx,
}

/// Receives from a ring.
#[derive(Debug)]
pub struct RingReceiver {
    ring: PacketRx,
    taken: Copies,
}

/// Both rings on an interface of the calling thread's network namespace.
///
/// Errors: `PermissionDenied` without CAP_NET_RAW; ENODEV, ENETDOWN for the interface.
pub fn ring_backend(ifindex: u32) -> io::Result<(RingSender, RingReceiver)> {
    // A guest may send frames that are too long for the wire: one is lost, not all behind it.
    let ring = PacketTx::open_dropping(ifindex, FRAME_BYTES_MAX, TX_SLOTS)?;
    let sender = RingSender { ring };
    let ring = PacketRx::open_all(ifindex, RX_BYTES)?;
    Ok((sender, RingReceiver { ring, taken: Copies::default() }))
}

impl RingSender {
    fn post(&mut self, frame: &[u8]) -> bool {
        self.ring.post(1, frame.len(), |slot| slot.copy_from_slice(frame)) > 0
    }
}

impl Sender for RingSender {
    fn send(&mut self, frame: &[u8]) -> Sent {
        if self.post(frame) {
            return Sent::Taken;
        }
        self.ring.reap();
        if self.post(frame) {
            return Sent::Taken;
        }
        self.flush();
        Sent::Busy
    }

    fn flush(&mut self) {
        if self.ring.requested() > 0 {
            // A link that is down keeps them until it is up; a socket whose memory is with
            // receivers, until they give some back. Either way the call says that all is well
            // once it took any.
            let _ = self.ring.kick();
            self.ring.reap();
        }
    }

    fn unsent_count(&self) -> u64 {
        self.ring.requested() as u64
    }

    fn call_count(&self) -> u64 {
        self.ring.kick_count
    }

    fn refused_count(&self) -> u64 {
        self.ring.refused_count
    }
}

impl Receiver for RingReceiver {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if self.taken.is_empty() {
            let taken = &mut self.taken;
            self.ring.take(BATCH, |frame, whole, _| {
                // One that was cut is not a frame any more.
                if frame.len() == whole {
                    taken.push(frame);
                }
            });
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
