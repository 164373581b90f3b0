//! Starts a card in the caller's memory.

use core::ffi::c_void;

use virtio::net::{NetDriver, Settings};
use virtio::pci::{Message, PciRegisters};

use crate::access::{MappedFunction, MappedRegisters, Window};
use crate::{WpvCard, WpvError, WpvMemory, written};

/// `struct wpv_settings` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WpvSettings {
    pub(crate) ring_frames: u16,
    pub(crate) event_idx: u8,
    pub(crate) packed: u8,
    pub(crate) indirect: u8,
    pub(crate) tx_interrupts: u8,
}

/// `struct wpv_message` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WpvMessage {
    pub(crate) address: u64,
    pub(crate) data: u32,
}

/// `struct wpv_pci` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WpvPci {
    pub(crate) config: *mut c_void,
    pub(crate) window_start: u64,
    pub(crate) window_end: u64,
    pub(crate) virtual_offset: isize,
    pub(crate) message_count: u32,
    pub(crate) messages: [WpvMessage; 2],
}

impl WpvSettings {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            event_idx: self.event_idx != 0,
            tx_interrupts: self.tx_interrupts != 0,
            rx_interrupts: true,
            packed: self.packed != 0,
            indirect: self.indirect != 0,
            ring_frames: self.ring_frames,
        }
    }
}

impl WpvPci {
    /// The function's registers, with messages if the caller gives some.
    unsafe fn registers(&self) -> Result<Window, WpvError> {
        if self.config.is_null() || !self.config.addr().is_multiple_of(4) {
            return Err(WpvError::Argument);
        }
        // SAFETY: the function's space is mapped there, as the caller says.
        let function = unsafe { MappedFunction::new(self.config.addr(), self.virtual_offset) };
        let mut registers = PciRegisters::open(function, self.window_start..self.window_end)?;
        let [rx, tx] =
            self.messages.map(|message| Message { address: message.address, data: message.data });
        match self.message_count {
            0 => {}
            1 => registers.use_messages(rx, None)?,
            2 => registers.use_messages(rx, Some(tx))?,
            _ => return Err(WpvError::Argument),
        }
        Ok(Window::Pci(registers))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_start_mmio(
    card: *mut *mut WpvCard,
    memory: *const WpvMemory,
    settings: *const WpvSettings,
    registers: *mut c_void,
) -> WpvError {
    if card.is_null() || registers.is_null() || !registers.addr().is_multiple_of(4) {
        return WpvError::Argument;
    }
    // SAFETY: the registers are mapped there, as the caller says.
    let registers = unsafe { MappedRegisters::new(registers.addr()) };
    // SAFETY: as the header says.
    let started = unsafe { start(memory, settings, Window::Mmio(registers)) };
    // SAFETY: as the header says.
    unsafe { written(card, started) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_start_pci(
    card: *mut *mut WpvCard,
    memory: *const WpvMemory,
    settings: *const WpvSettings,
    pci: *const WpvPci,
) -> WpvError {
    // SAFETY: it is null, or a description of a function.
    let Some(pci) = (unsafe { pci.as_ref() }).filter(|_| !card.is_null()) else {
        return WpvError::Argument;
    };
    // SAFETY: as the header says.
    let registers = match unsafe { pci.registers() } {
        Ok(registers) => registers,
        Err(error) => return error,
    };
    // SAFETY: as the header says.
    let started = unsafe { start(memory, settings, registers) };
    // SAFETY: as the header says.
    unsafe { written(card, started) }
}

/// Starts the card, and moves it to its place.
unsafe fn start(
    memory: *const WpvMemory,
    settings: *const WpvSettings,
    registers: Window,
) -> Result<*mut WpvCard, WpvError> {
    // SAFETY: it is null, or a description of memory.
    let memory = unsafe { memory.as_ref() }.ok_or(WpvError::Argument)?;
    // SAFETY: it is null, or settings.
    let settings = unsafe { settings.as_ref() }.ok_or(WpvError::Argument)?.settings();
    let state = memory.state()?;
    // SAFETY: as the header says.
    let shared = unsafe { memory.shared(settings.ring_frames) }?;
    if settings.packed && shared.has_hooks() {
        return Err(WpvError::Coherence);
    }
    let card = WpvCard { driver: NetDriver::start(registers, shared, settings)? };
    // SAFETY: the place is long enough, aligned, and the caller's to be given.
    unsafe { state.write(card) };
    Ok(state)
}
