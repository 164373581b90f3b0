//! Start-up on the board: parses the command line, then runs the responder or the self-tests.

mod selftest;
mod tasks;

use core::panic::PanicInfo;

use app::Config;
use board_virt::tree::Machine;
use board_virt::{console, power};

/// Version of the interface, which the program compares with its own before it starts the firmware.
static MARK: [u8; wire::image::MARK_BYTES] = wire::image::mark(&telemetry::INTERFACE);

board_virt::entry!(main);

fn main(machine: Machine) -> ! {
    // Keeps it in the image.
    core::hint::black_box(&MARK);
    let config = match Config::parse(machine.command_line) {
        Ok(config) => config,
        Err(error) => {
            console::print(format_args!("wirepath-guest: refused: {error}\n"));
            power::off()
        }
    };
    if config.uart_paced {
        console::pace_115200();
    }
    match config.selftest {
        Some(name) => selftest::run(name),
        None => tasks::run(&machine, &config),
    }
}

#[panic_handler]
fn panic(panic: &PanicInfo<'_>) -> ! {
    console::print(format_args!("wirepath-guest: {panic}\n"));
    power::off()
}

/// Priority of the idle task, the lowest.
const IDLE: kernel::Priority = 63;

/// Sleeps until the next interrupt.
fn idle(_: usize) {
    loop {
        power::wait_for_interrupt();
    }
}
