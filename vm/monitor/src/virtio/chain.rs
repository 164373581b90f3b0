//! Chains of descriptors, every field of which comes from the guest.
//!
//! Source: virtio 1.2, sections 2.7.5, 2.7.7, 2.8.6 and 2.8.7.

use super::fault::DriverFault;
use super::layout::TakenChain;
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

/// Direction of a queue's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The device reads them.
    Read,
    /// The device writes them.
    Written,
    /// In each chain, some that the device reads come before some that it writes.
    Both,
}

/// Buffers that belong together.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Number of its first descriptor, or its id in a packed queue, by which it is returned.
    pub(super) head: u16,
    /// Slots that it takes in a packed queue.
    pub(super) slot_count: u16,
    pub(super) segments: Vec<Segment>,
    /// Those of the segments that the device reads, which are the first.
    pub(super) read_count: usize,
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
    fn read(memory: &impl GuestMemory, table: u32, index: u32) -> Result<Self, DriverFault> {
        let at = u64::from(table) + u64::from(index) * u64::from(DESCRIPTOR_BYTES);
        let mut bytes = [0; DESCRIPTOR_BYTES as usize];
        memory.read(u32::try_from(at).map_err(|_| DriverFault::Address(at))?, &mut bytes)?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Ok(Descriptor {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len_bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        })
    }

    /// Reads a descriptor of a packed queue, in which `next` is the id of the chain.
    fn read_packed(memory: &impl GuestMemory, table: u32, index: u32) -> Result<Self, DriverFault> {
        let split = Self::read(memory, table, index)?;
        Ok(Descriptor { flags: split.next, next: split.flags, ..split })
    }

    /// Address and length of the table that it points to, which ends the chain.
    fn table(&self, rules: Rules, in_table: bool) -> Result<(u32, u32), DriverFault> {
        let len_bytes = self.len_bytes;
        let is_whole = len_bytes > 0 && len_bytes.is_multiple_of(DESCRIPTOR_BYTES);
        // Buffers before it are allowed.
        if !rules.tables || in_table || self.flags & NEXT != 0 || !is_whole {
            return Err(DriverFault::Table { len_bytes });
        }
        Ok((self.address()?, len_bytes / DESCRIPTOR_BYTES))
    }

    fn address(&self) -> Result<u32, DriverFault> {
        u32::try_from(self.address).map_err(|_| DriverFault::Address(self.address))
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
    pub(super) direction: Direction,
}

impl Chain {
    /// Reads the chain that begins with descriptor `head` of the table at `table`.
    pub(super) fn read(
        &mut self,
        memory: &impl GuestMemory,
        table: u32,
        head: u16,
        rules: Rules,
    ) -> Result<(), DriverFault> {
        self.clear();
        self.head = head;
        let (mut table, mut len) = (table, u32::from(rules.size));
        let (mut index, mut in_table) = (u32::from(head), false);
        loop {
            if index >= len {
                return Err(DriverFault::Descriptor(index));
            }
            if self.segments.len() >= usize::from(rules.size) {
                return Err(DriverFault::Loop(rules.size));
            }
            let descriptor = Descriptor::read(memory, table, index)?;
            self.descriptor_count += 1;
            let Descriptor { flags, next, .. } = descriptor;
            if flags & TABLE != 0 {
                (table, len) = descriptor.table(rules, in_table)?;
                (index, in_table) = (0, true);
                continue;
            }
            self.push(&descriptor, rules)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(next);
        }
    }

    /// Reads the chain that begins with slot `first` of the packed ring at `ring`.
    pub(super) fn read_packed(
        &mut self,
        memory: &impl GuestMemory,
        ring: u32,
        first: u16,
        rules: Rules,
    ) -> Result<(), DriverFault> {
        self.clear();
        let size = u32::from(rules.size);
        for step in 0..size {
            let descriptor =
                Descriptor::read_packed(memory, ring, (u32::from(first) + step) % size)?;
            (self.head, self.slot_count) = (descriptor.next, self.slot_count + 1);
            self.descriptor_count += 1;
            if descriptor.flags & TABLE != 0 {
                let (table, len) = descriptor.table(rules, false)?;
                return self.read_packed_table(memory, table, len, rules);
            }
            self.push(&descriptor, rules)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
        }
        Err(DriverFault::Loop(rules.size))
    }

    /// Reads a table of a packed queue: all of its entries are buffers of the chain.
    fn read_packed_table(
        &mut self,
        memory: &impl GuestMemory,
        table: u32,
        len: u32,
        rules: Rules,
    ) -> Result<(), DriverFault> {
        for index in 0..len {
            if self.segments.len() >= usize::from(rules.size) {
                return Err(DriverFault::Loop(rules.size));
            }
            let descriptor = Descriptor::read_packed(memory, table, index)?;
            self.descriptor_count += 1;
            if descriptor.flags & TABLE != 0 {
                descriptor.table(rules, true)?;
            }
            self.push(&descriptor, rules)?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.segments.clear();
        (self.slot_count, self.descriptor_count, self.read_count) = (0, 0, 0);
    }

    /// Adds the buffer of a descriptor.
    fn push(&mut self, descriptor: &Descriptor, rules: Rules) -> Result<(), DriverFault> {
        let is_written = descriptor.flags & DEVICE_WRITES != 0;
        let is_right = match rules.direction {
            Direction::Read => !is_written,
            Direction::Written => is_written,
            Direction::Both => is_written || self.read_count == self.segments.len(),
        };
        if !is_right {
            return Err(DriverFault::Direction { queue: rules.queue });
        }
        self.read_count += usize::from(!is_written);
        self.segments.push(Segment { at: descriptor.address()?, len_bytes: descriptor.len_bytes });
        Ok(())
    }

    /// Its name in the queue.
    pub(super) fn taken(&self) -> TakenChain {
        TakenChain { head: self.head, slot_count: self.slot_count }
    }

    /// All bytes after the first `skip_bytes`; `None` if they are not in one buffer.
    pub(super) fn piece(&self, skip_bytes: u32) -> Option<Segment> {
        let mut skip = skip_bytes;
        let mut rest = self.segments.iter();
        while let Some(segment) = rest.next() {
            if skip >= segment.len_bytes {
                skip -= segment.len_bytes;
                continue;
            }
            let is_whole = rest.all(|later| later.len_bytes == 0);
            let at = segment.at.checked_add(skip).filter(|_| is_whole)?;
            return Some(Segment { at, len_bytes: segment.len_bytes - skip });
        }
        None
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
    ) -> Result<(), DriverFault> {
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
            memory.read(
                u32::try_from(at).map_err(|_| DriverFault::Address(at))?,
                &mut into[begin..],
            )?;
        }
        Ok(())
    }
}

/// Writes `from` to buffers, which must be long enough.
pub(super) fn scatter(
    memory: &impl GuestMemory,
    buffers: &[Segment],
    from: &[u8],
) -> Result<(), DriverFault> {
    let mut rest = from;
    for segment in buffers {
        let (part, later) = rest.split_at(rest.len().min(segment.len_bytes as usize));
        if !part.is_empty() {
            memory.write(segment.at, part)?;
        }
        rest = later;
    }
    Ok(())
}
