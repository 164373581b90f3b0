//! Base address registers: memory of a function on the bus.

use core::ops::Range;

use super::{PciAccess, PciError};

const FIRST: u8 = 0x10;
const COUNT: usize = 6;
const IS_IO: u32 = 1;
const TYPE: u32 = 3 << 1;
const TYPE_64: u32 = 2 << 1;
const FLAGS: u32 = 0xf;

/// A memory BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bar {
    /// Address on the bus.
    pub(super) address: u64,
    pub(super) len_bytes: u64,
}

/// Memory BARs by number; the second half of one of 64 bits has none.
pub(super) type Bars = [Option<Bar>; COUNT];

/// Reads sizes and addresses of all memory BARs, and assigns addresses of `window` to those that have none.
pub(super) fn assign(access: &impl PciAccess, window: Range<u64>) -> Result<Bars, PciError> {
    let mut bars = [None; COUNT];
    let mut next = window.start;
    let mut number = 0;
    while number < COUNT {
        let at = FIRST + 4 * number as u8;
        let value = access.config_read32(at);
        let is_wide = value & (IS_IO | TYPE) == TYPE_64;
        if value & IS_IO == 0 {
            let error = PciError::Bar { number: number as u8 };
            if is_wide && number + 1 == COUNT {
                return Err(error);
            }
            bars[number] = memory_bar(access, at, is_wide, error)?;
        }
        if let Some(bar) = &mut bars[number]
            && bar.address == 0
        {
            let needed = PciError::Window { needed_bytes: bar.len_bytes };
            let start = next.checked_next_multiple_of(bar.len_bytes).ok_or(needed)?;
            next =
                start.checked_add(bar.len_bytes).filter(|end| *end <= window.end).ok_or(needed)?;
            if !is_wide && u32::try_from(next - 1).is_err() || start == 0 {
                return Err(needed);
            }
            access.config_write32(at, start as u32);
            if is_wide {
                access.config_write32(at + 4, (start >> 32) as u32);
            }
            bar.address = start;
        }
        number += 1 + usize::from(is_wide);
    }
    Ok(bars)
}

/// Reads address and size of a BAR; `None` if it does not exist. Its value stays.
fn memory_bar(
    access: &impl PciAccess,
    at: u8,
    is_wide: bool,
    error: PciError,
) -> Result<Option<Bar>, PciError> {
    let (low, low_mask) = probed(access, at);
    let (high, high_mask) = if is_wide { probed(access, at + 4) } else { (0, u32::MAX) };
    let mask = u64::from(high_mask) << 32 | u64::from(low_mask & !FLAGS);
    if low_mask & !FLAGS == 0 && (!is_wide || high_mask == 0) {
        return Ok(None);
    }
    // The bits that stay zero are those below the size.
    let len_bytes = (!mask).checked_add(1).filter(|len| len.is_power_of_two()).ok_or(error)?;
    let address = u64::from(high) << 32 | u64::from(low & !FLAGS);
    let is_valid = address.is_multiple_of(len_bytes) && address.checked_add(len_bytes).is_some();
    if is_valid { Ok(Some(Bar { address, len_bytes })) } else { Err(error) }
}

/// The value of a register, and the bits of it that can be set.
fn probed(access: &impl PciAccess, at: u8) -> (u32, u32) {
    let value = access.config_read32(at);
    access.config_write32(at, u32::MAX);
    let mask = access.config_read32(at);
    access.config_write32(at, value);
    (value, mask)
}
