//! The device side of the rings.
//!
//! Written from the specification, independent of the driver's code: positions in a packed ring
//! are counted from the start; slots and wrap counters are derived from that.

use std::vec::Vec;
use std::{assert, assert_eq, assert_ne, panic};

use super::{Access, BASE, RX, State, TX};
use crate::mmio::{FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED};
use crate::net::HEADER_BYTES;
use crate::packed::{self, EVENT_DESC, EVENT_DISABLE, EVENT_ENABLE};
use crate::ring::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, need_event};
use crate::split::{self, AVAIL_NO_INTERRUPT, USED_NO_NOTIFY};

#[derive(Default, Clone)]
pub(super) struct Queue {
    pub(super) size: u16,
    pub(super) ready: bool,
    pub(super) addresses: [u64; 3],
    /// Buffers taken since the start.
    pub(super) taken: u64,
    /// Elements used since the start.
    pub(super) used: u64,
    /// Buffers owned by the device.
    pub(super) held: Vec<Buffer>,
    pub(super) doorbells: u32,
}

/// A buffer owned by the device.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    id: u16,
    /// Offset and length of each part.
    pub(super) parts: Vec<(usize, usize)>,
    writable: bool,
    table: bool,
}

/// A descriptor as stored in memory: address, length, and two fields of 16 bits.
type Descriptor = (u64, usize, u16, u16);

impl Queue {
    /// Slot and wrap counter of a position.
    fn place(&self, count: u64) -> (u16, bool) {
        let size = u64::from(self.size);
        ((count % size) as u16, (count / size).is_multiple_of(2))
    }
}

