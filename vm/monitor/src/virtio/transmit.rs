//! The sending engine: frames from the transmit queues.
//!
//! Source: virtio 1.2, sections 5.1.6.2 and 5.1.6.3.

use super::chain::Chain;
use super::fault::DriverFault;
use super::in_place::Placed;
use super::queue::Queue;
use super::{TX, VirtioNet};
use crate::bus::{Bus, GuestMemory, InPlace, NetworkSide, Posted, Sent};
use crate::lance::FRAME_BYTES_MAX;
use crate::offload::{OffloadHeader, Offloads, SUPER_FRAME_BYTES_MAX};

/// Bytes before every frame (5.1.6.1).
pub const HEADER_BYTES: usize = 12;
/// Descriptors after which one call leaves the rest to the next.
pub const WORK_MAX: u64 = 1024;
/// Bytes after which one call leaves the rest to the next: those of as many frames of a wire.
const WORK_BYTES_MAX: u64 = WORK_MAX * FRAME_BYTES_MAX as u64;
/// Shortest frame: an Ethernet header.
pub(super) const FRAME_BYTES_MIN: usize = 14;

/// How a pass over the transmit queues ended.
#[derive(Debug, Clone, Copy, Default)]
struct Pass {
    frame_count: u64,
    bytes: u64,
    dropped_count: u64,
    bad_header_count: u64,
    checksum_left_count: u64,
    super_frame_count: u64,
    other_pair_count: u64,
    descriptor_count: u64,
    work_bytes: u64,
    /// Frames that were posted where they are.
    in_place_count: u64,
    /// Chains may be left.
    is_unfinished: bool,
}

/// How the frame of a chain fared.
enum Fate {
    /// It was copied.
    Sent { bytes: u64, header: OffloadHeader },
    /// The back end reads it where it is.
    InPlace { at: u32, bytes: u64 },
    /// No wire carries it.
    Dropped,
    /// Its header asks for work that is not negotiated or does not fit it.
    BadHeader,
    /// There is no room for it now.
    Busy,
}

/// Chain, frame and queue for a pass.
struct Sending<'a> {
    placed: &'a mut Placed,
    queue: &'a mut Queue,
    chain: &'a mut Chain,
    /// Header and frame.
    frame: &'a mut Vec<u8>,
    granted: Offloads,
}

impl Sending<'_> {
    /// Sends what is available, up to [`WORK_MAX`] descriptors of the pass.
    fn pass<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        pass: &mut Pass,
    ) -> Result<(), DriverFault> {
        while self.queue.peek(bus.memory, self.chain)? {
            if pass.descriptor_count >= WORK_MAX || pass.work_bytes >= WORK_BYTES_MAX {
                pass.is_unfinished = true;
                return Ok(());
            }
            pass.descriptor_count += self.chain.descriptor_count;
            // A longer chain is not read.
            pass.work_bytes += self.chain.len_bytes().min(SUPER_FRAME_BYTES_MAX as u64);
            let fate = match bus.wire.in_place() {
                Some(place) => self.post(place)?,
                None => self.copy(bus)?,
            };
            if let Fate::Busy = fate {
                pass.is_unfinished = true;
                return Ok(());
            }
            pass.enter(&fate);
            let taken = self.queue.take(self.chain);
            match fate {
                // It is returned when the back end has finished with it.
                Fate::InPlace { at, .. } => self.placed.send(at, taken),
                _ => self.queue.put_used(bus.memory, taken, 0)?,
            }
        }
        Ok(())
    }

    fn copy<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
    ) -> Result<Fate, DriverFault> {
        let max_bytes =
            if self.granted.has_segmentation() { SUPER_FRAME_BYTES_MAX } else { FRAME_BYTES_MAX };
        if !self.has_length(max_bytes)? {
            return Ok(Fate::Dropped);
        }
        self.frame.clear();
        self.chain.gather(bus.memory, 0, self.chain.len_bytes() as usize, self.frame)?;
        let Some((header, frame)) = self.frame.split_at_checked(HEADER_BYTES) else {
            return Ok(Fate::Dropped);
        };
        let Some(header) = self.header(header, frame) else { return Ok(Fate::BadHeader) };
        if !header.leaves_segmentation() && frame.len() > FRAME_BYTES_MAX {
            return Ok(Fate::Dropped);
        }
        let sent = if header == OffloadHeader::FINISHED {
            bus.wire.send(frame)
        } else {
            bus.wire.send_offloaded(&header, frame)
        };
        Ok(match sent {
            Sent::Busy => Fate::Busy,
            Sent::Taken => Fate::Sent { bytes: frame.len() as u64, header },
        })
    }

    /// Header of a frame; without offloads its fields mean nothing. `None` if it does not fit the frame.
    fn header(&self, bytes: &[u8], frame: &[u8]) -> Option<OffloadHeader> {
        if !self.granted.checksum {
            return Some(OffloadHeader::FINISHED);
        }
        let header =
            OffloadHeader::from_bytes(bytes.first_chunk()?).checked(frame, self.granted)?;
        // A driver cannot vouch for a checksum.
        let is_finished = !header.leaves_checksum();
        Some(if is_finished { OffloadHeader::FINISHED } else { header })
    }

    fn post(&mut self, place: &mut dyn InPlace) -> Result<Fate, DriverFault> {
        if !self.has_length(FRAME_BYTES_MAX)? {
            return Ok(Fate::Dropped);
        }
        let frame = self.chain.piece(HEADER_BYTES as u32).ok_or(DriverFault::Pieces)?;
        Ok(match place.post_send(frame.at, frame.len_bytes) {
            Posted::Taken => Fate::InPlace { at: frame.at, bytes: frame.len_bytes.into() },
            Posted::Busy => Fate::Busy,
            Posted::Refused => Fate::Dropped,
        })
    }

    /// True if the chain's frame is one, and has at most `max_bytes`.
    fn has_length(&self, max_bytes: usize) -> Result<bool, DriverFault> {
        let len_bytes = self.chain.len_bytes();
        let Some(frame_bytes) = len_bytes.checked_sub(HEADER_BYTES as u64) else {
            return Err(DriverFault::Header(len_bytes));
        };
        Ok((FRAME_BYTES_MIN as u64..=max_bytes as u64).contains(&frame_bytes))
    }
}

