//! The world that the guest wakes up in: 64-bit mode at privilege level 3.
//!
//! Where KVM itself runs in a virtual machine, code at level 0 may be emulated, instruction by
//! instruction, while code at level 3 runs as it is. So the guest gets level 3 with what it
//! needs there: all memory mapped for it, ports by IOPL and by bitmap, interrupts on, gates to
//! its own level, and one into a few instructions at level 0 that sleep.

use super::nic::VIRTIO_AT;
use guest_pages::{PENDING_AT, PORT, Signal, WAKE_AT, report};
use host::kvm::bindings::{kvm_dtable, kvm_regs, kvm_segment};
use host::kvm::{GuestRam, KvmError, OutsideRam, Vcpu};

/// Guest physical addresses of what the monitor puts there.
const GDT: u64 = 0x1000;
pub(super) const IDT: u64 = 0x2000;
const HALT_STUB: u64 = 0x4000;
const STACK_0: u64 = 0x6000;
pub(super) const BOOT_PAGE: u64 = 0x7000;
pub(super) const REPORT_PAGE: u64 = 0x8000;
/// Task state, with a permission bitmap behind it.
const TSS: u64 = 0xa000;
const PAGE_TABLES: u64 = 0x1_0000;
/// Lowest address of the guest's image.
pub(super) const IMAGE_FLOOR: u64 = 0x20_0000;

/// Vector of general protection faults.
const GENERAL_PROTECTION: u64 = 13;

const CODE_0: u16 = 0x08;
const DATA_3: u16 = 0x2b;
const CODE_3: u16 = 0x33;
const TASK: u16 = 0x40;

/// Bytes of the task state itself, and of the bitmap: one bit a port, and a byte of ones.
const TSS_BYTES: u64 = 0x68;
const BITMAP_BYTES: u64 = 0x2001;
const TSS_LIMIT: u64 = TSS_BYTES + BITMAP_BYTES - 1;

/// Descriptors by selector, for one processor in 64-bit mode.
fn gdt() -> [u64; 10] {
    let mut table = [0; 10];
    table[1] = 0x00af_9b00_0000_ffff;
    table[2] = 0x00cf_9300_0000_ffff;
    table[5] = 0x00cf_f300_0000_ffff;
    table[6] = 0x00af_fb00_0000_ffff;
    table[8] = TSS_LIMIT | (TSS & 0xff_ffff) << 16 | 0x8b << 40 | (TSS >> 24 & 0xff) << 56;
    table[9] = TSS >> 32;
    table
}

/// The handler of general protection faults, at level 0.
///
/// `hlt` at level 3 faults: then it sleeps there instead, unless the wake word is set; interrupts
/// are off until the very instruction before. An interrupt that ends the sleep comes at level 0.
/// Its handler, which is the guest's at level 3, notes the vector and returns to the guest at
/// once, which runs the handler proper; where the processor refuses the gate to a lower level,
/// that is a fault of this handler's own, whose error code has the vector. All else ends the
/// guest.
///
/// ```text
///         test byte ptr [rsp + 16], 3     ; saved CS: whose fault?
///         jz   refused
///         push rax
///         mov  rax, [rsp + 16]            ; saved RIP
///         cmp  byte ptr [rax], 0xf4       ; hlt
///         jne  other
///         inc  rax
///         mov  [rsp + 16], rax
///         pop  rax
///         add  rsp, 8                     ; error code
///         cmp  qword ptr [WAKE], 0
///         jne  back
///         sti
///         hlt
/// back:   iretq
/// other:  mov  [REPORT + EXCEPTION_AT], rax
///         mov  qword ptr [REPORT + EXCEPTION], 13
///         mov  al, FAILED
///         mov  dx, PORT
///         out  dx, al
///         jmp  $
/// refused:push rax
///         mov  rax, [rsp + 8]             ; error code
///         shr  rax, 3
///         mov  [PENDING], rax
///         pop  rax
///         mov  rsp, [rsp + 32]            ; saved RSP: the frame of the first fault
///         iretq
/// ```
fn halt_stub() -> Vec<u8> {
    let [wake_at, pending_at, exception_at_at, exception_at] = [
        WAKE_AT,
        PENDING_AT,
        REPORT_PAGE + 8 * report::EXCEPTION_AT as u64,
        REPORT_PAGE + 8 * report::EXCEPTION as u64,
    ]
    .map(|at| (at as u32).to_le_bytes());
    let mut code = vec![
        0xf6, 0x44, 0x24, 0x10, 0x03, 0x74, 0x44, 0x50, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x80, 0x38,
        0xf4, 0x75, 0x1c, 0x48, 0xff, 0xc0, 0x48, 0x89, 0x44, 0x24, 0x10, 0x58, 0x48, 0x83, 0xc4,
        0x08, 0x48, 0x83, 0x3c, 0x25,
    ];
    code.extend(wake_at);
    code.extend([0x00, 0x75, 0x02, 0xfb, 0xf4, 0x48, 0xcf, 0x48, 0x89, 0x04, 0x25]);
    code.extend(exception_at_at);
    code.extend([0x48, 0xc7, 0x04, 0x25]);
    code.extend(exception_at);
    code.extend([0x0d, 0, 0, 0, 0xb0, Signal::Failed.to_byte(), 0x66, 0xba]);
    code.extend(PORT.to_le_bytes());
    code.extend([0xee, 0xeb, 0xfe]);
    code.extend([0x50, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0xc1, 0xe8, 0x03, 0x48, 0x89, 0x04]);
    code.push(0x25);
    code.extend(pending_at);
    code.extend([0x58, 0x48, 0x8b, 0x64, 0x24, 0x20, 0x48, 0xcf]);
    code
}

