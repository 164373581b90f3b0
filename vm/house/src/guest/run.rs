//! `wirepath guest run`: boots the firmware with its console on the terminal.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use guest::GuestError;
use guest::link::{GUEST_IP, GuestLink};
use guest::qemu::{Boot, GuestMachine};
use guest::tap::TapMachine;
use guest::telemetry::{Counter, Entry, Event, Snapshot};
use house::args::parse_duration;
use house::context::Context;
use house::{console, signals};
use model::PathError;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use sys::thread::start_free;

use super::ImageArgs;

/// Interval between checks for a request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Switches to turn on, separated by commas [default: none, the baseline]
    #[arg(long, default_value = "", value_name = "A,B")]
    switches: String,
    #[command(flatten)]
    image: ImageArgs,
    /// Connect the guest to a TAP interface in a namespace, so that other programs can reach it
    #[arg(long)]
    tap: bool,
    /// Dump counters and trace at the end
    #[arg(long)]
    trace: bool,
    /// Stop after this time: 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct GuestRunDocument<'a> {
    schema: u32,
    command: &'static str,
    switches: &'a str,
    console: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<BTreeMap<&'static str, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Vec<TraceEntry>>,
}

#[derive(Serialize, JsonSchema)]
struct TraceEntry {
    time_ns: u64,
    event: &'static str,
    detail: u32,
}

impl From<&Entry> for TraceEntry {
    fn from(entry: &Entry) -> Self {
        TraceEntry { time_ns: entry.time_ns, event: event(entry), detail: entry.detail }
    }
}

enum RunningGuest {
    Sockets(GuestMachine, Option<GuestLink>),
    Tap(TapMachine),
}

impl RunningGuest {
    fn machine(&mut self) -> &mut GuestMachine {
        match self {
            RunningGuest::Sockets(machine, _) => machine,
            RunningGuest::Tap(tap) => &mut tap.machine,
        }
    }

    fn dump(&self) -> Result<(Snapshot, Vec<Entry>), GuestError> {
        match self {
            RunningGuest::Sockets(_, None) => {
                Err(GuestError::Silent { what: "because it has no wire".into() })
            }
            RunningGuest::Sockets(_, Some(link)) => {
                link.connect()?;
                let peer = link.resolve(GUEST_IP)?;
                Ok((link.counters(&peer, 1)?, link.trace(&peer, 2)?))
            }
            RunningGuest::Tap(tap) => Ok((tap.counters(1)?, tap.trace(2)?)),
        }
    }
}

pub(super) fn run(context: &Context, args: &RunArgs) -> Result<(), Failure> {
    let boot = args.image.boot(&args.switches)?;
    let (mut wire, stream) = start(args, &boot)?;
    let output = Arc::new(Mutex::new(String::new()));
    let printer = pump_out(stream.try_clone()?, Arc::clone(&output), !context.json)?;
    pump_in(stream)?;
    let begun = Instant::now();
    while !signals::stop_requested()
        && args.time.is_none_or(|most| begun.elapsed() < most)
        && wire.machine().is_running()
    {
        thread::sleep(POLL_INTERVAL);
    }
    if args.trace && !wire.machine().is_running() {
        return Err(Failure::failed("the guest powered off, so its counters and trace are lost"));
    }
    let dump = args.trace.then(|| wire.dump()).transpose().map_err(PathError::from)?;
    drop(wire);
    // The console closes with the machine.
    let _ = printer.join();
    if context.json {
        let console = output.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (counters, trace) = dump
            .map(|(counters, entries)| {
                let named =
                    Counter::ALL.iter().map(|one| (one.name(), counters.get(*one))).collect();
                (named, entries.iter().map(TraceEntry::from).collect())
            })
            .unzip();
        let command = "guest run";
        let document = GuestRunDocument {
            schema: model::SCHEMA,
            command,
            switches: &args.switches,
            console,
            counters,
            trace,
        };
        return console::json(&document);
    }
    let Some((counters, entries)) = dump else { return Ok(()) };
    console::text(&dump_text(&counters, &entries))
}

fn start(args: &RunArgs, boot: &Boot) -> Result<(RunningGuest, UnixStream), Failure> {
    let keys = "Keys (Enter after each): d dumps counters and trace, q switches off; Ctrl-C ends.";
    if !args.tap {
        let (machine, stream, link) =
            GuestMachine::start_with_console(boot, None).map_err(PathError::from)?;
        console::say(&format!("QEMU is process {}. {keys}", machine.pid()));
        return Ok((RunningGuest::Sockets(machine, link), stream));
    }
    let (tap, stream) = TapMachine::start_with_console(boot).map_err(PathError::from)?;
    let (pid, ip) = (tap.machine.pid(), tap.home.guest_ip);
    console::say(&format!(
        "QEMU is process {pid}; next to it: nsenter --net --target {pid} ping {ip}\n{keys}"
    ));
    Ok((RunningGuest::Tap(tap), stream))
}

/// Copies the console to the terminal, or collects it for the JSON document.
fn pump_out(
    mut from: UnixStream,
    output: Arc<Mutex<String>>,
    echo: bool,
) -> Result<thread::JoinHandle<()>, Failure> {
    let started = start_free("printer", move || {
        let mut piece = [0; 4096];
        loop {
            match from.read(&mut piece) {
                Ok(len @ 1..) => {
                    if echo && console::bytes(&piece[..len]).is_err() {
                        break;
                    }
                    let text = String::from_utf8_lossy(&piece[..len]);
                    if !echo {
                        output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
    });
    started.map_err(Failure::failed)
}

/// Forwards keys from standard input, without the Enter that submits them. The thread is not joined,
/// because its read may never return.
fn pump_in(mut to: UnixStream) -> Result<(), Failure> {
    let started = start_free("keys", move || {
        let mut piece = [0; 256];
        while let Ok(len @ 1..) = std::io::stdin().read(&mut piece) {
            let keys: Vec<u8> = piece[..len].iter().copied().filter(|key| *key != b'\n').collect();
            if to.write_all(&keys).is_err() {
                break;
            }
        }
    });
    started.map(drop).map_err(Failure::failed)
}

fn event(entry: &Entry) -> &'static str {
    Event::from_number(entry.event).map_or("unknown", Event::name)
}

fn dump_text(counters: &Snapshot, entries: &[Entry]) -> String {
    let counters =
        Counter::ALL.iter().map(|one| format!("{:18} {}\n", one.name(), counters.get(*one)));
    let entries = entries
        .iter()
        .map(|entry| format!("{:>14} ns {} {}\n", entry.time_ns, event(entry), entry.detail));
    counters.chain(entries).collect()
}