impl Pass {
    /// Counts a frame that is finished with.
    fn enter(&mut self, fate: &Fate) {
        let bytes = match *fate {
            Fate::Sent { bytes, header } => {
                self.checksum_left_count += u64::from(header.leaves_checksum());
                self.super_frame_count += u64::from(header.leaves_segmentation());
                bytes
            }
            Fate::InPlace { bytes, .. } => {
                self.in_place_count += 1;
                bytes
            }
            Fate::Dropped => return self.dropped_count += 1,
            Fate::BadHeader => return self.bad_header_count += 1,
            Fate::Busy => return,
        };
        self.frame_count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl VirtioNet {
    /// Processes the transmit queues, and asks for a notification of what comes later.
    pub fn demand<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        self.transmit(bus);
        // A chain that came meanwhile brings no notification.
        self.has_demand |= self.rearm(bus.memory);
    }

    /// Processes the transmit queues, and asks for no notification: the owner calls again. Before it
    /// stops it calls [`Self::rearm`].
    pub fn poll<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        if !self.can_transmit() {
            return;
        }
        for number in self.tx_numbers() {
            let queue = &mut self.queues[usize::from(number)];
            let done =
                queue.as_mut().map_or(Ok(()), |queue| queue.disable_notifications(bus.memory));
            self.guard(done, ());
        }
        self.transmit(bus);
    }

    /// Asks for a notification of the next frame to send. Returns true if one waits already.
    pub fn rearm(&mut self, memory: &impl GuestMemory) -> bool {
        if !self.can_transmit() {
            return false;
        }
        let mut is_waiting = false;
        for number in self.tx_numbers() {
            let queue = &mut self.queues[usize::from(number)];
            let armed =
                queue.as_mut().map_or(Ok(false), |queue| queue.enable_notifications(memory));
            is_waiting |= self.guard(armed, false);
        }
        is_waiting && self.can_transmit()
    }

    fn transmit<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        self.has_demand = false;
        if !self.can_transmit() {
            return;
        }
        let (mut pass, pairs) = (Pass::default(), self.pairs());
        let (mut number, mut wants) = (self.next_tx, false);
        for _ in 0..pairs {
            let done = self.pass_queue(bus, number, &mut pass);
            wants |= self.guard(done, false);
            // The wire was busy, or the work is enough for one call: the next call begins with another queue.
            number = (number + 2) % (2 * pairs);
            if pass.is_unfinished || !self.is_driven() {
                break;
            }
        }
        self.next_tx = number;
        self.count(&pass);
        self.has_demand = pass.is_unfinished && self.is_driven();
        if pass.frame_count > pass.in_place_count {
            self.sent_silently = !wants;
        }
    }

    /// Returns true if the driver wants an interrupt.
    fn pass_queue<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        number: u16,
        pass: &mut Pass,
    ) -> Result<bool, DriverFault> {
        let granted = self.granted_offloads();
        let Some(queue) = &mut self.queues[usize::from(number)] else { return Ok(false) };
        let (chain, frame, placed) = (&mut self.chain, &mut self.frame, &mut self.placed);
        let mut sending = Sending { placed, queue, chain, frame, granted };
        let before = pass.frame_count;
        let done = sending.pass(bus, pass);
        if number != TX {
            pass.other_pair_count += pass.frame_count - before;
        }
        done.and_then(|()| self.interrupt(number, bus.memory))
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
        counters.tx_bad_header_count += pass.bad_header_count;
        counters.tx_checksum_left_count += pass.checksum_left_count;
        counters.tx_super_frame_count += pass.super_frame_count;
        counters.tx_other_pair_count += pass.other_pair_count;
    }
}
