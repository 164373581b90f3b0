//! Time from bytes to book, as ratios of one interleaved run: ITCH beside the crate `itchy`, which only parses; telegrams
//! beside their decoding alone. CPU time of this thread; the order of each round is random.
//!
//! `cargo bench -p wirepath-marketdata --bench books`

use std::hint::black_box;
use std::io::Write;

use market::itch::{Body, Message};
use market::mold::MoldPacket;
use market::twse::{self, Telegrams};
use model::Random;
use sys::clock::thread_cpu_ns;
use wirepath_marketdata::arbiter::SequenceDomain;
use wirepath_marketdata::books::OrderBooks;
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::symbols::Symbols;
use wirepath_marketdata::synthetic::{
    MoldSession, MoldSpec, SyntheticSession, SyntheticSpec, Written,
};

/// Messages a round: more bytes than fit into any near cache.
const MESSAGES: u64 = 400_000;
/// Messages that fill the books before the first round.
const BEFORE: u64 = 1_000_000;
const ROUNDS: usize = 41;
const DOMAIN: SequenceDomain = SequenceDomain(1);

/// Datagrams of a round, the same for all subjects; those of the next round go on from them.
struct Round {
    datagrams: Vec<Vec<u8>>,
    /// Their messages as a file, in which each follows its length.
    file: Vec<u8>,
}

/// One way to process the messages of a round; returns a number that the compiler cannot know.
struct Subject<'a> {
    name: &'static str,
    run: Box<dyn FnMut(&Round) -> u64 + 'a>,
    ns: Vec<f64>,
}

impl<'a> Subject<'a> {
    fn new(name: &'static str, run: impl FnMut(&Round) -> u64 + 'a) -> Self {
        Subject { name, run: Box::new(run), ns: Vec::with_capacity(ROUNDS) }
    }
}

