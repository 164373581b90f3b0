//! A test of the context switch that uses every register.

use core::arch::naked_asm;

/// Fills x0 to x30 and v0 to v31 with values derived from `pattern`, sleeps until an interrupt
/// has been handled (including any tasks it switched to), and compares.
///
/// Returns 0, or 1 plus the number of the first register that changed: x0 to x30 are 0 to 30, v0
/// to v31 are 100 to 131.
#[unsafe(naked)]
pub extern "C" fn hold(pattern: u64) -> u64 {
    naked_asm!(
        "sub sp, sp, #192",
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
        "str x0, [sp, #160]",
        // Vector registers: both halves, with different values.
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "add x1, x0, #100 + \\n",
        "mvn x2, x1",
        "mov v\\n\\().d[0], x1",
        "mov v\\n\\().d[1], x2",
        ".endr",
        ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
        "add x\\n, x0, #\\n",
        ".endr",
        "wfi",
        // Values after the interrupt; x0 and x1 are saved to make room for the comparison.
        "stp x0, x1, [sp, #168]",
        "ldr x0, [sp, #160]",
        ".irp n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
        "add x1, x0, #\\n",
        "cmp x1, x\\n",
        "mov x1, #1 + \\n",
        "b.ne 9f",
        ".endr",
        "ldr x2, [sp, #168]",
        "cmp x2, x0",
        "mov x1, #1",
        "b.ne 9f",
        "ldr x2, [sp, #176]",
        "add x3, x0, #1",
        "cmp x2, x3",
        "mov x1, #2",
        "b.ne 9f",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "add x2, x0, #100 + \\n",
        "mvn x3, x2",
        "mov x1, #101 + \\n",
        "mov x4, v\\n\\().d[0]",
        "cmp x4, x2",
        "b.ne 9f",
        "mov x4, v\\n\\().d[1]",
        "cmp x4, x3",
        "b.ne 9f",
        ".endr",
        "mov x1, #0",
        "9:",
        "mov x0, x1",
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
        "add sp, sp, #192",
        "ret",
    )
}
