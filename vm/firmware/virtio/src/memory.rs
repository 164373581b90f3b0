//! Memory shared with the device.

use core::ops::Range;

/// A region of memory that the device can reach, addressed by offset.
///
/// Ring fields are read and written one by one, because the device changes them at any time; frames
/// are borrowed as slices, because the driver borrows only those that the device does not own.
///
/// An offset or range out of bounds is a bug of the driver, and panics.
pub trait Memory {
    /// Length of the region.
    fn len_bytes(&self) -> usize;

    /// Address of offset 0 for the device.
    fn address(&self) -> u64;

    /// Reads a 16-bit field, once.
    fn read16(&self, at: usize) -> u16;
    /// Reads a 32-bit field, once.
    fn read32(&self, at: usize) -> u32;
    /// Writes a 16-bit field, once.
    fn write16(&self, at: usize, value: u16);
    /// Writes a 32-bit field, once.
    fn write32(&self, at: usize, value: u32);
    /// Writes a 64-bit field, once.
    fn write64(&self, at: usize, value: u64);

    /// Borrows bytes that the device does not own now.
    fn with_bytes<T>(&mut self, range: Range<usize>, work: impl FnOnce(&mut [u8]) -> T) -> T;
    /// Copies `len_bytes` between two ranges that do not overlap and that the device does not own
    /// now.
    fn copy(&mut self, from: usize, to: usize, len_bytes: usize);

    /// Write barrier: earlier writes are visible before later writes (2.7.13.1).
    fn write_barrier(&self);
    /// Read barrier: later reads are not older than earlier reads (2.7.14).
    fn read_barrier(&self);
    /// Full barrier: also orders earlier writes before later reads (2.7.13.4.1).
    fn full_barrier(&self);
}
