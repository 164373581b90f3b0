//! Caches of the processor, and of its page tables.

use std::mem::MaybeUninit;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Bytes of the smallest pages. Where all are larger, the kernel may refuse the advice.
const PAGE_BYTES: usize = 4096;

/// Begins to fetch a value into the nearest cache, if the processor can be asked to.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..size_of::<T>().div_ceil(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line * LINE_BYTES);
        // SAFETY: a prefetch reads and changes nothing that a program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, LINE_BYTES);
}

/// Asks the kernel for huge pages for memory that is not used yet: a table much larger than the caches is then found with
/// fewer reads of page tables, each of which is several in a virtual machine. Without effect where the kernel has none.
pub fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let at = memory.as_mut_ptr().cast::<u8>();
    let before = at.align_offset(PAGE_BYTES);
    let bytes = size_of_val(memory).saturating_sub(before) & !(PAGE_BYTES - 1);
    if bytes >= xdp::mmap::HUGE_PAGE_BYTES {
        // SAFETY: the pages are inside of the slice, and the advice does not change what is in them.
        unsafe { libc::madvise(at.wrapping_add(before).cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in huge pages of the mapping that has an address.
    fn huge_kib(address: u64) -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut region = smaps.lines().skip_while(|line| !begins_mapping(line, address));
        let huge = region.find_map(|line| line.strip_prefix("AnonHugePages:"))?;
        huge.split_whitespace().next()?.parse().ok()
    }

    fn begins_mapping(line: &str, address: u64) -> bool {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&address))
    }

    #[test]
    fn a_large_table_has_huge_pages_where_the_kernel_gives_them_when_asked() {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        let mode = std::fs::read_to_string(path).unwrap_or_default();
        let mut table = Vec::<u64>::with_capacity(2 << 20);
        prefer_huge_pages(table.spare_capacity_mut());
        table.resize(2 << 20, 7);
        let huge_kib = huge_kib(table.as_ptr() as u64 + (8 << 20));
        let is_asked = mode.contains("[madvise]") || mode.contains("[always]");
        assert!(!is_asked || huge_kib.is_some_and(|kib| kib > 0), "{mode}: {huge_kib:?}");
        assert!(table.iter().all(|&value| value == 7));
    }

    #[test]
    fn a_small_table_is_left_as_it_is() {
        let mut table = Vec::<u8>::with_capacity(100);
        prefer_huge_pages(table.spare_capacity_mut());
        table.resize(100, 1);
        assert_eq!(table, [1; 100]);
    }
}
