//! The PL011 console.

use core::cell::{Cell, RefCell};
use core::fmt::{self, Write};
use core::ptr::NonNull;

use arm_pl011_uart::{
    DataBits, Interrupts, LineConfig, PL011Registers, Parity, StopBits, Uart, UniqueMmioPointer,
};
use critical_section::Mutex;

use crate::timer;

const BASE: usize = 0x0900_0000;
const CLOCK_HZ: u32 = 24_000_000;
/// Duration of a character at 115200 baud, ten bits.
const CHARACTER_115200_NS: u64 = 86_806;

static UART: Mutex<RefCell<Option<Uart<'static>>>> = Mutex::new(RefCell::new(None));
static PACE_NS: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

fn uart() -> Uart<'static> {
    let base = NonNull::new(BASE as *mut PL011Registers).expect("it is not 0");
    // SAFETY: these are the registers of the only UART, mapped as a device; `UART` is the only
    // owner, except for `force`, after which nothing else runs.
    Uart::new(unsafe { UniqueMmioPointer::new(base) })
}

pub(crate) fn open() {
    let mut uart = uart();
    let line =
        LineConfig { data_bits: DataBits::Bits8, parity: Parity::None, stop_bits: StopBits::One };
    // It fails only for other baud rates.
    let _ = uart.enable(line, 115_200, CLOCK_HZ);
    critical_section::with(|cs| *UART.borrow_ref_mut(cs) = Some(uart));
}

/// Reopens the console after a fatal exception, whatever code was printing.
pub(crate) fn force() {
    critical_section::with(|cs| {
        if let Ok(mut slot) = UART.borrow(cs).try_borrow_mut() {
            *slot = Some(uart());
        }
    });
}

/// Delays every character as a line of 115200 baud would.
pub fn pace_115200() {
    critical_section::with(|cs| PACE_NS.borrow(cs).set(CHARACTER_115200_NS));
}

/// Enables the receive interrupt; see [`interrupts::on_key`](crate::interrupts::on_key).
pub fn listen() {
    critical_section::with(|cs| {
        if let Some(uart) = UART.borrow_ref_mut(cs).as_mut() {
            uart.set_interrupt_masks(Interrupts::RXI | Interrupts::RTI);
        }
    });
}

/// Returns the next key pressed, if any.
pub fn key() -> Option<u8> {
    critical_section::with(|cs| {
        let mut slot = UART.borrow_ref_mut(cs);
        let uart = slot.as_mut()?;
        let key = uart.read_word().ok().flatten();
        uart.clear_interrupts(Interrupts::RXI | Interrupts::RTI);
        key
    })
}

/// Prints with interrupts masked.
pub fn print(text: fmt::Arguments<'_>) {
    critical_section::with(|cs| {
        // A panic while printing finds the console in use, and is silent.
        let Ok(mut slot) = UART.borrow(cs).try_borrow_mut() else { return };
        if let Some(uart) = slot.as_mut() {
            let _ = Paced { uart, pace_ns: PACE_NS.borrow(cs).get() }.write_fmt(text);
        }
    });
}

struct Paced<'a> {
    uart: &'a mut Uart<'static>,
    pace_ns: u64,
}

impl Write for Paced<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.pace_ns == 0 {
            return self.uart.write_str(text);
        }
        for byte in text.bytes() {
            while self.uart.is_tx_fifo_full() {}
            self.uart.write_word(byte);
            timer::spin_ns(self.pace_ns);
        }
        Ok(())
    }
}
