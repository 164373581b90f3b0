//! Registers of a rule, whose bytes may be unknown.

/// Bytes of all registers.
const BYTES: usize = 64;
const WORD_BYTES: usize = 4;

#[derive(Debug)]
pub(super) struct Registers([Option<u8>; BYTES]);

impl Registers {
    pub(super) fn unknown() -> Self {
        Registers([None; BYTES])
    }

    /// Offset of a register.
    ///
    /// Source: linux/netfilter/nf_tables.h, enum nft_registers.
    fn offset(number: u32) -> Option<usize> {
        match number {
            1..=4 => Some((number as usize - 1) * 16),
            8..=23 => Some((number as usize - 8) * WORD_BYTES),
            _ => None,
        }
    }

    /// Sets bytes; the last word is filled with zeroes, as the kernel does.
    pub(super) fn set(&mut self, number: u32, bytes: &[Option<u8>]) {
        let Some(start) = Self::offset(number) else { return };
        let padded_count = bytes.len().next_multiple_of(WORD_BYTES);
        let padded = bytes.iter().copied().chain(std::iter::repeat(Some(0))).take(padded_count);
        self.0.iter_mut().skip(start).zip(padded).for_each(|(to, byte)| *to = byte);
    }

    pub(super) fn set_known(&mut self, number: u32, bytes: &[u8]) {
        let bytes: Vec<Option<u8>> = bytes.iter().copied().map(Some).collect();
        self.set(number, &bytes);
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.set(number, &[None; 16]);
    }

    /// Bytes of a register; those beyond the last register are unknown.
    pub(super) fn get(&self, number: u32, count: usize) -> Vec<Option<u8>> {
        let start = Self::offset(number).unwrap_or(BYTES);
        let bytes = self.0.iter().copied().skip(start);
        bytes.chain(std::iter::repeat(None)).take(count.min(BYTES)).collect()
    }

    /// All bytes of a register; `None` if one is unknown.
    pub(super) fn known(&self, number: u32, count: usize) -> Option<Vec<u8>> {
        self.get(number, count).into_iter().collect()
    }
}
