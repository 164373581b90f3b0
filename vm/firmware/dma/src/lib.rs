//! Memory shared with a network card, and registers of devices, on bare machines.
#![no_std]
#![expect(unsafe_code, reason = "the device changes memory behind the compiler's back")]

pub mod io;

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

/// Shared memory that the card sees as the processor does: devices are cache-coherent.
#[derive(Debug)]
pub struct Dma {
    start: *mut u8,
    len_bytes: usize,
    address: u64,
}

// SAFETY: there is one handle, and its owner is the only user on this side.
unsafe impl Send for Dma {}

impl Dma {
    /// Returns memory of its own for the largest rings, mapped at its physical address, on the first call, then `None`.
    pub fn take() -> Option<Dma> {
        let start: *mut u8 = AREA.0.get().cast();
        let is_first = !TAKEN.swap(true, Ordering::Relaxed);
        is_first.then_some(Dma { start, len_bytes: MEMORY_BYTES, address: start as u64 })
    }

    /// Other memory of `len_bytes` at `start`, which the card sees at `address`.
    ///
    /// # Safety
    ///
    /// The memory must be valid, page-aligned, and used by the card and by nothing else while the handle exists, but for
    /// the bytes of frames that the driver's user holds.
    pub const unsafe fn new(start: *mut u8, len_bytes: usize, address: u64) -> Dma {
        Dma { start, len_bytes, address }
    }

    /// Pointer to the field at `at`; panics if it is out of bounds or misaligned.
    fn at<T>(&self, at: usize) -> *mut T {
        let fits = at.is_multiple_of(size_of::<T>())
            && at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len_bytes);
        assert!(fits, "field at {at:#x}");
        self.start.wrapping_add(at).cast()
    }
}

impl Memory for Dma {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn address(&self) -> u64 {
        self.address
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
        assert!(range.start <= range.end && range.end <= self.len_bytes, "{range:?}");
        let start = self.start.wrapping_add(range.start);
        // SAFETY: the range is in the area; `&mut self` excludes other users on this side, and the
        // driver's ledger excludes the device.
        work(unsafe { core::slice::from_raw_parts_mut(start, range.len()) })
    }

    fn copy(&mut self, from: usize, to: usize, len_bytes: usize) {
        assert!(from.abs_diff(to) >= len_bytes, "the stretches overlap");
        let end = from.max(to).checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.len_bytes), "{from:#x} to {to:#x}");
        let (from, to) = (self.start.wrapping_add(from), self.start.wrapping_add(to));
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
