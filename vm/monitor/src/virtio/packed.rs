//! The device's side of a packed queue: one ring, in which the device writes its answer over the descriptors.
//!
//! Chains may be returned in another order than they came: the id tells the driver which one it is, and the next
//! used position advances by as many slots as that chain took.
//!
//! Source: virtio 1.2, section 2.8.

use std::sync::atomic::{Ordering, fence};

use super::chain::{Chain, Direction, Rules};
use super::fault::DriverFault;
use super::layout::{Layout, TakenChain, UsedChain, needs_event, part};
use crate::bus::GuestMemory;

const DEVICE_WRITES: u16 = 2;
/// The descriptor was made available in a lap in which this bit equals the wrap counter.
const AVAILABLE: u16 = 1 << 7;
/// The descriptor was used, if it equals the other.
const USED: u16 = 1 << 15;

/// Flags of event suppression: notify always, never, or when a position is passed (2.8.10).
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_POSITION: u16 = 2;

/// A position in the ring, with the counter that changes at each wrap (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    slot: u16,
    wrap: bool,
}

impl Position {
    fn advanced(self, by: u16, size: u16) -> Self {
        let slot = self.slot + by;
        if slot >= size {
            Position { slot: slot - size, wrap: !self.wrap }
        } else {
            Position { slot, wrap: self.wrap }
        }
    }

    /// The opposite of [`Self::advanced`].
    fn receded(self, by: u16, size: u16) -> Self {
        match self.slot.checked_sub(by) {
            Some(slot) => Position { slot, wrap: self.wrap },
            None => Position { slot: self.slot + size - by, wrap: !self.wrap },
        }
    }

    fn is_available(self, flags: u16) -> bool {
        let bits = if self.wrap { AVAILABLE } else { USED };
        flags & (AVAILABLE | USED) == bits
    }

    fn used(self) -> u16 {
        if self.wrap { AVAILABLE | USED } else { 0 }
    }

    /// Encoding in event suppression.
    fn word(self) -> u16 {
        self.slot | u16::from(self.wrap) << 15
    }
}

/// True if the position in `word` is among the last `by` slots before `now`, in a ring of `size`.
fn has_passed(word: u16, now: Position, by: u16, size: u16) -> bool {
    if by >= size {
        return true;
    }
    let is_same_lap = (word >> 15 != 0) == now.wrap;
    let event = (word & 0x7fff).wrapping_sub(if is_same_lap { 0 } else { size });
    needs_event(event, now.slot, now.slot.wrapping_sub(by))
}

/// A packed queue that is ready.
#[derive(Debug)]
pub(super) struct PackedQueue {
    pub(super) rules: Rules,
    event_idx: bool,
    ring: u32,
    /// Event suppression of the driver, and of the device.
    driver: u32,
    device: u32,
    next_available: Position,
    next_used: Position,
    /// Slots returned since an interrupt was last considered; no more than a ring is counted.
    returned: u16,
    /// Word of the device's event suppression.
    wish: u32,
}

impl PackedQueue {
    pub(super) fn new(rules: Rules, event_idx: bool, layout: &Layout) -> Result<Self, DriverFault> {
        let Layout { size, descriptors, driver, device } = *layout;
        if driver % 4 != 0 || device % 4 != 0 {
            return Err(DriverFault::Layout { queue: rules.queue, size });
        }
        Ok(PackedQueue {
            rules,
            event_idx,
            ring: part(descriptors, 16 * u64::from(size))?,
            driver: part(driver, 4)?,
            device: part(device, 4)?,
            next_available: Position { slot: 0, wrap: true },
            next_used: Position { slot: 0, wrap: true },
            returned: 0,
            wish: 0,
        })
    }

    /// Flags of a slot. Acquire: the rest of the chain is read after them.
    fn flags(&self, memory: &impl GuestMemory, slot: u16) -> Result<u16, DriverFault> {
        Ok((memory.load_u32(self.ring + 16 * u32::from(slot) + 12)? >> 16) as u16)
    }

    /// Descriptors that the driver has made available.
    pub(super) fn available_count(&self, memory: &impl GuestMemory) -> Result<u16, DriverFault> {
        let mut position = self.next_available;
        for count in 0..self.rules.size {
            if !position.is_available(self.flags(memory, position.slot)?) {
                return Ok(count);
            }
            position = position.advanced(1, self.rules.size);
        }
        Ok(self.rules.size)
    }

    fn is_available(&self, memory: &impl GuestMemory) -> Result<bool, DriverFault> {
        let next = self.next_available;
        Ok(next.is_available(self.flags(memory, next.slot)?))
    }

    pub(super) fn peek(
        &self,
        memory: &impl GuestMemory,
        chain: &mut Chain,
    ) -> Result<bool, DriverFault> {
        if !self.is_available(memory)? {
            return Ok(false);
        }
        chain.read_packed(memory, self.ring, self.next_available.slot, self.rules)?;
        Ok(true)
    }

    pub(super) fn take(&mut self, chain: &Chain) -> TakenChain {
        self.next_available = self.next_available.advanced(chain.slot_count, self.rules.size);
        chain.taken()
    }

