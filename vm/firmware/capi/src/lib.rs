//! The virtio network driver for C: the functions of `include/wirepath_virtio.h`, where they are documented.
//!
//! A card lies in memory of the caller. Pointers of the caller are trusted as far as the header says what they point to;
//! numbers and lengths of the caller are checked, as those of the device are by the driver.
#![cfg_attr(not(test), no_std)]
#![expect(unsafe_code, reason = "pointers come from C")]
#![expect(clippy::missing_safety_doc, reason = "the header says what each pointer must be")]

mod access;
mod error;
mod memory;
mod start;
#[cfg(test)]
mod tests;

use core::ffi::c_int;

use dma::Dma;
use virtio::Frame;
use virtio::net::{FRAME_BYTES_MAX, NetDriver};

use access::Window;
pub use error::WpvError;
use memory::SharedMemory;
pub use memory::{WpvMemory, wpv_memory_bytes, wpv_state_bytes};
pub use start::{WpvMessage, WpvPci, WpvSettings, wpv_start_mmio, wpv_start_pci};

/// A started card, `struct wpv_card` of the header.
pub struct WpvCard {
    driver: NetDriver<Window, SharedMemory>,
}

/// A frame that the caller holds, `struct wpv_frame` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WpvFrame {
    bytes: *mut u8,
    number: u16,
    len_bytes: u16,
}

impl WpvCard {
    /// The caller's view of a held frame. The caller keeps the number in place of the handle.
    fn shown(&mut self, frame: Frame, len_bytes: usize) -> WpvFrame {
        let bytes = self.driver.with_frame(&frame, FRAME_BYTES_MAX, |bytes| bytes.as_mut_ptr());
        // Frames are shorter than 64 KiB.
        WpvFrame { bytes, number: frame.number(), len_bytes: len_bytes as u16 }
    }

    /// The held frame of a number, written back to memory: from now on the card may read or write it.
    fn handed(&mut self, number: u16) -> Result<Frame, WpvError> {
        let frame = self.driver.held(number).ok_or(WpvError::Frame)?;
        self.driver.with_frame(&frame, FRAME_BYTES_MAX, |_bytes| ());
        Ok(frame)
    }

    fn rx_take(&mut self) -> Result<WpvFrame, WpvError> {
        let received = self.driver.rx_take().ok_or(WpvError::Empty)??;
        let shown = self.shown(received.frame, received.len_bytes);
        self.driver.memory().drop_lines(shown.bytes, received.len_bytes);
        Ok(shown)
    }

    fn rx_post(&mut self, number: u16) -> Result<(), WpvError> {
        let frame = self.handed(number)?;
        self.driver.rx_post(frame);
        Ok(())
    }

    /// Shows posted buffers to the card, with free frames in place of those that were sent instead of posted again.
    fn rx_kick(&mut self) {
        self.driver.rx_refill();
        self.driver.rx_kick();
    }

    fn frame_take(&mut self) -> Result<WpvFrame, WpvError> {
        let frame = self.driver.take_free().ok_or(WpvError::Empty)?;
        Ok(self.shown(frame, 0))
    }

    fn frame_free(&mut self, number: u16) -> Result<(), WpvError> {
        let frame = self.handed(number)?;
        self.driver.free(frame);
        Ok(())
    }

    /// Causes of the interrupt as the header's bits.
    fn interrupt(&mut self) -> u32 {
        let causes = self.driver.take_interrupt();
        u32::from(causes.used) | u32::from(causes.config) << 1
    }

    fn tx_post(&mut self, number: u16, len_bytes: usize) -> Result<(), WpvError> {
        if len_bytes == 0 || len_bytes > FRAME_BYTES_MAX {
            return Err(WpvError::Length);
        }
        let frame = self.handed(number)?;
        // A frame that is refused is held, as before.
        self.driver.tx_post(frame, len_bytes).map_err(|_frame| WpvError::Full)
    }
}

/// Calls `work` for a card, or returns `otherwise` for a null pointer.
unsafe fn with_card<T>(
    card: *mut WpvCard,
    otherwise: T,
    work: impl FnOnce(&mut WpvCard) -> T,
) -> T {
    // SAFETY: it is null, or a started card that no other call uses now.
    match unsafe { card.as_mut() } {
        Some(card) => work(card),
        None => otherwise,
    }
}

