//! Interrupt controllers, and the gates of their lines.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use guest_pages::{boot, driver};

use crate::cpu::{in8, out8};
use crate::pages::Boot;

/// First vector of the sixteen lines of the interrupt controllers.
pub(crate) const PIC_VECTOR: u8 = 0x20;
/// Code segment selector at level 3.
const CODE: u16 = 0x33;
/// First port of the first controller.
pub(crate) const MASTER: u16 = 0x20;
/// First port of the second.
pub(crate) const SLAVE: u16 = 0xa0;

unsafe extern "C" {
    fn isr_device();
    // On a plain PC everything runs at level 0, including the return targets.
    fn isr_device_plain();
}

/// Mask bit of the device's line on the second controller.
pub(crate) static DEVICE_BIT: AtomicU8 = AtomicU8::new(0);
/// Current value of the second controller's mask register.
pub(crate) static SLAVE_MASK: AtomicU8 = AtomicU8::new(0xff);

/// True on a plain PC, without the monitor.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// True on a plain PC, at privilege level 0; `false` until [`set_up`].
pub(crate) fn is_plain() -> bool {
    PLAIN.load(Ordering::Relaxed)
}

/// Address of the descriptor table; 0 until [`set_up`].
static TABLE_AT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_gate(vector: u8, handler: u64) {
    let table = TABLE_AT.load(Ordering::Relaxed) as *mut [u64; 2];
    assert!(!table.is_null());
    // A trap gate, present, for any privilege: interrupts stay enabled inside, as level 3 cannot
    // enable them again. The controller holds back a line until its end of interrupt.
    let low =
        handler & 0xffff | u64::from(CODE) << 16 | 0xef00 << 32 | (handler >> 16 & 0xffff) << 48;
    // SAFETY: the monitor's table has 256 entries of two words.
    let entry = unsafe { table.add(usize::from(vector)) };
    // SAFETY: as above; the processor reads an entry only when its vector occurs.
    unsafe { entry.write_volatile([low, handler >> 32]) };
}

/// Reads the address of the descriptor table and the kind of machine from the boot page.
pub(crate) fn set_up(boot: &Boot) {
    TABLE_AT.store(boot.get(boot::IDT), Ordering::Relaxed);
    PLAIN.store(boot.get(boot::DRIVER) & driver::PLAIN_PC != 0, Ordering::Relaxed);
}

/// Initialises both controllers, with all lines masked.
pub(crate) fn initialise() {
    // Edge triggered, cascaded, 8086 mode; then all lines masked.
    for (port, vector, cascade) in [(MASTER, PIC_VECTOR, 4), (SLAVE, PIC_VECTOR + 8, 2)] {
        out8(port, 0x11);
        for word in [vector, cascade, 1, 0xff] {
            out8(port + 1, word);
        }
    }
}

/// Unmasks the device's line, 8 to 15.
pub(crate) fn enable_device(line: u8) {
    assert!((8..16).contains(&line));
    let bit = 1 << (line - 8);
    DEVICE_BIT.store(bit, Ordering::Relaxed);
    SLAVE_MASK.store(!bit, Ordering::Relaxed);
    let device = if is_plain() { isr_device_plain } else { isr_device };
    set_gate(PIC_VECTOR + line, device as *const () as u64);
    out8(SLAVE + 1, !bit);
    out8(MASTER + 1, !(1 << 2));
}

/// Starts a periodic tick and unmasks its line.
pub(crate) fn enable_timer(hz: u32) {
    let divisor = (1_193_182 / hz).min(0xffff) as u16;
    out8(0x43, 0x34);
    for byte in divisor.to_le_bytes() {
        out8(0x40, byte);
    }
    let mask = in8(MASTER + 1);
    out8(MASTER + 1, mask & !1);
}
