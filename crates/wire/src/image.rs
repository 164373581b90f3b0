//! Version of the interface between the program and the image of a guest, which is in both.
//!
//! It is a hash of the source files that define the interface. An image of another version might take
//! a switch of the program without obeying it.

/// Text before the version in an image.
const TITLE: [u8; 20] = *b"wirepath interface: ";
/// Hexadecimal digits of a version.
const DIGITS: usize = 16;
/// Length of a [`mark`].
pub const MARK_BYTES: usize = TITLE.len() + DIGITS;

/// The mark of an image: its title and the hash of `sources`.
pub const fn mark(sources: &[&[u8]]) -> [u8; MARK_BYTES] {
    let hash = hash(sources);
    let mut mark = [0; MARK_BYTES];
    let mut at = 0;
    while at < MARK_BYTES {
        mark[at] = match at.checked_sub(TITLE.len()) {
            None => TITLE[at],
            Some(digit) => b"0123456789abcdef"[(hash >> (4 * digit) & 15) as usize],
        };
        at += 1;
    }
    mark
}

/// FNV-1a, 64 bits, over all files; each ends with a byte that is in no text.
const fn hash(sources: &[&[u8]]) -> u64 {
    let (mut hash, mut file) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while file < sources.len() {
        let mut at = 0;
        while at <= sources[file].len() {
            let byte = if at < sources[file].len() { sources[file][at] } else { 0xff };
            hash = (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        file += 1;
    }
    hash
}

/// True if an image has this mark.
pub fn is_marked(image: &[u8], mark: &[u8; MARK_BYTES]) -> bool {
    image.windows(MARK_BYTES).any(|part| part == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_found_anywhere_in_an_image_and_that_of_other_sources_is_not() {
        let known = mark(&[b"one", b"two"]);
        let image = [b"\x7fELF".as_slice(), &known, b"rest"].concat();
        assert!(is_marked(&image, &known) && is_marked(&known, &known));
        for other in [mark(&[b"one", b"twp"]), mark(&[b"onet", b"wo"]), mark(&[b"one"])] {
            assert!(other.starts_with(b"wirepath interface: ") && !is_marked(&image, &other));
        }
        assert!(!is_marked(&image[..30], &known) && !is_marked(b"", &known));
    }

    /// Source: test vectors of the FNV reference code, "foobar" and a byte 0xff.
    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(hash(&[]), 0xcbf2_9ce4_8422_2325);
        let foobar = 0x8594_4171_f739_67e8_u64;
        assert_eq!(hash(&[b"foobar"]), (foobar ^ 0xff).wrapping_mul(0x0100_0000_01b3));
    }
}
