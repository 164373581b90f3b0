//! Maps of a loaded object, for crates that bring BPF programs of their own.

use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::object::{map_error, per_cpu};
use crate::mmap::{Mapping, SharedWords};

/// Entries read by one call of [`Map::entries`].
const READ_BATCH: u32 = 1024;

/// A map of a loaded object. Keys and values are the bytes of the program's types.
#[derive(Debug)]
pub struct Map {
    name: &'static str,
    handle: MapHandle,
}

impl Map {
    pub(super) fn new(name: &'static str, handle: MapHandle) -> Self {
        Map { name, handle }
    }

    /// Writes the value of a key, which is added if the map is a table without it.
    ///
    /// # Errors
    /// [`BpfError::Map`], for example of a full map.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        self.handle
            .update(key, value, MapFlags::ANY)
            .map_err(|why| map_error(self.name, "written", why))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// [`BpfError::Map`], also if the map does not have it.
    pub fn remove(&self, key: &[u8]) -> Result<(), BpfError> {
        self.handle.delete(key).map_err(|why| map_error(self.name, "written", why))
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.handle.keys()
    }

    /// All keys, each with its value.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn entries(&self) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>, BpfError> {
        self.handle
            .lookup_batch(READ_BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(|why| map_error(self.name, "read", why))
    }

    /// Values of a key of a per-CPU array, one for each CPU.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn per_cpu<T: FromBytes>(&self, key: u32) -> Result<Vec<T>, BpfError> {
        per_cpu(&self.handle, key)
    }

    /// Maps the memory of an array (`BPF_F_MMAPABLE`), which programs and this process access atomically.
    ///
    /// - `len_bytes`: of the value, which is 64-bit words up to `wide_bytes` and 32-bit words behind.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn words(&self, len_bytes: usize, wide_bytes: usize) -> Result<SharedWords, BpfError> {
        Mapping::of_fd(self.handle.as_fd(), len_bytes, 0)
            .map(|mapping| SharedWords::new(mapping, wide_bytes))
            .map_err(|source| BpfError::Map { map: self.name.into(), what: "mapped", source })
    }
}

/// Waits until no program still uses a value that was replaced before.
pub fn wait_for_programs() {
    /// Source: membarrier(2): waits for an RCU grace period; programs run inside one.
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    // SAFETY: the call takes three integers and touches no memory of this process.
    let result =
        unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0_i32, 0_i32) };
    if result != 0 {
        // Refused where CPUs run without ticks. A program runs for microseconds.
        std::thread::sleep(Duration::from_millis(100));
    }
}
