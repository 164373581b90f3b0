//! The test program inside the guest: a driver, and programs that send and answer through it.
//!
//! It runs in 64-bit mode at privilege level 3 with all of memory mapped, ports open and
//! interrupts enabled. The monitor sets that up, and passes the configuration in a page.
#![no_std]
#![no_main]

mod controller;
mod cpu;
mod echo;
mod foreign;
mod interrupts;
mod lance;
mod nic;
mod pages;
mod pc;
mod pci;
mod raw;
mod stack;
mod streams;
mod virtio_net;
mod wake;

use core::arch::global_asm;

use guest_pages::{MAGIC, Mode, PORT, Signal, boot, report};

use nic::Nic;
use pages::{Boot, Report};

global_asm!(
    r#"
    .section .text._start, "ax"
    .global _start
    _start:
        // The monitor provides a stack and, in rdi, the boot page.
        xor ebp, ebp
        call {main}
        ud2
    .text
    "#,
    main = sym main,
);

/// Version of the interface, which the program compares with its own before it starts the guest.
static MARK: [u8; wire::image::MARK_BYTES] = guest_pages::MARK;

extern "C" fn main(page: *const u64) -> ! {
    // Keeps it in the image.
    core::hint::black_box(&MARK);
    // SAFETY: the monitor passes the boot page's address.
    let boot = unsafe { Boot::read(page) };
    Report::install(&boot);
    interrupts::install(&boot);
    let boot = boot.with_tsc_khz(pc::tsc_khz(&boot));
    let mut nic = Nic::open(&boot).expect("the machine has a card");
    Report::get().set(report::MAGIC, MAGIC);
    signal(Signal::Ready);
    match Mode::from_word(boot.get(boot::MODE)) {
        Some(Mode::Send) => raw::send(&boot, &mut nic),
        Some(Mode::Echo) => echo::run(&boot, &mut nic),
        Some(Mode::TcpSend) => streams::send(&boot, &mut nic),
        Some(Mode::TcpReceive) => streams::receive(&boot, &mut nic),
        Some(Mode::Serve) => streams::serve(&boot, &mut nic),
        None => panic!("unknown mode"),
    }
    end(Signal::Done)
}

/// Signals the monitor.
fn signal(signal: Signal) {
    if controller::is_plain() {
        pc::signal(signal.to_byte());
    } else {
        cpu::out8(PORT, signal.to_byte());
    }
}

/// Sleeps until an interrupt unless the wake word is already set; counted and timed, without the
/// handlers' work.
fn idle() {
    let (begin, handled) = (cpu::ticks(), wake::handler_ticks());
    interrupts::sleep();
    let report = Report::get();
    let work = wake::handler_ticks() - handled;
    report.add(report::IDLE_TICKS, (cpu::ticks() - begin).saturating_sub(work));
    report.add(report::HALTS, 1);
}

/// Signals the monitor, then halts.
fn end(last: Signal) -> ! {
    signal(last);
    loop {
        interrupts::sleep();
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let line = info.location().map_or(0, |location| u64::from(location.line()));
    Report::get().set(report::PANIC_LINE, line);
    end(Signal::Failed)
}
