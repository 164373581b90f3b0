//! The register window of a virtio device.

use dma::io;
use virtio::Registers;

/// Bytes of a window on `virt`.
const WINDOW_BYTES: usize = 0x200;

/// A register window, by its address.
pub struct Window {
    base: usize,
}

impl Window {
    /// # Safety
    ///
    /// `base` must be a virtio-mmio window, mapped as a device, with no other user.
    pub const unsafe fn new(base: usize) -> Window {
        Window { base }
    }

    fn at(&self, offset: usize, len: usize) -> usize {
        assert!(offset.is_multiple_of(len) && offset + len <= WINDOW_BYTES, "{offset:#x}");
        self.base + offset
    }
}

impl Registers for Window {
    fn read8(&self, at: usize) -> u8 {
        // SAFETY: the register is inside the window.
        unsafe { io::read8(self.at(at, 1)) }
    }

    fn read32(&self, at: usize) -> u32 {
        // SAFETY: the register is inside the window.
        unsafe { io::read32(self.at(at, 4)) }
    }

    fn write32(&self, at: usize, value: u32) {
        // SAFETY: the register is inside the window.
        unsafe { io::write32(self.at(at, 4), value) };
    }
}
