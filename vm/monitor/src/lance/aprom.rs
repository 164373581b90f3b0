//! The address PROM: 16 bytes with the station's address and a checksum.

/// Contents for a station.
pub(super) fn contents(mac: [u8; 6]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&mac);
    bytes[9] = 0x11;
    bytes[14] = b'W';
    bytes[15] = b'W';
    let sum: u16 = bytes.iter().map(|&byte| u16::from(byte)).sum();
    bytes[12..14].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_sum_of_all_other_bytes() {
        let bytes = contents([0xff; 6]);
        assert_eq!(u16::from_le_bytes([bytes[12], bytes[13]]), 6 * 0xff + 0x11 + 2 * 0x57);
        assert_eq!(bytes[14..], [0x57, 0x57]);
    }
}
