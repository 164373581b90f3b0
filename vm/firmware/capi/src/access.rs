//! Registers of a card, over either transport.

use dma::io;
use virtio::Registers;
use virtio::pci::{PciAccess, PciRegisters};

/// Registers in memory, by their address.
pub(crate) struct MappedRegisters(usize);

/// A PCI function: its configuration space, and how addresses on the bus are mapped.
pub(crate) struct MappedFunction {
    config: usize,
    virtual_offset: isize,
}

/// The registers of a card.
pub(crate) enum Window {
    Mmio(MappedRegisters),
    Pci(PciRegisters<MappedFunction>),
    #[cfg(test)]
    Fake(virtio::fake::FakeRegisters),
}

impl MappedRegisters {
    /// # Safety
    ///
    /// `address` must be that of the registers of virtio-mmio, mapped as a device, with no other user.
    pub(crate) unsafe fn new(address: usize) -> MappedRegisters {
        MappedRegisters(address)
    }
}

impl MappedFunction {
    /// # Safety
    ///
    /// `config` must be the address of a function's configuration space, and each address on the bus that the function has
    /// or gets must be mapped at `virtual_offset`: as a device, with no other user.
    pub(crate) unsafe fn new(config: usize, virtual_offset: isize) -> MappedFunction {
        MappedFunction { config, virtual_offset }
    }

    fn mapped(&self, address: u64) -> usize {
        (address as usize).wrapping_add_signed(self.virtual_offset)
    }
}

impl Registers for MappedRegisters {
    fn read8(&self, at: usize) -> u8 {
        // SAFETY: the driver names registers of the device.
        unsafe { io::read8(self.0 + at) }
    }

    fn read32(&self, at: usize) -> u32 {
        // SAFETY: the driver names registers of the device.
        unsafe { io::read32(self.0 + at) }
    }

    fn write32(&self, at: usize, value: u32) {
        // SAFETY: the driver names registers of the device.
        unsafe { io::write32(self.0 + at, value) };
    }
}

impl PciAccess for MappedFunction {
    fn config_read32(&self, at: u8) -> u32 {
        // SAFETY: the register is in the configuration space.
        unsafe { io::read32(self.config + usize::from(at)) }
    }

    fn config_write32(&self, at: u8, value: u32) {
        // SAFETY: the register is in the configuration space.
        unsafe { io::write32(self.config + usize::from(at), value) };
    }

    fn read8(&self, address: u64) -> u8 {
        // SAFETY: the address is in a BAR, and mapped.
        unsafe { io::read8(self.mapped(address)) }
    }

    fn read16(&self, address: u64) -> u16 {
        // SAFETY: the address is in a BAR, and mapped.
        unsafe { io::read16(self.mapped(address)) }
    }

    fn read32(&self, address: u64) -> u32 {
        // SAFETY: the address is in a BAR, and mapped.
        unsafe { io::read32(self.mapped(address)) }
    }

    fn write8(&self, address: u64, value: u8) {
        // SAFETY: the address is in a BAR, and mapped.
        unsafe { io::write8(self.mapped(address), value) };
    }

    fn write16(&self, address: u64, value: u16) {
        // SAFETY: the address is in a BAR, and mapped.
        unsafe { io::write16(self.mapped(address), value) };
    }

    fn write32(&self, address: u64, value: u32) {
        // SAFETY: the address is in a BAR, and mapped.
        unsafe { io::write32(self.mapped(address), value) };
    }
}

impl Registers for Window {
    fn read8(&self, at: usize) -> u8 {
        match self {
            Window::Mmio(registers) => registers.read8(at),
            Window::Pci(registers) => registers.read8(at),
            #[cfg(test)]
            Window::Fake(registers) => registers.read8(at),
        }
    }

    fn read32(&self, at: usize) -> u32 {
        match self {
            Window::Mmio(registers) => registers.read32(at),
            Window::Pci(registers) => registers.read32(at),
            #[cfg(test)]
            Window::Fake(registers) => registers.read32(at),
        }
    }

    fn write32(&self, at: usize, value: u32) {
        match self {
            Window::Mmio(registers) => registers.write32(at, value),
            Window::Pci(registers) => registers.write32(at, value),
            #[cfg(test)]
            Window::Fake(registers) => registers.write32(at, value),
        }
    }
}
