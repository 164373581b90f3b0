//! Memory of the caller.

use core::ffi::c_void;
use core::ops::Range;

use virtio::Memory;
use virtio::net::memory_bytes;

use crate::{Dma, WpvCard, WpvError};

/// `WPV_STATE_BYTES` of the header.
const STATE_BYTES: usize = 8192;
const STATE_ALIGNMENT: usize = 16;
const PAGE_BYTES: usize = 4096;
const _: () = assert!(size_of::<WpvCard>() <= STATE_BYTES);
const _: () = assert!(align_of::<WpvCard>() <= STATE_ALIGNMENT);

/// A function of the caller for the cache lines of a range.
type CacheHook = Option<unsafe extern "C" fn(*mut c_void, usize)>;

/// `struct wpv_memory` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WpvMemory {
    pub(crate) state: *mut c_void,
    pub(crate) state_bytes: usize,
    pub(crate) shared: *mut c_void,
    pub(crate) shared_bytes: usize,
    pub(crate) shared_address: u64,
    pub(crate) clean: CacheHook,
    pub(crate) invalidate: CacheHook,
}

#[unsafe(no_mangle)]
pub extern "C" fn wpv_state_bytes() -> usize {
    size_of::<WpvCard>()
}

#[unsafe(no_mangle)]
pub extern "C" fn wpv_memory_bytes(ring_frames: u16) -> usize {
    memory_bytes(ring_frames)
}

impl WpvMemory {
    /// The place of a card's state.
    pub(crate) fn state(&self) -> Result<*mut WpvCard, WpvError> {
        let start: *mut WpvCard = self.state.cast();
        if start.is_null() || !start.addr().is_multiple_of(STATE_ALIGNMENT) {
            return Err(WpvError::Argument);
        }
        if self.state_bytes < size_of::<WpvCard>() { Err(WpvError::Memory) } else { Ok(start) }
    }

    /// The shared memory, for rings of `ring_frames`.
    ///
    /// # Safety
    ///
    /// As the header says of it.
    pub(crate) unsafe fn shared(&self, ring_frames: u16) -> Result<SharedMemory, WpvError> {
        if self.shared.is_null() || self.clean.is_some() != self.invalidate.is_some() {
            return Err(WpvError::Argument);
        }
        let len_bytes = memory_bytes(ring_frames);
        if self.shared_bytes < len_bytes
            || !self.shared.addr().is_multiple_of(PAGE_BYTES)
            || !self.shared_address.is_multiple_of(PAGE_BYTES as u64)
            || self.shared_address.checked_add(len_bytes as u64).is_none()
        {
            return Err(WpvError::Memory);
        }
        let start: *mut u8 = self.shared.cast();
        // SAFETY: the memory is the card's and the driver's alone, as the caller says.
        let dma = unsafe { Dma::new(start, len_bytes, self.shared_address) };
        let shared = SharedMemory { dma, start, clean: self.clean, invalidate: self.invalidate };
        // No line of the time before is written back over what the card writes.
        shared.write_back(0..len_bytes);
        Ok(shared)
    }
}

/// Shared memory, with the caller's functions for caches around each access.
pub(crate) struct SharedMemory {
    pub(crate) dma: Dma,
    pub(crate) start: *mut u8,
    pub(crate) clean: CacheHook,
    pub(crate) invalidate: CacheHook,
}

impl SharedMemory {
    /// True if the card does not see the caches.
    pub(crate) fn has_hooks(&self) -> bool {
        self.clean.is_some()
    }

    fn write_back(&self, range: Range<usize>) {
        if let Some(clean) = self.clean {
            let start = self.start.wrapping_add(range.start);
            // SAFETY: the range is in the memory, and the function is the caller's, for such ranges.
            unsafe { clean(start.cast(), range.len()) };
        }
    }

    /// Drops the lines of a range of the memory that the card has written.
    pub(crate) fn drop_lines(&self, start: *mut u8, len_bytes: usize) {
        if let Some(invalidate) = self.invalidate {
            // SAFETY: the range is in the memory, and the function is the caller's, for such ranges.
            unsafe { invalidate(start.cast(), len_bytes) };
        }
    }
}

impl Memory for SharedMemory {
    fn len_bytes(&self) -> usize {
        self.dma.len_bytes()
    }

    fn address(&self) -> u64 {
        self.dma.address()
    }

    fn read16(&self, at: usize) -> u16 {
        self.drop_lines(self.start.wrapping_add(at), 2);
        self.dma.read16(at)
    }

    fn read32(&self, at: usize) -> u32 {
        self.drop_lines(self.start.wrapping_add(at), 4);
        self.dma.read32(at)
    }

    fn write16(&self, at: usize, value: u16) {
        self.dma.write16(at, value);
        self.write_back(at..at + 2);
    }

    fn write32(&self, at: usize, value: u32) {
        self.dma.write32(at, value);
        self.write_back(at..at + 4);
    }

    fn write64(&self, at: usize, value: u64) {
        self.dma.write64(at, value);
        self.write_back(at..at + 8);
    }

    fn with_bytes<T>(&mut self, range: Range<usize>, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let result = self.dma.with_bytes(range.clone(), work);
        self.write_back(range);
        result
    }

    fn copy(&mut self, from: usize, to: usize, len_bytes: usize) {
        self.dma.copy(from, to, len_bytes);
        self.write_back(to..to + len_bytes);
    }

    fn write_barrier(&self) {
        self.dma.write_barrier();
    }

    fn read_barrier(&self) {
        self.dma.read_barrier();
    }

    fn full_barrier(&self) {
        self.dma.full_barrier();
    }
}

#[cfg(test)]
mod tests {
    use virtio::net::{memory_bytes, pool_frames};

    #[test]
    fn macros_of_the_header_suffice_for_every_size_and_waste_little() {
        for ring in 2..=256_u16 {
            let n = usize::from(ring);
            assert_eq!(2 * n + n.min(16), pool_frames(ring));
            let given = (2080 * pool_frames(ring) + 52 * n + 640).div_ceil(512) * 512;
            assert!((memory_bytes(ring)..memory_bytes(ring) + 1200).contains(&given), "{ring}");
        }
    }
}
