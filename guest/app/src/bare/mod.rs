//! On the bare machine.

mod selftest;
mod tasks;

use core::panic::PanicInfo;

use app::Config;
use board_virt::tree::Machine;
use board_virt::{console, power};

board_virt::entry!(main);

fn main(machine: Machine) -> ! {
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

/// Priority of the task that runs when no other does.
const IDLE: kernel::Priority = 63;

/// Sleeps whenever there is nothing to do.
fn idle(_: usize) {
    loop {
        power::wait_for_interrupt();
    }
}
