//! virtio over PCI, the modern interface: a function's capabilities and memory as [`Registers`](crate::Registers).
//!
//! [`PciRegisters`] takes the register offsets of virtio-mmio and translates them, so that one [`Transport`](crate::Transport)
//! drives both.
//!
//! Sources: virtio 1.2, section 4.1; PCI Local Bus 3.0, sections 6.1, 6.2.5, 6.7 and 6.8.

mod bars;
mod msix;
mod registers;

use core::cell::Cell;
use core::fmt;
use core::ops::Range;

pub use msix::Message;

use bars::{Bar, Bars};
use msix::MsixTable;

/// Access to one PCI function. Values are little-endian on the bus, and native here.
pub trait PciAccess {
    /// Reads 32 bits of the configuration space; `at` is a multiple of 4 below 256.
    fn config_read32(&self, at: u8) -> u32;
    /// Writes 32 bits of the configuration space.
    fn config_write32(&self, at: u8, value: u32);
    /// Reads a byte of a memory BAR, by its address on the bus.
    fn read8(&self, address: u64) -> u8;
    /// Reads 16 bits.
    fn read16(&self, address: u64) -> u16;
    /// Reads 32 bits.
    fn read32(&self, address: u64) -> u32;
    /// Writes a byte.
    fn write8(&self, address: u64, value: u8);
    /// Writes 16 bits.
    fn write16(&self, address: u64, value: u16);
    /// Writes 32 bits.
    fn write32(&self, address: u64, value: u32);
}

/// Reason why a PCI function cannot be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PciError {
    /// Neither vendor nor device is that of a virtio network card.
    NotVirtioNet { vendor: u16, device: u16 },
    /// A capability is missing, or does not fit into its BAR.
    Capability { name: &'static str },
    /// A BAR has no valid size, type or address.
    Bar { number: u8 },
    /// The window for BARs is too small.
    Window { needed_bytes: u64 },
    /// The function has no MSI-X table of as many entries.
    Msix { needed_entries: u16 },
}

impl fmt::Display for PciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PciError::NotVirtioNet { vendor, device } => {
                write!(f, "PCI function {vendor:04x}:{device:04x} is not a virtio network card")
            }
            PciError::Capability { name } => {
                write!(
                    f,
                    "the PCI function has no valid {name} (QEMU: -device virtio-net-pci,disable-modern=off)"
                )
            }
            PciError::Bar { number } => {
                write!(f, "BAR {number} has no valid size or address; give a window for it")
            }
            PciError::Window { needed_bytes } => {
                write!(f, "the window for BARs has no room for {needed_bytes} aligned bytes")
            }
            PciError::Msix { needed_entries } => {
                write!(
                    f,
                    "the PCI function has no MSI-X table of {needed_entries} entries; use its interrupt pin"
                )
            }
        }
    }
}

impl core::error::Error for PciError {}

const VENDOR: u16 = 0x1af4;
/// A network card of the modern interface alone, and one that also has the legacy interface.
const DEVICES: [u16; 2] = [0x1041, 0x1000];
const COMMAND: u8 = 0x04;
const COMMAND_MEMORY: u32 = 1 << 1;
const COMMAND_MASTER: u32 = 1 << 2;
/// Of the status, in the upper half of the command's register.
const STATUS_CAPABILITIES: u32 = 1 << (16 + 4);
const CAPABILITIES: u8 = 0x34;
/// Capabilities that fit into the configuration space: a longer list is a loop.
const CAPABILITIES_MAX: usize = 48;
const CAPABILITY_VENDOR: u8 = 0x09;
const CAPABILITY_MSIX: u8 = 0x11;

/// Addresses of a structure on the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    address: u64,
    len_bytes: u64,
}

/// A started PCI function as a register window.
pub struct PciRegisters<P> {
    access: P,
    common: Region,
    notify: Region,
    notify_multiplier: u32,
    interrupts: Region,
    config: Region,
    msix: Option<MsixTable>,
    /// Entries of the MSI-X table for the receive and the transmit queue; `None` while the pin is in use.
    vectors: Option<[u16; 2]>,
    /// Queue that the next accesses are about.
    selected: Cell<u16>,
    /// Addresses of the doorbells.
    doorbells: [Cell<Option<u64>>; 2],
}

