//! Both engines: frames from the transmit queue, and into the receive queue.
//!
//! Source: virtio 1.2, section 5.1.6.

use super::chain::Chain;
use super::fault::DriverFault;
use super::in_place::Placed;
use super::queue::Queue;
use super::{RX, TX, VirtioNet, registers};
use crate::bus::{Bus, GuestMemory, InPlace, NetworkSide, Posted, Reception, Sent};
use crate::lance::FRAME_BYTES_MAX;

/// Bytes before every frame (5.1.6.1).
pub const HEADER_BYTES: usize = 12;
/// Descriptors after which one call leaves the rest to the next.
pub const WORK_MAX: u64 = 1024;
/// Shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: usize = 14;
/// Header of a received frame: no offload, one buffer (5.1.6.4.1).
pub(super) const RX_HEADER: [u8; HEADER_BYTES] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// How a pass over the transmit queue ended.
#[derive(Debug, Clone, Copy, Default)]
struct Pass {
    frame_count: u64,
    bytes: u64,
    dropped_count: u64,
    /// Frames that were posted where they are.
    in_place_count: u64,
    /// Chains may be left.
    is_unfinished: bool,
}

/// How the frame of a chain fared.
enum Fate {
    /// It was copied.
    Sent { bytes: u64 },
    /// The back end reads it where it is.
    InPlace { at: u32, bytes: u64 },
    /// No wire carries it.
    Dropped,
    /// There is no room for it now.
    Busy,
}

/// Chain, frame and queue for a pass.
struct Sending<'a> {
    placed: &'a mut Placed,
    queue: &'a mut Queue,
    chain: &'a mut Chain,
    frame: &'a mut Vec<u8>,
}

impl Sending<'_> {
    /// Sends what is available, up to [`WORK_MAX`] descriptors.
    fn pass<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        pass: &mut Pass,
    ) -> Result<(), DriverFault> {
        let mut descriptor_count = 0;
        while self.queue.peek(bus.memory, self.chain)? {
            if descriptor_count >= WORK_MAX {
                pass.is_unfinished = true;
                return Ok(());
            }
            descriptor_count += self.chain.descriptor_count;
            let fate = match bus.wire.in_place() {
                Some(place) => self.post(place)?,
                None => self.copy(bus)?,
            };
            let (bytes, in_place) = match fate {
                Fate::Busy => {
                    pass.is_unfinished = true;
                    return Ok(());
                }
                Fate::Dropped => (None, None),
                Fate::Sent { bytes } => (Some(bytes), None),
                Fate::InPlace { at, bytes } => (Some(bytes), Some(at)),
            };
            pass.frame_count += u64::from(bytes.is_some());
            pass.dropped_count += u64::from(bytes.is_none());
            pass.in_place_count += u64::from(in_place.is_some());
            pass.bytes = pass.bytes.saturating_add(bytes.unwrap_or(0));
            let taken = self.queue.take(self.chain);
            match in_place {
                // It is returned when the back end has finished with it.
                Some(at) => self.placed.send(at, taken),
                None => self.queue.put_used(bus.memory, taken, 0)?,
            }
        }
        Ok(())
    }

    fn copy<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
    ) -> Result<Fate, DriverFault> {
        if !self.is_frame(bus.memory)? {
            return Ok(Fate::Dropped);
        }
        Ok(match bus.wire.send(self.frame) {
            Sent::Busy => Fate::Busy,
            Sent::Taken => Fate::Sent { bytes: self.frame.len() as u64 },
        })
    }

    fn post(&mut self, place: &mut dyn InPlace) -> Result<Fate, DriverFault> {
        if !self.has_wire_length()? {
            return Ok(Fate::Dropped);
        }
        let frame = self.chain.piece(HEADER_BYTES as u32).ok_or(DriverFault::Pieces)?;
        Ok(match place.post_send(frame.at, frame.len_bytes) {
            Posted::Taken => Fate::InPlace { at: frame.at, bytes: frame.len_bytes.into() },
            Posted::Busy => Fate::Busy,
            Posted::Refused => Fate::Dropped,
        })
    }

    /// True if a wire carries a frame of the chain's length.
    fn has_wire_length(&self) -> Result<bool, DriverFault> {
        let len_bytes = self.chain.len_bytes();
        let Some(frame_bytes) = len_bytes.checked_sub(HEADER_BYTES as u64) else {
            return Err(DriverFault::Header(len_bytes));
        };
        Ok((FRAME_BYTES_MIN as u64..=FRAME_BYTES_MAX as u64).contains(&frame_bytes))
    }

    /// Copies the chain's frame; false if no wire carries one of its length.
    fn is_frame(&mut self, memory: &impl GuestMemory) -> Result<bool, DriverFault> {
        if !self.has_wire_length()? {
            return Ok(false);
        }
        self.frame.clear();
        let frame_bytes = self.chain.len_bytes() as usize - HEADER_BYTES;
        self.chain.gather(memory, HEADER_BYTES as u32, frame_bytes, self.frame)?;
        Ok(true)
    }
}

