//! The Internet checksum: one's complement of the one's complement sum of 16-bit words.
//!
//! Functions that end in `sum` return sums that are not complemented; [`add`] combines sums of
//! parts that start at even offsets. [`finish`] turns a sum into a checksum.
//!
//! Source: RFC 1071; incremental update RFC 1624.

use core::net::Ipv4Addr;

/// Checksum of `bytes`, whose own checksum field must be zero.
///
/// An odd last byte counts as the high half of a word.
pub fn checksum(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// One's complement sum of `bytes` as big-endian words; 0 only when all bytes are.
pub fn sum(bytes: &[u8]) -> u16 {
    // Native byte order throughout, swapped once at the end: RFC 1071, section 2 (B). Halves
    // of 32 bits leave room for the carries, so the loop has none and becomes SIMD. Blocks of
    // 64 KiB (even, so sums of blocks add up) keep `total` from overflowing on any slice, so
    // additions need no check, which would take the SIMD away.
    let mut total: u64 = 0;
    for block in bytes.chunks(1 << 16) {
        let (eights, rest) = block.as_chunks::<8>();
        let (mut low, mut high) = (u64::from(fold(total)), 0_u64);
        for eight in eights {
            let word = u64::from_ne_bytes(*eight);
            low = low.wrapping_add(word & 0xffff_ffff);
            high = high.wrapping_add(word >> 32);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let word = u64::from_ne_bytes(last);
            low = low.wrapping_add(word & 0xffff_ffff);
            high = high.wrapping_add(word >> 32);
        }
        total = low.wrapping_add(high);
    }
    u16::from_be(fold(total))
}

/// One's complement sum of two sums (or words).
pub fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // A sum with a carry is at most 0xfffe.
    sum.wrapping_add(u16::from(carry))
}

/// Checksum from a sum.
pub fn finish(sum: u16) -> u16 {
    !sum
}

/// UDP checksum from a sum. A result of 0 is sent as 0xffff, because 0 means "no checksum".
///
/// Source: RFC 768.
pub fn finish_udp(sum: u16) -> u16 {
    match finish(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Sum of the pseudo header that the UDP checksum covers in addition to the datagram.
///
/// - `udp_bytes`: UDP header and payload.
///
/// Source: RFC 768.
pub fn pseudo_header_sum(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, udp_bytes: u16) -> u16 {
    let addresses = u64::from(src.to_bits()) + u64::from(dst.to_bits());
    // Numeric, not native: the values of the addresses are big-endian words already.
    fold(addresses + u64::from(protocol) + u64::from(udp_bytes))
}

/// Checksum after part of the covered data has changed.
///
/// - `old`, `new`: sum of that part ([`sum`], or the word itself) before and after. The part
///   starts at an even offset.
///
/// Source: RFC 1624, equation 3.
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// [`update`] of a UDP checksum: 0 ("no checksum") stays 0, and a result of 0 is sent as 0xffff.
pub fn update_udp(checksum: u16, old: u16, new: u16) -> u16 {
    match checksum {
        0 => 0,
        _ => match update(checksum, old, new) {
            0 => 0xffff,
            updated => updated,
        },
    }
}

/// End-around carries, down to 16 bits.
fn fold(total: u64) -> u16 {
    // Halves do not overflow.
    let total = (total & 0xffff_ffff).wrapping_add(total >> 32);
    let total = (total & 0xffff_ffff).wrapping_add(total >> 32);
    let total = (total & 0xffff).wrapping_add(total >> 16);
    let total = (total & 0xffff).wrapping_add(total >> 16);
    // Two folds of at most 2^32 - 1 leave at most 0xffff.
    total as u16
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The definition, one word at a time.
    fn plain_sum(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0, |total, pair| {
            add(total, u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
        })
    }

    #[test]
    fn example_of_rfc_1071_gives_its_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(checksum(&bytes), 0x220d);
    }

    #[test]
    fn example_of_rfc_1624_is_updated_to_zero() {
        // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285; 0x0000 and not 0xffff.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(update_udp(0xdd2f, 0x5555, 0x3285), 0xffff);
    }

    #[test]
    fn odd_last_byte_is_a_high_half() {
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[0x00, 0x01, 0x02]), 0x0201);
    }

    #[test]
    fn nothing_and_zeros_sum_to_zero_and_ones_to_all_ones() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0; 31]), 0);
        assert_eq!(sum(&[0xff; 2]), 0xffff);
        assert_eq!(sum(&[0xff; 64]), 0xffff);
    }

    #[test]
    fn carries_survive_a_slice_of_several_blocks() {
        let bytes: Vec<u8> = (0..(3 << 16) + 5).map(|i: u32| 0xff - (i % 3) as u8).collect();
        assert_eq!(sum(&bytes), plain_sum(&bytes));
    }

    #[test]
    fn udp_checksum_is_never_zero() {
        assert_eq!(finish_udp(0xffff), 0xffff);
        assert_eq!(finish_udp(0x0000), 0xffff);
        assert_eq!(finish_udp(0x0001), 0xfffe);
    }

    #[test]
    fn udp_without_checksum_stays_without() {
        assert_eq!(update_udp(0, 0x1234, 0x4321), 0);
    }

    #[test]
    fn pseudo_header_sum_is_that_of_its_twelve_bytes() {
        let bytes = [192, 168, 0, 31, 192, 168, 0, 30, 0, 17, 0, 10];
        let (src, dst) = (Ipv4Addr::new(192, 168, 0, 31), Ipv4Addr::new(192, 168, 0, 30));
        assert_eq!(pseudo_header_sum(src, dst, 17, 10), plain_sum(&bytes));
        let ones = Ipv4Addr::BROADCAST;
        assert_eq!(pseudo_header_sum(ones, ones, 0, 0), 0xffff);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn fast_sum_is_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(sum(&bytes), plain_sum(&bytes));
        }

        #[test]
        fn sums_of_parts_add_up(
            bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..150,
        ) {
            let (front, rest) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            prop_assert_eq!(add(sum(front), sum(rest)), sum(&bytes));
        }

        #[test]
        fn updated_udp_checksum_is_the_full_one(
            mut bytes in prop::collection::vec(
                prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 10..80,
            ),
            at in 1usize..4,
            new in prop::array::uniform4(prop_oneof![Just(0u8), Just(0xff), any::<u8>()]),
        ) {
            bytes[0] = 17; // a datagram under its pseudo header is never all zero
            let before = finish_udp(sum(&bytes));
            let part = at * 2..at * 2 + 4;
            let old = sum(&bytes[part.clone()]);
            bytes[part].copy_from_slice(&new);
            prop_assert_eq!(update_udp(before, old, sum(&new)), finish_udp(sum(&bytes)));
        }
    }
}
