//! QEMU's `virt` machine (one CPU at EL1, GICv3): everything between the hardware and the kernel.
//!
//! With the kernel's context switch and the card's memory this is all that has `unsafe`. Addresses are those of
//! QEMU's `hw/arm/virt.c`; where the virtio windows lie comes from the device tree.
#![no_std]
#![expect(unsafe_code, reason = "hardware is reached by addresses that no compiler can check")]

use core::sync::atomic::{AtomicBool, Ordering};

pub mod console;
pub mod gpio;
pub mod interrupts;
mod mmio;
mod paging;
pub mod power;
pub mod registers;
mod stacks;
pub mod timer;
pub mod tree;
mod vectors;

pub use dma::Dma;
pub use mmio::Window;
pub use stacks::{STACK_BYTES, STACKS, spawn, stack};

#[doc(hidden)]
pub use aarch64_rt;

/// Makes `fn main(machine: Machine) -> !` the first Rust function that runs.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        fn __board_main(x0: u64, _x1: u64, _x2: u64, _x3: u64) -> ! {
            let main: fn($crate::tree::Machine) -> ! = $main;
            main($crate::start(x0))
        }
        $crate::aarch64_rt::entry!(__board_main, 16);
    };
}

/// Brings the board up: console, vectors, page tables, interrupt controller; interrupts stay
/// masked until the kernel starts.
#[doc(hidden)]
pub fn start(x0: u64) -> tree::Machine {
    console::open();
    vectors::install();
    let machine = tree::read(x0 as usize);
    paging::protect(&machine);
    interrupts::open();
    machine
}

/// The virtio window at `base`, as the device tree says.
pub fn window(base: usize) -> Window {
    // SAFETY: the tree lists virtio-mmio windows there, which are mapped as devices; the callers
    // use one handle of each at a time, and reads of another's identity disturb nobody.
    unsafe { Window::new(base) }
}

/// The output pin, once.
pub fn gpio_pin() -> Option<gpio::Pin> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: the flag makes sure that there is only one.
    (!TAKEN.swap(true, Ordering::Relaxed)).then(|| unsafe { gpio::Pin::open() })
}
