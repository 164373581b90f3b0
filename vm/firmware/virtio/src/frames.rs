//! Ownership of frames.

/// A frame owned by the driver: readable and writable. Not `Copy`, so it cannot be posted twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped is lost until the device is reset"]
pub struct Frame(pub(crate) u16);

impl Frame {
    /// Place in the pool, from 0.
    pub fn number(&self) -> u16 {
        self.0
    }
}

/// Owner of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Free,
    Held,
    Receive,
    Transmit,
}

/// Number of frames by owner. The sum never changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// In the pool.
    pub free_count: u16,
    /// Held by the driver's user.
    pub held_count: u16,
    /// Posted to the device for receiving.
    pub receive_count: u16,
    /// Posted to the device for sending.
    pub transmit_count: u16,
}

impl Ledger {
    /// Total of all owners.
    pub fn total(&self) -> u32 {
        [self.free_count, self.held_count, self.receive_count, self.transmit_count]
            .iter()
            .map(|count| u32::from(*count))
            .sum()
    }
}

/// All frames, at most `N`, with their owners.
pub(crate) struct Frames<const N: usize> {
    owners: [Owner; N],
    free: [u16; N],
    ledger: Ledger,
}

impl<const N: usize> Frames<N> {
    /// A pool of `count` frames, at most `N`.
    pub(crate) fn new(count: u16) -> Self {
        assert!(usize::from(count) <= N, "{count} frames");
        let mut free = [0; N];
        for (index, frame) in free.iter_mut().take(usize::from(count)).enumerate() {
            // The last one pushed is popped first, so frames are used from 0 on.
            *frame = count - 1 - index as u16;
        }
        let ledger = Ledger { free_count: count, ..Ledger::default() };
        Frames { owners: [Owner::Free; N], free, ledger }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Takes a frame from the pool.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        let left = self.ledger.free_count.checked_sub(1)?;
        let index = self.free[usize::from(left)];
        self.change(index, Owner::Free, Owner::Held);
        Some(Frame(index))
    }

    /// Returns a frame to the pool.
    pub(crate) fn give(&mut self, frame: Frame) {
        self.free[usize::from(self.ledger.free_count)] = frame.0;
        self.change(frame.0, Owner::Held, Owner::Free);
    }

    /// A frame that the driver's user holds, by its number; `None` if another owns it.
    pub(crate) fn held(&self, index: u16) -> Option<Frame> {
        (self.owners.get(usize::from(index)) == Some(&Owner::Held)).then_some(Frame(index))
    }

    pub(crate) fn post_receive(&mut self, frame: Frame) {
        self.change(frame.0, Owner::Held, Owner::Receive);
    }

    pub(crate) fn post_transmit(&mut self, frame: Frame) {
        self.change(frame.0, Owner::Held, Owner::Transmit);
    }

    /// Takes a frame that the device has received into.
    pub(crate) fn received(&mut self, index: u16) -> Frame {
        self.change(index, Owner::Receive, Owner::Held);
        Frame(index)
    }

    /// Returns a sent frame to the pool.
    pub(crate) fn transmitted(&mut self, index: u16) {
        self.change(index, Owner::Transmit, Owner::Held);
        self.give(Frame(index));
    }

    /// After a reset the device owns no frames; held frames stay held.
    pub(crate) fn reclaim(&mut self) {
        for index in 0..N as u16 {
            let owner = self.owners[usize::from(index)];
            if matches!(owner, Owner::Receive | Owner::Transmit) {
                self.change(index, owner, Owner::Held);
                self.give(Frame(index));
            }
        }
    }

    fn change(&mut self, index: u16, from: Owner, to: Owner) {
        let owner = &mut self.owners[usize::from(index)];
        // Indexes come from our own tables, never from the device: a mismatch is a bug of the driver.
        assert!(*owner == from, "frame {index} is {owner:?}, expected {from:?}");
        *owner = to;
        *self.count(from) -= 1;
        *self.count(to) += 1;
    }

    fn count(&mut self, owner: Owner) -> &mut u16 {
        match owner {
            Owner::Free => &mut self.ledger.free_count,
            Owner::Held => &mut self.ledger.held_count,
            Owner::Receive => &mut self.ledger.receive_count,
            Owner::Transmit => &mut self.ledger.transmit_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_balances_through_a_frames_whole_life() {
        let mut frames = Frames::<5>::new(4);
        let frame = frames.take().expect("four are free");
        frames.post_receive(frame);
        let frame = frames.received(0);
        frames.post_transmit(frame);
        frames.transmitted(0);
        assert_eq!(frames.ledger().free_count, 4);
        let held: std::vec::Vec<Frame> = core::iter::from_fn(|| frames.take()).collect();
        assert_eq!((held.len(), frames.ledger().total()), (4, 4));
        assert!(frames.take().is_none());
    }

    #[test]
    #[should_panic(expected = "frame 0 is Held, expected Receive")]
    fn frame_that_the_device_does_not_own_cannot_be_reclaimed() {
        let mut frames = Frames::<2>::new(2);
        let _held = frames.take().expect("two are free");
        let _twice = frames.received(0);
    }
}
