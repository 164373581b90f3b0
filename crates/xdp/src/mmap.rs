//! Memory mappings that are unmapped on drop.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Size of the huge pages that [`Mapping::huge`] takes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A shared or anonymous mapping of whole pages, readable and writable.
///
/// The kernel may write the memory at any time, so that all access is by raw pointers.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory owned by this value and not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the only shared access is through raw pointers, whose users synchronise and document each access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of `len_bytes`, rounded up to whole pages and faulted in at once, so that no
    /// page fault disturbs a measurement.
    pub fn anonymous(len_bytes: usize) -> io::Result<Self> {
        // Miri has no pages to fault in.
        let populate = if cfg!(miri) { 0 } else { libc::MAP_POPULATE };
        Self::map(len_bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populate, -1, 0)
    }

    /// As [`Mapping::anonymous`], in huge pages of [`HUGE_PAGE_BYTES`], rounded up to whole ones.
    ///
    /// Errors: `OutOfMemory` if too few are reserved and free; `InvalidInput` of a kernel without them.
    pub fn huge(len_bytes: usize) -> io::Result<Self> {
        let len_bytes = len_bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let huge = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | huge;
        Self::map(len_bytes, flags, -1, 0)
    }

    /// Size of the mapping's pages as /proc/self/smaps has it, in bytes; `None` if that cannot be read.
    pub fn page_bytes(&self) -> Option<usize> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        page_bytes_in(&smaps, self.base.as_ptr() as usize)
    }

    /// Maps `len_bytes` of the file or socket `fd` from `offset_bytes`, shared with the kernel.
    pub fn of_fd(fd: BorrowedFd<'_>, len_bytes: usize, offset_bytes: i64) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map(len_bytes, flags, fd.as_raw_fd(), offset_bytes)
    }

    fn map(len_bytes: usize, flags: i32, fd: i32, offset_bytes: i64) -> io::Result<Self> {
        // SAFETY: address null lets the kernel choose; no existing mapping is replaced
        // because MAP_FIXED is never passed.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                offset_bytes,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Mapping { base, len_bytes })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Address of `offset_bytes`, checked to leave room for `len_bytes` behind it.
    ///
    /// # Panics
    /// If the range is outside the mapping.
    pub fn at(&self, offset_bytes: usize, len_bytes: usize) -> NonNull<u8> {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.len_bytes), "range outside the mapping");
        // SAFETY: offset_bytes <= len_bytes of the mapping, checked above.
        unsafe { self.base.add(offset_bytes) }
    }

    /// Prefetches the cache line at an offset, if it is inside the mapping and the processor can.
    #[inline]
    pub fn prefetch(&self, offset_bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        if offset_bytes < self.len_bytes {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.at(offset_bytes, 1).as_ptr().cast();
            // SAFETY: a prefetch changes no memory, and `at` checked that the address is mapped.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset_bytes;
    }

    /// Length that was asked for, or of whole huge pages.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len_bytes are those mmap returned, and nothing borrows from a
        // mapping that is being dropped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// Page size of the mapping that holds an address, by the text of smaps.
///
/// Source: kernel documentation, filesystems/proc.rst, KernelPageSize.
fn page_bytes_in(smaps: &str, address: usize) -> Option<usize> {
    let holds = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        let [from, to] = [from, to].map(|hex| usize::from_str_radix(hex, 16).ok());
        Some((from?..to?).contains(&address))
    };
    let mut lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
    let size = lines.find_map(|line| line.strip_prefix("KernelPageSize:"))?;
    let kib: usize = size.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_size_is_that_of_the_mapping_which_holds_the_address() {
        let smaps = "\
7f00-7f10 rw-p 00000000 00:00 0
Size:   4 kB
KernelPageSize:        4 kB
VmFlags: rd wr
8f00-9f00 rw-p 00000000 00:10 77   /anon_hugepage (deleted)
Size:   4096 kB
KernelPageSize:     2048 kB
";
        assert_eq!(page_bytes_in(smaps, 0x7f0f), Some(4096));
        assert_eq!(page_bytes_in(smaps, 0x7f10), None);
        assert_eq!(page_bytes_in(smaps, 0x8f00), Some(HUGE_PAGE_BYTES));
        assert_eq!(page_bytes_in("garbage", 0x8f00), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc")]
    fn an_ordinary_mapping_has_small_pages_and_a_huge_one_huge_or_none() {
        assert_eq!(Mapping::anonymous(8192).expect("memory").page_bytes(), Some(4096));
        match Mapping::huge(1) {
            Ok(mapping) => {
                assert_eq!(mapping.len_bytes(), HUGE_PAGE_BYTES);
                assert_eq!(mapping.page_bytes(), Some(HUGE_PAGE_BYTES));
            }
            Err(why) => assert_eq!(why.kind(), io::ErrorKind::OutOfMemory, "{why}"),
        }
    }
}
