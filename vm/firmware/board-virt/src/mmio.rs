//! The register window of a virtio device.

use core::arch::asm;

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

// Explicit instructions: a compiler may turn a volatile access into forms (pairs, write-back)
// that some hypervisors cannot emulate.
impl Registers for Window {
    fn read8(&self, at: usize) -> u8 {
        let address = self.at(at, 1);
        let value: u32;
        // SAFETY: the address is inside the window.
        unsafe { asm!("ldrb {0:w}, [{1}]", out(reg) value, in(reg) address, options(nostack)) };
        value as u8
    }

    fn read32(&self, at: usize) -> u32 {
        let address = self.at(at, 4);
        let value: u32;
        // SAFETY: the address is inside the window.
        unsafe { asm!("ldr {0:w}, [{1}]", out(reg) value, in(reg) address, options(nostack)) };
        value
    }

    fn write32(&self, at: usize, value: u32) {
        let address = self.at(at, 4);
        // SAFETY: the address is inside the window.
        unsafe { asm!("str {0:w}, [{1}]", in(reg) value, in(reg) address, options(nostack)) };
    }
}
