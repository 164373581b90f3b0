//! The control queue: commands of the driver, each answered before the next.
//!
//! Source: virtio 1.2, section 5.1.6.5.

use super::fault::DriverFault;
use super::{FEATURE_MQ, VirtioNet};
use crate::bus::GuestMemory;
use crate::virtio::chain::scatter;

/// Class of commands for pairs of queues, and its command to set their number.
const CLASS_PAIRS: u8 = 4;
const SET_PAIRS: u8 = 0;
/// Class, command, and a number of pairs.
const COMMAND_BYTES: usize = 4;

const OK: u8 = 0;
const ERROR: u8 = 1;

impl VirtioNet {
    /// Executes the commands that wait, at most as many as the queue holds.
    pub(super) fn obey(
        &mut self,
        memory: &impl GuestMemory,
        control: u16,
    ) -> Result<(), DriverFault> {
        let size = self.queues[usize::from(control)].as_ref().map_or(0, |queue| queue.size());
        for _ in 0..size {
            if !self.obey_one(memory, control)? {
                break;
            }
        }
        self.interrupt(control, memory)?;
        Ok(())
    }

    /// Executes the next command. Returns false if none waits; the driver then notifies of the next one.
    fn obey_one(&mut self, memory: &impl GuestMemory, control: u16) -> Result<bool, DriverFault> {
        let Some(queue) = &mut self.queues[usize::from(control)] else { return Ok(false) };
        let chain = &mut self.chain;
        let waits = queue.peek(memory, chain)?
            || (queue.enable_notifications(memory)? && queue.peek(memory, chain)?);
        if !waits {
            return Ok(false);
        }
        let (read, written) = chain.segments.split_at(chain.read_count);
        let has_room = written.iter().any(|segment| segment.len_bytes > 0);
        if !has_room {
            return Err(DriverFault::Answer(chain.segments.len()));
        }
        let read_bytes: u64 = read.iter().map(|segment| u64::from(segment.len_bytes)).sum();
        self.frame.clear();
        chain.gather(memory, 0, COMMAND_BYTES.min(read_bytes as usize), &mut self.frame)?;
        let command = self.frame.first_chunk().filter(|_| read_bytes == COMMAND_BYTES as u64);
        let answer = match command {
            Some(&[CLASS_PAIRS, SET_PAIRS, low, high]) => {
                let pairs = u16::from_le_bytes([low, high]);
                let max = self.options.pairs.clamp(1, super::PAIRS_MAX);
                let is_valid =
                    (1..=max).contains(&pairs) && self.feature_halves[0] & FEATURE_MQ as u32 != 0;
                if is_valid {
                    self.active_pairs = pairs;
                }
                if is_valid { OK } else { ERROR }
            }
            _ => ERROR,
        };
        scatter(memory, &self.chain.segments[self.chain.read_count..], &[answer])?;
        let taken = queue.take(&self.chain);
        queue.put_used(memory, taken, 1)?;
        self.counters.control_command_count += 1;
        Ok(true)
    }
}