/// An interrupt gate into the stub.
fn halt_gate() -> [u64; 2] {
    let low = HALT_STUB & 0xffff
        | u64::from(CODE_0) << 16
        | 0x8e00 << 32
        | (HALT_STUB >> 16 & 0xffff) << 48;
    [low, HALT_STUB >> 32]
}

/// Writes the tables: identity mapping in 2 MiB pages, descriptors, task state, stub.
pub(super) fn write_tables(ram: &GuestRam) -> Result<(), OutsideRam> {
    const PRESENT_WRITE_USER: u64 = 7;
    const LARGE: u64 = 1 << 7;
    const PAGE_BYTES: u64 = 2 << 20;
    let (level4, level3, level2) = (PAGE_TABLES, PAGE_TABLES + 0x1000, PAGE_TABLES + 0x2000);
    ram.store_u64(level4, level3 | PRESENT_WRITE_USER)?;
    ram.store_u64(level3, level2 | PRESENT_WRITE_USER)?;
    for i in 0..(ram.len_bytes() as u64).div_ceil(PAGE_BYTES).min(511) {
        ram.store_u64(level2 + 8 * i, (i * PAGE_BYTES) | PRESENT_WRITE_USER | LARGE)?;
    }
    // The last of them is the virtio card's window, also in machines without.
    ram_free(ram)?;
    ram.store_u64(level2 + 8 * 511, VIRTIO_AT | PRESENT_WRITE_USER | LARGE)?;
    for (i, entry) in (0..).zip(gdt()) {
        ram.store_u64(GDT + 8 * i, entry)?;
    }
    // Stack of level 0, and a bitmap of zeros that permits every port: where code at level 0 is
    // emulated, IOPL does not last.
    ram.write(TSS + 4, &STACK_0.to_le_bytes())?;
    ram.write(TSS + 0x66, &(TSS_BYTES as u16).to_le_bytes())?;
    ram.write(TSS + TSS_LIMIT, &[0xff])?;
    ram.write(HALT_STUB, &halt_stub())?;
    let gate = IDT + 16 * GENERAL_PROTECTION;
    for (i, word) in (0..).zip(halt_gate()) {
        ram.store_u64(gate + 8 * i, word)?;
    }
    Ok(())
}

/// Errors: memory reaches into the card's window.
fn ram_free(ram: &GuestRam) -> Result<(), OutsideRam> {
    match ram.len_bytes() as u64 {
        len if len <= VIRTIO_AT => Ok(()),
        len => Err(OutsideRam { at: VIRTIO_AT, len_bytes: (len - VIRTIO_AT) as usize }),
    }
}

fn segment(selector: u16, kind: u8, long: bool) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_: kind,
        present: 1,
        dpl: (selector & 3) as u8,
        db: u8::from(!long),
        s: 1,
        l: u8::from(long),
        g: 1,
        ..Default::default()
    }
}

/// Puts the processor at `entry` with a stack that ends at `stack`.
pub(super) fn set_registers(vcpu: &Vcpu, entry: u64, stack: u64) -> Result<(), KvmError> {
    let mut system = vcpu.system_registers()?;
    let data = segment(DATA_3, 0x3, false);
    system.cs = segment(CODE_3, 0xb, true);
    (system.ds, system.es, system.fs, system.gs, system.ss) = (data, data, data, data, data);
    system.tr = kvm_segment {
        base: TSS,
        limit: TSS_LIMIT as u32,
        selector: TASK,
        type_: 0xb,
        present: 1,
        ..Default::default()
    };
    system.gdt = kvm_dtable { base: GDT, limit: 10 * 8 - 1, ..Default::default() };
    system.idt = kvm_dtable { base: IDT, limit: 0xfff, ..Default::default() };
    // Protected mode with paging and write protection; PAE; long mode on and active, no-execute
    // and system calls on.
    system.cr0 = 0x8005_0033;
    system.cr3 = PAGE_TABLES;
    system.cr4 = 1 << 5;
    system.efer = 0xd01;
    vcpu.set_system_registers(&system)?;
    // IOPL 3, interrupts on.
    let rflags = 0x2 | 1 << 9 | 3 << 12;
    vcpu.set_registers(&kvm_regs {
        rip: entry,
        rsp: stack,
        rdi: BOOT_PAGE,
        rflags,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_is_what_its_comment_says() {
        // Assembled from the comment with GNU as, addresses as they are now.
        let expected = "f644241003744450488b4424108038f4751c48ffc04889442410584883c40848833c25\
                        00900000007502fbf448cf488904258880000048c70425808000000d000000b00566ba\
                        0006eeebfe50488b44240848c1e803488904250890000058488b64242048cf";
        let hex: String = halt_stub().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }
}
