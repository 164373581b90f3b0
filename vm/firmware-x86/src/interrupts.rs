//! Interrupt handlers, their gates, and exceptions.

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guest_pages::{PENDING_AT, Signal, report};

use crate::controller::{
    DEVICE_BIT, MASTER, PIC_VECTOR, SLAVE, SLAVE_MASK, initialise, is_plain, set_gate, set_up,
};
use crate::cpu::{enable_interrupts, halt, halt_plain, in8, out8, ticks};
use crate::pages::{Boot, Report};
use crate::wake::{add_handler_ticks, wake_word};

/// Stack segment selector at level 3.
const DATA: u16 = 0x2b;
/// Value for the device's line in the pending word, whichever line it is.
const DEVICE: u64 = 0x100;
/// The monitor's own gate, which makes `hlt` sleep.
const GENERAL_PROTECTION: u8 = 13;

global_asm!(
    r#"
    .macro keep
        push rax
        push rcx
        push rdx
        push rsi
        push rdi
        push r8
        push r9
        push r10
        push r11
    .endm
    .macro bring_back
        pop r11
        pop r10
        pop r9
        pop r8
        pop rdi
        pop rsi
        pop rdx
        pop rcx
        pop rax
    .endm

    // An interrupt may be taken in the few instructions of another handler that ended a sleep (see
    // below): at level 3, but with the null stack selector of level 0, to which level 3 cannot
    // return. It returns with its own selector.
    .macro go_back
        test byte ptr [rsp + 8], 3
        jz 3f
        mov qword ptr [rsp + 32], {data}
    3:
        iretq
    .endm

    // The device's line. The processor aligned the stack and pushed five words: with nine more
    // it is aligned again.
    .global isr_device
    isr_device:
        test byte ptr [rsp + 8], 3
        jz 2f
    .global isr_device_plain
    isr_device_plain:
        keep
        cld
        call {device}
        bring_back
        go_back

        // It ended a sleep, at level 0, where every instruction may be slow: note it, and return
        // through the frame of the fault that `hlt` raised.
    2:
        mov qword ptr [{pending}], {device_vector}
        mov rsp, [rsp + 24]
        iretq

    .global isr_timer
    isr_timer:
        test byte ptr [rsp + 8], 3
        jz 2f
    .global isr_timer_plain
    isr_timer_plain:
        keep
        cld
        call {timer}
        bring_back
        go_back

    2:
        mov qword ptr [{pending}], {timer_vector}
        mov rsp, [rsp + 24]
        iretq

    .global isr_other
    isr_other:
        go_back

    // Exceptions end the program; an error code, if any, shifts the offsets.
    .altmacro
    .macro exception vector
        .global exception_\vector
        exception_\vector:
            .if \vector == 8 || (\vector >= 10 && \vector <= 14) || \vector == 17
            .else
                push 0
            .endif
            mov edi, \vector
            mov rsi, [rsp + 8]
            and rsp, -16
            call {exception}
    .endm
    .set vector, 0
    .rept 32
        exception %vector
        .set vector, vector + 1
    .endr

    .section .rodata
    .balign 8
    .global exception_table
    exception_table:
    .macro entry vector
        .quad exception_\vector
    .endm
    .set vector, 0
    .rept 32
        entry %vector
        .set vector, vector + 1
    .endr
    .text
    "#,
    data = const DATA,
    device = sym device_interrupt,
    timer = sym timer_interrupt,
    exception = sym exception,
    pending = const PENDING_AT,
    device_vector = const DEVICE,
    timer_vector = const PIC_VECTOR as u64,
);

unsafe extern "C" {
    fn isr_timer();
    // On a plain PC everything runs at level 0, including the return targets.
    fn isr_timer_plain();
    fn isr_other();
    static exception_table: [u64; 32];
}

fn pic_out(port: u16, value: u8) {
    let before = ticks();
    out8(port, value);
    count_pic(before);
}

fn count_pic(before: u64) {
    let report = Report::get();
    report.add(report::PIC_TICKS, ticks() - before);
    report.add(report::PIC_ACCESSES, 1);
}

/// The device's handler is running; a nested interrupt of the device leaves the work to it.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The device interrupted its own handler: its line is masked until the handler has run again.
static AGAIN: AtomicBool = AtomicBool::new(false);

/// Five accesses, as systems of the time made for a line of the second controller: read its
/// mask, mask the line, end of interrupt on both, unmask after the handler.
///
/// Level 3 cannot disable interrupts, so the device may interrupt between the last access and the
/// return. Under a flood of frames that would nest without limit, so the handler loops instead.
extern "C" fn device_interrupt() {
    let begin = ticks();
    let bit = DEVICE_BIT.load(Ordering::Relaxed);
    let mask = SLAVE_MASK.load(Ordering::Relaxed);
    in8(SLAVE + 1);
    count_pic(begin);
    pic_out(SLAVE + 1, mask | bit);
    pic_out(MASTER, 0x62);
    pic_out(SLAVE, 0x60 | bit.trailing_zeros() as u8);
    AGAIN.store(true, Ordering::SeqCst);
    // A nested interrupt between the last check and the clearing of the flag is seen by the check
    // after it.
    while AGAIN.load(Ordering::SeqCst) && !BUSY.swap(true, Ordering::SeqCst) {
        while AGAIN.swap(false, Ordering::SeqCst) {
            Report::get().add(report::INTERRUPTS, 1);
            crate::nic::on_interrupt();
            pic_out(SLAVE + 1, mask);
        }
        BUSY.store(false, Ordering::SeqCst);
    }
    wake_word().store(1, Ordering::Release);
    add_handler_ticks(ticks() - begin);
}

extern "C" fn timer_interrupt() {
    let begin = ticks();
    out8(MASTER, 0x60);
    Report::get().add(report::TIMER_INTERRUPTS, 1);
    wake_word().store(1, Ordering::Release);
    add_handler_ticks(ticks() - begin);
}

/// Sleeps until the next interrupt unless the wake word is set, and handles its cause.
pub(crate) fn sleep() {
    if is_plain() {
        // Handlers have already run.
        return halt_plain();
    }
    halt();
    // SAFETY: the monitor reserves an aligned word there for this use only.
    let pending = unsafe { &*(PENDING_AT as *const AtomicU64) };
    let vector = pending.swap(0, Ordering::Acquire);
    let bit = DEVICE_BIT.load(Ordering::Relaxed).trailing_zeros();
    let line = u64::from(PIC_VECTOR) + 8 + u64::from(bit);
    if vector == DEVICE || vector == line {
        device_interrupt();
    } else if vector == u64::from(PIC_VECTOR) {
        timer_interrupt();
    }
}

extern "C" fn exception(vector: u64, at: u64) -> ! {
    let report = Report::get();
    report.set(report::EXCEPTION, vector);
    report.set(report::EXCEPTION_AT, at);
    crate::end(Signal::Failed)
}

/// Fills the gates of the monitor's table and programs the interrupt controllers, all lines
/// masked.
pub(crate) fn install(boot: &Boot) {
    set_up(boot);
    // SAFETY: a constant table of this program.
    let handlers = unsafe { &exception_table };
    for (vector, &handler) in (0..).zip(handlers) {
        if vector != GENERAL_PROTECTION || is_plain() {
            set_gate(vector, handler);
        }
    }
    for line in 1..16 {
        set_gate(PIC_VECTOR + line, isr_other as *const () as u64);
    }
    let timer = if is_plain() { isr_timer_plain } else { isr_timer };
    set_gate(PIC_VECTOR, timer as *const () as u64);
    initialise();
    if is_plain() {
        enable_interrupts();
    }
}
