//! The initialization block: what the INIT command reads.

use std::array;

use crate::bus::{BusError, GuestMemory};

/// Longest ring that the block can ask for, in descriptors.
const RING_MAX: u16 = 512;

/// An initialization block, as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitBlock {
    pub(super) mode: u16,
    pub(super) padr: [u8; 6],
    pub(super) ladrf: [u16; 4],
    /// Bus address of the receive ring.
    pub(super) rx_base: u32,
    /// Bus address of the transmit ring.
    pub(super) tx_base: u32,
    /// Base-2 logarithm of the receive ring's length, as written.
    pub(super) rx_code: u8,
    /// Base-2 logarithm of the transmit ring's length, as written.
    pub(super) tx_code: u8,
}

/// Descriptors in a ring whose length is written as `code`.
pub(super) fn ring_len(code: u8) -> u16 {
    1u16.checked_shl(u32::from(code)).map_or(RING_MAX, |len| len.min(RING_MAX))
}

impl InitBlock {
    /// Reads the block at `at`, in its 32-bit form or its 16-bit one.
    ///
    /// - `high`: bits 31 to 24 of every address, for the 16-bit form.
    pub(super) fn read(
        memory: &impl GuestMemory,
        at: u32,
        ssize32: bool,
        high: u32,
    ) -> Result<Self, BusError> {
        let mut block = [0; 28];
        let bytes = if ssize32 { &mut block[..] } else { &mut block[..24] };
        memory.read(at, bytes)?;
        let words: [u16; 14] =
            array::from_fn(|i| u16::from_le_bytes([block[2 * i], block[2 * i + 1]]));
        let longs: [u32; 7] =
            array::from_fn(|i| u32::from(words[2 * i]) | u32::from(words[2 * i + 1]) << 16);
        Ok(if ssize32 {
            InitBlock {
                mode: words[0],
                padr: array::from_fn(|i| block[4 + i]),
                ladrf: array::from_fn(|i| words[6 + i]),
                rx_base: longs[5],
                tx_base: longs[6],
                rx_code: block[2] >> 4,
                tx_code: block[3] >> 4,
            }
        } else {
            InitBlock {
                mode: words[0],
                padr: array::from_fn(|i| block[2 + i]),
                ladrf: array::from_fn(|i| words[4 + i]),
                rx_base: high | longs[4] & 0xff_ffff,
                tx_base: high | longs[5] & 0xff_ffff,
                rx_code: block[19] >> 5,
                tx_code: block[23] >> 5,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::PlainMemory;

    #[test]
    fn ring_lengths_are_powers_of_two_up_to_512() {
        let lens: Vec<u16> = (0..=15).map(ring_len).collect();
        assert_eq!(lens[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert!(lens[10..].iter().all(|&len| len == 512));
    }

    #[test]
    fn both_forms_say_the_same() {
        let memory = PlainMemory::new(0x100);
        let short: [u8; 24] = [
            0x34, 0x12, 1, 2, 3, 4, 5, 6, 0x11, 0x10, 0x21, 0x20, 0x31, 0x30, 0x41, 0x40, 0x00,
            0x10, 0x02, 0x80, 0x00, 0x20, 0x03, 0x60,
        ];
        memory.write(0x10, &short).unwrap();
        let long: [u8; 28] = [
            0x34, 0x12, 0x40, 0x30, 1, 2, 3, 4, 5, 6, 0, 0, 0x11, 0x10, 0x21, 0x20, 0x31, 0x30,
            0x41, 0x40, 0x00, 0x10, 0x02, 0x7f, 0x00, 0x20, 0x03, 0x7f,
        ];
        memory.write(0x40, &long).unwrap();
        let of_short = InitBlock::read(&memory, 0x10, false, 0x7f00_0000);
        assert_eq!(of_short, InitBlock::read(&memory, 0x40, true, 0));
        let block = of_short.unwrap();
        assert_eq!(block.mode, 0x1234);
        assert_eq!(block.padr, [1, 2, 3, 4, 5, 6]);
        assert_eq!(block.ladrf, [0x1011, 0x2021, 0x3031, 0x4041]);
        assert_eq!((block.rx_base, block.rx_code), (0x7f02_1000, 4));
        assert_eq!((block.tx_base, block.tx_code), (0x7f03_2000, 3));
    }

    #[test]
    fn block_past_the_end_of_memory_is_a_bus_error() {
        let memory = PlainMemory::new(0x100);
        assert!(InitBlock::read(&memory, 0xe8, false, 0).is_ok());
        assert!(InitBlock::read(&memory, 0xe9, false, 0).is_err());
        assert!(InitBlock::read(&memory, u32::MAX, true, 0).is_err());
    }
}