/// Writes a result to `to`, unless it is null. Returns the error, or `Ok`.
unsafe fn written<T>(to: *mut T, value: Result<T, WpvError>) -> WpvError {
    match value {
        Err(error) => error,
        Ok(_) if to.is_null() || !to.is_aligned() => WpvError::Argument,
        Ok(value) => {
            // SAFETY: it is not null, aligned, and the caller's to be written.
            unsafe { to.write(value) };
            WpvError::Ok
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_restart(card: *mut WpvCard) -> WpvError {
    // SAFETY: as the header says.
    unsafe {
        with_card(card, WpvError::Argument, |card| WpvError::from_result(card.driver.restart()))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_needs_restart(card: *mut WpvCard) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_card(card, 0, |card| card.driver.needs_restart().into()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_mac(card: *mut WpvCard, mac: *mut [u8; 6]) -> WpvError {
    // SAFETY: as the header says.
    let found = unsafe {
        with_card(card, Err(WpvError::Argument), |card| card.driver.mac().ok_or(WpvError::Empty))
    };
    // SAFETY: as the header says.
    unsafe { written(mac, found) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_features(card: *mut WpvCard) -> u64 {
    // SAFETY: as the header says.
    unsafe { with_card(card, 0, |card| card.driver.features()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_interrupt(card: *mut WpvCard) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_card(card, 0, WpvCard::interrupt) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_rx_take(card: *mut WpvCard, frame: *mut WpvFrame) -> WpvError {
    if frame.is_null() || !frame.is_aligned() {
        return WpvError::Argument;
    }
    // SAFETY: as the header says.
    let taken = unsafe { with_card(card, Err(WpvError::Argument), WpvCard::rx_take) };
    // SAFETY: as the header says.
    unsafe { written(frame, taken) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_rx_post(card: *mut WpvCard, number: u16) -> WpvError {
    // SAFETY: as the header says.
    let done = unsafe { with_card(card, Err(WpvError::Argument), |card| card.rx_post(number)) };
    WpvError::from_result(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_rx_kick(card: *mut WpvCard) {
    // SAFETY: as the header says.
    unsafe { with_card(card, (), WpvCard::rx_kick) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_rx_enable_interrupts(card: *mut WpvCard) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_card(card, 0, |card| card.driver.rx_enable_interrupts().into()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_rx_disable_interrupts(card: *mut WpvCard) {
    // SAFETY: as the header says.
    unsafe { with_card(card, (), |card| card.driver.rx_disable_interrupts()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_frame_take(card: *mut WpvCard, frame: *mut WpvFrame) -> WpvError {
    if frame.is_null() || !frame.is_aligned() {
        return WpvError::Argument;
    }
    // SAFETY: as the header says.
    let taken = unsafe { with_card(card, Err(WpvError::Argument), WpvCard::frame_take) };
    // SAFETY: as the header says.
    unsafe { written(frame, taken) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_frame_free(card: *mut WpvCard, number: u16) -> WpvError {
    // SAFETY: as the header says.
    let done = unsafe { with_card(card, Err(WpvError::Argument), |card| card.frame_free(number)) };
    WpvError::from_result(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_tx_post(
    card: *mut WpvCard,
    number: u16,
    len_bytes: usize,
) -> WpvError {
    // SAFETY: as the header says.
    let done =
        unsafe { with_card(card, Err(WpvError::Argument), |card| card.tx_post(number, len_bytes)) };
    WpvError::from_result(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_tx_kick(card: *mut WpvCard) {
    // SAFETY: as the header says.
    unsafe { with_card(card, (), |card| card.driver.tx_kick()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_tx_reap(card: *mut WpvCard, count: *mut u16) -> WpvError {
    // SAFETY: as the header says.
    let reaped = unsafe { with_card(card, None, |card| Some(card.driver.tx_reap())) };
    let Some((number, fault)) = reaped else { return WpvError::Argument };
    if !count.is_null() && count.is_aligned() {
        // SAFETY: it is not null, aligned, and the caller's to be written.
        unsafe { count.write(number) };
    }
    fault.map_or(WpvError::Ok, WpvError::from)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_tx_enable_interrupts(card: *mut WpvCard) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_card(card, 0, |card| card.driver.tx_enable_interrupts().into()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wpv_tx_disable_interrupts(card: *mut WpvCard) {
    // SAFETY: as the header says.
    unsafe { with_card(card, (), |card| card.driver.tx_disable_interrupts()) }
}

/// A panic is a bug of the driver: no input of the caller or the device causes one. The processor stays here.
#[cfg(all(feature = "panic-handler", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
