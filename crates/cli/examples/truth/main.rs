//! The method against the real machine: how often it is wrong, and whether it finds a known effect.
//!
//! `cargo run --release -p wirepath --example truth -- MODE COUNT`, with these modes:
//!
//! - `null`: null experiments. Every arm is `spin` of path `probe` under another name; half of them run beside a
//!   CPU hog that comes and goes, and in one of four an arm fails a tenth of its trials.
//! - `effect`: a spinning UDP echo of its own, which in one arm waits for 5 % of the round trip before it
//!   answers.
//! - `command`: a server and a client as programs of path `command`. One arm is the baseline again under another
//!   name, three arms work longer at every request, and one at each hundredth.
#![allow(clippy::print_stdout, reason = "its output is its result")]

mod command;
mod experiment;
mod hog;
mod probe;

use std::error::Error;
use std::time::{Duration, Instant};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Keeps the CPU busy.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn main() -> Result {
    let mut args = std::env::args().skip(1);
    let mode = args.next();
    let mut numbers = args.map(|number| number.parse::<u64>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    match mode.as_deref() {
        Some("null") => probe::null(number(10)?),
        Some("effect") => probe::effect(number(10)?),
        Some("command") => command::study(number(10)?),
        Some("serve") => command::serve(number(0)?, number(0)?),
        Some("ask") => command::ask(number(1000)?),
        _ => Err("give `null COUNT`, `effect COUNT` or `command COUNT`".into()),
    }
}
