//! Places of rings, tables and frames in the shared memory, for rings of a given size.

use crate::indirect::{TABLE_BYTES, Tables};
use crate::net::{BUFFER_BYTES, HEADER_BYTES, QUEUE_FRAMES};
use crate::packed;
use crate::split;

/// Smallest ring.
pub const RING_FRAMES_MIN: u16 = 2;
/// Frames of the pool beside two full rings: held by the driver's user. Small rings have fewer.
const HELD_FRAMES: usize = 16;

/// Frames in the pool of a driver with rings of `ring_frames`, from [`RING_FRAMES_MIN`] to [`QUEUE_FRAMES`]: both rings
/// full, and a few held by the driver's user.
pub const fn pool_frames(ring_frames: u16) -> usize {
    let ring_frames = clamped(ring_frames) as usize;
    2 * ring_frames + if ring_frames < HELD_FRAMES { ring_frames } else { HELD_FRAMES }
}

/// Bytes of shared memory that a driver with rings of `ring_frames` needs, page-aligned.
pub const fn memory_bytes(ring_frames: u16) -> usize {
    Layout::new(ring_frames).end
}

/// The nearest size that is supported.
pub(crate) const fn clamped(ring_frames: u16) -> u16 {
    if ring_frames < RING_FRAMES_MIN {
        RING_FRAMES_MIN
    } else if ring_frames as usize > QUEUE_FRAMES {
        QUEUE_FRAMES as u16
    } else {
        ring_frames
    }
}

/// Offsets in the shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Of the receive and the transmit queue. Packed queues use the place of split ones.
    pub(crate) queues: [(split::Layout, packed::Layout); 2],
    pub(crate) tables: Tables,
    /// First frame.
    frames: usize,
    pub(crate) pool_frames: u16,
    end: usize,
}

impl Layout {
    pub(crate) const fn new(ring_frames: u16) -> Layout {
        let ring_frames = clamped(ring_frames);
        let rx = split::Layout::new(0, ring_frames);
        let tx = split::Layout::new(rx.end, ring_frames);
        let queues = [
            (rx, packed::Layout::new(rx.descriptors, ring_frames)),
            (tx, packed::Layout::new(tx.descriptors, ring_frames)),
        ];
        assert!(queues[0].1.end <= rx.end && queues[1].1.end <= tx.end);
        let pool_frames = pool_frames(ring_frames);
        let tables = tx.end.next_multiple_of(16);
        let header = tables + pool_frames * TABLE_BYTES;
        let frames = (header + HEADER_BYTES).next_multiple_of(64);
        Layout {
            queues,
            tables: Tables { tables, header },
            frames,
            pool_frames: pool_frames as u16,
            end: frames + pool_frames * BUFFER_BYTES,
        }
    }

    /// Offset of a frame's buffer: its header, then the frame.
    pub(crate) const fn buffer(&self, index: u16) -> usize {
        self.frames + index as usize * BUFFER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_every_size_lie_one_behind_the_other() {
        for ring_frames in 0..=QUEUE_FRAMES as u16 + 1 {
            let layout = Layout::new(ring_frames);
            let [(rx, packed), (tx, _)] = layout.queues;
            assert!(packed.end <= rx.end && rx.end <= tx.descriptors, "{ring_frames}");
            assert!(tx.end <= layout.tables.tables, "{ring_frames}");
            assert!(layout.tables.header + HEADER_BYTES <= layout.buffer(0), "{ring_frames}");
            assert_eq!(layout.buffer(layout.pool_frames), memory_bytes(ring_frames));
        }
    }

    #[test]
    fn small_rings_need_little_memory() {
        let sizes =
            [2, 8, 16, 32, 64, 128, 256].map(|ring| (pool_frames(ring), memory_bytes(ring)));
        let documented = std::include_str!("../../README.md");
        for ((frames, bytes), ring) in sizes.into_iter().zip([2, 8, 16, 32, 64, 128, 256]) {
            let row = std::format!("| {ring} | {frames} | {bytes} |");
            assert!(documented.contains(&row), "{row} is missing from the README");
        }
    }
}
