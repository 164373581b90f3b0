//! Kernel tests on the machine: `wirepath.selftest`.
//!
//! Each prints one line, `selftest NAME ok|FAILED key=value…`; the last line is
//! `selftest end COUNT`. The test `overflow` does not return.

mod interrupts;
mod switching;

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use board_virt::{console, power};
use kernel::{Priority, system};

/// Priority of the task that runs the tests; lower than that of every task it starts.
const DIRECTOR: Priority = 50;
const OVERFLOWING: Priority = 40;

static LINES: AtomicUsize = AtomicUsize::new(0);

pub(super) fn run(name: &str) -> ! {
    let director: fn(usize) = match name {
        "" => all,
        "overflow" => overflow,
        _ => {
            console::print(format_args!("wirepath-guest: refused: no selftest {name:?}\n"));
            power::off()
        }
    };
    board_virt::spawn(DIRECTOR, director, 0);
    board_virt::spawn(super::IDLE, super::idle, 0);
    system::start()
}

fn all(_: usize) {
    switching::priority_inversion();
    switching::time_out();
    switching::ping_pong();
    switching::registers();
    interrupts::semaphore();
    interrupts::queue();
    interrupts::nesting();
    console::print(format_args!("selftest end {}\n", LINES.load(Ordering::Relaxed)));
    power::off()
}

/// Prints the result line of a test.
fn report(name: &str, passed: bool, figures: fmt::Arguments<'_>) {
    LINES.fetch_add(1, Ordering::Relaxed);
    let verdict = if passed { "ok" } else { "FAILED" };
    console::print(format_args!("selftest {name} {verdict} {figures}\n"));
}

/// Minimum, median and maximum of a set of times.
struct Spread {
    min_ns: u64,
    median_ns: u64,
    max_ns: u64,
}

impl Spread {
    fn of(times_ns: &mut [u64]) -> Spread {
        times_ns.sort_unstable();
        let nth_ns = |index: usize| times_ns.get(index).copied().unwrap_or(0);
        let len = times_ns.len();
        Spread {
            min_ns: nth_ns(0),
            median_ns: nth_ns(len / 2),
            max_ns: nth_ns(len.saturating_sub(1)),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { min_ns, median_ns, max_ns } = self;
        write!(f, "min_ns={min_ns} median_ns={median_ns} max_ns={max_ns}")
    }
}

fn overflow(_: usize) {
    board_virt::spawn(OVERFLOWING, |_| console::print(format_args!("{}\n", recurse(1))), 0);
    console::print(format_args!("selftest overflow FAILED\n"));
    power::off()
}

/// Recurses without end; written so that the compiler cannot turn it into a loop.
fn recurse(depth: u64) -> u64 {
    let mut room = core::hint::black_box([depth; 64]);
    if depth < 1_000_000 {
        room[3] += recurse(depth + 1);
    }
    core::hint::black_box(room).iter().sum()
}
