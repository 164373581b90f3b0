//! Which received frames are for us.

use super::csr::{Csr, LADRF, MODE, mode};

/// Why a frame was accepted; the bits are those of the receive descriptor's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Everything is accepted.
    Promiscuous,
    /// Our own address.
    Physical,
    /// A multicast whose hash is in the logical address filter.
    Logical,
    /// Broadcast.
    Broadcast,
}

impl Match {
    pub(super) fn status(self) -> u16 {
        match self {
            Match::Promiscuous => 0,
            Match::Physical => 1 << 6,
            Match::Logical => 1 << 5,
            Match::Broadcast => 1 << 4,
        }
    }
}

/// Bit of the logical address filter (0 to 63) that a multicast address selects: the upper six
/// bits of the CRC over the address, before its final inversion.
pub fn hash(address: [u8; 6]) -> u8 {
    (!crc32fast::hash(&address) >> 26) as u8
}

/// Why the receiver takes a frame to `destination`; `None` when it does not.
pub(super) fn accept(csr: &Csr, destination: [u8; 6]) -> Option<Match> {
    let broadcast = destination == [0xff; 6];
    if broadcast && !csr.any(MODE, mode::DRCVBC) {
        return Some(Match::Broadcast);
    }
    if destination[0] & 1 == 0 {
        if destination == csr.mac() && !csr.any(MODE, mode::DRCVPA) {
            return Some(Match::Physical);
        }
    } else {
        let bit = usize::from(hash(destination));
        if csr.any(LADRF + bit / 16, 1 << (bit % 16)) {
            return Some(Match::Logical);
        }
    }
    csr.any(MODE, mode::PROM).then_some(Match::Promiscuous)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];

    #[test]
    fn hash_is_that_of_known_groups() {
        // Computed bit by bit, as the data sheet draws the shift register.
        for address in [[0x01, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1], [0xff; 6]] {
            let mut crc = u32::MAX;
            for byte in address {
                for bit in 0..8 {
                    let carry = (crc ^ u32::from(byte >> bit)) & 1 != 0;
                    crc = (crc >> 1) ^ if carry { 0xedb8_8320 } else { 0 };
                }
            }
            assert_eq!(u32::from(hash(address)), crc >> 26);
        }
    }

    #[test]
    fn each_mode_bit_does_what_it_says() {
        let mut csr = Csr::new(MAC);
        let group = [0x01, 0, 0x5e, 0, 0, 1];
        assert_eq!(accept(&csr, MAC), Some(Match::Physical));
        assert_eq!(accept(&csr, [0xff; 6]), Some(Match::Broadcast));
        assert_eq!(accept(&csr, group), None);
        assert_eq!(accept(&csr, [0x02; 6]), None);
        csr.set(MODE, mode::DRCVPA | mode::DRCVBC);
        assert_eq!(accept(&csr, MAC), None);
        assert_eq!(accept(&csr, [0xff; 6]), None);
        csr.raise(MODE, mode::PROM);
        assert_eq!(accept(&csr, MAC), Some(Match::Promiscuous));
        let bit = usize::from(hash(group));
        csr.raise(LADRF + bit / 16, 1 << (bit % 16));
        assert_eq!(accept(&csr, group), Some(Match::Logical));
    }
}
