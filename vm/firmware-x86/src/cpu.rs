//! Processor instructions: ports, time, sleep, interrupts.

use core::arch::asm;

/// Reads a byte from a port.
pub(crate) fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the monitor decides what a port does; none of its devices writes memory on a read.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack)) };
    value
}

/// Writes a byte to a port.
pub(crate) fn out8(port: u16, value: u8) {
    // SAFETY: devices behind ports write only memory that their drivers assigned to them.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack)) };
}

/// Reads 16 bits from a port.
pub(crate) fn in16(port: u16) -> u16 {
    let value: u16;
    // SAFETY: as for `in8`.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack)) };
    value
}

/// Writes 16 bits to a port.
pub(crate) fn out16(port: u16, value: u16) {
    // SAFETY: as for `out8`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack)) };
}

/// Reads 32 bits from a port.
pub(crate) fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as for `in8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack)) };
    value
}

/// Writes 32 bits to a port.
pub(crate) fn out32(port: u16, value: u32) {
    // SAFETY: as for `out8`.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack)) };
}

/// Reads a byte of a device's registers.
pub(crate) fn read8(address: usize) -> u8 {
    // SAFETY: the boot page lists a device there; no device writes guest memory on a read.
    unsafe { (address as *const u8).read_volatile() }
}

/// Reads a device's register.
pub(crate) fn read32(address: usize) -> u32 {
    // SAFETY: as for `read8`, aligned.
    unsafe { (address as *const u32).read_volatile() }
}

/// Writes a device's register.
pub(crate) fn write32(address: usize, value: u32) {
    // SAFETY: as for `read32`; the device writes only memory that its driver assigned to it.
    unsafe { (address as *mut u32).write_volatile(value) };
}

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the monitor allows the instruction at every privilege level.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(low) | u64::from(high) << 32
}

/// Waits for an interrupt through the monitor's handler.
pub(crate) fn halt() {
    // SAFETY: it faults into the monitor's handler, which returns to the next instruction with all
    // registers preserved; the compiler assumes that handlers change memory.
    unsafe { asm!("hlt") };
}

/// Waits for an interrupt at privilege level 0, unless the wake word is set.
pub(crate) fn halt_plain() {
    // SAFETY: interrupts are enabled before and after; `sti` delays them by one instruction, so
    // none is taken between the check of the word and the sleep.
    unsafe {
        asm!(
            "cli",
            "cmp qword ptr [{wake}], 0",
            "jne 2f",
            "sti",
            "hlt",
            "2: sti",
            wake = const guest_pages::WAKE_AT,
        )
    };
}

/// Enables interrupts, at privilege level 0.
pub(crate) fn enable_interrupts() {
    // SAFETY: the gates are filled.
    unsafe { asm!("sti", options(nostack)) };
}

/// Spin-loop hint.
pub(crate) fn pause() {
    core::hint::spin_loop();
}
