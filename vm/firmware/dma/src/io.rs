//! Registers of a device, by their addresses.

/// Reads and writes of one width. On aarch64 explicit instructions: a compiler may turn a volatile access into forms
/// (pairs, write-back) that some hypervisors cannot emulate.
macro_rules! accesses {
    ($read:ident, $write:ident, $value:ty, $load:literal, $store:literal) => {
        /// Reads a register.
        ///
        /// # Safety
        ///
        /// `address` must be that of a register of this width, mapped as a device.
        #[inline]
        pub unsafe fn $read(address: usize) -> $value {
            #[cfg(target_arch = "aarch64")]
            {
                let value: u32;
                // SAFETY: the caller names a register.
                unsafe {
                    core::arch::asm!($load, out(reg) value, in(reg) address, options(nostack));
                }
                value as $value
            }
            #[cfg(not(target_arch = "aarch64"))]
            // SAFETY: the caller names a register.
            unsafe {
                core::ptr::with_exposed_provenance::<$value>(address).read_volatile()
            }
        }

        /// Writes a register.
        ///
        /// # Safety
        ///
        /// `address` must be that of a register of this width, mapped as a device.
        #[inline]
        pub unsafe fn $write(address: usize, value: $value) {
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the caller names a register.
            unsafe {
                let value = u32::from(value);
                core::arch::asm!($store, in(reg) value, in(reg) address, options(nostack));
            }
            #[cfg(not(target_arch = "aarch64"))]
            // SAFETY: the caller names a register.
            unsafe {
                core::ptr::with_exposed_provenance_mut::<$value>(address).write_volatile(value);
            }
        }
    };
}

accesses!(read8, write8, u8, "ldrb {0:w}, [{1}]", "strb {0:w}, [{1}]");
accesses!(read16, write16, u16, "ldrh {0:w}, [{1}]", "strh {0:w}, [{1}]");
accesses!(read32, write32, u32, "ldr {0:w}, [{1}]", "str {0:w}, [{1}]");
