//! Interrupts by message: the MSI-X table of a function.

use super::bars::Bars;
use super::{PciAccess, Place};

const ENTRY_BYTES: u32 = 16;
/// Bits of the message control, in the upper half of the capability's first register.
const SIZE: u32 = 0x7ff << 16;
const MASK_ALL: u32 = 1 << 30;
const ENABLE: u32 = 1 << 31;

/// A write to memory that is an interrupt, as the interrupt controller wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Address on the bus, a multiple of 4.
    pub address: u64,
    pub data: u32,
}

/// A table that lies in its BAR.
#[derive(Debug, Clone, Copy)]
pub(super) struct MsixTable {
    capability: u8,
    address: u64,
    pub(super) entries: u16,
}

impl MsixTable {
    /// The table of the capability at `at`; `None` if it exceeds its BAR.
    pub(super) fn find(access: &impl PciAccess, bars: &Bars, at: u8) -> Option<MsixTable> {
        let entries = ((access.config_read32(at) & SIZE) >> 16) as u16 + 1;
        let place = access.config_read32(at.checked_add(4)?);
        let len_bytes = u32::from(entries) * ENTRY_BYTES;
        let place = Place { bar: (place & 7) as u8, offset: place & !7, len_bytes };
        let region = place.region(bars, len_bytes.into(), 8)?;
        Some(MsixTable { capability: at, address: region.address, entries })
    }

    /// Writes the first entries, and enables the function's messages. Other entries stay masked, as after a reset.
    pub(super) fn enable(
        &self,
        access: &impl PciAccess,
        messages: impl Iterator<Item = super::Message>,
    ) {
        let control = access.config_read32(self.capability);
        access.config_write32(self.capability, control | ENABLE | MASK_ALL);
        for (index, message) in messages.enumerate() {
            let entry = self.address + u64::from(ENTRY_BYTES) * index as u64;
            access.write32(entry, message.address as u32);
            access.write32(entry + 4, (message.address >> 32) as u32);
            access.write32(entry + 8, message.data);
            access.write32(entry + 12, 0);
        }
        access.config_write32(self.capability, control & !MASK_ALL | ENABLE);
    }
}
