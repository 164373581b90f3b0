//! `wirepath guest run`: a machine by hand, its console on the terminal.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use io::thread::start_free;
use paths::guest::GuestError;
use paths::guest::link::{GUEST_IP, Link};
use paths::guest::observe::{Counter, Entry, Event, Snapshot};
use paths::guest::qemu::{Boot, Machine};
use paths::guest::tap::TapMachine;
use serde_json::json;

use super::ImageArgs;
use crate::args::{Cli, parse_duration};
use crate::end::Failure;
use crate::{console, stop};

/// How often it is looked whether somebody asked to end.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Switches that are on, between commas; none is the baseline
    #[arg(long, default_value = "", value_name = "A,B")]
    switches: String,
    #[command(flatten)]
    image: ImageArgs,
    /// A TAP interface in a namespace as its wire, so that other programs can talk to it
    #[arg(long)]
    tap: bool,
    /// At the end dump counters and trace
    #[arg(long)]
    trace: bool,
    /// End after this long: 10s
    #[arg(short = 'd', long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

enum Wire {
    Sockets(Machine, Option<Link>),
    Tap(TapMachine),
}

impl Wire {
    fn machine(&mut self) -> &mut Machine {
        match self {
            Wire::Sockets(machine, _) => machine,
            Wire::Tap(tap) => &mut tap.machine,
        }
    }

    fn dump(&self) -> Result<(Snapshot, Vec<Entry>), GuestError> {
        match self {
            Wire::Sockets(_, None) => Err(GuestError::Silent { what: "without a wire".into() }),
            Wire::Sockets(_, Some(link)) => {
                link.connect()?;
                let station = link.resolve(GUEST_IP)?;
                Ok((link.counters(&station, 1)?, link.trace(&station, 2)?))
            }
            Wire::Tap(tap) => Ok((tap.counters(1)?, tap.trace(2)?)),
        }
    }
}

pub(super) fn run(cli: &Cli, args: &RunArgs) -> Result<(), Failure> {
    let boot = args.image.boot(&args.switches)?;
    let (mut wire, stream) = start(args, &boot)?;
    let said = Arc::new(Mutex::new(String::new()));
    let printer = pump_out(stream.try_clone()?, Arc::clone(&said), !cli.json)?;
    pump_in(stream)?;
    let begun = Instant::now();
    let over = || stop::asked() || args.duration.is_some_and(|most| begun.elapsed() >= most);
    while !over() && wire.machine().is_running() {
        thread::sleep(LOOK);
    }
    let dump = match args.trace {
        true if !wire.machine().is_running() => {
            return Err(Failure::failed("the machine was switched off: no counters are left"));
        }
        true => Some(wire.dump()?),
        false => None,
    };
    drop(wire);
    // Its console ends with it.
    let _ = printer.join();
    if cli.json {
        let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut document = json!({
            "schema": model::SCHEMA,
            "command": "guest run",
            "switches": args.switches,
            "console": said,
        });
        if let Some((counters, entries)) = &dump {
            document["counters"] = counters_document(counters);
            document["trace"] = entries.iter().map(entry_document).collect();
        }
        return console::text(&format!("{document:#}"));
    }
    let Some((counters, entries)) = dump else { return Ok(()) };
    console::text(&dump_text(&counters, &entries))
}

fn start(args: &RunArgs, boot: &Boot) -> Result<(Wire, UnixStream), Failure> {
    let keys = "Keys (Enter after each): d dumps counters and trace, q switches off; Ctrl-C ends.";
    if !args.tap {
        let (machine, stream, link) = Machine::start_with_console(boot, None)?;
        console::say(&format!("QEMU is process {}. {keys}", machine.pid()));
        return Ok((Wire::Sockets(machine, link), stream));
    }
    let (tap, stream) = TapMachine::start_with_console(boot)?;
    let (pid, ip) = (tap.machine.pid(), tap.home.guest_ip);
    console::say(&format!(
        "QEMU is process {pid}; next to it: nsenter --net --target {pid} ping {ip}\n{keys}"
    ));
    Ok((Wire::Tap(tap), stream))
}

/// What the machine prints, to the terminal as it comes, or kept for the document.
fn pump_out(
    mut from: UnixStream,
    said: Arc<Mutex<String>>,
    shows: bool,
) -> Result<thread::JoinHandle<()>, Failure> {
    let pump = move || {
        let mut piece = [0; 4096];
        loop {
            match from.read(&mut piece) {
                Ok(len @ 1..) => {
                    if shows && console::bytes(&piece[..len]).is_err() {
                        break;
                    }
                    let text = String::from_utf8_lossy(&piece[..len]);
                    if !shows {
                        said.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
    };
    start_free("printer", pump).map_err(Failure::failed)
}

/// Keys from standard input, without the Enter that sends them. Reading them may take for ever,
/// so nobody waits for this thread.
fn pump_in(mut to: UnixStream) -> Result<(), Failure> {
    let pump = move || {
        let mut piece = [0; 256];
        while let Ok(len @ 1..) = std::io::stdin().read(&mut piece) {
            let keys: Vec<u8> = piece[..len].iter().copied().filter(|key| *key != b'\n').collect();
            if to.write_all(&keys).is_err() {
                break;
            }
        }
    };
    start_free("keys", pump).map(drop).map_err(Failure::failed)
}

pub(super) fn counters_document(counters: &Snapshot) -> serde_json::Value {
    let named = Counter::ALL.iter().map(|counter| {
        (counter.name().to_owned(), serde_json::Value::from(counters.get(*counter)))
    });
    serde_json::Value::Object(named.collect())
}

pub(super) fn entry_document(entry: &Entry) -> serde_json::Value {
    json!({ "time_ns": entry.time_ns, "event": event(entry), "detail": entry.detail })
}

fn event(entry: &Entry) -> &'static str {
    Event::of(entry.event).map_or("unknown", Event::name)
}

pub(super) fn dump_text(counters: &Snapshot, entries: &[Entry]) -> String {
    let counters =
        Counter::ALL.iter().map(|one| format!("{:18} {}\n", one.name(), counters.get(*one)));
    let entries = entries
        .iter()
        .map(|entry| format!("{:>14} ns {} {}\n", entry.time_ns, event(entry), entry.detail));
    counters.chain(entries).collect()
}