impl VirtioNet {
    /// Processes the transmit queue, and asks for a notification of what comes later.
    pub fn demand<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        self.transmit(bus);
        // A chain that came meanwhile brings no notification.
        self.has_demand |= self.rearm(bus.memory);
    }

    /// Processes the transmit queue, and asks for no notification: the owner calls again. Before it
    /// stops it calls [`Self::rearm`].
    pub fn poll<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        if !self.can_transmit() {
            return;
        }
        let queue = &mut self.queues[usize::from(TX)];
        let done = queue.as_mut().map_or(Ok(()), |queue| queue.disable_notifications(bus.memory));
        self.guard(done, ());
        self.transmit(bus);
    }

    /// Asks for a notification of the next frame to send. Returns true if one waits already.
    pub fn rearm(&mut self, memory: &impl GuestMemory) -> bool {
        if !self.can_transmit() {
            return false;
        }
        let queue = &mut self.queues[usize::from(TX)];
        let armed = queue.as_mut().map_or(Ok(false), |queue| queue.enable_notifications(memory));
        self.guard(armed, false)
    }

    fn transmit<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        self.has_demand = false;
        if !self.can_transmit() {
            return;
        }
        let Some(queue) = &mut self.queues[usize::from(TX)] else { return };
        let mut pass = Pass::default();
        let (chain, frame, placed) = (&mut self.chain, &mut self.frame, &mut self.placed);
        let mut sending = Sending { placed, queue, chain, frame };
        let done = sending.pass(bus, &mut pass);
        self.count(&pass);
        self.has_demand = pass.is_unfinished;
        let wants = done.and_then(|()| self.interrupt(TX, bus.memory));
        let wants = self.guard(wants, false);
        if pass.frame_count > pass.in_place_count {
            self.sent_silently = !wants;
        }
    }

    fn count(&mut self, pass: &Pass) {
        let counters = &mut self.counters;
        counters.tx_pass_count += 1;
        counters.tx_pass_with_frames_count += u64::from(pass.frame_count > 0);
        counters.tx_pass_frames_max = counters.tx_pass_frames_max.max(pass.frame_count);
        counters.tx_frame_count += pass.frame_count;
        counters.tx_bytes = counters.tx_bytes.saturating_add(pass.bytes);
        counters.in_place_frame_count += pass.in_place_count;
        counters.tx_dropped_count += pass.dropped_count;
    }

    /// Receives a frame from the network, without its check sequence.
    pub fn receive(&mut self, memory: &impl GuestMemory, frame: &[u8]) -> Reception {
        if !self.is_driven() {
            return Reception::Off;
        }
        if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&frame.len()) {
            self.counters.rx_malformed_count += 1;
            return Reception::Lost;
        }
        let done = self.store(memory, frame);
        self.guard(done, Reception::Off)
    }

    fn store(&mut self, memory: &impl GuestMemory, frame: &[u8]) -> Result<Reception, DriverFault> {
        let chain = &mut self.chain;
        let Some(queue) = &mut self.queues[usize::from(RX)] else { return Ok(Reception::Off) };
        // Buffers are there as a rule, and then nothing needs to tell of others.
        let mut has = queue.peek(memory, chain)?;
        if has {
            queue.disable_notifications(memory)?;
        } else if queue.enable_notifications(memory)? {
            has = queue.peek(memory, chain)?;
        }
        if !has {
            return Ok(Reception::Off);
        }
        let len_bytes = HEADER_BYTES + frame.len();
        if chain.len_bytes() < len_bytes as u64 {
            self.counters.rx_missed_count += 1;
            return Ok(Reception::Lost);
        }
        self.frame.clear();
        self.frame.extend_from_slice(&RX_HEADER);
        self.frame.extend_from_slice(frame);
        chain.scatter(memory, &self.frame)?;
        let taken = queue.take(chain);
        queue.put_used(memory, taken, len_bytes as u32)?;
        self.counters.rx_frame_count += 1;
        self.counters.rx_bytes = self.counters.rx_bytes.saturating_add(frame.len() as u64);
        self.interrupt(RX, memory)?;
        Ok(Reception::Stored)
    }

    /// Raises an interrupt for what was returned to a queue, if its driver wants one. Returns true if it does.
    pub(super) fn interrupt(
        &mut self,
        queue: u16,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        let Some(returned) = &mut self.queues[usize::from(queue)] else { return Ok(false) };
        let wants = returned.wants_interrupt(memory)?;
        if wants {
            self.causes |= registers::CAUSE_USED;
            self.tells_received |= queue == RX;
        }
        Ok(wants)
    }
}
