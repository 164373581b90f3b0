//! Shared memory as atomic words.

use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) use xdp::mmap::Mapping;

/// Words that several processes, or a BPF program and this process, access atomically.
///
/// Each is of one size, 64 bits up to a boundary and 32 bits behind: atomic accesses of several sizes to
/// one place would be a data race.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
    /// Bytes of the 64-bit words; at most those of the mapping.
    wide_bytes: usize,
}

impl SharedWords {
    pub(crate) fn new(mapping: Mapping, wide_bytes: usize) -> Self {
        assert!(wide_bytes <= mapping.len_bytes(), "boundary outside the mapping");
        SharedWords { mapping, wide_bytes }
    }

    /// The 64-bit word at an offset.
    ///
    /// # Panics
    /// If the offset is not that of a 64-bit word.
    #[inline]
    pub fn word64(&self, offset_bytes: usize) -> &AtomicU64 {
        let is_inside = offset_bytes < self.wide_bytes && self.wide_bytes - offset_bytes >= 8;
        assert!(is_inside && offset_bytes.is_multiple_of(8), "no 64-bit word at this offset");
        let at = self.mapping.at(offset_bytes, 8);
        // SAFETY: a page and a multiple of 8 behind it are aligned; the mapping lives as long as `self`, which
        // owns it and accesses this word by this function alone.
        unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
    }

    /// The 32-bit word at an offset.
    ///
    /// # Panics
    /// If the offset is not that of a 32-bit word.
    #[inline]
    pub fn word32(&self, offset_bytes: usize) -> &AtomicU32 {
        let len_bytes = self.mapping.len_bytes();
        let is_inside = offset_bytes < len_bytes && len_bytes - offset_bytes >= 4;
        let is_narrow = offset_bytes >= self.wide_bytes && offset_bytes.is_multiple_of(4);
        assert!(is_inside && is_narrow, "no 32-bit word at this offset");
        let at = self.mapping.at(offset_bytes, 4);
        // SAFETY: as of `word64`.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn shared_words_are_of_one_size_on_each_side_of_the_boundary() {
        let words = SharedWords::new(Mapping::anonymous(4096).expect("memory"), 16);
        words.word64(8).store(7, Ordering::Relaxed);
        words.word32(16).store(8, Ordering::Relaxed);
        assert_eq!(words.word64(8).load(Ordering::Relaxed), 7);
        assert_eq!(words.word32(4092).load(Ordering::Relaxed), 0);
        for offset in [4, 12, 16, usize::MAX, usize::MAX - 7] {
            let wide = AssertUnwindSafe(|| words.word64(offset).load(Ordering::Relaxed));
            assert!(catch_unwind(wide).is_err(), "{offset}");
        }
        for offset in [0, 12, 18, 4094, 4096, usize::MAX - 3] {
            let narrow = AssertUnwindSafe(|| words.word32(offset).load(Ordering::Relaxed));
            assert!(catch_unwind(narrow).is_err(), "{offset}");
        }
    }
}
