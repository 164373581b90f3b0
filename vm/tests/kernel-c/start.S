// Start-up and exception vectors; one CPU at EL1.
    .section .text.boot, "ax"
    .global _start
_start:
    adrp    x0, stack_top
    add     sp, x0, :lo12:stack_top
    adrp    x0, bss_begin
    add     x0, x0, :lo12:bss_begin
    adrp    x1, bss_end
    add     x1, x1, :lo12:bss_end
1:  cmp     x0, x1
    b.hs    2f
    str     xzr, [x0], #8
    b       1b
2:  adr     x0, vectors
    msr     vbar_el1, x0
    isb
    b       kernel_main

    .balign 2048
vectors:
    .rept   5
    .balign 128
    b       fault
    .endr
    .balign 128
    b       interrupt
    .rept   10
    .balign 128
    b       fault
    .endr

fault:
    mrs     x0, esr_el1
    mrs     x1, elr_el1
    mrs     x2, far_el1
    b       kernel_fault

interrupt:
    sub     sp, sp, #176
    stp     x0, x1, [sp, #0]
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x30, [sp, #144]
    mrs     x0, elr_el1
    mrs     x1, spsr_el1
    stp     x0, x1, [sp, #160]
    bl      kernel_interrupt
    ldp     x0, x1, [sp, #160]
    msr     elr_el1, x0
    msr     spsr_el1, x1
    ldp     x0, x1, [sp, #0]
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x30, [sp, #144]
    add     sp, sp, #176
    eret
