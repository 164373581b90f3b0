//! Packed BCD: two digits a byte, the more significant first.
//!
//! Works on eight bytes at a time in a general-purpose register: a price and its quantity are one
//! word. Conversions expect digits that were checked. Other input gives a meaningless number, but
//! never an overflow panic.

/// Top bit of each nibble.
const TOPS: u64 = 0x8888_8888_8888_8888;

/// Non-zero when any of the sixteen nibbles is above 9.
#[inline]
pub(super) const fn bad_nibbles(word: u64) -> u64 {
    // 10 to 15 are the nibbles with 8 and one of 4 and 2.
    word & (word << 1 | word << 2) & TOPS
}

/// True if every nibble is a digit.
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

/// Offset of the first byte with a nibble above 9.
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

/// Two consecutive numbers of eight digits.
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

/// The number in up to eight bytes.
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

/// Eight digits as four bytes, of a number below a hundred million.
#[inline]
pub(super) const fn eight_digits(number: u32) -> [u8; 4] {
    // Lanes of 32 bits with four digits, then of 16 with two.
    let myriads = number / 10_000;
    let fours = (myriads as u64) << 32 | number.wrapping_sub(myriads * 10_000) as u64;
    let hundreds = fours.wrapping_mul(5243) >> 19 & 0x0000_007f_0000_007f;
    let pairs = hundreds << 16 | fours.wrapping_sub(hundreds * 100);
    let tens = pairs.wrapping_mul(103) >> 10 & 0x000f_000f_000f_000f;
    let packed = pairs.wrapping_add(tens * 6);
    // One byte per lane; join them.
    let packed = (packed | packed >> 8) & 0x0000_ffff_0000_ffff;
    ((packed | packed >> 16) as u32).to_be_bytes()
}

/// Two digits as a byte, of a number below a hundred.
#[inline]
pub(super) const fn two_digits(number: u8) -> u8 {
    let tens = number / 10;
    number.wrapping_add(tens.wrapping_mul(6))
}

/// Packs a number into `N` bytes, at most eight; `None` if it has more digits.
#[inline]
pub(super) fn digits<const N: usize>(number: u64) -> Option<[u8; N]> {
    const { assert!(N >= 1 && N <= 8) };
    if number >= const { 100u64.pow(N as u32) } {
        return None;
    }
    // `N` is a constant, so narrow numbers compile without the high half.
    let (high, low) = match N {
        1..=4 => ([0; 4], number as u32),
        5 => ([0, 0, 0, two_digits((number / 100_000_000) as u8)], (number % 100_000_000) as u32),
        _ => (eight_digits((number / 100_000_000) as u32), (number % 100_000_000) as u32),
    };
    let [a, b, c, d] = high;
    let [e, f, g, h] = eight_digits(low);
    [a, b, c, d, e, f, g, h].last_chunk().copied()
}

/// Writes a number that fills `bytes`, at most eight; returns `false` and writes nothing if it
/// has more digits.
#[must_use]
pub(super) fn put(number: u64, bytes: &mut [u8]) -> bool {
    let all = digits::<8>(number).unwrap_or([0xff; 8]);
    let Some((zeros, tail)) = all.split_at_checked(8usize.wrapping_sub(bytes.len())) else {
        return false;
    };
    let fits = zeros.iter().all(|&byte| byte == 0) && tail.first() != Some(&0xff);
    if fits {
        bytes.copy_from_slice(tail);
    }
    fits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_that_is_not_two_digits_is_found() {
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
        assert!(!put(u64::MAX, &mut []));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn numbers_survive(value in 0..10_000_000_000_000_000u64) {
            prop_assert_eq!(digits::<8>(value).map(|bytes| number(&bytes)), Some(value));
            let (five, six) = (value % 10_000_000_000, value % 1_000_000_000_000);
            prop_assert_eq!(digits::<5>(five).map(|bytes| number(&bytes)), Some(five));
            prop_assert_eq!(digits::<6>(six).map(|bytes| number(&bytes)), Some(six));
            prop_assert_eq!(digits::<5>(10_000_000_000 + value), None);
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
