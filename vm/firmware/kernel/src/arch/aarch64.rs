//! AArch64: interrupt masking and the context switch.
//!
//! A switch is a function call: it saves callee-saved registers (AAPCS64: x19 to x30, d8 to d15)
//! on the stack it leaves. Below that of an interrupted task is its exception frame, which the
//! interrupt entry saved on the same stack, so an interrupt exit may switch by the same call.
#![expect(unsafe_code, reason = "a context switch moves the stack pointer")]

use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{PRIORITIES, Priority};

/// Stack pointers of tasks that are not running.
static STACK_POINTERS: [AtomicUsize; PRIORITIES] = [const { AtomicUsize::new(0) }; PRIORITIES];
/// Slot for the boot stack pointer; it is never resumed.
static BOOT_STACK_POINTER: AtomicUsize = AtomicUsize::new(0);

/// Words of a saved context: x19 to x30, d8 to d15.
const CONTEXT_WORDS: usize = 20;

struct MaskIrq;
critical_section::set_impl!(MaskIrq);

/// The interrupt mask bit of DAIF.
const MASKED: u64 = 1 << 7;

// Only the outermost section writes the mask: a write is expensive (an emulator leaves its
// translated code to check for interrupts), and interrupt handlers run masked anyway.
//
// SAFETY: the kernel runs on one CPU, so masking its interrupts excludes all other code.
unsafe impl critical_section::Impl for MaskIrq {
    unsafe fn acquire() -> critical_section::RawRestoreState {
        let daif: u64;
        // SAFETY: reads; without `nomem` it also orders memory accesses.
        unsafe { asm!("mrs {}, daif", out(reg) daif, options(nostack)) };
        if daif & MASKED == 0 {
            // SAFETY: masks interrupts.
            unsafe { asm!("msr daifset, #2", options(nostack)) };
        }
        daif
    }

    unsafe fn release(daif: critical_section::RawRestoreState) {
        if daif & MASKED == 0 {
            // SAFETY: interrupts were unmasked when `acquire` was called.
            unsafe { asm!("msr daifclr, #2", options(nostack)) };
        }
    }
}

/// Switches from `from` (the boot stack if `None`) to `to`. Returns when `from` runs again.
///
/// Call with interrupts masked.
pub(crate) fn switch(from: Option<Priority>, to: Priority) {
    let from = from.map_or(&BOOT_STACK_POINTER, |from| &STACK_POINTERS[usize::from(from)]);
    let to = STACK_POINTERS[usize::from(to)].load(Ordering::Relaxed);
    // SAFETY: `to` was stored by `prepare` or by the switch that left the task; interrupts are
    // masked, so it is still the top of that task's stack.
    unsafe { switch_context(from.as_ptr(), to) };
}

/// Prepares the stack of a new task as if a switch had left it.
///
/// # Safety
///
/// `stack_end` is the end of an unused stack of at least a few kilobytes.
pub(crate) unsafe fn prepare(
    priority: Priority,
    stack_end: usize,
    entry: fn(usize),
    argument: usize,
) {
    let bottom = stack_end & !15;
    let pointer = bottom - CONTEXT_WORDS * 8;
    let mut context = [0_u64; CONTEXT_WORDS];
    context[0] = entry as usize as u64; // x19
    context[1] = argument as u64; // x20
    context[11] = task_start as *const () as u64; // x30
    // SAFETY: the words are at the end of the stack, which the caller has handed over.
    unsafe { (pointer as *mut [u64; CONTEXT_WORDS]).write(context) };
    STACK_POINTERS[usize::from(priority)].store(pointer, Ordering::Relaxed);
}

/// # Safety
///
/// `from` must be writable; `to` must be a stack pointer saved by this function or [`prepare`].
#[unsafe(naked)]
unsafe extern "C" fn switch_context(from: *mut usize, to: usize) {
    naked_asm!(
        "sub sp, sp, #160",
        "stp x19, x20, [sp, #0]",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldp x19, x20, [sp, #0]",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x30, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "add sp, sp, #160",
        "ret",
    )
}

/// First instructions of a task: unmask interrupts, call `entry(argument)`, exit.
///
/// # Safety
///
/// Only reached by the first switch to a task whose stack [`prepare`] has set up; never called.
#[unsafe(naked)]
unsafe extern "C" fn task_start() {
    naked_asm!(
        "msr daifclr, #2",
        "mov x29, xzr",
        "mov x30, xzr",
        "mov x0, x20",
        "blr x19",
        "b {exit}",
        exit = sym crate::system::exit,
    )
}
