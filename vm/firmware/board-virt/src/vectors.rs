//! Exception vectors.
//!
//! An interrupt saves the registers that a call may clobber (AAPCS64: x0 to x18, x29, x30, and
//! all vector registers, since a callee preserves only the lower halves of v8 to v15) on the
//! stack of the interrupted task. Fatal exceptions use a separate stack, because the task's stack
//! may be the cause.

use core::arch::{asm, global_asm};

use crate::{console, power, stacks};

/// Bytes of an exception frame.
const FRAME_BYTES: usize = 26 * 8 + 32 * 16;
const _: () = assert!(FRAME_BYTES.is_multiple_of(16));

const FATAL_STACK_BYTES: usize = 16 * 1024;

#[repr(C, align(16))]
struct FatalStack([u8; FATAL_STACK_BYTES]);

#[unsafe(no_mangle)]
static mut BOARD_FATAL_STACK: FatalStack = FatalStack([0; FATAL_STACK_BYTES]);

global_asm!(
    r#"
.macro fatal_vector kind
    .balign 0x80
    msr tpidrro_el0, x0
    mov x0, sp
    msr tpidr_el0, x0
    mov x4, #\kind
    b board_fatal_entry
.endm

.section .text.board_vectors, "ax"
.balign 0x800
.global board_vectors
board_vectors:
    fatal_vector 0
    fatal_vector 1
    fatal_vector 2
    fatal_vector 3
    fatal_vector 4
    .balign 0x80
    b board_irq_entry
    fatal_vector 6
    fatal_vector 7
    fatal_vector 8
    fatal_vector 9
    fatal_vector 10
    fatal_vector 11
    fatal_vector 12
    fatal_vector 13
    fatal_vector 14
    fatal_vector 15

board_fatal_entry:
    adrp x0, BOARD_FATAL_STACK
    add x0, x0, :lo12:BOARD_FATAL_STACK
    add x0, x0, #{fatal_stack}
    mov sp, x0
    mrs x0, esr_el1
    mrs x1, far_el1
    mrs x2, elr_el1
    mrs x3, tpidr_el0
    b {fatal}

board_irq_entry:
    sub sp, sp, #{frame}
    stp x0, x1, [sp, #0]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x29, [sp, #144]
    mrs x0, elr_el1
    mrs x1, spsr_el1
    stp x30, x0, [sp, #160]
    mrs x2, fpsr
    stp x1, x2, [sp, #176]
    mrs x3, fpcr
    str x3, [sp, #192]
    stp q0, q1, [sp, #208]
    stp q2, q3, [sp, #240]
    stp q4, q5, [sp, #272]
    stp q6, q7, [sp, #304]
    stp q8, q9, [sp, #336]
    stp q10, q11, [sp, #368]
    stp q12, q13, [sp, #400]
    stp q14, q15, [sp, #432]
    stp q16, q17, [sp, #464]
    stp q18, q19, [sp, #496]
    stp q20, q21, [sp, #528]
    stp q22, q23, [sp, #560]
    stp q24, q25, [sp, #592]
    stp q26, q27, [sp, #624]
    stp q28, q29, [sp, #656]
    stp q30, q31, [sp, #688]
    bl {irq}
    ldp q0, q1, [sp, #208]
    ldp q2, q3, [sp, #240]
    ldp q4, q5, [sp, #272]
    ldp q6, q7, [sp, #304]
    ldp q8, q9, [sp, #336]
    ldp q10, q11, [sp, #368]
    ldp q12, q13, [sp, #400]
    ldp q14, q15, [sp, #432]
    ldp q16, q17, [sp, #464]
    ldp q18, q19, [sp, #496]
    ldp q20, q21, [sp, #528]
    ldp q22, q23, [sp, #560]
    ldp q24, q25, [sp, #592]
    ldp q26, q27, [sp, #624]
    ldp q28, q29, [sp, #656]
    ldp q30, q31, [sp, #688]
    ldr x3, [sp, #192]
    msr fpcr, x3
    ldp x1, x2, [sp, #176]
    msr fpsr, x2
    ldp x30, x0, [sp, #160]
    msr elr_el1, x0
    msr spsr_el1, x1
    ldp x18, x29, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp, #0]
    add sp, sp, #{frame}
    eret
"#,
    frame = const FRAME_BYTES,
    fatal_stack = const FATAL_STACK_BYTES,
    fatal = sym fatal,
    irq = sym irq,
);

/// Installs the vector table.
pub(crate) fn install() {
    // SAFETY: the table is aligned to 2 KiB and handles every exception.
    unsafe {
        asm!(
            "adrp {0}, board_vectors",
            "add {0}, {0}, :lo12:board_vectors",
            "msr vbar_el1, {0}",
            "isb",
            out(reg) _,
            options(nostack),
        );
    }
}

extern "C" fn irq() {
    crate::interrupts::dispatch();
}

/// Prints the cause of a fatal exception, and powers off.
extern "C" fn fatal(syndrome: u64, address: u64, at: u64, stack: u64, kind: u64) -> ! {
    console::force();
    // Data abort from the same exception level (ESR_EL1.EC), on a guard page.
    let overflow = if syndrome >> 26 == 0x25 { stacks::guarded_by(address as usize) } else { None };
    if let Some(number) = overflow {
        let task = kernel::system::current();
        console::print(format_args!(
            "wirepath-guest: stack overflow: stack {number}, task {task:?}, at {at:#x}\n"
        ));
    } else {
        console::print(format_args!(
            "wirepath-guest: exception {kind}: esr {syndrome:#x} far {address:#x} elr {at:#x} \
             sp {stack:#x}\n"
        ));
    }
    power::off()
}