    /// Makes the last chains that were taken available again.
    pub(super) fn untake(&mut self, chains: &[UsedChain]) {
        let slot_count = chains.iter().map(|chain| chain.taken.slot_count).sum();
        self.next_available = self.next_available.receded(slot_count, self.rules.size);
    }

    /// Returns chains, which the driver sees at once: it looks at the first, which is written last.
    pub(super) fn put_all_used(
        &mut self,
        memory: &impl GuestMemory,
        chains: &[UsedChain],
    ) -> Result<(), DriverFault> {
        let Some((first, others)) = chains.split_first() else { return Ok(()) };
        let begin = self.next_used;
        self.skip_used(first.taken);
        for chain in others {
            self.write_used(memory, self.next_used, *chain)?;
            self.skip_used(chain.taken);
        }
        self.write_used(memory, begin, *first)
    }

    fn skip_used(&mut self, taken: TakenChain) {
        self.next_used = self.next_used.advanced(taken.slot_count, self.rules.size);
        self.returned = self.returned.saturating_add(taken.slot_count).min(self.rules.size);
    }

    fn write_used(
        &self,
        memory: &impl GuestMemory,
        position: Position,
        chain: UsedChain,
    ) -> Result<(), DriverFault> {
        let at = self.ring + 16 * u32::from(position.slot);
        memory.store_u32(at + 8, chain.written_bytes)?;
        let is_read = self.rules.direction == Direction::Read;
        let flags = position.used() | if is_read { 0 } else { DEVICE_WRITES };
        // Release: length and buffers are visible before the flags.
        let word = u32::from(flags) << 16 | u32::from(chain.taken.head);
        Ok(memory.store_u32(at + 12, word)?)
    }

    pub(super) fn wants_interrupt(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        let returned = std::mem::take(&mut self.returned);
        if returned == 0 {
            return Ok(false);
        }
        // Used descriptors must be visible before the driver's wish is read (2.8.21.3.1, mirrored).
        fence(Ordering::SeqCst);
        let wish = memory.load_u32(self.driver)?;
        let (word, flags) = (wish as u16, (wish >> 16) as u16 & 3);
        Ok(match flags {
            DISABLE => false,
            AT_POSITION if self.event_idx => {
                has_passed(word, self.next_used, returned, self.rules.size)
            }
            _ => true,
        })
    }

    /// Stores the device's event suppression.
    fn wish(
        &mut self,
        memory: &impl GuestMemory,
        flags: u16,
        position: u16,
    ) -> Result<(), DriverFault> {
        let wish = u32::from(flags) << 16 | u32::from(position);
        if wish != self.wish {
            self.wish = wish;
            memory.store_u32(self.device, wish)?;
        }
        Ok(())
    }

    pub(super) fn disable_notifications(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<(), DriverFault> {
        self.wish(memory, DISABLE, 0)
    }

    pub(super) fn enable_notifications(
        &mut self,
        memory: &impl GuestMemory,
    ) -> Result<bool, DriverFault> {
        if self.event_idx {
            self.wish(memory, AT_POSITION, self.next_available.word())?;
        } else {
            self.wish(memory, ENABLE, 0)?;
        }
        // The wish must be visible before the ring is read.
        fence(Ordering::SeqCst);
        self.is_available(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap_with_their_counter() {
        let start = Position { slot: 0, wrap: true };
        assert_eq!(start.advanced(3, 5), Position { slot: 3, wrap: true });
        assert_eq!(start.advanced(5, 5), Position { slot: 0, wrap: false });
        assert_eq!(start.advanced(3, 5).advanced(4, 5), Position { slot: 2, wrap: false });
        assert!(start.is_available(AVAILABLE) && !start.is_available(USED | AVAILABLE));
        let second = start.advanced(5, 5);
        assert!(second.is_available(USED) && !second.is_available(0));
        for (slot, by) in [(0, 5), (4, 5), (2, 3), (3, 0)] {
            let before = Position { slot, wrap: false };
            assert_eq!(before.advanced(by, 5).receded(by, 5), before);
        }
        assert_eq!((start.used(), second.used()), (AVAILABLE | USED, 0));
        assert_eq!((start.word(), second.advanced(4, 5).word()), (0x8000, 4));
    }

    fn position(steps: u16, size: u16) -> Position {
        let lap = steps / size;
        Position { slot: steps % size, wrap: lap.is_multiple_of(2) }
    }

    /// Compares with a walk over each slot.
    #[test]
    fn position_has_passed_as_a_walk_says() {
        for size in 1..=6 {
            for event in 0..2 * size {
                // The event is in the lap of `now` or the one before.
                for now in event..event + size {
                    for by in 1..=size.min(now) {
                        let walked = (now - by..now).any(|step| step == event);
                        let passed =
                            has_passed(position(event, size).word(), position(now, size), by, size);
                        assert!(passed == walked || by >= size, "{size} {event} {now} {by}");
                    }
                }
            }
        }
    }
}