/// Runs all subjects once a round, and prints the time of a message and its ratio to the first subject's of the same
/// round: medians, and in brackets the quarter and three quarters of the rounds.
///
/// - `next`: writes the next datagram.
fn compare(
    title: &str,
    mut next: impl FnMut(&mut [u8]) -> Option<Written>,
    mut subjects: Vec<Subject<'_>>,
) {
    let mut random = Random::new(1, 1);
    for round in 0..=ROUNDS {
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let datagrams = datagrams(MESSAGES, &mut next);
        let messages = datagrams.iter().filter_map(|bytes| bytes.get(market::mold::HEADER_BYTES..));
        let sent = Round { file: messages.flatten().copied().collect(), datagrams };
        for at in order {
            let subject = &mut subjects[at];
            let begun_ns = thread_cpu_ns();
            black_box((subject.run)(&sent));
            let ns = (thread_cpu_ns() - begun_ns) as f64 / MESSAGES as f64;
            // The first round warms up.
            if round > 0 {
                subject.ns.push(ns);
            }
        }
    }
    let mut out = std::io::stdout().lock();
    let print = writeln!(out, "{title}: ns a message, ratio, million messages a second");
    let printed = subjects.iter().try_fold(print, |_, subject| {
        let ratios = subject.ns.iter().zip(&subjects[0].ns).map(|(ns, base)| ns / base);
        let ([low, mid, high], [from, ratio, to]) =
            (quartiles(subject.ns.clone()), quartiles(ratios.collect()));
        let rate = 1e3 / mid;
        writeln!(
            out,
            "  {:<28} {mid:6.1} [{low:.1}, {high:.1}]  {ratio:.3} [{from:.3}, {to:.3}]  {rate:.1}",
            subject.name
        )
        .map(Ok)
    });
    printed.expect("standard output").expect("standard output");
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Datagrams of a session with this number of messages.
fn datagrams(messages: u64, mut next: impl FnMut(&mut [u8]) -> Option<Written>) -> Vec<Vec<u8>> {
    let mut buffer = [0; 1472];
    let (mut all, mut count) = (Vec::new(), 0);
    while count < messages {
        let written = next(&mut buffer).expect("it fits");
        count += written.telegrams as u64;
        all.push(buffer[..written.bytes].to_vec());
    }
    all
}

/// A number of each field, so that the compiler removes none.
fn sum(message: &Message<'_>) -> u64 {
    match &message.body {
        Body::AddOrder(it) => it.reference ^ it.price.0 ^ u64::from(it.shares) ^ it.stock.to_u64(),
        Body::OrderExecuted(it) => it.reference ^ u64::from(it.shares) ^ it.match_number,
        Body::OrderCancel(it) => it.reference ^ u64::from(it.shares),
        Body::OrderDelete(it) => it.reference,
        Body::OrderReplace(it) => it.original ^ it.new ^ u64::from(it.shares) ^ it.price.0,
        _ => 0,
    }
}

fn parse(packets: &[Vec<u8>]) -> u64 {
    let messages =
        packets.iter().flat_map(|packet| MoldPacket::parse(packet).expect("whole").messages());
    let messages = messages.flatten().filter_map(|message| Message::parse(message.bytes).ok());
    messages.fold(0, |all, message| all ^ sum(&message))
}

fn build(books: &mut OrderBooks, packets: &[Vec<u8>]) -> u64 {
    for packet in packets {
        let packet = MoldPacket::parse(packet).expect("whole");
        books.prefetch(DOMAIN, packet.messages().flatten().map(|message| message.bytes));
        for message in packet.messages().flatten() {
            if let Ok(message) = Message::parse(message.bytes) {
                books.update(DOMAIN, 0, &message);
            }
        }
    }
    books.counts().live
}

fn itch() {
    let mut session = MoldSession::new(&MoldSpec { stocks: 8000, ..MoldSpec::new(1) });
    let before = datagrams(BEFORE, |buffer| session.datagram(buffer, 32));
    let mut books = OrderBooks::new(1 << 20, 1 << 16);
    build(&mut books, &before);
    compare(
        "ITCH",
        |buffer| session.datagram(buffer, 32),
        vec![
            Subject::new("itchy parses", by_itchy),
            Subject::new("itchy parses, again", by_itchy),
            Subject::new("we parse", |round| parse(&round.datagrams)),
            Subject::new("bytes to book", |round| build(&mut books, &round.datagrams)),
        ],
    );
    let counts = books.counts();
    assert_eq!((counts.unknown, counts.contradictory, counts.orders_refused), (0, 0, 0));
    writeln!(std::io::stdout(), "  {} books, {} live orders", counts.books, counts.live)
        .expect("standard output");
}

fn by_itchy(round: &Round) -> u64 {
    let stream = itchy::MessageStream::from_reader(&round.file[..]);
    stream.map(|message| u64::from(message.expect("it reads it").stock_locate)).sum()
}

fn decode(round: &Round) -> u64 {
    let telegrams = round.datagrams.iter().flat_map(|datagram| Telegrams::new(datagram));
    telegrams.flatten().map(|telegram| u64::from(telegram.sequence())).sum()
}

fn telegrams() {
    let spec = SyntheticSpec {
        symbols: 30_000,
        schedule: SendSchedule::paced(1_000_000),
        ..SyntheticSpec::new(1)
    };
    let mut session = SyntheticSession::new(&spec);
    let mut symbols = Symbols::new(65_536);
    compare(
        "TWSE",
        |buffer| session.datagram(buffer, 8),
        vec![
            Subject::new("decoded", decode),
            Subject::new("decoded, again", decode),
            Subject::new("decoded with every level", |round: &Round| {
                let telegrams =
                    round.datagrams.iter().flat_map(|datagram| Telegrams::new(datagram)).flatten();
                telegrams.fold(0, |all, telegram| all ^ levels(&telegram))
            }),
            Subject::new("bytes to book", |round: &Round| {
                let mut count = 0;
                for datagram in &round.datagrams {
                    symbols.prefetch(datagram);
                    for telegram in Telegrams::new(datagram).flatten() {
                        symbols.update(&telegram);
                        count += 1;
                    }
                }
                count
            }),
        ],
    );
}

fn levels(telegram: &twse::Telegram<'_>) -> u64 {
    fn sum<L: twse::Lot>(book: &twse::Book<'_, L>) -> u64 {
        let levels = book.trade().into_iter().chain(book.bids()).chain(book.asks());
        levels.fold(book.symbol().to_u64(), |sum, level| {
            sum.rotate_left(7) ^ level.price.0 ^ level.quantity << 32
        })
    }
    match telegram.body() {
        twse::Body::Quote(quote) => sum(&quote),
        twse::Body::OddLot(odd) => sum(&odd),
        _ => 0,
    }
}

fn main() {
    itch();
    telegrams();
}
