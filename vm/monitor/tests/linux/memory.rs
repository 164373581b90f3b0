//! Memory that another program shares.

use std::sync::atomic::Ordering;

use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, VolatileMemory, VolatileSlice};
use wirepath_vmm::lance::{BusError, GuestMemory};

/// One region of the guest's memory, or none.
pub(crate) struct SharedMemory {
    guest_at: u64,
    region: Option<MmapRegion>,
}

impl SharedMemory {
    pub(crate) fn new(guest_at: u64, region: MmapRegion) -> Self {
        SharedMemory { guest_at, region: Some(region) }
    }

    pub(crate) fn nothing() -> Self {
        SharedMemory { guest_at: 0, region: None }
    }

    fn slice(&self, at: u32, len_bytes: usize) -> Result<VolatileSlice<'_>, BusError> {
        let found = self.region.as_ref().and_then(|region| {
            let start = u64::from(at).checked_sub(self.guest_at)?;
            region.get_slice(start as usize, len_bytes).ok()
        });
        found.ok_or(BusError { at, len_bytes })
    }
}

impl GuestMemory for SharedMemory {
    fn read(&self, at: u32, into: &mut [u8]) -> Result<(), BusError> {
        self.slice(at, into.len())?.copy_to(into);
        Ok(())
    }

    fn write(&self, at: u32, from: &[u8]) -> Result<(), BusError> {
        self.slice(at, from.len())?.copy_from(from);
        Ok(())
    }

    fn load_u32(&self, at: u32) -> Result<u32, BusError> {
        let word: Result<u32, _> = self.slice(at, 4)?.load(0, Ordering::Acquire);
        word.map(u32::from_le).map_err(|_| BusError { at, len_bytes: 4 })
    }

    fn store_u32(&self, at: u32, value: u32) -> Result<(), BusError> {
        let stored = self.slice(at, 4)?.store(value.to_le(), 0, Ordering::Release);
        stored.map_err(|_| BusError { at, len_bytes: 4 })
    }
}
