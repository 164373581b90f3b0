//! Chains of descriptors, every field of which comes from the guest.
//!
//! Source: virtio 1.2, sections 2.7.5 and 2.7.7.

use super::fault::Fault;
use crate::bus::GuestMemory;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u32 = 16;
const NEXT: u16 = 1;
const DEVICE_WRITES: u16 = 2;
const TABLE: u16 = 4;

/// A buffer of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) at: u32,
    pub(super) len_bytes: u32,
}

/// Buffers that belong together, all of the same direction: this device's queues have no others.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Number of its first descriptor, by which it is returned.
    pub(super) head: u16,
    pub(super) segments: Vec<Segment>,
    /// Descriptors read, those of a table and the one that points to it included.
    pub(super) descriptor_count: u64,
}

struct Descriptor {
    address: u64,
    len_bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn read(memory: &impl GuestMemory, table: u32, index: u32) -> Result<Self, Fault> {
        let at = u64::from(table) + u64::from(index) * u64::from(DESCRIPTOR_BYTES);
        let mut bytes = [0; DESCRIPTOR_BYTES as usize];
        memory.read(u32::try_from(at).map_err(|_| Fault::Address(at))?, &mut bytes)?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Ok(Descriptor {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len_bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        })
    }

    fn at(&self) -> Result<u32, Fault> {
        u32::try_from(self.address).map_err(|_| Fault::Address(self.address))
    }
}

/// Rules for the chains of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) queue: u16,
    /// Descriptors of the queue, and the most in a chain.
    pub(super) size: u16,
    /// Tables are negotiated.
    pub(super) tables: bool,
    /// The device writes the buffers.
    pub(super) device_writes: bool,
}

impl Chain {
    /// Reads the chain that begins with descriptor `head` of the table at `table`.
    pub(super) fn read(
        &mut self,
        memory: &impl GuestMemory,
        table: u32,
        head: u16,
        rules: Rules,
    ) -> Result<(), Fault> {
        self.head = head;
        self.segments.clear();
        self.descriptor_count = 0;
        let (mut table, mut len) = (table, u32::from(rules.size));
        let (mut index, mut in_table) = (u32::from(head), false);
        loop {
            if index >= len {
                return Err(Fault::Descriptor(index));
            }
            if self.segments.len() >= usize::from(rules.size) {
                return Err(Fault::Loop(rules.size));
            }
            let descriptor = Descriptor::read(memory, table, index)?;
            self.descriptor_count += 1;
            let Descriptor { len_bytes, flags, next, .. } = descriptor;
            if flags & TABLE != 0 {
                let is_whole = len_bytes > 0 && len_bytes.is_multiple_of(DESCRIPTOR_BYTES);
                // A table ends the chain; buffers before it are allowed.
                if !rules.tables || in_table || flags & NEXT != 0 || !is_whole {
                    return Err(Fault::Table { len_bytes });
                }
                (table, len) = (descriptor.at()?, len_bytes / DESCRIPTOR_BYTES);
                (index, in_table) = (0, true);
                continue;
            }
            if (flags & DEVICE_WRITES != 0) != rules.device_writes {
                return Err(Fault::Direction { queue: rules.queue });
            }
            self.segments.push(Segment { at: descriptor.at()?, len_bytes });
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(next);
        }
    }

    /// Bytes of all buffers.
    pub(super) fn len_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.len_bytes)).sum()
    }

    /// Appends `len_bytes` bytes after the first `skip_bytes` to `into`, or all that there are.
    pub(super) fn gather(
        &self,
        memory: &impl GuestMemory,
        skip_bytes: u32,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let (mut skip, end) = (skip_bytes, into.len() + len_bytes);
        for segment in &self.segments {
            let skipped = skip.min(segment.len_bytes);
            skip -= skipped;
            let begin = into.len();
            let len = (end - begin).min((segment.len_bytes - skipped) as usize);
            if len == 0 {
                continue;
            }
            let at = u64::from(segment.at) + u64::from(skipped);
            into.resize(begin + len, 0);
            memory.read(u32::try_from(at).map_err(|_| Fault::Address(at))?, &mut into[begin..])?;
        }
        Ok(())
    }

    /// Writes `from` to the buffers, which must be long enough.
    pub(super) fn scatter(&self, memory: &impl GuestMemory, from: &[u8]) -> Result<(), Fault> {
        let mut rest = from;
        for segment in &self.segments {
            let (part, later) = rest.split_at(rest.len().min(segment.len_bytes as usize));
            if !part.is_empty() {
                memory.write(segment.at, part)?;
            }
            rest = later;
        }
        Ok(())
    }
}
