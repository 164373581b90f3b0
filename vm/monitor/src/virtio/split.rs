//! The device's side of a split queue.
//!
//! Source: virtio 1.2, section 2.7.

use std::sync::atomic::{Ordering, fence};

use super::chain::{Chain, Rules};
use super::fault::DriverFault;
use super::layout::{Layout, TakenChain, UsedChain, needs_event, part};
use crate::bus::GuestMemory;

/// Flag of the available ring: the driver wants no interrupt.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device wants no notification.
const NO_NOTIFY: u16 = 1;

/// A split queue that is ready.
#[derive(Debug)]
pub(super) struct SplitQueue {
    pub(super) rules: Rules,
    event_idx: bool,
    descriptors: u32,
    driver: u32,
    device: u32,
    next_available: u16,
    next_used: u16,
    /// Used index when an interrupt was last considered.
    considered: u16,
    /// Flags of the used ring.
    flags: u16,
}

impl SplitQueue {
    pub(super) fn new(rules: Rules, event_idx: bool, layout: &Layout) -> Result<Self, DriverFault> {
        let Layout { size, descriptors, driver, device } = *layout;
        let is_aligned = driver % 2 == 0 && device % 4 == 0;
        if !size.is_power_of_two() || !is_aligned {
            return Err(DriverFault::Layout { queue: rules.queue, size });
        }
        let length = u64::from(size);
        Ok(SplitQueue {
            rules,
            event_idx,
            descriptors: part(descriptors, 16 * length)?,
            driver: part(driver, 6 + 2 * length)?,
            device: part(device, 6 + 8 * length)?,
            next_available: 0,
            next_used: 0,
            considered: 0,
            flags: 0,
        })
    }

    /// Chains that the driver has made available.
    pub(super) fn available_count(&self, memory: &impl GuestMemory) -> Result<u16, DriverFault> {
        // Acquire: entries and descriptors are read after the index.
        let index = memory.load_u16(self.driver + 2)?;
        let count = index.wrapping_sub(self.next_available);
        if count > self.rules.size {
            return Err(DriverFault::Index { index, next: self.next_available });
        }
        Ok(count)
    }

    /// Reads the next available chain, which stays available; false if there is none.
    pub(super) fn peek(
        &self,
        memory: &impl GuestMemory,
        chain: &mut Chain,
    ) -> Result<bool, DriverFault> {
        if self.available_count(memory)? == 0 {
            return Ok(false);
        }
        let slot = u32::from(self.next_available % self.rules.size);
        let head = memory.load_u16(self.driver + 4 + 2 * slot)?;
        chain.read(memory, self.descriptors, head, self.rules)?;
        Ok(true)
    }

    pub(super) fn take(&mut self, chain: &Chain) -> TakenChain {
        self.next_available = self.next_available.wrapping_add(1);
        chain.taken()
    }

    /// Makes the last chains that were taken available again.
    pub(super) fn untake(&mut self, chains: &[UsedChain]) {
        self.next_available = self.next_available.wrapping_sub(chains.len() as u16);
    }

    /// Returns chains, which the driver sees at once.
    pub(super) fn put_all_used(
        &mut self,
        memory: &impl GuestMemory,
        chains: &[UsedChain],
    ) -> Result<(), DriverFault> {
        for UsedChain { taken, written_bytes } in chains {
            let slot = u32::from(self.next_used % self.rules.size);
            let mut element = [0; 8];
            element[..4].copy_from_slice(&u32::from(taken.head).to_le_bytes());
            element[4..].copy_from_slice(&written_bytes.to_le_bytes());
            memory.write(self.device + 4 + 8 * slot, &element)?;
            self.next_used = self.next_used.wrapping_add(1);
        }
        self.store_used(memory)
    }

    /// Stores flags and index of the used ring: one word, and the element before it is visible.
    fn store_used(&self, memory: &impl GuestMemory) -> Result<(), DriverFault> {
        let word = u32::from(self.next_used) << 16 | u32::from(self.flags);
        Ok(memory.store_u32(self.device, word)?)
    }

    /// True if the driver wants an interrupt for what was returned since the last call.
    pub(super) fn wants_interrupt(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        let old = std::mem::replace(&mut self.considered, self.next_used);
        if old == self.next_used {
            return Ok(false);
        }
        // The used index must be visible before the driver's wish is read (2.7.13.4.1, mirrored).
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = memory.load_u16(self.driver + 4 + 2 * u32::from(self.rules.size))?;
            return Ok(needs_event(event, self.next_used, old));
        }
        Ok(memory.load_u16(self.driver)? & NO_INTERRUPT == 0)
    }

    /// Asks the driver not to notify: the device looks by itself.
    pub(super) fn disable_notifications(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<(), DriverFault> {
        // With EVENT_IDX, an event that stays behind is enough.
        if self.event_idx || self.flags == NO_NOTIFY {
            return Ok(());
        }
        self.flags = NO_NOTIFY;
        self.store_used(memory)
    }

    /// Asks the driver to notify. Returns true if a chain is available already, whose notification may
    /// never come: look again.
    pub(super) fn enable_notifications(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        if self.event_idx {
            let at = self.device + 4 + 8 * u32::from(self.rules.size);
            memory.write(at, &self.next_available.to_le_bytes())?;
        } else if self.flags != 0 {
            self.flags = 0;
            self.store_used(memory)?;
        }
        // The wish must be visible before the available index is read.
        fence(Ordering::SeqCst);
        Ok(self.available_count(memory)? > 0)
    }
}
