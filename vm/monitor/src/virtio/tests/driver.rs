//! A driver over plain memory: queues of eight, each buffer in its own place.

use super::in_place::GuestFrames;
use crate::bus::{Bus, GuestMemory, InPlace, NetworkSide, PlainMemory, Reception, Sent};
use crate::lance::Width;
use crate::offload::OffloadHeader;
use crate::virtio::{NicOptions, RX, TX, VirtioNet, register, status};

pub(super) const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];
pub(super) const SIZE: u16 = 8;
const MEMORY_BYTES: usize = 1 << 16;
/// Of two pairs, and of the control queue.
const RINGS: [u32; 5] = [0x1000, 0x2000, 0xd000, 0xe000, 0xf000];
/// Of the queues of both directions.
const BUFFERS: [u32; 2] = [0x4000, 0x9000];
const BUFFER_BYTES: u32 = 0x800;
pub(super) const NEXT: u16 = 1;
pub(super) const WRITES: u16 = 2;
pub(super) const TABLE: u16 = 4;

/// A wire that keeps what it carries.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) frames: Vec<Vec<u8>>,
    /// Of the frames that left work.
    pub(super) headers: Vec<OffloadHeader>,
    pub(super) busy: bool,
    /// Has guest memory.
    pub(super) place: Option<GuestFrames>,
}

impl NetworkSide for Recorder {
    fn send(&mut self, frame: &[u8]) -> Sent {
        if self.busy {
            return Sent::Busy;
        }
        self.frames.push(frame.to_vec());
        Sent::Taken
    }

    fn send_offloaded(&mut self, header: &OffloadHeader, frame: &[u8]) -> Sent {
        let sent = self.send(frame);
        if sent == Sent::Taken {
            self.headers.push(*header);
        }
        sent
    }

    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        self.place.as_mut().map(|place| place as &mut dyn InPlace)
    }
}

/// Device, memory, wire, and the indexes of a driver.
pub(super) struct Station {
    pub(super) card: VirtioNet,
    pub(super) memory: PlainMemory,
    pub(super) wire: Recorder,
    available: [u16; 5],
    seen: [u16; 5],
}

impl Station {
    /// A card after power-on.
    pub(super) fn new(options: NicOptions) -> Self {
        Station {
            card: VirtioNet::new(MAC, options),
            memory: PlainMemory::new(MEMORY_BYTES),
            wire: Recorder::default(),
            available: [0; 5],
            seen: [0; 5],
        }
    }

    /// A card that its driver has started with all that it offers.
    pub(super) fn started(options: NicOptions) -> Self {
        let mut station = Station::new(options);
        station.start();
        station
    }

    pub(super) fn start(&mut self) {
        use register as r;
        for rings in RINGS {
            self.memory.write(rings, &[0; 0x1000]).unwrap();
        }
        (self.available, self.seen) = ([0; 5], [0; 5]);
        self.set(r::STATUS, 0);
        self.set(r::STATUS, status::ACKNOWLEDGE | status::DRIVER);
        for half in 0..2 {
            self.set(r::DEVICE_FEATURES_SEL, half);
            let offered = self.get(r::DEVICE_FEATURES);
            self.set(r::DRIVER_FEATURES_SEL, half);
            self.set(r::DRIVER_FEATURES, offered);
        }
        self.set(r::STATUS, 11);
        assert_eq!(self.get(r::STATUS), 11);
        for (queue, rings) in (0..).zip(RINGS) {
            self.set(r::QUEUE_SEL, queue);
            if self.get(r::QUEUE_NUM_MAX) == 0 {
                break;
            }
            self.set(r::QUEUE_NUM, SIZE.into());
            self.set(r::QUEUE_DESC_LOW, rings);
            self.set(r::QUEUE_DRIVER_LOW, rings + 0x400);
            self.set(r::QUEUE_DEVICE_LOW, rings + 0x800);
            self.set(r::QUEUE_READY, 1);
            assert_eq!(self.get(r::QUEUE_READY), 1);
        }
        self.set(r::STATUS, 15);
    }

    pub(super) fn set(&mut self, offset: u16, value: u32) {
        let mut bus = Bus { memory: &self.memory, wire: &mut self.wire };
        self.card.write(&mut bus, offset, Width::Dword, value);
    }

