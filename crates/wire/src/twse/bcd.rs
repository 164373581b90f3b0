//! Packed BCD: two digits a byte, the more significant first.
//!
//! Eight bytes at a time in a general-purpose register: a price and its quantity are one word.
//! The numbers are those of digits that were checked before; of others they are meaningless,
//! but nothing overflows into a panic.

/// Top bit of each nibble.
const TOPS: u64 = 0x8888_8888_8888_8888;

/// Non-zero when any of the sixteen nibbles is above 9.
#[inline]
pub(super) const fn bad_nibbles(word: u64) -> u64 {
    // 10 to 15 are the nibbles with 8 and one of 4 and 2.
    word & (word << 1 | word << 2) & TOPS
}

/// Whether every nibble is a digit.
#[inline]
pub(super) fn are_digits(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().fold(0, |bad, &byte| bad | bad_nibbles(byte.into())) == 0;
    };
    // The last word overlaps the one before it: cheaper than a loop over the remainder.
    let (words, _) = bytes.as_chunks::<8>();
    let bad = words.iter().fold(bad_nibbles(u64::from_ne_bytes(*last)), |bad, word| {
        bad | bad_nibbles(u64::from_ne_bytes(*word))
    });
    bad == 0
}

/// Where the first byte is that has a nibble above 9.
#[cold]
pub(super) fn first_bad(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| bad_nibbles(byte.into()) != 0)
}

/// Two digits.
#[inline]
pub(super) const fn two(byte: u8) -> u8 {
    (byte >> 4).wrapping_mul(10).wrapping_add(byte & 0x0f)
}

/// Four digits.
#[inline]
pub(super) const fn four(bytes: [u8; 2]) -> u16 {
    two(bytes[0]) as u16 * 100 + two(bytes[1]) as u16
}

/// Two numbers of eight digits each that follow one another.
#[inline]
pub(super) const fn two_eights(bytes: [u8; 8]) -> (u32, u32) {
    let word = u64::from_be_bytes(bytes);
    // Ten to a hundred to ten thousand: lanes of 8, 16 and 32 bits.
    let tens = word >> 4 & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = word.wrapping_sub(tens * 6);
    let hundreds = pairs >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff) + hundreds * 100;
    let myriads = fours >> 16 & 0x0000_ffff_0000_ffff;
    let eights = (fours & 0x0000_ffff_0000_ffff) + myriads * 10_000;
    ((eights >> 32) as u32, eights as u32)
}

/// The number that up to eight bytes hold.
#[inline]
pub(super) const fn number<const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(N <= 8) };
    let mut word = [0; 8];
    let mut at = 0;
    while at < N {
        word[8 - N + at] = bytes[at];
        at += 1;
    }
    let (high, low) = two_eights(word);
    high as u64 * 100_000_000 + low as u64
}

/// Eight digits as four bytes; of a larger number the last eight.
#[inline]
pub(super) fn eight_digits(number: u32) -> [u8; 4] {
    let number = number % 100_000_000;
    // Lanes of 32 bits with four digits, then of 16 with two, then of 8.
    let fours = u64::from(number / 10_000) << 32 | u64::from(number % 10_000);
    let hundreds = (fours * 5243) >> 19 & 0x0000_007f_0000_007f;
    let pairs = hundreds << 16 | (fours - hundreds * 100);
    let tens = (pairs * 103) >> 10 & 0x000f_000f_000f_000f;
    let packed = pairs + tens * 6;
    let byte = |shift: u32| (packed >> shift) as u8;
    [byte(48), byte(32), byte(16), byte(0)]
}

/// Writes the number in as many bytes as there are, at most eight; `false`, and nothing is
/// written, when it has more digits.
#[inline]
#[must_use]
pub(super) fn put(number: u64, bytes: &mut [u8]) -> bool {
    let count = bytes.len();
    if count < 8 && number >= 100u64.pow(count as u32) || number >= 10_000_000_000_000_000 {
        return false;
    }
    let mut digits = [0; 8];
    digits[..4].copy_from_slice(&eight_digits((number / 100_000_000) as u32));
    digits[4..].copy_from_slice(&eight_digits((number % 100_000_000) as u32));
    match digits.get(8usize.wrapping_sub(count)..) {
        Some(tail) => bytes.copy_from_slice(tail),
        None => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_is_told_from_two_digits() {
        for byte in 0..=u8::MAX {
            let digits = byte >> 4 <= 9 && byte & 15 <= 9;
            assert_eq!(bad_nibbles(byte.into()) == 0, digits, "{byte:#x}");
            for at in 0..20 {
                let mut bytes = [0x99; 20];
                bytes[at] = byte;
                for len in [at + 1, 20] {
                    assert_eq!(are_digits(&bytes[..len]), digits, "{byte:#x} at {at} of {len}");
                    assert_eq!(first_bad(&bytes[..len]), (!digits).then_some(at));
                }
            }
            if digits {
                assert_eq!(two(byte), (byte >> 4) * 10 + (byte & 15));
            }
        }
        assert!(are_digits(&[]));
    }

    #[test]
    fn every_number_of_four_digits_survives() {
        for number in 0..10_000u16 {
            let [a, b, c, d] = eight_digits(u32::from(number) * 10_001);
            assert_eq!([a, b], [c, d]);
            assert!(are_digits(&[a, b]));
            assert_eq!(four([a, b]), number);
        }
    }

    #[test]
    fn known_bytes_are_the_known_numbers() {
        assert_eq!(two_eights([0x12, 0x34, 0x56, 0x78, 0x90, 0, 0, 1]), (12_345_678, 90_000_001));
        assert_eq!(two_eights([0x99; 8]), (99_999_999, 99_999_999));
        assert_eq!(number(&[0x00, 0x09, 0x95, 0x00, 0x00]), 9_950_000);
        assert_eq!(number(&[0x99; 8]), 9_999_999_999_999_999);
        assert_eq!(number::<0>(&[]), 0);
        assert_eq!(eight_digits(9_950_000), [0x09, 0x95, 0x00, 0x00]);
    }

    #[test]
    fn number_that_does_not_fit_is_not_written() {
        for (bytes, max) in [(0, 0), (1, 99), (4, 99_999_999), (8, 9_999_999_999_999_999)] {
            let mut there = [0xcc; 8];
            assert!(!put(max + 1, &mut there[..bytes]));
            assert_eq!(there, [0xcc; 8]);
            assert!(put(max, &mut there[..bytes]));
            assert!(there[..bytes].iter().all(|&byte| byte == 0x99));
        }
        assert!(!put(0, &mut [0; 9]));
        assert!(!put(u64::MAX, &mut [0; 8]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn numbers_survive(value in 0..10_000_000_000_000_000u64) {
            let mut bytes = [0; 8];
            prop_assert!(put(value, &mut bytes));
            prop_assert!(are_digits(&bytes));
            prop_assert_eq!(number(&bytes), value);
        }

        #[test]
        fn other_bytes_do_no_harm(bytes: [u8; 8]) {
            let _ = (two_eights(bytes), number(&bytes), four([bytes[0], bytes[1]]), two(bytes[2]));
        }
    }
}
