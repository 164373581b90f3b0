//! The receiving engine: frames into the receive queues.
//!
//! Source: virtio 1.2, section 5.1.6.4.

use super::chain::{Chain, Segment, scatter};
use super::fault::DriverFault;
use super::layout::UsedChain;
use super::queue::Queue;
use super::transmit::{FRAME_BYTES_MIN, HEADER_BYTES, WORK_MAX};
use super::{FEATURE_MRG_RXBUF, RX, VirtioNet, registers};
use crate::bus::{GuestMemory, Reception};
use crate::lance::FRAME_BYTES_MAX;
use crate::offload::{OffloadHeader, SUPER_FRAME_BYTES_MAX};

/// Header of a received frame: no offload, one buffer (5.1.6.4.1).
pub(super) const PLAIN_HEADER: [u8; HEADER_BYTES] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Buffers taken for a frame.
#[derive(Debug, Default)]
pub(super) struct Room {
    segments: Vec<Segment>,
    chains: Vec<UsedChain>,
    /// Bytes of the frame and its header that have a place.
    len_bytes: usize,
    slot_count: u16,
    descriptor_count: u64,
}

/// How the search for buffers ended.
enum Found {
    /// The frame has its place.
    Enough,
    /// The driver has to make more available.
    TooFew,
    /// No buffers of this queue will ever do.
    Never,
}

impl Room {
    /// Takes chains of a queue for `len_bytes` bytes, `chain_max` at most. Buffers are there as a rule, and then
    /// nothing needs to tell of others.
    fn take(
        &mut self,
        queue: &mut Queue,
        chain: &mut Chain,
        memory: &impl GuestMemory,
        len_bytes: usize,
        chain_max: u16,
    ) -> Result<Found, DriverFault> {
        self.segments.clear();
        self.chains.clear();
        (self.len_bytes, self.slot_count, self.descriptor_count) = (0, 0, 0);
        let mut is_second_look = false;
        loop {
            let count_before = self.chains.len();
            while self.len_bytes < len_bytes && queue.peek(memory, chain)? {
                let is_full = self.chains.len() >= chain_max.into()
                    || self.slot_count + chain.slot_count > queue.size()
                    || self.descriptor_count >= WORK_MAX;
                if is_full {
                    queue.untake(&self.chains);
                    return Ok(Found::Never);
                }
                self.add(queue, chain, len_bytes);
            }
            if self.len_bytes >= len_bytes {
                queue.disable_notifications(memory)?;
                return Ok(Found::Enough);
            }
            if self.chains.len() >= chain_max.into() {
                queue.untake(&self.chains);
                return Ok(Found::Never);
            }
            // A driver that takes back what it has made available ends the search, too.
            let is_vain = is_second_look && count_before == self.chains.len();
            if is_vain || !queue.enable_notifications(memory)? {
                queue.untake(&self.chains);
                return Ok(Found::TooFew);
            }
            is_second_look = true;
        }
    }

    fn add(&mut self, queue: &mut Queue, chain: &Chain, len_bytes: usize) {
        // Less than a frame is left.
        let written_bytes = chain.len_bytes().min((len_bytes - self.len_bytes) as u64) as u32;
        self.segments.extend_from_slice(&chain.segments);
        self.slot_count += chain.slot_count;
        self.descriptor_count += chain.descriptor_count;
        self.len_bytes += written_bytes as usize;
        self.chains.push(UsedChain { taken: queue.take(chain), written_bytes });
    }
}

impl VirtioNet {
    /// Receives a frame from the network, without its check sequence; `header` says which work on it is left.
    pub fn receive(
        &mut self,
        memory: &impl GuestMemory,
        header: &OffloadHeader,
        frame: &[u8],
    ) -> Reception {
        if !self.is_driven() {
            return Reception::Off;
        }
        let checked = header.checked(frame, self.accepted_offloads());
        let is_whole = checked.is_some_and(|header| !header.leaves_segmentation());
        let max_bytes = if is_whole { FRAME_BYTES_MAX } else { SUPER_FRAME_BYTES_MAX };
        let Some(header) = checked.filter(|_| (FRAME_BYTES_MIN..=max_bytes).contains(&frame.len()))
        else {
            self.counters.rx_malformed_count += 1;
            return Reception::Lost;
        };
        let done = self.store(memory, &header, frame);
        self.guard(done, Reception::Off)
    }

    /// Receive queue of a frame: by the hash of its flow among the pairs in use.
    fn rx_number(&self, frame: &[u8]) -> u16 {
        if self.active_pairs <= 1 {
            return RX;
        }
        let hash = wire::flow::tuple(frame).crc32c();
        // The hash as a fraction of the pairs.
        RX + 2 * ((u64::from(hash) * u64::from(self.active_pairs)) >> 32) as u16
    }

    fn store(
        &mut self,
        memory: &impl GuestMemory,
        header: &OffloadHeader,
        frame: &[u8],
    ) -> Result<Reception, DriverFault> {
        let number = self.rx_number(frame);
        let is_mergeable = self.chooses(FEATURE_MRG_RXBUF);
        let Some(queue) = &mut self.queues[usize::from(number)] else { return Ok(Reception::Off) };
        let len_bytes = HEADER_BYTES + frame.len();
        let chain_max = if is_mergeable { queue.size() } else { 1 };
        match self.room.take(queue, &mut self.chain, memory, len_bytes, chain_max)? {
            Found::TooFew => return Ok(Reception::Off),
            Found::Never => {
                self.counters.rx_missed_count += 1;
                return Ok(Reception::Lost);
            }
            Found::Enough => {}
        }
        let buffer_count = self.room.chains.len() as u16;
        self.frame.clear();
        self.frame.extend_from_slice(&header.to_bytes());
        self.frame.extend_from_slice(&buffer_count.to_le_bytes());
        self.frame.extend_from_slice(frame);
        scatter(memory, &self.room.segments, &self.frame)?;
        queue.put_all_used(memory, &self.room.chains)?;
        self.count_received(number, header, frame.len(), buffer_count);
        self.interrupt(number, memory)?;
        Ok(Reception::Stored)
    }

    fn count_received(
        &mut self,
        queue: u16,
        header: &OffloadHeader,
        frame_bytes: usize,
        buffer_count: u16,
    ) {
        let counters = &mut self.counters;
        counters.rx_frame_count += 1;
        counters.rx_bytes = counters.rx_bytes.saturating_add(frame_bytes as u64);
        counters.rx_checksum_left_count += u64::from(header.leaves_checksum());
        counters.rx_super_frame_count += u64::from(header.leaves_segmentation());
        counters.rx_other_pair_count += u64::from(queue != RX);
        if buffer_count > 1 {
            counters.rx_merged_frame_count += 1;
            counters.rx_merged_buffer_count += u64::from(buffer_count);
        }
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
            self.tells_received |= !self.is_tx(queue.into());
        }
        Ok(wants)
    }
}
