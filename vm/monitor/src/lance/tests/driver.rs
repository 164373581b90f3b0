//! A driver over plain memory, as drivers of the time were: rings of four, everything through
//! ports.

use crate::lance::{
    BDP_DWORD, BDP_WORD, Bus, GuestMemory, Lance, NetworkSide, PlainMemory, RAP_DWORD, RAP_WORD,
    RDP, Reception, Sent, Width, csr0, status,
};

pub(super) const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];
pub(super) const RING_LEN: u32 = 4;
const BUFFER_BYTES: u32 = 0x800;
const INIT_BLOCK: u32 = 0x100;
const RX_RING: u32 = 0x1000;
const TX_RING: u32 = 0x2000;
const RX_BUFFERS: u32 = 0x4000;
const TX_BUFFERS: u32 = 0x8000;

/// A wire that keeps what it carries.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) frames: Vec<Vec<u8>>,
    pub(super) busy: bool,
}

impl NetworkSide for Recorder {
    fn send(&mut self, frame: &[u8]) -> Sent {
        if self.busy {
            return Sent::Busy;
        }
        self.frames.push(frame.to_vec());
        Sent::Taken
    }
}

/// A station: device, memory, wire, and where the driver is in its rings.
pub(super) struct Station {
    pub(super) lance: Lance,
    pub(super) memory: PlainMemory,
    pub(super) wire: Recorder,
    pub(super) style: u16,
    tx_next: u32,
    rx_next: u32,
}

/// Software styles that every behaviour is tested in.
pub(super) const STYLES: [u16; 3] = [0, 2, 3];

impl Station {
    /// A chip with bus mastering on, stopped.
    pub(super) fn new(style: u16) -> Self {
        let mut lance = Lance::new(MAC);
        lance.pci.write(4, Width::Word, 5);
        let mut station = Station {
            lance,
            memory: PlainMemory::new(0x1_0000),
            wire: Recorder::default(),
            style,
            tx_next: 0,
            rx_next: 0,
        };
        station.set_bcr(20, style);
        station
    }

    /// A chip that was initialized with `mode` and started, interrupts on, IDON acknowledged.
    pub(super) fn started(style: u16, mode: u16) -> Self {
        let mut station = Self::new(style);
        station.init(mode, [0; 4]);
        station.set_csr(0, csr0::STRT | csr0::INEA | csr0::IDON);
        station
    }

    fn width(&self) -> Width {
        if self.lance.port(RAP_WORD, Width::Word).is_some() { Width::Word } else { Width::Dword }
    }

    pub(super) fn out(&mut self, offset: u8, width: Width, value: u32) {
        let mut bus = Bus { memory: &self.memory, wire: &mut self.wire };
        self.lance.write(&mut bus, offset, width, value);
    }

    pub(super) fn set_csr(&mut self, at: u8, value: u16) {
        let (rap, width) = match self.width() {
            Width::Dword => (RAP_DWORD, Width::Dword),
            _ => (RAP_WORD, Width::Word),
        };
        self.out(rap, width, u32::from(at));
        self.out(RDP, width, u32::from(value));
    }

    pub(super) fn csr(&mut self, at: u8) -> u16 {
        let (rap, width) = match self.width() {
            Width::Dword => (RAP_DWORD, Width::Dword),
            _ => (RAP_WORD, Width::Word),
        };
        self.out(rap, width, u32::from(at));
        self.lance.read(RDP, width) as u16
    }

    pub(super) fn set_bcr(&mut self, at: u8, value: u16) {
        let (rap, bdp, width) = match self.width() {
            Width::Dword => (RAP_DWORD, BDP_DWORD, Width::Dword),
            _ => (RAP_WORD, BDP_WORD, Width::Word),
        };
        self.out(rap, width, u32::from(at));
        self.out(bdp, width, u32::from(value));
    }

    pub(super) fn bcr(&mut self, at: u8) -> u16 {
        let (rap, bdp, width) = match self.width() {
            Width::Dword => (RAP_DWORD, BDP_DWORD, Width::Dword),
            _ => (RAP_WORD, BDP_WORD, Width::Word),
        };
        self.out(rap, width, u32::from(at));
        self.lance.read(bdp, width) as u16
    }

    /// Writes the initialization block, gives the receiver its buffers, and has it read.
    pub(super) fn init(&mut self, mode: u16, ladrf: [u16; 4]) {
        let mut block = Vec::from(mode.to_le_bytes());
        let code = RING_LEN.ilog2();
        if self.style == 0 {
            block.extend(MAC);
            block.extend(ladrf.iter().flat_map(|word| word.to_le_bytes()));
            block.extend((RX_RING | code << 29).to_le_bytes());
            block.extend((TX_RING | code << 29).to_le_bytes());
        } else {
            block.extend([(code as u8) << 4, (code as u8) << 4]);
            block.extend(MAC);
            block.extend([0; 2]);
            block.extend(ladrf.iter().flat_map(|word| word.to_le_bytes()));
            block.extend(RX_RING.to_le_bytes());
            block.extend(TX_RING.to_le_bytes());
        }
        self.memory.write(INIT_BLOCK, &block).unwrap();
        for i in 0..RING_LEN {
            self.rx_post(i, BUFFER_BYTES as usize);
        }
        self.set_csr(1, INIT_BLOCK as u16);
        self.set_csr(2, 0);
        self.set_csr(0, csr0::INIT);
    }