impl State {
    pub(super) fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.memory[at], self.memory[at + 1]])
    }

    pub(super) fn put16(&mut self, at: usize, value: u16) {
        self.memory[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub(super) fn put32(&mut self, at: usize, value: u32) {
        self.memory[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn offset(&self, address: u64, len: usize) -> usize {
        let at =
            address.checked_sub(BASE).expect("the address is below the shared memory") as usize;
        assert!(at + len <= self.memory.len(), "address beyond the end of memory");
        at
    }

    pub(super) fn split_layout(&self, queue: usize) -> split::Layout {
        let [descriptors, driver, device] = self.queues[queue].addresses;
        split::Layout {
            descriptors: self.offset(descriptors, 0),
            available: self.offset(driver, 0),
            used: self.offset(device, 0),
            end: 0,
        }
    }

    pub(super) fn packed_layout(&self, queue: usize) -> packed::Layout {
        let [descriptors, driver, device] = self.queues[queue].addresses;
        packed::Layout {
            descriptors: self.offset(descriptors, 0),
            driver: self.offset(driver, 0),
            device: self.offset(device, 0),
            end: 0,
        }
    }

    fn is_packed(&self) -> bool {
        self.chosen & FEATURE_RING_PACKED != 0
    }

    fn event_idx(&self) -> bool {
        self.chosen & FEATURE_EVENT_IDX != 0
    }

    pub(super) fn log(&mut self, access: Access) {
        if let Some(log) = &mut self.log {
            log.push(access);
        }
    }

    /// Reads the queue addresses, and publishes the device's doorbell request.
    pub(super) fn open(&mut self, queue: usize) {
        let [descriptors, driver, device] = self.queues[queue].addresses;
        assert!(descriptors.is_multiple_of(16), "descriptor table");
        let no_notify = self.behaviour.no_notify;
        if self.is_packed() {
            assert!(driver.is_multiple_of(4), "driver event suppression");
            assert!(device.is_multiple_of(4), "device event suppression");
            let at = self.packed_layout(queue).device;
            self.put16(at + 2, if no_notify { EVENT_DISABLE } else { EVENT_ENABLE });
        } else {
            assert!(driver.is_multiple_of(2), "available ring");
            assert!(device.is_multiple_of(4), "used ring");
            assert!(self.queues[queue].size.is_power_of_two(), "size of a split queue");
            let flags = self.split_layout(queue).used_flags();
            self.put16(flags, u16::from(no_notify) * USED_NO_NOTIFY);
        }
    }

    /// Buffers that the driver has made available and the device has not taken.
    pub(super) fn waiting_count(&self, queue: usize) -> u16 {
        let (q, taken) = (&self.queues[queue], self.queues[queue].taken);
        if self.is_packed() {
            let waits = |more: &u16| self.packed_available(queue, taken + u64::from(*more));
            return (0..q.size).take_while(waits).count() as u16;
        }
        let published = self.get16(self.split_layout(queue).avail_index());
        published.wrapping_sub(taken as u16)
    }

    fn packed_available(&self, queue: usize, count: u64) -> bool {
        let (slot, wrap) = self.queues[queue].place(count);
        let flags = self.get16(self.packed_layout(queue).flags(slot));
        (flags & 1 << 7 != 0) == wrap && (flags & 1 << 15 != 0) != wrap
    }

    /// Takes the next available buffer; returns its id.
    pub(super) fn next_available(&mut self, queue: usize) -> Option<u16> {
        if !self.queues[queue].ready {
            return None;
        }
        let (size, taken) = (self.queues[queue].size, self.queues[queue].taken);
        let buffer = if self.is_packed() {
            // Counting them all would take most of the time of the fuzz target.
            if !self.packed_available(queue, taken) {
                return None;
            }
            let begun = taken.saturating_sub(self.queues[queue].used);
            assert!(begun < u64::from(size), "a slot is made available that was not used yet");
            self.packed_buffer(queue, taken)
        } else {
            let waiting = self.waiting_count(queue);
            assert!(waiting <= size, "the available index jumped by {waiting}");
            if waiting == 0 {
                return None;
            }
            self.split_buffer(queue, taken)
        };
        let id = buffer.id;
        assert!(
            self.queues[queue].held.iter().all(|held| held.id != id),
            "buffer {id} is already held by the device"
        );
        self.queues[queue].held.push(buffer);
        self.queues[queue].taken = taken + 1;
        if self.event_idx() && !self.behaviour.names_no_place {
            // Request a doorbell when the driver adds the next one.
            if self.is_packed() {
                let at = self.packed_layout(queue).device;
                let (slot, wrap) = self.queues[queue].place(taken + 1);
                self.put16(at, slot | u16::from(wrap) << 15);
                self.put16(at + 2, EVENT_DESC);
            } else {
                let at = self.split_layout(queue).avail_event(size);
                self.put16(at, taken.wrapping_add(1) as u16);
            }
        }
        Some(id)
    }

    fn descriptor(&self, at: usize) -> Descriptor {
        let mut address = [0; 8];
        address.copy_from_slice(&self.memory[at..at + 8]);
        let len = usize::from(self.get16(at + 8)) | usize::from(self.get16(at + 10)) << 16;
        (u64::from_le_bytes(address), len, self.get16(at + 12), self.get16(at + 14))
    }

    fn split_buffer(&self, queue: usize, count: u64) -> Buffer {
        let (layout, size) = (self.split_layout(queue), self.queues[queue].size);
        let id = self.get16(layout.avail_slot((count % u64::from(size)) as u16));
        assert!(id < size, "descriptor {id} is made available");
        let (address, len, flags, _) = self.descriptor(layout.descriptors + 16 * usize::from(id));
        self.buffer(id, (address, len), flags, |table: usize| {
            let mut parts = Vec::new();
            let mut next = 0;
            loop {
                assert!(usize::from(next) < len / 16, "entry {next} of the table");
                assert!(parts.len() < usize::from(size), "the chain is longer than the ring");
                let (address, len, flags, then) = self.descriptor(table + 16 * usize::from(next));
                assert_eq!(flags & !DESC_NEXT, 0, "flags in a table to send");
                parts.push((self.offset(address, len), len));
                if flags & DESC_NEXT == 0 {
                    return parts;
                }
                next = then;
            }
        })
    }

    fn packed_buffer(&self, queue: usize, count: u64) -> Buffer {
        let (slot, _) = self.queues[queue].place(count);
        let (address, len, id, flags) = self.descriptor(self.packed_layout(queue).descriptor(slot));
        let size = self.queues[queue].size;
        self.buffer(id, (address, len), flags & !(1 << 7 | 1 << 15), |table: usize| {
            assert!(len / 16 <= usize::from(size), "the table is longer than the ring");
            let entries = (0..len / 16).map(|entry| self.descriptor(table + 16 * entry));
            let part = |(address, len, id, flags): Descriptor| {
                assert_eq!((id, flags), (0, 0), "reserved fields in a table to send");
                (self.offset(address, len), len)
            };
            entries.map(part).collect()
        })
    }

    fn buffer(
        &self,
        id: u16,
        (address, len): (u64, usize),
        flags: u16,
        table: impl FnOnce(usize) -> Vec<(usize, usize)>,
    ) -> Buffer {
        assert_eq!(flags & !(DESC_WRITE | DESC_INDIRECT), 0, "descriptor {id} has flags {flags}");
        let at = self.offset(address, len);
        let is_table = flags & DESC_INDIRECT != 0;
        let parts = if is_table {
            assert_ne!(self.chosen & FEATURE_INDIRECT_DESC, 0, "indirect was not negotiated");
            assert_eq!(flags & DESC_WRITE, 0, "a table to write to");
            assert!(len > 0 && len.is_multiple_of(16), "a table of {len} bytes");
            table(at)
        } else {
            std::vec![(at, len)]
        };
        assert!(parts.iter().all(|(_, len)| *len > 0), "a part of no bytes");
        Buffer { id, parts, writable: flags & DESC_WRITE != 0, table: is_table }
    }

    pub(super) fn held(&self, queue: usize, id: u16) -> &Buffer {
        let found = self.queues[queue].held.iter().find(|held| held.id == id);
        found.expect("the device has it")
    }

    /// Offset and length of a receive buffer owned by the device.
    pub(super) fn receive_buffer(&self, id: u16) -> (usize, usize) {
        let buffer = self.held(RX, id);
        let (at, len) = buffer.parts[0];
        assert!(buffer.writable, "receive buffer {id} may not be written to");
        assert!(len >= 1526 && buffer.parts.len() == 1, "receive buffer of {len} bytes");
        (at, len)
    }

    pub(super) fn send(&mut self, id: u16) {
        let buffer = self.held(TX, id);
        assert!(!buffer.writable, "send buffer {id}");
        if buffer.table {
            assert_eq!((buffer.parts.len(), buffer.parts[0].1), (2, HEADER_BYTES), "header apart");
        }
        let bytes = |(at, len): &(usize, usize)| self.memory[*at..*at + *len].to_vec();
        let whole: Vec<u8> = buffer.parts.iter().flat_map(bytes).collect();
        assert!(whole.len() >= HEADER_BYTES, "send buffer {id}");
        assert!(whole[..HEADER_BYTES].iter().all(|byte| *byte == 0), "header");
        self.sent.push(whole[HEADER_BYTES..].to_vec());
    }

    pub(super) fn complete(&mut self, queue: usize, elements: &[(u16, u32)]) {
        for (id, _) in elements {
            let held = &mut self.queues[queue].held;
            let index = held.iter().position(|held| held.id == *id).expect("the device has it");
            held.swap_remove(index);
        }
        let elements: Vec<(u32, u32)> =
            elements.iter().map(|(id, len)| (u32::from(*id), *len)).collect();
        self.write_used(queue, &elements);
    }

    /// Writes used elements, publishes them all at once, and interrupts if the driver asked for it.
    pub(super) fn write_used(&mut self, queue: usize, elements: &[(u32, u32)]) {
        let old = self.queues[queue].used;
        let new = old + elements.len() as u64;
        let wanted = if self.is_packed() {
            // The first one last: it hides all others.
            for (more, (id, len)) in elements.iter().enumerate().rev() {
                self.write_packed(queue, old + more as u64, *id as u16, *len);
            }
            self.packed_wanted(queue, old, new)
        } else {
            let (layout, size) = (self.split_layout(queue), self.queues[queue].size);
            for (more, (id, len)) in elements.iter().enumerate() {
                let slot = layout.used_slot(((old + more as u64) % u64::from(size)) as u16);
                self.put32(slot, *id);
                self.put32(slot + 4, *len);
            }
            self.put16(layout.used_index(), new as u16);
            let flags = self.get16(layout.avail_flags());
            if self.event_idx() {
                assert_eq!(flags, 0, "flags must be 0 with EVENT_IDX");
                need_event(self.get16(layout.used_event(size)), new as u16, old as u16)
            } else {
                flags & AVAIL_NO_INTERRUPT == 0
            }
        };
        self.queues[queue].used = new;
        if wanted && !self.behaviour.silent {
            self.raise(1);
            self.interrupts += 1;
        }
    }

    /// Adds causes of an interrupt. The line rises only if there was none.
    pub(super) fn raise(&mut self, bits: u32) {
        self.edge |= self.interrupt == 0 && bits != 0 && !self.behaviour.is_deaf;
        self.interrupt |= bits;
    }

    /// Writes a frame to the next receive buffer. Returns false if there is none.
    pub(super) fn deliver(&mut self, frame: &[u8]) -> bool {
        let Some(id) = self.next_available(RX) else { return false };
        let (at, len) = self.receive_buffer(id);
        let written = HEADER_BYTES + frame.len();
        assert!(written <= len, "the test's frame is too long");
        self.memory[at..at + HEADER_BYTES].fill(0);
        self.memory[at + HEADER_BYTES..at + written].copy_from_slice(frame);
        self.complete(RX, &[(id, written as u32)]);
        true
    }

    fn write_packed(&mut self, queue: usize, count: u64, id: u16, len: u32) {
        let (layout, (slot, wrap)) = (self.packed_layout(queue), self.queues[queue].place(count));
        self.put32(layout.len(slot), len);
        self.put16(layout.id(slot), id);
        self.put16(layout.flags(slot), if wrap { 1 << 7 | 1 << 15 } else { 0 });
    }

    /// True if the driver asked for an interrupt for elements `old..new`.
    fn packed_wanted(&self, queue: usize, old: u64, new: u64) -> bool {
        let at = self.packed_layout(queue).driver;
        let (word, flags) = (self.get16(at), self.get16(at + 2));
        match flags {
            EVENT_ENABLE => true,
            EVENT_DISABLE => false,
            EVENT_DESC => {
                assert!(self.event_idx(), "a place is named without EVENT_IDX");
                let (slot, wrap) = (word & 0x7fff, word >> 15 != 0);
                assert!(slot < self.queues[queue].size, "place {slot} is named");
                (old..new).any(|count| self.queues[queue].place(count) == (slot, wrap))
            }
            _ => panic!("event suppression flags {flags}"),
        }
    }

    pub(super) fn run_ahead(&mut self, queue: usize, by: u16) {
        if self.is_packed() {
            for more in 0..u64::from(by.min(self.queues[queue].size)) {
                let count = self.queues[queue].used + more;
                self.write_packed(queue, count, u16::MAX, 0);
            }
            return;
        }
        let used = self.queues[queue].used + u64::from(by);
        self.queues[queue].used = used;
        let at = self.split_layout(queue).used_index();
        self.put16(at, used as u16);
    }
}
