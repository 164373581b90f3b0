//! Sends a frame as a table of two descriptors: a header in its own buffer, and the frame.
//!
//! Every frame has its own table, written once except for the frame's length. All share one
//! header, because it is all zeros in every frame and the device only reads it.
//!
//! Source: virtio 1.2, section 2.7.5.3, and 2.8 on the indirect flag.

use crate::Memory;
use crate::net::HEADER_BYTES;
use crate::ring::DESC_NEXT;

const ENTRIES: u16 = 2;
pub(crate) const TABLE_BYTES: usize = 16 * ENTRIES as usize;

/// Offsets of the tables and the header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    /// First table, aligned to 16.
    pub(crate) tables: usize,
    pub(crate) header: usize,
}

impl Tables {
    /// Writes the header and a table for each of `frames`, given by their offsets.
    pub(crate) fn write(
        &self,
        memory: &impl Memory,
        packed: bool,
        frames: impl Iterator<Item = usize>,
    ) {
        for at in (self.header..self.header + HEADER_BYTES).step_by(4) {
            memory.write32(at, 0);
        }
        // A table of a split ring is a chain; one of a packed ring is read from end to end, its
        // entries have no id and only the flag for the direction.
        let (flags, next) = if packed { (0, 0) } else { (DESC_NEXT, 1) };
        for (index, frame) in frames.enumerate() {
            let at = self.tables + index * TABLE_BYTES;
            memory.write64(at, memory.address() + self.header as u64);
            memory.write32(at + 8, HEADER_BYTES as u32);
            // The two fields are flags and next in a split ring, id and flags in a packed one.
            memory.write16(at + 12, flags);
            memory.write16(at + 14, next);
            memory.write64(at + 16, memory.address() + frame as u64);
            memory.write32(at + 24, 0);
            memory.write32(at + 28, 0);
        }
    }

    /// Writes the length of a frame to its table. Returns the table's address.
    pub(crate) fn set_len(&self, memory: &impl Memory, index: u16, len_bytes: u32) -> u64 {
        let at = self.tables + usize::from(index) * TABLE_BYTES;
        memory.write32(at + 24, len_bytes);
        memory.address() + at as u64
    }
}