impl<P: PciAccess> PciRegisters<P> {
    /// Finds the structures of a virtio network card, and enables its memory and its access to the bus.
    ///
    /// - `window`: addresses on the bus for BARs that have none, as after a reset without firmware.
    ///
    /// Errors: another function, a structure that is missing or exceeds its BAR, a BAR without address or room.
    pub fn open(access: P, window: Range<u64>) -> Result<Self, PciError> {
        let id = access.config_read32(0);
        let (vendor, device) = (id as u16, (id >> 16) as u16);
        if vendor != VENDOR || !DEVICES.contains(&device) {
            return Err(PciError::NotVirtioNet { vendor, device });
        }
        // A function that decodes while its BARs are probed would answer at wrong addresses. The status' bits are cleared
        // by ones.
        let command = access.config_read32(COMMAND) & 0xffff;
        access.config_write32(COMMAND, command & !(COMMAND_MEMORY | COMMAND_MASTER));
        let bars = bars::assign(&access, window)?;
        let found = Found::read(&access, &bars)?;
        access.config_write32(COMMAND, command | COMMAND_MEMORY | COMMAND_MASTER);
        let Found { common, notify, interrupts, config, msix } = found;
        let (notify, notify_multiplier) = notify.ok_or(missing("notification structure"))?;
        Ok(PciRegisters {
            access,
            common: common.ok_or(missing("common configuration"))?,
            notify,
            notify_multiplier,
            interrupts: interrupts.ok_or(missing("interrupt status"))?,
            config: config.ok_or(missing("device configuration"))?,
            msix,
            vectors: None,
            selected: Cell::new(0),
            doorbells: [Cell::new(None), Cell::new(None)],
        })
    }

    /// Interrupts by message in place of the pin, from the next start of the device on.
    ///
    /// The function then reports no causes: [`take_interrupt`](crate::Transport::take_interrupt) names all of them.
    ///
    /// - `rx`: for received frames, and for changes of the configuration.
    /// - `tx`: for sent frames; `None` for the same message.
    ///
    /// Errors: no table of as many entries.
    pub fn use_messages(&mut self, rx: Message, tx: Option<Message>) -> Result<(), PciError> {
        let needed_entries = 1 + u16::from(tx.is_some());
        let table = self.msix.filter(|table| table.entries >= needed_entries);
        let table = table.ok_or(PciError::Msix { needed_entries })?;
        table.enable(&self.access, [Some(rx), tx].into_iter().flatten());
        self.vectors = Some([0, needed_entries - 1]);
        Ok(())
    }
}

const fn missing(name: &'static str) -> PciError {
    PciError::Capability { name }
}

/// Structures that the capabilities name; of each kind the first valid one (4.1.4).
#[derive(Default)]
struct Found {
    common: Option<Region>,
    notify: Option<(Region, u32)>,
    interrupts: Option<Region>,
    config: Option<Region>,
    msix: Option<MsixTable>,
}

impl Found {
    fn read(access: &impl PciAccess, bars: &Bars) -> Result<Found, PciError> {
        let mut found = Found::default();
        if access.config_read32(COMMAND) & STATUS_CAPABILITIES == 0 {
            return Ok(found);
        }
        let mut at = access.config_read32(CAPABILITIES) as u8 & !3;
        for _ in 0..CAPABILITIES_MAX {
            // Below are the header's registers; 0 is the end.
            if at < 0x40 {
                return Ok(found);
            }
            let [kind, next, len_bytes, structure] = access.config_read32(at).to_le_bytes();
            match kind {
                CAPABILITY_VENDOR => found.add(access, bars, at, len_bytes, structure),
                CAPABILITY_MSIX if found.msix.is_none() => {
                    found.msix = MsixTable::find(access, bars, at)
                }
                _ => {}
            }
            at = next & !3;
        }
        Err(missing("end of the list of capabilities"))
    }

    /// Adds the structure of a capability of virtio (4.1.4). One that is not valid is skipped.
    fn add(&mut self, access: &impl PciAccess, bars: &Bars, at: u8, len_bytes: u8, structure: u8) {
        const COMMON: u8 = 1;
        const NOTIFY: u8 = 2;
        const INTERRUPTS: u8 = 3;
        const CONFIG: u8 = 4;
        let needed_bytes = if structure == NOTIFY { 20 } else { 16 };
        let Some(last) = at.checked_add(needed_bytes - 4).filter(|_| len_bytes >= needed_bytes)
        else {
            return;
        };
        let place = Place {
            bar: access.config_read32(at + 4) as u8,
            offset: access.config_read32(at + 8),
            len_bytes: access.config_read32(at + 12),
        };
        match structure {
            COMMON => self.common = self.common.or(place.region(bars, 0x38, 4)),
            NOTIFY => {
                let multiplier = access.config_read32(last);
                let region = place.region(bars, 2, 2);
                self.notify = self.notify.or(region.map(|region| (region, multiplier)));
            }
            INTERRUPTS => self.interrupts = self.interrupts.or(place.region(bars, 1, 1)),
            // The address of the card is all that is read.
            CONFIG => self.config = self.config.or(place.region(bars, 6, 4)),
            _ => {}
        }
    }
}

/// Part of a BAR that a capability names.
struct Place {
    bar: u8,
    offset: u32,
    len_bytes: u32,
}

impl Place {
    /// Its addresses; `None` if it exceeds the BAR, is shorter than `min_bytes` or not aligned.
    fn region(&self, bars: &Bars, min_bytes: u64, alignment: u64) -> Option<Region> {
        let bar: Bar = (*bars.get(usize::from(self.bar))?)?;
        let (offset, len_bytes) = (u64::from(self.offset), u64::from(self.len_bytes));
        let fits = offset + len_bytes <= bar.len_bytes && len_bytes >= min_bytes;
        let address = bar.address + offset;
        (fits && offset.is_multiple_of(alignment)).then_some(Region { address, len_bytes })
    }
}
