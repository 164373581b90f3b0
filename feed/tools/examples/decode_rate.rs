//! Telegrams per second that one core decodes, arbitrates and applies to order books, of which it reads the best
//! bid and ask, and the allocations: `decode_rate [TELEGRAMS [SYMBOLS [SEED]]]`, default 10 million of 30,000
//! symbols.
//!
//! Datagrams are generated in slices before each measured slice, so generation is not timed. A slice is what one
//! receive call may return, and as near to the core: the memory of a longer one would evict the books.

use std::io::Write;
use std::time::{Duration, Instant};

use market::twse::Telegrams;
use wirepath_marketdata::arbiter::{
    Arbiter, ArbiterDelivery, ArbiterLimits, FeedLine, SequenceDomain,
};
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::symbols::{Symbols, Update};
use wirepath_marketdata::synthetic::{SyntheticSession, SyntheticSpec};

/// Datagrams per slice.
const SLICE: usize = 64;
/// Telegrams per datagram.
const TELEGRAMS: usize = 8;

fn argument(n: usize, otherwise: u64) -> Result<u64, String> {
    let Some(text) = std::env::args().nth(n) else { return Ok(otherwise) };
    text.replace('_', "").parse().map_err(|e| format!("{text:?} is no number: {e}"))
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Processing of a telegram.
struct Whole {
    arbiter: Arbiter,
    books: Symbols,
    decoded: u64,
    applied: u64,
    /// Books with a best bid below the best ask.
    two_sided: u64,
    errors: u64,
    now_ns: u64,
}

impl Whole {
    fn datagram(&mut self, datagram: &[u8]) {
        self.now_ns += 1000;
        self.books.prefetch(datagram);
        for telegram in Telegrams::new(datagram) {
            let Ok(telegram) = telegram else {
                self.errors += 1;
                continue;
            };
            self.decoded += 1;
            let domain = SequenceDomain::twse(telegram.business().to_wire(), telegram.format());
            let (books, applied, two_sided) =
                (&mut self.books, &mut self.applied, &mut self.two_sided);
            // In order, every offered telegram is delivered.
            let mut deliver = |delivery: ArbiterDelivery<'_>| {
                let ArbiterDelivery::Message { .. } = delivery else { return };
                let Update::Applied(place) = books.update(&telegram) else { return };
                *applied += 1;
                let depth = books.book(place).map(|book| &book.depth);
                let best = depth.and_then(|depth| depth.bids().next().zip(depth.asks().next()));
                *two_sided += u64::from(best.is_some_and(|(bid, ask)| bid.price < ask.price));
            };
            self.arbiter.offer(
                FeedLine::A,
                domain,
                telegram.sequence().into(),
                self.now_ns,
                telegram.bytes(),
                &mut deliver,
            );
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (wanted, symbols, seed) = (argument(1, 10_000_000)?, argument(2, 30_000)?, argument(3, 1)?);
    // One hour of session: the last telegram's match time is an hour after the first's.
    let schedule = SendSchedule::paced(wanted / 3600);
    let spec = SyntheticSpec { symbols: symbols as u32, schedule, ..SyntheticSpec::new(seed) };
    let mut session = SyntheticSession::new(&spec);
    let mut whole = Whole {
        arbiter: Arbiter::new(ArbiterLimits { from_one: true, ..ArbiterLimits::default() }),
        books: Symbols::new(65_536),
        decoded: 0,
        applied: 0,
        two_sided: 0,
        errors: 0,
        now_ns: 0,
    };
    let mut arena = vec![0; SLICE * 1472];
    let mut ends = Vec::with_capacity(SLICE);
    let mut busy = Duration::ZERO;
    // The first slice contains every domain; after it nothing may be allocated.
    let (mut at_first, mut steady) = (None, 0);
    while session.sent() < wanted {
        ends.clear();
        let mut at = 0;
        while ends.len() < SLICE && session.sent() < wanted {
            let left = usize::try_from(wanted - session.sent()).unwrap_or(usize::MAX);
            let Some(room) = arena.get_mut(at..at + 1472) else { break };
            let Some(written) = session.datagram(room, TELEGRAMS.min(left)) else { break };
            at += written.bytes;
            ends.push(at);
        }
        let made = allocation_counter::measure(|| {
            let begun = Instant::now();
            let mut start = 0;
            for end in &ends {
                whole.datagram(&arena[start..*end]);
                start = *end;
            }
            busy += begun.elapsed();
        });
        match at_first {
            None => at_first = Some(made.count_total),
            Some(_) => steady += made.count_total,
        }
    }
    let totals = whole.arbiter.totals();
    let (decoded, seconds) = (whole.decoded, busy.as_secs_f64());
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let mut out = std::io::stdout().lock();
    writeln!(out, "telegrams decoded      {decoded}")?;
    writeln!(out, "malformed              {}", whole.errors)?;
    writeln!(out, "delivered in order     {}", totals.delivered)?;
    writeln!(out, "restarts, gaps         {}, {}", totals.restarts, totals.gaps)?;
    writeln!(out, "changed a book         {}", whole.applied)?;
    writeln!(out, "bid below ask          {}", whole.two_sided)?;
    writeln!(out, "books                  {}", whole.books.books().len())?;
    writeln!(out, "time decoding          {seconds:.3} s on one core")?;
    writeln!(out, "telegrams/s            {:.0}", decoded as f64 / seconds.max(1e-9))?;
    writeln!(out, "allocations, first     {}", at_first.unwrap_or(0))?;
    writeln!(out, "allocations, after     {steady}")?;
    writeln!(out, "allocations/telegram   {}", steady as f64 / decoded.max(1) as f64)?;
    writeln!(out, "memory of the books    {:.1} MiB", mib(whole.books.memory_bytes() as f64))?;
    writeln!(out, "resident memory        {:.1} MiB", mib(resident_bytes() as f64))?;
    if whole.errors > 0 || !whole.arbiter.balances() || totals.delivered != decoded {
        return Err("the books do not balance".into());
    }
    Ok(())
}