    /// Writes a descriptor: words in the order of style 2, the others made from them.
    pub(super) fn set_descriptor(&mut self, at: u32, buffer: u32, len: usize, bits: u16) {
        let count = (4096 - len as u32) & 0xfff | 0xf000;
        let words: &[u32] = &match self.style {
            0 => vec![buffer | u32::from(bits & 0xff00) << 16, count],
            2 => vec![buffer, u32::from(bits) << 16 | count, 0, 0],
            _ => vec![0, u32::from(bits) << 16 | count, buffer, 0],
        };
        for (i, &word) in words.iter().enumerate() {
            self.memory.store_u32(at + 4 * i as u32, word).unwrap();
        }
    }

    /// Status word and second status word (errors, or length) of a descriptor.
    pub(super) fn descriptor(&self, at: u32) -> (u16, u32) {
        let words = [0, 1, 2].map(|i| self.memory.load_u32(at + 4 * i).unwrap());
        match self.style {
            0 => ((words[0] >> 16) as u16 & 0xff00, words[1] >> 16),
            2 => ((words[1] >> 16) as u16, words[2]),
            _ => ((words[1] >> 16) as u16, words[0]),
        }
    }

    fn descriptor_bytes(&self) -> u32 {
        if self.style == 0 { 8 } else { 16 }
    }

    pub(super) fn tx_at(&self, i: u32) -> u32 {
        TX_RING + i % RING_LEN * self.descriptor_bytes()
    }

    pub(super) fn rx_at(&self, i: u32) -> u32 {
        RX_RING + i % RING_LEN * self.descriptor_bytes()
    }

    pub(super) fn rx_post(&mut self, i: u32, len: usize) {
        let buffer = RX_BUFFERS + i % RING_LEN * BUFFER_BYTES;
        self.set_descriptor(self.rx_at(i), buffer, len, status::OWN);
    }

    /// Puts `parts` into the transmit ring as one frame, the first descriptor last, as drivers
    /// must; rings no bell.
    pub(super) fn tx_put(&mut self, parts: &[&[u8]], extra: u16) {
        for (i, part) in parts.iter().enumerate().rev() {
            let slot = self.tx_next + i as u32;
            let buffer = TX_BUFFERS + slot % RING_LEN * BUFFER_BYTES;
            self.memory.write(buffer, part).unwrap();
            let first = if i == 0 { status::STP } else { 0 };
            let last = if i + 1 == parts.len() { status::ENP } else { 0 };
            let bits = status::OWN | first | last | extra;
            self.set_descriptor(self.tx_at(slot), buffer, part.len(), bits);
        }
        self.tx_next += parts.len() as u32;
    }

    pub(super) fn kick(&mut self) {
        self.set_csr(0, csr0::TDMD | csr0::INEA);
    }

    pub(super) fn receive(&mut self, frame: &[u8]) -> Reception {
        self.lance.receive(&self.memory, frame)
    }

    /// Takes a message of one buffer: status, bytes.
    pub(super) fn rx_take(&mut self) -> Option<(u16, Vec<u8>)> {
        let (bits, len) = self.descriptor(self.rx_at(self.rx_next));
        if bits & status::OWN != 0 {
            return None;
        }
        let mut bytes = vec![0; len as usize & 0xfff];
        let buffer = RX_BUFFERS + self.rx_next % RING_LEN * BUFFER_BYTES;
        self.memory.read(buffer, &mut bytes).unwrap();
        self.rx_post(self.rx_next, BUFFER_BYTES as usize);
        self.rx_next += 1;
        Some((bits, bytes))
    }

    pub(super) fn rx_buffer(&self, i: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(RX_BUFFERS + i * BUFFER_BYTES, &mut bytes).unwrap();
        bytes
    }

    /// Interrupt handler: reads, masks and acknowledges. Returns the causes.
    pub(super) fn interrupt(&mut self) -> u16 {
        let causes = self.csr(0);
        let enable = csr0::INEA | csr0::TDMD | csr0::STOP | csr0::STRT | csr0::INIT;
        self.set_csr(0, causes & !enable);
        causes
    }
}

/// A frame of `len` bytes to `to`, no two bytes in a row the same.
pub(super) fn frame(to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    frame[..6].copy_from_slice(&to);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}
