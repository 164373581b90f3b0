//! Start-up of both images: board, card, tasks.

use core::fmt;
use core::panic::PanicInfo;

use adapters::{Card, SETTINGS};
use app::Config;
use board_virt::tree::Machine;
use board_virt::{Dma, Window, console, interrupts, power, timer};
use kernel::system;
use virtio::net::{DEVICE_NET, NetDriver};

pub(crate) type Net = Card<Window, Dma>;

const TICKS_PER_SECOND: u32 = 100;
const STACK: kernel::Priority = 10;
const IDLE: kernel::Priority = 63;
/// Address of a card that has none: locally administered.
const MAC: [u8; 6] = [0x02, 0x57, 0x50, 0x00, 0x00, 0x02];

/// Starts the first network card. The controller listens before: the edge of a frame that comes at once
/// would be lost.
pub(crate) fn start(machine: &Machine, on_interrupt: fn()) -> (Config<'static>, Net) {
    let config = match Config::parse(machine.command_line) {
        Ok(config) => config,
        Err(error) => end(format_args!("refused: {error}")),
    };
    for (window, interrupt) in machine.virtio_windows() {
        // Empty slots and other devices are skipped.
        if virtio::Transport::probe(board_virt::window(*window), DEVICE_NET).is_err() {
            continue;
        }
        let memory = Dma::take().expect("only one card is started");
        interrupts::on_net(*interrupt, on_interrupt);
        return match NetDriver::start(board_virt::window(*window), memory, SETTINGS) {
            Ok(driver) => (config, Card::new(driver)),
            Err(error) => end(format_args!("no network card: {error}")),
        };
    }
    end(format_args!("no network card"))
}

/// The card's address.
pub(crate) fn mac(card: &Net) -> [u8; 6] {
    card.mac().unwrap_or(MAC)
}

/// Runs the stack in a task, and sleeps when it waits.
pub(crate) fn run(config: &Config<'_>, mac: [u8; 6], name: &str, stack: fn(usize)) -> ! {
    board_virt::spawn(STACK, stack, 0);
    board_virt::spawn(IDLE, idle, 0);
    timer::start(TICKS_PER_SECOND, None);
    let [a, b, c, d, e, f] = mac;
    console::print(format_args!(
        "wirepath-guest ready ip={} mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} \
         {name} after {} us\n",
        config.ip,
        timer::now_ns() / 1000,
    ));
    system::start()
}

fn idle(_: usize) {
    loop {
        power::wait_for_interrupt();
    }
}

fn end(why: fmt::Arguments<'_>) -> ! {
    console::print(format_args!("wirepath-guest: {why}\n"));
    power::off()
}

#[panic_handler]
fn panic(panic: &PanicInfo<'_>) -> ! {
    end(format_args!("{panic}"))
}
