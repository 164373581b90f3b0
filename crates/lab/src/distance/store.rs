//! Frames on the wire: bytes in a ring that never allocates.

use std::collections::VecDeque;

/// Largest frame with the header of its port and room for a tag: 64 KiB and its headers.
pub(super) const FRAME_BYTES_MAX: usize = 66 << 10;
const ALIGNMENT: usize = 8;

#[derive(Debug)]
struct Stored<T> {
    start: usize,
    len_bytes: usize,
    /// Parts that have not left.
    part_count: u32,
    value: T,
}

/// Frames in the order of their arrival, which leave in any order.
#[derive(Debug)]
pub(super) struct Store<T> {
    bytes: Vec<u8>,
    frames: VecDeque<Stored<T>>,
    /// Number of the first of `frames`.
    first: u64,
    tail: usize,
}

impl<T> Store<T> {
    /// - `frame_count`: most frames, `len_bytes` apart.
    pub(super) fn new(len_bytes: usize, frame_count: usize) -> Self {
        Store {
            bytes: vec![0; len_bytes.max(2 * FRAME_BYTES_MAX)],
            frames: VecDeque::with_capacity(frame_count),
            first: 0,
            tail: 0,
        }
    }

    /// Writes to all of its memory, so that no page fault delays a frame.
    pub(super) fn touch(&mut self) {
        const PAGE_BYTES: usize = 4_096;
        self.bytes.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *std::hint::black_box(byte) = 0);
    }

    /// Room for the largest frame; `None` if it is full.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        if self.frames.len() == self.frames.capacity() {
            return None;
        }
        let start = match self.frames.front() {
            None => 0,
            Some(front) if self.tail > front.start => {
                if self.tail + FRAME_BYTES_MAX <= self.bytes.len() {
                    self.tail
                } else if FRAME_BYTES_MAX < front.start {
                    0
                } else {
                    return None;
                }
            }
            Some(front) if self.tail + FRAME_BYTES_MAX < front.start => self.tail,
            Some(_) => return None,
        };
        self.tail = start;
        self.bytes.get_mut(start..start + FRAME_BYTES_MAX)
    }

    /// Keeps the first bytes of the room; returns the frame's number.
    pub(super) fn keep(&mut self, len_bytes: usize, value: T) -> u64 {
        let start = self.tail;
        self.tail += len_bytes.next_multiple_of(ALIGNMENT);
        self.frames.push_back(Stored { start, len_bytes, part_count: 0, value });
        self.first + self.frames.len() as u64 - 1
    }

    pub(super) fn add_part(&mut self, number: u64) {
        if let Some(frame) = self.frames.get_mut((number - self.first) as usize) {
            frame.part_count += 1;
        }
    }

    /// Bytes of a frame, and its value.
    pub(super) fn get(&self, number: u64) -> Option<(&[u8], &T)> {
        let frame = self.frames.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?;
        Some((self.bytes.get(frame.start..frame.start + frame.len_bytes)?, &frame.value))
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut [u8]> {
        let frame = self.frames.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?;
        self.bytes.get_mut(frame.start..frame.start + frame.len_bytes)
    }

    /// A part of a frame has left.
    pub(super) fn part_left(&mut self, number: u64) {
        let at = number.saturating_sub(self.first) as usize;
        if let Some(frame) = self.frames.get_mut(at) {
            frame.part_count = frame.part_count.saturating_sub(1);
        }
        self.forget_finished();
    }

    /// Frees frames without parts at the front.
    pub(super) fn forget_finished(&mut self) {
        while self.frames.front().is_some_and(|frame| frame.part_count == 0) {
            self.frames.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_bytes_until_their_last_part_has_left() {
        let mut store = Store::new(4 * FRAME_BYTES_MAX, 64);
        let mut kept: VecDeque<(u64, usize, u8)> = VecDeque::new();
        let mut refused = 0;
        for step in 0_usize..20_000 {
            let len_bytes = 1 + step * 7_919 % FRAME_BYTES_MAX;
            let fill = step as u8;
            match store.room() {
                Some(room) => {
                    room[..len_bytes].fill(fill);
                    let number = store.keep(len_bytes, fill);
                    store.add_part(number);
                    store.add_part(number);
                    kept.push_back((number, len_bytes, fill));
                }
                None => refused += 1,
            }
            // The newer of the two oldest leaves first.
            if step % 3 != 0 && kept.len() > 1 {
                let (number, len_bytes, fill) = kept.remove(1).unwrap();
                store.part_left(number);
                let (bytes, value) = store.get(number).unwrap();
                assert!(bytes.len() == len_bytes && bytes.iter().all(|byte| *byte == fill));
                assert_eq!(*value, fill);
                store.part_left(number);
            }
            if step % 3 == 0
                && let Some((number, ..)) = kept.pop_front()
            {
                store.part_left(number);
                store.part_left(number);
                assert!(store.get(number).is_none());
            }
        }
        assert!(refused > 0 && refused < 10_000, "{refused}");
    }
}
