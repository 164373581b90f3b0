//! Frames that stay in guest memory: the back end sends and receives them there.
//!
//! Such a back end has one pair of queues, and frames without offloads. A chain is taken when its frame is posted to the back end, and returned when the back end has finished with it.

use std::collections::VecDeque;

use super::fault::DriverFault;
use super::layout::TakenChain;
use super::queue::QUEUE_SIZE_MAX;
use super::receive::PLAIN_HEADER;
use super::transmit::HEADER_BYTES;
use super::{RX, TX, VirtioNet};
use crate::bus::{GuestMemory, InPlace, Posted};

/// Room that a receive buffer must have behind its header (5.1.6.3.1).
const ROOM_BYTES: u32 = 1514;
/// Steps of one kind in one call.
const STEPS_MAX: usize = 2 * QUEUE_SIZE_MAX as usize;

/// A buffer posted to receive into.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    frame_at: u32,
    header_at: u32,
    taken: TakenChain,
}

/// Chains whose frames the back end has.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Address of each frame to send; `None` if its queue was reset since.
    sending: VecDeque<(u32, Option<TakenChain>)>,
    receiving: VecDeque<Buffer>,
}

impl Placed {
    pub(super) fn send(&mut self, at: u32, taken: TakenChain) {
        self.sending.push_back((at, Some(taken)));
    }

    /// Forgets the chains of a queue that is reset. The back end withdraws its receive buffers.
    pub(super) fn forget(&mut self, queue: u16, place: &mut dyn InPlace) {
        match queue {
            RX => {
                place.cancel();
                self.receiving.clear();
            }
            TX => self.sending.iter_mut().for_each(|(_, taken)| *taken = None),
            // A back end with guest memory has one pair.
            _ => {}
        }
    }

    fn sent(&mut self, at: u32) -> Option<TakenChain> {
        // Nearly always the first.
        let index = self.sending.iter().position(|sending| sending.0 == at)?;
        self.sending.remove(index)?.1
    }

    fn received(&mut self, at: u32) -> Option<Buffer> {
        let index = self.receiving.iter().position(|buffer| buffer.frame_at == at)?;
        self.receiving.remove(index)
    }
}

impl VirtioNet {
    /// Returns frames that the back end has sent or received in place, and posts new receive buffers.
    pub fn exchange(&mut self, memory: &impl GuestMemory, place: &mut dyn InPlace) {
        if !self.is_driven() {
            // A driver that is not there yet, or broke a rule, gets nothing.
            for _ in 0..STEPS_MAX {
                let sent = place.take_sent().and_then(|at| self.placed.sent(at));
                if place.take_received().is_none() && sent.is_none() {
                    return;
                }
            }
            return;
        }
        let done = self.reclaim(memory, place);
        let done = done.and_then(|()| self.arrive(memory, place));
        let done = done.and_then(|()| self.post_buffers(memory, place));
        self.guard(done, ());
    }

    fn reclaim(
        &mut self,
        memory: &impl GuestMemory,
        place: &mut dyn InPlace,
    ) -> Result<(), DriverFault> {
        let mut is_any = false;
        for _ in 0..STEPS_MAX {
            let Some(at) = place.take_sent() else { break };
            let Some(taken) = self.placed.sent(at) else { continue };
            let Some(queue) = &mut self.queues[usize::from(TX)] else { continue };
            queue.put_used(memory, taken, 0)?;
            is_any = true;
        }
        if is_any {
            self.sent_silently = !self.interrupt(TX, memory)?;
        }
        Ok(())
    }

    fn arrive(
        &mut self,
        memory: &impl GuestMemory,
        place: &mut dyn InPlace,
    ) -> Result<(), DriverFault> {
        let mut is_any = false;
        for _ in 0..STEPS_MAX {
            let Some((at, len_bytes)) = place.take_received() else { break };
            let Some(Buffer { header_at, taken, .. }) = self.placed.received(at) else { continue };
            let Some(queue) = &mut self.queues[usize::from(RX)] else { continue };
            memory.write(header_at, &PLAIN_HEADER)?;
            queue.put_used(memory, taken, HEADER_BYTES as u32 + len_bytes)?;
            let counters = &mut self.counters;
            counters.rx_frame_count += 1;
            counters.rx_bytes = counters.rx_bytes.saturating_add(len_bytes.into());
            counters.in_place_frame_count += 1;
            is_any = true;
        }
        if is_any {
            self.interrupt(RX, memory)?;
        }
        Ok(())
    }

    /// Posts the buffers that the driver has made available. It notifies of more only while the back end has few.
    fn post_buffers(
        &mut self,
        memory: &impl GuestMemory,
        place: &mut dyn InPlace,
    ) -> Result<(), DriverFault> {
        self.post_available(memory, place)?;
        let Some(queue) = &mut self.queues[usize::from(RX)] else { return Ok(()) };
        if self.placed.receiving.len() >= usize::from(queue.size()) / 2 {
            return queue.disable_notifications(memory);
        }
        if queue.enable_notifications(memory)? {
            self.post_available(memory, place)?;
        }
        Ok(())
    }

    fn post_available(
        &mut self,
        memory: &impl GuestMemory,
        place: &mut dyn InPlace,
    ) -> Result<(), DriverFault> {
        let Some(queue) = &mut self.queues[usize::from(RX)] else { return Ok(()) };
        // A driver has no more chains than its queue.
        while self.placed.receiving.len() < usize::from(queue.size())
            && queue.peek(memory, &mut self.chain)?
        {
            let room = self.chain.piece(HEADER_BYTES as u32);
            let room = room.filter(|room| room.len_bytes >= ROOM_BYTES);
            let header = self.chain.segments.first();
            let header = header.filter(|header| header.len_bytes >= HEADER_BYTES as u32);
            let (Some(room), Some(header)) = (room, header) else {
                return Err(DriverFault::Pieces);
            };
            match place.post_receive(room.at) {
                Posted::Taken => {}
                Posted::Busy => return Ok(()),
                Posted::Refused => return Err(DriverFault::Address(room.at.into())),
            }
            let (frame_at, header_at) = (room.at, header.at);
            let taken = queue.take(&self.chain);
            self.placed.receiving.push_back(Buffer { frame_at, header_at, taken });
        }
        Ok(())
    }
}
