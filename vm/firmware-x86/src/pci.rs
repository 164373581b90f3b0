//! PCI configuration by ports 0xcf8 and 0xcfc.

use crate::cpu::{in32, out32};

/// A function on bus 0.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    device: u8,
}

impl Function {
    /// The first device with this vendor (low half) and device id.
    pub(crate) fn find(id: u32) -> Option<Self> {
        (0..32).map(|device| Function { device }).find(|function| function.read(0) == id)
    }

    fn select(self, at: u8) {
        out32(0xcf8, 0x8000_0000 | u32::from(self.device) << 11 | u32::from(at & 0xfc));
    }

    /// Reads the 32-bit register at `at`.
    pub(crate) fn read(self, at: u8) -> u32 {
        self.select(at);
        in32(0xcfc)
    }

    /// Writes the 32-bit register at `at`.
    pub(crate) fn write(self, at: u8, value: u32) {
        self.select(at);
        out32(0xcfc, value);
    }
}
