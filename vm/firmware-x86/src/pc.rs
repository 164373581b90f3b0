//! Start on a plain PC, such as QEMU's, without the monitor that sets up everything else.
//!
//! QEMU's `-kernel` enters by PVH, in 32-bit protected mode without paging, interrupts disabled. A
//! few instructions switch to 64-bit mode at privilege level 0, with the selectors of the monitor's
//! table; QEMU's loader places the boot page.
//!
//! Source: Xen's x86/HVM direct boot ABI (PVH); only its entry is used, not its start information.

use core::arch::global_asm;

use guest_pages::{PLAIN_BOOT_AT, PLAIN_DEVICES_AT, PLAIN_IDT_AT, boot, report};

use crate::cpu::{in8, out8, ticks};
use crate::pages::{Boot, Report};

/// The monitor's debug console; one byte per write.
const CONSOLE: u16 = 0xe9;

global_asm!(
    r#"
    // XEN_ELFNOTE_PHYS32_ENTRY, of eight bytes in a 64-bit file.
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad pvh_start

    .section .bss.pvh, "aw", @nobits
    .balign 4096
    pvh_tables:
    .skip 0x4000

    .section .rodata.pvh, "a"
    .balign 8
    // By selector: 0x2b data and 0x33 code, as in the monitor's table, but of level 0.
    pvh_gdt:
    .quad 0, 0, 0, 0, 0, 0x00cf93000000ffff, 0x00af9b000000ffff
    pvh_gdt_end:
    pvh_gdt_place:
    .word pvh_gdt_end - pvh_gdt - 1
    .long pvh_gdt
    .balign 8
    pvh_idt_place:
    .word 0xfff
    .quad {idt}

    .section .text.pvh, "ax"
    .code32
    .global pvh_start
    pvh_start:
        cli
        cld
        // The firmware leaves its own data in the descriptor table and the pages shared with a
        // monitor: clear them.
        mov edi, {idt}
        xor eax, eax
        mov ecx, (0xb000 - {idt}) / 4
        rep stosd
        // All of memory at its physical address, in pages of 2 MiB: 1 GiB. Also, uncached, the page
        // that may hold a virtio card's registers.
        mov eax, offset pvh_tables + 0x1003
        mov dword ptr [pvh_tables], eax
        mov eax, offset pvh_tables + 0x2003
        mov dword ptr [pvh_tables + 0x1000], eax
        mov eax, offset pvh_tables + 0x3003
        mov dword ptr [pvh_tables + 0x1000 + 8 * {device_gib}], eax
        mov dword ptr [pvh_tables + 0x3000 + 8 * {device_page}], {device_entry}
        mov eax, 0x83
        xor ecx, ecx
    1:
        mov dword ptr [pvh_tables + 0x2000 + 8 * ecx], eax
        add eax, 0x200000
        inc ecx
        cmp ecx, 512
        jne 1b
        mov eax, offset pvh_tables
        mov cr3, eax
        // PAE, long mode, paging.
        mov eax, cr4
        or eax, 0x20
        mov cr4, eax
        mov ecx, 0xc0000080
        rdmsr
        or eax, 0x100
        wrmsr
        mov eax, cr0
        or eax, 0x80000001
        mov cr0, eax
        lgdt [pvh_gdt_place]
        mov esp, {stack}
        push 0x30
        mov eax, offset pvh_long
        push eax
        retf
    .code64
    pvh_long:
        mov eax, 0x28
        mov ss, eax
        mov ds, eax
        mov es, eax
        mov fs, eax
        mov gs, eax
        mov esp, {stack}
        lidt [pvh_idt_place]
        mov edi, {boot}
        jmp _start
    .text
    "#,
    device_gib = const PLAIN_DEVICES_AT >> 30,
    device_page = const (PLAIN_DEVICES_AT >> 21) & 511,
    // Present, writable, write-through, uncached, 2 MiB.
    device_entry = const (PLAIN_DEVICES_AT & !0x1f_ffff) | 0x9b,
    idt = const PLAIN_IDT_AT,
    boot = const PLAIN_BOOT_AT,
    // The image ends far below.
    stack = const PLAIN_BOOT_AT - 0x1000,
);

/// Writes to the debug console: the signal, then the report page.
pub(crate) fn signal(byte: u8) {
    out8(CONSOLE, byte);
    for index in 0..report::LEN {
        for byte in Report::get().get_word(index).to_le_bytes() {
            out8(CONSOLE, byte);
        }
    }
}

/// Frequency of the time stamp counter in kHz, from the boot page or, if it is 0 there, measured
/// with the PC's timer.
pub(crate) fn tsc_khz(boot: &Boot) -> u64 {
    match boot.get(boot::TSC_KHZ) {
        0 => measured_khz(),
        khz => khz,
    }
}

/// Counts ticks while the timer's channel 0, whose interrupt is still masked, counts down from
/// 59,659 at 1,193,182 Hz: 50 ms.
fn measured_khz() -> u64 {
    const COMMAND: u16 = 0x43;
    const CHANNEL_0: u16 = 0x40;
    const COUNT: u16 = 59_659;
    // Mode 0: one-shot, keeps counting below zero.
    out8(COMMAND, 0x30);
    for byte in COUNT.to_le_bytes() {
        out8(CHANNEL_0, byte);
    }
    let begin = ticks();
    let count = || {
        // Latches the count for two reads.
        out8(COMMAND, 0x00);
        u16::from_le_bytes([in8(CHANNEL_0), in8(CHANNEL_0)])
    };
    while count() <= COUNT {}
    (ticks() - begin) / 50
}
