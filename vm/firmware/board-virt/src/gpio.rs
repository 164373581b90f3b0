//! The PL061 GPIO controller: one pin that is toggled for a logic analyser.

use core::ptr::NonNull;

use safe_mmio::fields::ReadPureWrite;
use safe_mmio::{UniqueMmioPointer, field};

const BASE: usize = 0x0903_0000;
/// Number of the pin. QEMU wires pin 3 to its power button; 0 is free.
const PIN: u8 = 1 << 0;

/// Registers of the PL061 (ARM DDI 0190). Bits 9 to 2 of the address mask the data register, so
/// the word for one pin is at offset `PIN << 2`.
#[repr(C)]
struct Registers {
    masked: [ReadPureWrite<u32>; 256],
    direction: ReadPureWrite<u32>,
}

pub struct Pin {
    registers: UniqueMmioPointer<'static, Registers>,
    level: u32,
}

impl Pin {
    /// Configures the pin as an output, low.
    ///
    /// # Safety
    ///
    /// Call it only once.
    pub unsafe fn open() -> Pin {
        let base = NonNull::new(BASE as *mut Registers).expect("it is not 0");
        // SAFETY: the registers are mapped as a device; the caller promises that this is their
        // only handle.
        let registers = unsafe { UniqueMmioPointer::new(base) };
        let mut pin = Pin { registers, level: 0 };
        field!(pin.registers, direction).write(PIN.into());
        pin.toggle();
        pin.toggle();
        pin
    }

    /// Inverts the level.
    pub fn toggle(&mut self) {
        self.level ^= u32::from(PIN);
        let masked = field!(self.registers, masked);
        if let Some(mut word) = masked.split().into_iter().nth(usize::from(PIN)) {
            word.write(self.level);
        }
    }
}