    pub(super) fn get(&self, offset: u16) -> u32 {
        self.card.read(offset, Width::Dword)
    }

    pub(super) fn buffer(queue: u16, slot: u16) -> u32 {
        BUFFERS[usize::from(queue % 2)] + u32::from(slot) * BUFFER_BYTES
    }

    /// Writes a descriptor of a queue.
    pub(super) fn describe(
        &self,
        queue: u16,
        slot: u16,
        address: u64,
        len_bytes: u32,
        flags: u16,
        next: u16,
    ) {
        self.describe_at(
            RINGS[usize::from(queue)] + 16 * u32::from(slot),
            address,
            len_bytes,
            flags,
            next,
        );
    }

    /// Writes a descriptor at an address.
    pub(super) fn describe_at(&self, at: u32, address: u64, len_bytes: u32, flags: u16, next: u16) {
        let mut bytes = Vec::from(address.to_le_bytes());
        bytes.extend(len_bytes.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.memory.write(at, &bytes).unwrap();
    }

    /// Makes the chain with this head available.
    pub(super) fn offer(&mut self, queue: u16, head: u16) {
        let ring = RINGS[usize::from(queue)] + 0x400;
        let index = &mut self.available[usize::from(queue)];
        let slot = u32::from(*index % SIZE);
        self.memory.write(ring + 4 + 2 * slot, &head.to_le_bytes()).unwrap();
        *index = index.wrapping_add(1);
        self.memory.write(ring + 2, &index.to_le_bytes()).unwrap();
    }

    /// Sets flags of the driver, or its event for interrupts.
    pub(super) fn wish(&self, queue: u16, flags: u16, event: u16) {
        let ring = RINGS[usize::from(queue)] + 0x400;
        self.memory.write(ring, &flags.to_le_bytes()).unwrap();
        self.memory.write(ring + 4 + 2 * u32::from(SIZE), &event.to_le_bytes()).unwrap();
    }

    /// Flags and event of the device.
    pub(super) fn device_wish(&self, queue: u16) -> (u16, u16) {
        let ring = RINGS[usize::from(queue)] + 0x800;
        let event = self.memory.load_u16(ring + 4 + 8 * u32::from(SIZE)).unwrap();
        (self.memory.load_u16(ring).unwrap(), event)
    }

    /// Takes the next used element: head, and bytes written.
    pub(super) fn take_used(&mut self, queue: u16) -> Option<(u32, u32)> {
        let ring = RINGS[usize::from(queue)] + 0x800;
        let seen = &mut self.seen[usize::from(queue)];
        if self.memory.load_u16(ring + 2).unwrap() == *seen {
            return None;
        }
        let at = ring + 4 + 8 * u32::from(*seen % SIZE);
        *seen = seen.wrapping_add(1);
        Some((self.memory.load_u32(at).unwrap(), self.memory.load_u32(at + 4).unwrap()))
    }

    /// Puts a frame into the transmit queue, header and frame in one buffer.
    pub(super) fn put(&mut self, slot: u16, frame: &[u8]) {
        let at = Self::buffer(TX, slot);
        self.memory.write(at, &[0; 12]).unwrap();
        self.memory.write(at + 12, frame).unwrap();
        self.describe(TX, slot, at.into(), 12 + frame.len() as u32, 0, 0);
        self.offer(TX, slot);
    }

    pub(super) fn kick(&mut self) {
        self.set(register::QUEUE_NOTIFY, TX.into());
    }

    /// Posts a buffer for receiving.
    pub(super) fn post(&mut self, slot: u16) {
        self.describe(RX, slot, Self::buffer(RX, slot).into(), BUFFER_BYTES, WRITES, 0);
        self.offer(RX, slot);
    }

    pub(super) fn receive(&mut self, frame: &[u8]) -> Reception {
        self.receive_offloaded(&OffloadHeader::FINISHED, frame)
    }

    pub(super) fn receive_offloaded(&mut self, header: &OffloadHeader, frame: &[u8]) -> Reception {
        self.card.receive(&self.memory, header, frame)
    }
}

/// A frame of `len` bytes, no two bytes in a row the same.
pub(super) fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}
