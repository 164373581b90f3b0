//! The 32 bytes of registers, in ports or in memory: same layout, two widths.

use super::Lance;
use crate::bus::{Bus, GuestMemory, NetworkSide};

/// Width of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Word,
    /// 32 bits.
    Dword,
}

impl Width {
    /// Width of an access of `bytes`; `None` for those that no processor makes.
    pub fn new(bytes: usize) -> Option<Self> {
        Some(match bytes {
            1 => Width::Byte,
            2 => Width::Word,
            4 => Width::Dword,
            _ => return None,
        })
    }

    /// Bytes of the access.
    pub fn bytes(self) -> usize {
        match self {
            Width::Byte => 1,
            Width::Word => 2,
            Width::Dword => 4,
        }
    }

    /// All ones.
    pub fn mask(self) -> u32 {
        match self {
            Width::Byte => 0xff,
            Width::Word => 0xffff,
            Width::Dword => u32::MAX,
        }
    }
}

/// Offset of the data register of CSRs, in both layouts.
pub const RDP: u8 = 0x10;
/// Offset of the address register in the 16-bit layout.
pub const RAP_WORD: u8 = 0x12;
/// Offset of the reset register in the 16-bit layout.
pub const RESET_WORD: u8 = 0x14;
/// Offset of the data register of BCRs in the 16-bit layout.
pub const BDP_WORD: u8 = 0x16;
/// Offset of the address register in the 32-bit layout.
pub const RAP_DWORD: u8 = 0x14;
/// Offset of the reset register in the 32-bit layout.
pub const RESET_DWORD: u8 = 0x18;
/// Offset of the data register of BCRs in the 32-bit layout.
pub const BDP_DWORD: u8 = 0x1c;

/// A register of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LancePort {
    /// Byte of the address PROM.
    Aprom(u8),
    /// Data of the CSR that RAP names.
    Rdp,
    /// Address of CSRs and BCRs.
    Rap,
    /// Soft reset, by reading.
    Reset,
    /// Data of the BCR that RAP names.
    Bdp,
}

impl Lance {
    /// Register that an access addresses; `None` if the chip does not respond to that width there.
    pub fn port(&self, offset: u8, width: Width) -> Option<LancePort> {
        let dwio = self.bcr.is_dwio();
        Some(match (offset, width) {
            (0..=0x0f, Width::Byte) if !dwio => LancePort::Aprom(offset),
            (0..=0x0f, Width::Word) if !dwio && offset & 1 == 0 => LancePort::Aprom(offset),
            (0..=0x0f, Width::Dword) if dwio && offset & 3 == 0 => LancePort::Aprom(offset),
            (RDP, Width::Word) if !dwio => LancePort::Rdp,
            (RAP_WORD, Width::Word) if !dwio => LancePort::Rap,
            (RESET_WORD, Width::Word) if !dwio => LancePort::Reset,
            (BDP_WORD, Width::Word) if !dwio => LancePort::Bdp,
            (RDP, Width::Dword) if dwio => LancePort::Rdp,
            (RAP_DWORD, Width::Dword) if dwio => LancePort::Rap,
            (RESET_DWORD, Width::Dword) if dwio => LancePort::Reset,
            (BDP_DWORD, Width::Dword) if dwio => LancePort::Bdp,
            _ => return None,
        })
    }

    /// Reads `width` at `offset` of the device's 32 bytes.
    pub fn read(&mut self, offset: u8, width: Width) -> u32 {
        match self.port(offset, width) {
            Some(LancePort::Aprom(at)) => {
                let mut value = [0; 4];
                for (i, byte) in value.iter_mut().take(width.bytes()).enumerate() {
                    *byte = self.aprom[(usize::from(at) + i) & 0x0f];
                }
                u32::from_le_bytes(value)
            }
            Some(LancePort::Rdp) => u32::from(self.read_csr(self.rap)),
            Some(LancePort::Rap) => u32::from(self.rap),
            Some(LancePort::Reset) => {
                self.soft_reset();
                0
            }
            Some(LancePort::Bdp) => u32::from(self.bcr.read(self.rap)),
            None => width.mask(),
        }
    }

    /// Writes `width` at `offset` of the device's 32 bytes.
    pub fn write<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        offset: u8,
        width: Width,
        value: u32,
    ) {
        match self.port(offset, width) {
            Some(LancePort::Aprom(at)) if self.bcr.aprom_is_writable() => {
                for (i, &byte) in value.to_le_bytes().iter().take(width.bytes()).enumerate() {
                    self.aprom[(usize::from(at) + i) & 0x0f] = byte;
                }
            }
            Some(LancePort::Rdp) => self.write_csr(bus, self.rap, value as u16),
            Some(LancePort::Rap) => self.rap = value as u8 & 0x7f,
            Some(LancePort::Bdp) => {
                let open = self.csr.is_open();
                self.bcr.write(self.rap, value as u16, open);
            }
            Some(LancePort::Aprom(_) | LancePort::Reset) => {}
            // The one access that changes the layout: what it writes goes nowhere.
            None if offset == RDP && width == Width::Dword && !self.bcr.is_dwio() => {
                self.bcr.set_dwio();
            }
            None => {}
        }
    }
}
