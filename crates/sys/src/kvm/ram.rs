//! Guest memory: one block from address 0.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, VolatileMemory, VolatileSlice};
use xdp::ExternalMemory;

use super::KvmError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len_bytes} bytes at {at:#x} are not guest memory")]
pub struct OutsideRam {
    pub at: u64,
    pub len_bytes: usize,
}

/// Guest memory, initially zero. Clones share it; the guest may write it at any time.
#[derive(Debug, Clone)]
pub struct GuestRam {
    region: Arc<MmapRegion>,
}

impl GuestRam {
    /// Allocates `len_bytes`, a multiple of the page size; pages are faulted in on use.
    pub fn new(len_bytes: usize) -> Result<Self, KvmError> {
        let region =
            MmapRegion::new(len_bytes).map_err(|source| KvmError::Memory { len_bytes, source })?;
        Ok(GuestRam { region: Arc::new(region) })
    }

    pub fn len_bytes(&self) -> usize {
        self.region.size()
    }

    fn slice(&self, at: u64, len_bytes: usize) -> Result<VolatileSlice<'_>, OutsideRam> {
        usize::try_from(at)
            .ok()
            .and_then(|start| self.region.get_slice(start, len_bytes).ok())
            .ok_or(OutsideRam { at, len_bytes })
    }

    /// Copies `into.len()` bytes from `at`; all or nothing.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), OutsideRam> {
        self.slice(at, into.len())?.copy_to(into);
        Ok(())
    }

    /// Copies `from` to `at`; all or nothing.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), OutsideRam> {
        self.slice(at, from.len())?.copy_from(from);
        Ok(())
    }

    /// Loads an aligned little-endian word, with acquire ordering.
    pub fn load_u32(&self, at: u64) -> Result<u32, OutsideRam> {
        let word: Result<u32, _> = self.slice(at, 4)?.load(0, Ordering::Acquire);
        word.map(u32::from_le).map_err(|_| OutsideRam { at, len_bytes: 4 })
    }

    /// Stores an aligned little-endian word, with release ordering.
    pub fn store_u32(&self, at: u64, value: u32) -> Result<(), OutsideRam> {
        let stored = self.slice(at, 4)?.store(value.to_le(), 0, Ordering::Release);
        stored.map_err(|_| OutsideRam { at, len_bytes: 4 })
    }

    /// Loads an aligned little-endian word, with acquire ordering.
    pub fn load_u64(&self, at: u64) -> Result<u64, OutsideRam> {
        let word: Result<u64, _> = self.slice(at, 8)?.load(0, Ordering::Acquire);
        word.map(u64::from_le).map_err(|_| OutsideRam { at, len_bytes: 8 })
    }

    /// Stores an aligned little-endian word, with release ordering.
    pub fn store_u64(&self, at: u64, value: u64) -> Result<(), OutsideRam> {
        let stored = self.slice(at, 8)?.store(value.to_le(), 0, Ordering::Release);
        stored.map_err(|_| OutsideRam { at, len_bytes: 8 })
    }
}

// SAFETY: one mapping of whole pages, readable and writable, which lives as long as any clone. All access of this
// process is volatile or atomic, as the guest writes it too.
unsafe impl ExternalMemory for GuestRam {
    fn address(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    fn len_bytes(&self) -> usize {
        self.region.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_at_the_end_fit_and_beyond_it_nothing_is_touched() {
        let ram = GuestRam::new(8192).unwrap();
        ram.write(8190, &[1, 2]).unwrap();
        for (at, len_bytes) in [(8190, 3), (8192, 1), (u64::MAX, 2), (u64::MAX - 8191, 8192)] {
            let error = OutsideRam { at, len_bytes };
            assert_eq!(ram.write(at, &vec![9; len_bytes]), Err(error));
            assert_eq!(ram.read(at, &mut vec![9; len_bytes]), Err(error));
        }
        let mut end = [0; 2];
        ram.read(8190, &mut end).unwrap();
        assert_eq!(end, [1, 2]);
    }

    #[test]
    fn words_are_little_endian_and_aligned() {
        let ram = GuestRam::new(4096).unwrap();
        ram.store_u32(8, 0x0403_0201).unwrap();
        ram.store_u64(16, 0x0807_0605_0403_0201).unwrap();
        let mut bytes = [0; 4];
        ram.read(8, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert_eq!(ram.load_u64(16), Ok(0x0807_0605_0403_0201));
        assert_eq!(ram.load_u32(16), Ok(0x0403_0201));
        assert!(ram.load_u32(2).is_err() && ram.store_u32(4094, 0).is_err());
        assert!(ram.load_u64(4).is_err() && ram.store_u64(4096, 0).is_err());
    }
}
