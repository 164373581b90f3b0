//! Memory mappings that are unmapped on drop.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A shared or anonymous mapping of whole pages, readable and writable.
///
/// The kernel may write the memory at any time, so only the ring code of this crate gets access,
/// by raw pointers.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory owned by this value and not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the only shared access is through the base address; the ring code synchronises the
// memory behind it and documents each access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of `len_bytes`, rounded up to whole pages and faulted in at once, so that no
    /// page fault disturbs a measurement.
    pub fn anonymous(len_bytes: usize) -> io::Result<Self> {
        // Miri has no pages to fault in.
        let populate = if cfg!(miri) { 0 } else { libc::MAP_POPULATE };
        Self::map(len_bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populate, -1, 0)
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
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Address of `offset_bytes`, checked to leave room for `len_bytes` behind it.
    ///
    /// # Panics
    /// If the range is outside the mapping.
    pub(crate) fn at(&self, offset_bytes: usize, len_bytes: usize) -> NonNull<u8> {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.len_bytes), "range outside the mapping");
        // SAFETY: offset_bytes <= len_bytes of the mapping, checked above.
        unsafe { self.base.add(offset_bytes) }
    }

    /// Prefetches the cache line at an offset, if it is inside the mapping and the processor can.
    #[inline]
    pub(crate) fn prefetch(&self, offset_bytes: usize) {
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
