//! QEMU's `virt` machine (one CPU at EL1, GICv3): everything between the hardware and the kernel.
//!
//! All `unsafe` code is here, in the kernel's context switch and in the card's shared memory.
//! Addresses are those of QEMU's `hw/arm/virt.c`; the virtio windows come from the device tree.
#![no_std]
#![expect(unsafe_code, reason = "hardware is reached by addresses that no compiler can check")]

use core::sync::atomic::{AtomicBool, Ordering};

pub mod console;
pub mod gpio;
pub mod interrupts;
mod mmio;
mod paging;
mod place;
pub mod power;
pub mod registers;
mod stacks;
pub mod timer;
pub mod tree;
mod vectors;
mod waker;

pub use dma::Dma;
pub use mmio::Window;
pub use place::Place;
pub use stacks::{STACK_BYTES, STACKS, spawn, stack};
pub use waker::waker;

#[doc(hidden)]
pub use aarch64_rt;

/// Makes `fn main(machine: Machine) -> !` the entry point.
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

/// Initialises the board: console, vectors, page tables, interrupt controller. Interrupts stay
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

/// The virtio window at `base`, an address from the device tree.
pub fn window(base: usize) -> Window {
    // SAFETY: the tree lists virtio-mmio windows there, which are mapped as devices; callers use
    // one handle of each at a time, and reading another's identity has no side effect.
    unsafe { Window::new(base) }
}

/// Returns the output pin on the first call, then `None`.
pub fn gpio_pin() -> Option<gpio::Pin> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: the flag lets only one caller get here.
    (!TAKEN.swap(true, Ordering::Relaxed)).then(|| unsafe { gpio::Pin::open() })
}
