//! The receive engine.

use super::Lance;
use super::csr::{self, RUNT_ACCEPT, csr0, csr4, csr5, mode};
use super::filter::{self, Match};
use super::ring::{Ring, RingKind, status};
use super::transmit::{FRAME_BYTES_MAX, STANDARD_BYTES_MIN};
use crate::bus::{BusError, GuestMemory, Reception};

/// State of a frame's check sequence. Back ends deliver none, so theirs is always right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fcs {
    Right,
    Wrong,
}

impl Lance {
    /// True if [`Lance::receive`] would accept a frame now.
    pub fn can_receive(&self) -> bool {
        self.csr.any(csr::STATUS, csr0::RXON) && !self.csr.any(csr::EXTENDED, csr5::SPND)
    }

    /// Receives a frame from the network, without its check sequence.
    pub fn receive(&mut self, memory: &impl GuestMemory, frame: &[u8]) -> Reception {
        if !self.can_receive() {
            return Reception::Off;
        }
        // In loopback the receiver hears only its own transmitter.
        if self.csr.any(csr::MODE, mode::LOOP) {
            return Reception::Filtered;
        }
        if frame.len() > FRAME_BYTES_MAX || frame.len() < 14 {
            self.counters.rx_malformed_count += 1;
            return Reception::Lost;
        }
        self.take(memory, frame, Fcs::Right, true)
    }

    /// Receives what the own transmitter sent.
    pub(super) fn loop_back(&mut self, memory: &impl GuestMemory, frame: &[u8], fcs: Fcs) {
        if !self.can_receive() {
            return;
        }
        let runt = frame.len() < STANDARD_BYTES_MIN;
        if frame.len() < 6 || runt && !self.csr.any(csr::TEST, RUNT_ACCEPT) {
            self.counters.rx_malformed_count += 1;
            return;
        }
        self.take(memory, frame, fcs, false);
    }

    fn take(&mut self, memory: &impl GuestMemory, frame: &[u8], fcs: Fcs, pad: bool) -> Reception {
        let Some(destination) = frame.first_chunk::<6>() else { return Reception::Lost };
        let Some(reason) = filter::accept(&self.csr, *destination) else {
            self.counters.rx_filtered_count += 1;
            return Reception::Filtered;
        };
        let mut message = std::mem::take(&mut self.rx_frame);
        message.clear();
        message.extend_from_slice(frame);
        if pad && message.len() < STANDARD_BYTES_MIN {
            message.resize(STANDARD_BYTES_MIN, 0);
        }
        self.finish(&mut message, fcs);
        let stored = self.store(memory, &message, fcs, reason);
        self.rx_frame = message;
        match stored {
            Ok(true) => {
                self.counters.rx_frame_count += 1;
                self.counters.rx_bytes += frame.len() as u64;
                Reception::Stored
            }
            Ok(false) => {
                self.miss();
                Reception::Lost
            }
            Err(_) => {
                self.bus_error();
                Reception::Lost
            }
        }
    }

    /// Appends the check sequence, or strips the pad bytes with it.
    fn finish(&self, message: &mut Vec<u8>, fcs: Fcs) {
        if self.csr.any(csr::FEATURES, csr4::ASTRP_RCV)
            && let Some(&[high, low]) = message.get(12..14)
        {
            let len = usize::from(u16::from_be_bytes([high, low]));
            if len < 46 && message.len() >= STANDARD_BYTES_MIN {
                message.truncate(14 + len);
                return;
            }
        }
        let right = crc32fast::hash(message);
        let sequence = if fcs == Fcs::Right { right } else { !right };
        message.extend_from_slice(&sequence.to_le_bytes());
    }

    /// Writes a message into the buffers of the ring. `Ok(false)` when not even the first
    /// descriptor is ours.
    fn store(
        &mut self,
        memory: &impl GuestMemory,
        message: &[u8],
        fcs: Fcs,
        reason: Match,
    ) -> Result<bool, BusError> {
        self.expect_bus_master(self.csr.pair(csr::RX_BASE))?;
        let high = self.high_address();
        let mut ring = Ring::new(&self.csr, self.bcr.style(), RingKind::Rx);
        self.rx_used = 0;
        let mut descriptor = ring.load(memory, 0)?;
        if !descriptor.is_owned() {
            return Ok(false);
        }
        let mut rest = message;
        let mut begin = status::STP;
        for used in 1..=ring.len() {
            self.rx_used = used;
            let (part, after) = rest.split_at(rest.len().min(descriptor.len_bytes()));
            let buffer = high | descriptor.buffer;
            memory.write(buffer, part)?;
            self.csr.set_pair(csr::RX_BUFFER, buffer);
            self.csr.set(csr::RX_COUNT_STATUS, descriptor.count);
            self.csr.set(csr::RX_COUNT_STATUS + 1, descriptor.status);
            rest = after;
            if rest.is_empty() {
                let wrong = if fcs == Fcs::Wrong { status::CRC | status::ERR } else { 0 };
                let status = begin | status::ENP | reason.status() | wrong;
                descriptor.close_rx(memory, status, Some(message.len() as u16))?;
                ring.advance(&mut self.csr, RingKind::Rx, used);
                break;
            }
            // The next one: of a chain as long as the ring it would be the first, used up.
            let next = ring.load(memory, u32::from(used))?;
            if used == ring.len() || !next.is_owned() {
                let torn = status::OFLO | status::BUFF | status::ERR;
                descriptor.close_rx(memory, begin | torn, None)?;
                ring.advance(&mut self.csr, RingKind::Rx, used);
                self.counters.rx_torn_count += 1;
                break;
            }
            descriptor.close_rx(memory, begin, None)?;
            descriptor = next;
            begin = 0;
        }
        self.csr.raise(csr::STATUS, csr0::RINT);
        Ok(true)
    }

    fn miss(&mut self) {
        self.counters.rx_missed_count += 1;
        self.csr.raise(csr::STATUS, csr0::MISS);
        let missed = self.csr.get(csr::MISSED).wrapping_add(1);
        self.csr.set(csr::MISSED, missed);
        if missed == 0 {
            self.csr.raise(csr::FEATURES, csr4::MFCO);
        }
    }
}
