//! Memory that the device shares.

use core::ops::Range;

/// A stretch of memory that the device can reach, addressed by offset.
///
/// Ring fields are read and written singly, because the device changes them at any time; frames
/// are lent as slices for a while, because the driver lends only those that the device does not own.
///
/// An offset or range out of bounds is our bug, and panics.
pub trait Memory {
    /// Length of the stretch.
    fn len_bytes(&self) -> usize;

    /// Address of offset 0 as the device sees it.
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

    /// Lends bytes that the device does not own now.
    fn with_bytes<T>(&mut self, range: Range<usize>, work: impl FnOnce(&mut [u8]) -> T) -> T;
    /// Copies `len_bytes` between two stretches that do not overlap and that the device does not
    /// own now.
    fn copy(&mut self, from: usize, to: usize, len_bytes: usize);

    /// Write barrier: what was written before is seen before what is written after (2.7.13.1).
    fn write_barrier(&self);
    /// Read barrier: what is read after is not older than what was read before (2.7.14).
    fn read_barrier(&self);
    /// Full barrier: also keeps later reads from passing earlier writes (2.7.13.4.1).
    fn full_barrier(&self);
}
