//! Receiver of a trial: receives quotes, updates order books and records arrival times.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use io::{AnyEngine, Engine, EngineReport, IoError};
use lab::cost_of;
use market::twse::{Body, Book, Lot, Telegram, Telegrams};
use model::Cost;
use sys::clock::realtime_ns;
use sys::rusage::ThreadUsage;

use super::script::Script;
use marketdata::sequence_field::SequenceField;
use marketdata::symbols::Symbols;

/// Arrival times of the datagrams of a script, by index.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Kernel time stamp, CLOCK_REALTIME nanoseconds; 0 if none.
    pub(super) kernel_ns: Vec<u64>,
    /// Arrival at the receiver, CLOCK_REALTIME nanoseconds; 0 if never.
    pub(super) app_ns: Vec<u64>,
    pub(super) duplicate_count: u64,
    /// Datagrams received after a later one of the script.
    pub(super) reordered_count: u64,
    /// Telegrams that are malformed or not part of the script.
    pub(super) stray_count: u64,
    highest: usize,
}

impl Arrivals {
    pub(super) fn new(count: usize) -> Self {
        Arrivals {
            kernel_ns: vec![0; count],
            app_ns: vec![0; count],
            duplicate_count: 0,
            reordered_count: 0,
            stray_count: 0,
            highest: 0,
        }
    }

    /// Datagrams received, each counted once.
    pub(super) fn unique_count(&self) -> u64 {
        self.app_ns.iter().filter(|&&at| at > 0).count() as u64
    }

    #[inline]
    pub(super) fn enter(&mut self, place: usize, kernel_ns: Option<u64>, app_ns: u64) {
        if self.app_ns[place] > 0 {
            self.duplicate_count += 1;
            return;
        }
        self.app_ns[place] = app_ns;
        self.kernel_ns[place] = kernel_ns.unwrap_or(0);
        self.reordered_count += u64::from(place < self.highest);
        self.highest = self.highest.max(place);
    }
}

/// Result of the receiver.
#[derive(Debug)]
pub(super) struct ReceivedQuotes {
    pub(super) arrivals: Arrivals,
    pub(super) engine: EngineReport,
    pub(super) cost: Cost,
}

/// Receives until `stop` is set.
///
/// - `terminal`: output for one line per quote; `None` for statistics in memory only.
/// - `seen`: number of datagrams so far, to detect the end of a trial.
pub(super) fn receive(
    engine: &mut AnyEngine,
    script: &Script,
    books: &mut Symbols,
    terminal: Option<File>,
    stop: &AtomicBool,
    seen: &AtomicU64,
) -> Result<ReceivedQuotes, IoError> {
    let run = Run { script, books, terminal, stop, seen };
    io::on_engine!(engine, engine => run.on(engine))
}

struct Run<'a> {
    script: &'a Script,
    books: &'a mut Symbols,
    terminal: Option<File>,
    stop: &'a AtomicBool,
    seen: &'a AtomicU64,
}

impl Run<'_> {
    fn on<E: Engine>(mut self, engine: &mut E) -> Result<ReceivedQuotes, IoError> {
        let mut arrivals = Arrivals::new(self.script.len());
        let begun = ThreadUsage::now();
        engine.rx_post();
        loop {
            // Read before receiving: everything that arrived before the stop is received, even if this
            // thread was descheduled in between.
            let stopping = self.stop.load(Ordering::Relaxed);
            let taken = engine.rx_take(&mut |arrival| {
                let app_ns = realtime_ns();
                match self.script {
                    Script::Telegrams { .. } => {
                        self.telegrams(&mut arrivals, arrival.payload, arrival.stamp_ns, app_ns);
                    }
                    Script::Recorded(recording) => {
                        match recording.place(arrival.payload) {
                            Some(place) => arrivals.enter(place, arrival.stamp_ns, app_ns),
                            None => arrivals.stray_count += 1,
                        }
                        if let Some(terminal) = self.terminal.as_mut() {
                            print_opaque(terminal, arrival.payload, recording.field);
                        }
                    }
                }
            })?;
            if taken > 0 {
                self.seen.fetch_add(taken as u64, Ordering::Relaxed);
                engine.rx_post();
            } else if stopping {
                break;
            }
        }
        let used = ThreadUsage::now().since(&begun);
        let mut engine = engine.finish();
        if let Some(priority) = sys::sched::fifo_priority() {
            engine.mode.push(("scheduling".into(), format!("SCHED_FIFO {priority}")));
        }
        let cost = Cost { syscall_count: Some(engine.syscall_count), ..cost_of(&used) };
        Ok(ReceivedQuotes { arrivals, engine, cost })
    }

    #[inline]
    fn telegrams(
        &mut self,
        arrivals: &mut Arrivals,
        payload: &[u8],
        stamp_ns: Option<u64>,
        app_ns: u64,
    ) {
        self.books.prefetch(payload);
        for telegram in Telegrams::new(payload) {
            let Ok(telegram) = telegram else {
                arrivals.stray_count += 1;
                continue;
            };
            let (business, format) = (telegram.business().to_wire(), telegram.format());
            match self.script.place(business, format, telegram.sequence()) {
                Some(place) => arrivals.enter(place, stamp_ns, app_ns),
                None => arrivals.stray_count += 1,
            }
            self.books.update(&telegram);
            if let Some(terminal) = self.terminal.as_mut() {
                print(terminal, &telegram);
            }
        }
    }
}

/// As [`print`], for a payload of another protocol.
fn print_opaque(terminal: &mut File, payload: &[u8], field: SequenceField) {
    let sequence = field.read(payload).unwrap_or_default();
    // Errors of a closed terminal are ignored.
    let _ = writeln!(terminal, "{sequence} {} bytes", payload.len());
}

/// Writes one line per quote without buffering, as a program that prints to its terminal does.
fn print(terminal: &mut File, telegram: &Telegram<'_>) {
    match telegram.body() {
        Body::Quote(quote) => line(terminal, &quote),
        Body::OddLot(odd) => line(terminal, &odd),
        _ => {}
    }
}

fn line<L: Lot>(terminal: &mut File, book: &Book<'_, L>) {
    let mut text = [0; 96];
    let mut rest = &mut text[..];
    let room = rest.len();
    let symbol = book.symbol();
    // A line that is too long is truncated; errors of a closed terminal are ignored.
    let _ = match (book.time(), book.trade()) {
        (Some(time), Some(trade)) => {
            writeln!(rest, "{time} {symbol} {} x {}", trade.price, trade.quantity)
        }
        (Some(time), None) => writeln!(rest, "{time} {symbol}"),
        (None, _) => writeln!(rest, "{symbol}"),
    };
    let written = room - rest.len();
    let _ = terminal.write_all(&text[..written]);
}
