//! Memory shared with the network card, on machines that map it at its physical address.
#![no_std]
#![expect(unsafe_code, reason = "the device changes memory behind the compiler's back")]

use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use virtio::Memory;
use virtio::net::MEMORY_BYTES;

#[repr(C, align(4096))]
struct Area(UnsafeCell<[u8; MEMORY_BYTES]>);

// SAFETY: `Dma::take` returns its only handle.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; MEMORY_BYTES]));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The shared memory. Identity mapping, and devices are cache-coherent.
pub struct Dma(*mut u8);

// SAFETY: there is one handle, and its owner is the only user on this side.
unsafe impl Send for Dma {}

impl Dma {
    /// Returns the memory on the first call, then `None`.
    pub fn take() -> Option<Dma> {
        (!TAKEN.swap(true, Ordering::Relaxed)).then(|| Dma(AREA.0.get().cast()))
    }

    /// Pointer to the field at `at`; panics if it is out of bounds or misaligned.
    fn at<T>(&self, at: usize) -> *mut T {
        let fits = at.is_multiple_of(size_of::<T>()) && at <= MEMORY_BYTES - size_of::<T>();
        assert!(fits, "field at {at:#x}");
        self.0.wrapping_add(at).cast()
    }
}

impl Memory for Dma {
    fn len_bytes(&self) -> usize {
        MEMORY_BYTES
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }

    fn read16(&self, at: usize) -> u16 {
        // SAFETY: `at` has checked that the field is in the area and aligned.
        u16::from_le(unsafe { self.at::<u16>(at).read_volatile() })
    }

    fn read32(&self, at: usize) -> u32 {
        // SAFETY: as above.
        u32::from_le(unsafe { self.at::<u32>(at).read_volatile() })
    }

    fn write16(&self, at: usize, value: u16) {
        // SAFETY: as above.
        unsafe { self.at::<u16>(at).write_volatile(value.to_le()) };
    }

    fn write32(&self, at: usize, value: u32) {
        // SAFETY: as above.
        unsafe { self.at::<u32>(at).write_volatile(value.to_le()) };
    }

    fn write64(&self, at: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.at::<u64>(at).write_volatile(value.to_le()) };
    }

    fn with_bytes<T>(&mut self, range: Range<usize>, work: impl FnOnce(&mut [u8]) -> T) -> T {
        assert!(range.start <= range.end && range.end <= MEMORY_BYTES, "{range:?}");
        let start = self.0.wrapping_add(range.start);
        // SAFETY: the range is in the area; `&mut self` excludes other users on this side, and the
        // driver's ledger excludes the device.
        work(unsafe { core::slice::from_raw_parts_mut(start, range.len()) })
    }

    fn copy(&mut self, from: usize, to: usize, len_bytes: usize) {
        assert!(from.abs_diff(to) >= len_bytes, "the stretches overlap");
        let end = from.max(to).checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= MEMORY_BYTES), "{from:#x} to {to:#x}");
        let (from, to) = (self.0.wrapping_add(from), self.0.wrapping_add(to));
        // SAFETY: both ranges are in the area and do not overlap; the device owns neither.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len_bytes) };
    }

    fn write_barrier(&self) {
        barrier::write();
    }

    fn read_barrier(&self) {
        barrier::read();
    }

    fn full_barrier(&self) {
        barrier::full();
    }
}

/// On a real machine the device is outside the inner domain: outer shareable.
#[cfg(target_arch = "aarch64")]
mod barrier {
    pub(super) fn write() {
        // SAFETY: a barrier.
        unsafe { core::arch::asm!("dmb oshst", options(nostack)) };
    }

    pub(super) fn read() {
        // SAFETY: a barrier.
        unsafe { core::arch::asm!("dmb oshld", options(nostack)) };
    }

    pub(super) fn full() {
        // SAFETY: a barrier.
        unsafe { core::arch::asm!("dmb osh", options(nostack)) };
    }
}

/// The processor keeps the order of writes, and of reads, so a compiler fence suffices. It may
/// reorder a write and a later read.
#[cfg(target_arch = "x86_64")]
mod barrier {
    use core::sync::atomic::{Ordering, compiler_fence, fence};

    pub(super) fn write() {
        compiler_fence(Ordering::Release);
    }

    pub(super) fn read() {
        compiler_fence(Ordering::Acquire);
    }

    pub(super) fn full() {
        fence(Ordering::SeqCst);
    }
}
