//! Start-up on the board, and the card's interrupt.

mod card;
mod memory;
mod responder;

use core::panic::PanicInfo;

use app::Config;
use board_virt::tree::Machine;
use board_virt::{console, power, timer};
use critical_section::Mutex;
use kernel::system::{self, Semaphore};

use core::cell::{Cell, RefCell};

use card::Card;

board_virt::entry!(main);

const TICKS_PER_SECOND: u32 = 100;
const STATION: kernel::Priority = 10;
const IDLE: kernel::Priority = 63;

static CARD: Mutex<RefCell<Option<Card>>> = Mutex::new(RefCell::new(None));
static WAKE: Mutex<Cell<Option<Semaphore>>> = Mutex::new(Cell::new(None));
static ADDRESS: Mutex<Cell<Option<core::net::Ipv4Addr>>> = Mutex::new(Cell::new(None));

fn main(machine: Machine) -> ! {
    let config = match Config::parse(machine.command_line) {
        Ok(config) => config,
        Err(error) => end(format_args!("refused: {error}")),
    };
    memory::open();
    let Some(card) = card::open(&machine, on_interrupt) else {
        end(format_args!("no network card"))
    };
    let [a, b, c, d, e, f] = card.mac();
    critical_section::with(|cs| {
        *CARD.borrow_ref_mut(cs) = Some(card);
        WAKE.borrow(cs).set(Some(Semaphore::new(0)));
        ADDRESS.borrow(cs).set(Some(config.ip));
    });
    board_virt::spawn(STATION, responder::run, 0);
    board_virt::spawn(IDLE, idle, 0);
    timer::start(TICKS_PER_SECOND, None);
    console::print(format_args!(
        "wirepath-guest ready ip={} mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} \
         reference after {} us\n",
        config.ip,
        timer::now_ns() / 1000,
    ));
    system::start()
}

/// Acknowledges the interrupt, and leaves the rest to the task.
fn on_interrupt() {
    with_card(Card::acknowledge);
    if let Some(wake) = critical_section::with(|cs| WAKE.borrow(cs).get()) {
        // The semaphore's counter cannot overflow here.
        let _ = wake.post();
    }
}

/// Runs `work` on the card with interrupts masked.
fn with_card<T>(work: impl FnOnce(&mut Card) -> T) -> T {
    critical_section::with(|cs| work(CARD.borrow_ref_mut(cs).as_mut().expect("it was opened")))
}

fn idle(_: usize) {
    loop {
        power::wait_for_interrupt();
    }
}

fn end(why: core::fmt::Arguments<'_>) -> ! {
    console::print(format_args!("wirepath-guest: reference: {why}\n"));
    power::off()
}

#[panic_handler]
fn panic(panic: &PanicInfo<'_>) -> ! {
    end(format_args!("{panic}"))
}
