//! The transmit engine.

use super::Lance;
use super::csr::{self, csr0, csr3, csr4, csr5, mode};
use super::receive::Fcs;
use super::ring::{Ring, RingKind, WORK_MAX, status, tx_error};
use crate::bus::{Bus, BusError, GuestMemory, NetworkSide, Sent};

/// Longest frame that is sent; the sum of a chain's buffers may ask for more.
pub const FRAME_BYTES_MAX: usize = 4096;
/// Longest frame of the standard, check sequence not counted.
const STANDARD_BYTES_MAX: usize = 1514;
/// Shortest frame of the standard, check sequence not counted.
pub(super) const STANDARD_BYTES_MIN: usize = 60;

/// Next item in the ring.
enum Next {
    /// No descriptor that the chip owns.
    Nothing,
    /// A descriptor that begins no frame.
    Stray,
    /// A whole frame in `count` descriptors, the first and last with these status words.
    Frame { count: u16, first: u16, last: u16 },
    /// A frame of which only `count` descriptors are ours.
    Torn { count: u16 },
}

impl Lance {
    /// Sends what the transmit ring holds, at most [`WORK_MAX`] descriptors. TDMD stays set when
    /// there may be more, see [`Lance::has_demand`].
    pub(super) fn transmit<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        if !self.csr.any(csr::STATUS, csr0::TXON) {
            self.csr.clear(csr::STATUS, csr0::TDMD);
            return;
        }
        if self.csr.any(csr::EXTENDED, csr5::SPND) {
            return;
        }
        let mut frame = std::mem::take(&mut self.tx_frame);
        let sent_before = self.counters.tx_frame_count;
        if self.drain(bus, &mut frame).is_err() {
            self.bus_error();
        }
        self.tx_frame = frame;
        let sent = self.counters.tx_frame_count - sent_before;
        self.counters.tx_pass_count += 1;
        self.counters.tx_pass_with_frames_count += u64::from(sent > 0);
        self.counters.tx_pass_frames_max = self.counters.tx_pass_frames_max.max(sent);
    }

    fn drain<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        frame: &mut Vec<u8>,
    ) -> Result<(), BusError> {
        self.expect_bus_master(self.csr.pair(csr::TX_BASE))?;
        let mut left = WORK_MAX;
        self.rx_used = 0;
        // Switched off by an error of its own, or by one of the loopback's receiver.
        while left > 0 && self.csr.any(csr::STATUS, csr0::TXON) {
            let mut ring = Ring::new(&self.csr, self.bcr.style(), RingKind::Tx);
            let used = match self.gather(bus.memory, &ring, frame)? {
                Next::Nothing => {
                    self.csr.clear(csr::STATUS, csr0::TDMD);
                    return Ok(());
                }
                Next::Stray => {
                    // Not the start of a frame: returned without a status.
                    let descriptor = ring.load(bus.memory, 0)?;
                    descriptor.close_tx(bus.memory, descriptor.status, 0)?;
                    self.counters.tx_stray_count += 1;
                    1
                }
                Next::Frame { count, first, last } => {
                    let Some(errors) = self.send(bus, frame, first) else { return Ok(()) };
                    if self.csr.any(csr::MODE, mode::LOOP) {
                        // What the receiver did is work too.
                        left = left.saturating_sub(self.rx_used);
                    }
                    self.close(bus.memory, &ring, count, errors)?;
                    let wanted = if self.csr.any(csr::EXTENDED, csr5::LTINTEN) {
                        last & status::LTINT != 0
                    } else {
                        !self.csr.any(csr::EXTENDED, csr5::TOKINTD)
                    };
                    if wanted || errors != 0 {
                        self.csr.raise(csr::STATUS, csr0::TINT);
                    }
                    count
                }
                Next::Torn { count } => {
                    self.close(bus.memory, &ring, count, tx_error::BUFF | tx_error::UFLO)?;
                    self.csr.raise(csr::STATUS, csr0::TINT);
                    if !self.csr.any(csr::MASKS, csr3::DXSUFLO) {
                        self.csr.clear(csr::STATUS, csr0::TXON);
                    }
                    self.counters.tx_torn_count += 1;
                    count
                }
            };
            ring.advance(&mut self.csr, RingKind::Tx, used);
            left = left.saturating_sub(used);
        }
        Ok(())
    }

    /// Reads the next frame into `frame`, which keeps at most one byte beyond
    /// [`FRAME_BYTES_MAX`] to tell that it was too long.
    fn gather(
        &mut self,
        memory: &impl GuestMemory,
        ring: &Ring,
        frame: &mut Vec<u8>,
    ) -> Result<Next, BusError> {
        let high = self.high_address();
        let (mut first, mut len) = (0, 0);
        // A chain longer than the ring meets its own first descriptor, which it has used up.
        let limit = ring.len().min(WORK_MAX);
        for count in 0..limit {
            let descriptor = ring.load(memory, u32::from(count))?;
            if !descriptor.is_owned() {
                return Ok(if count == 0 { Next::Nothing } else { Next::Torn { count } });
            }
            if count == 0 {
                if descriptor.status & status::STP == 0 {
                    return Ok(Next::Stray);
                }
                first = descriptor.status;
            }
            let at = len;
            len += descriptor.len_bytes().min(FRAME_BYTES_MAX + 1 - at);
            // Bytes of the frame before are overwritten, not cleared first.
            if frame.len() < len {
                frame.resize(len, 0);
            }
            let buffer = high | descriptor.buffer;
            memory.read(buffer, &mut frame[at..len])?;
            self.csr.set_pair(csr::TX_BUFFER, buffer);
            self.csr.set(csr::TX_COUNT_STATUS, descriptor.count);
            self.csr.set(csr::TX_COUNT_STATUS + 1, descriptor.status);
            if descriptor.status & status::ENP != 0 {
                frame.truncate(len);
                return Ok(Next::Frame { count: count + 1, first, last: descriptor.status });
            }
        }
        Ok(Next::Torn { count: limit })
    }

    /// Sends one frame; returns its errors, or nothing when there is no room for it now.
    fn send<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        frame: &mut Vec<u8>,
        first: u16,
    ) -> Option<u32> {
        let [looped, internal, no_fcs, forced] =
            [mode::LOOP, mode::INTL, mode::DXMTFCS, mode::FCOLL]
                .map(|bit| self.csr.any(csr::MODE, bit));
        let pad = self.csr.any(csr::FEATURES, csr4::APAD_XMT);
        let append = pad || !no_fcs || first & status::ADD_FCS != 0;
        let collide = looped && internal && forced;
        if collide {
            self.csr.raise(csr::FEATURES, csr4::TXSTRT);
            self.counters.tx_collision_count += 1;
            return Some(tx_error::RTRY);
        }
        if pad && frame.len() < STANDARD_BYTES_MIN {
            frame.resize(STANDARD_BYTES_MIN, 0);
        }
        let long = frame.len() > STANDARD_BYTES_MAX + if append { 0 } else { 4 };
        // Software that appends the sequence itself is believed only as far as a switch would.
        let fcs = match frame.split_last_chunk::<4>() {
            _ if append => Fcs::Right,
            Some((body, tail)) => {
                let right = crc32fast::hash(body).to_le_bytes() == *tail;
                let len = body.len();
                frame.truncate(len);
                if right { Fcs::Right } else { Fcs::Wrong }
            }
            None => Fcs::Wrong,
        };
        let too_long = frame.len() > FRAME_BYTES_MAX;
        if !(looped && internal) {
            if too_long || fcs == Fcs::Wrong || frame.is_empty() {
                self.counters.tx_dropped_count += 1;
            } else if bus.wire.send(frame) == Sent::Busy {
                return None;
            }
        }
        if long {
            self.csr.raise(csr::STATUS, csr0::BABL);
        }
        self.csr.raise(csr::FEATURES, csr4::TXSTRT);
        self.counters.tx_frame_count += 1;
        self.counters.tx_bytes += frame.len() as u64;
        if looped && !too_long {
            self.loop_back(bus.memory, frame, fcs);
        }
        Some(0)
    }

    /// Returns `count` descriptors to the guest; the last one carries the errors.
    fn close(
        &mut self,
        memory: &impl GuestMemory,
        ring: &Ring,
        count: u16,
        errors: u32,
    ) -> Result<(), BusError> {
        for i in 0..count {
            let descriptor = ring.load(memory, u32::from(i))?;
            let errors = if i + 1 == count { errors } else { 0 };
            let kept = descriptor.status & !status::ERR;
            let status = kept | if errors != 0 { status::ERR } else { 0 };
            descriptor.close_tx(memory, status, errors)?;
        }
        Ok(())
    }
}
