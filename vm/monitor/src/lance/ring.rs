//! Descriptors and the rings that they lie in.

use super::bcr::RingStyle;
use super::csr::{self, Csr};
use crate::bus::{BusError, GuestMemory};

/// Maximum number of descriptors that one operation reads; the longest ring that a driver can ask for in
/// an initialization block.
pub const WORK_MAX: u16 = 512;

/// Status bits of both kinds of descriptor.
pub mod status {
    /// The device's; the host may not touch it.
    pub const OWN: u16 = 1 << 15;
    /// Any error.
    pub const ERR: u16 = 1 << 14;
    /// Start of a frame.
    pub const STP: u16 = 1 << 9;
    /// End of a frame.
    pub const ENP: u16 = 1 << 8;

    /// Transmit: append a frame check sequence whatever the mode says.
    pub const ADD_FCS: u16 = 1 << 13;
    /// Transmit: with CSR5's LTINTEN, raise an interrupt.
    pub const LTINT: u16 = 1 << 12;

    /// Receive: lost part of the frame.
    pub const OFLO: u16 = 1 << 12;
    /// Receive: the frame check sequence is wrong.
    pub const CRC: u16 = 1 << 11;
    /// Receive: no buffer for the rest of the frame.
    pub const BUFF: u16 = 1 << 10;
}

/// Error bits of a transmit descriptor's second status word, in their 32-bit positions.
pub mod tx_error {
    /// The rest of the frame was not the device's.
    pub const BUFF: u32 = 1 << 31;
    /// Ran out of bytes within a frame.
    pub const UFLO: u32 = 1 << 30;
    /// Gave up after retries.
    pub const RTRY: u32 = 1 << 26;
}

/// Which ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingKind {
    Rx,
    Tx,
}

/// Location of a ring and the position of the device in it.
///
/// The counter runs from the ring's length down to 1, as software sees it in CSR72 and CSR74.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    style: RingStyle,
    base: u32,
    len: u16,
    index: u16,
}

impl Ring {
    /// As the registers say; software may have written anything into them.
    pub(super) fn new(csr: &Csr, style: RingStyle, kind: RingKind) -> Self {
        let (base, left, length) = match kind {
            RingKind::Rx => (csr::RX_BASE, csr::RX_LEFT, csr::RX_LENGTH),
            RingKind::Tx => (csr::TX_BASE, csr::TX_LEFT, csr::TX_LENGTH),
        };
        let len = csr.get(length).max(1);
        let left = csr.get(left).clamp(1, len);
        let align = if style == RingStyle::Lance { 8 } else { 16 };
        Ring { style, base: csr.pair(base) & !(align - 1), len, index: len - left }
    }

    /// Descriptors in the ring, at least 1.
    pub(super) fn len(&self) -> u16 {
        self.len
    }

    /// Number of the current descriptor.
    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// Bus address of the descriptor `ahead` of the current one.
    pub(super) fn address(&self, ahead: u32) -> u32 {
        let index = (u32::from(self.index) + ahead) % u32::from(self.len);
        let size = if self.style == RingStyle::Lance { 8 } else { 16 };
        self.base.wrapping_add(index * size)
    }

    pub(super) fn load(
        &self,
        memory: &impl GuestMemory,
        ahead: u32,
    ) -> Result<Descriptor, BusError> {
        Descriptor::load(memory, self.style, self.address(ahead))
    }

    /// Moves on by `count` descriptors and says so in the counter register.
    pub(super) fn advance(&mut self, csr: &mut Csr, kind: RingKind, count: u16) {
        let index = (u32::from(self.index) + u32::from(count)) % u32::from(self.len);
        self.index = index as u16;
        let left = match kind {
            RingKind::Rx => csr::RX_LEFT,
            RingKind::Tx => csr::TX_LEFT,
        };
        csr.set(left, self.len - self.index);
    }
}

/// A descriptor as read, in one form for all software styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    style: RingStyle,
    at: u32,
    /// Bus address of the buffer; for the Lance's style without its upper byte.
    pub(super) buffer: u32,
    /// Two's complement of the buffer's length, and whatever the host wrote above it.
    pub(super) count: u16,
    pub(super) status: u16,
}

/// Bus address of a word of the descriptor at `at`.
fn word_at(at: u32, index: u32) -> u32 {
    at.wrapping_add(4 * index)
}

impl Descriptor {
    /// Reads the word that holds OWN first, and the others only after it.
    fn load(memory: &impl GuestMemory, style: RingStyle, at: u32) -> Result<Self, BusError> {
        Ok(match style {
            RingStyle::Lance => {
                let first = memory.load_u32(at)?;
                let status = (first >> 16) as u16 & 0xff00;
                let count = memory.load_u32(word_at(at, 1))? as u16;
                Descriptor { style, at, buffer: first & 0xff_ffff, count, status }
            }
            RingStyle::Pcnet | RingStyle::PcnetSwapped => {
                let second = memory.load_u32(word_at(at, 1))?;
                let buffer_word = if style == RingStyle::Pcnet { 0 } else { 2 };
                let buffer = memory.load_u32(word_at(at, buffer_word))?;
                let status = (second >> 16) as u16;
                Descriptor { style, at, buffer, count: second as u16, status }
            }
        })
    }

    pub(super) fn is_owned(&self) -> bool {
        self.status & status::OWN != 0
    }

    /// Length of the buffer, 1 to 4096 bytes.
    pub(super) fn len_bytes(&self) -> usize {
        4096 - usize::from(self.count & 0xfff)
    }

    /// Hands the descriptor back to the host: `extra` first, OWN last.
    ///
    /// - `extra`: errors of a transmit descriptor, length of a received message.
    fn close(
        &self,
        memory: &impl GuestMemory,
        status: u16,
        extra: Option<u32>,
        extra_of_lance: u16,
    ) -> Result<(), BusError> {
        let status = u32::from(status & !status::OWN) << 16;
        match self.style {
            RingStyle::Lance => {
                if extra.is_some() {
                    let second = u32::from(self.count) | u32::from(extra_of_lance) << 16;
                    memory.store_u32(word_at(self.at, 1), second)?;
                }
                memory.store_u32(self.at, self.buffer | status & 0xff00_0000)
            }
            RingStyle::Pcnet | RingStyle::PcnetSwapped => {
                if let Some(extra) = extra {
                    let extra_word = if self.style == RingStyle::Pcnet { 2 } else { 0 };
                    memory.store_u32(word_at(self.at, extra_word), extra)?;
                }
                memory.store_u32(word_at(self.at, 1), status | u32::from(self.count))
            }
        }
    }

    /// Hands a transmit descriptor back with its `errors` (see [`tx_error`]).
    pub(super) fn close_tx(
        &self,
        memory: &impl GuestMemory,
        status: u16,
        errors: u32,
    ) -> Result<(), BusError> {
        self.close(memory, status, Some(errors), (errors >> 16) as u16)
    }

    /// Hands a receive descriptor back; the message's length only with its last buffer.
    pub(super) fn close_rx(
        &self,
        memory: &impl GuestMemory,
        status: u16,
        message_bytes: Option<u16>,
    ) -> Result<(), BusError> {
        let extra = message_bytes.map(u32::from);
        self.close(memory, status, extra, message_bytes.unwrap_or(0))
    }
}
