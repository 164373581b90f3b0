//! The synthetic session is a valid one, and the same seed gives the same bytes; the symbols
//! agree with a plain map of what was sent.

use std::collections::BTreeMap;

use market::twse::{
    Body, Business, Level, Levels, MatchTime, Price, PriceLimits, QuoteRepr, Status, Symbol,
    TelegramRepr, Telegrams,
};
use market::{itch, mold};
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::symbols::{LotKind, Symbols, Update};
use wirepath_marketdata::synthetic::{
    DATAGRAM_BYTES_MIN, Mix, MoldSession, MoldSpec, SyntheticSession, SyntheticSpec,
    TELEGRAM_BYTES_MAX,
};

/// The first `count` telegrams, each by itself.
fn telegrams(spec: &SyntheticSpec, count: usize) -> Vec<Vec<u8>> {
    let mut session = SyntheticSession::new(spec);
    let mut buffer = [0; TELEGRAM_BYTES_MAX];
    (0..count)
        .map(|_| {
            let bytes = session.telegram(&mut buffer).expect("room");
            buffer[..bytes].to_vec()
        })
        .collect()
}

#[test]
fn the_seed_determines_the_bytes() {
    let spec = SyntheticSpec::new(42);
    assert_eq!(telegrams(&spec, 5000), telegrams(&spec, 5000));
    assert_ne!(telegrams(&spec, 50), telegrams(&SyntheticSpec::new(43), 50));
    // Stable across versions and machines: recorded when the generator was written.
    let sum = telegrams(&spec, 1000)
        .concat()
        .iter()
        .fold(0u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
    assert_eq!(sum, 9_948_335_607_261_405_289);
}

/// Match time of a quote or odd lot, in nanoseconds since the start of its session.
fn matched_ns(telegram: &market::twse::Telegram<'_>, spec: &SyntheticSpec) -> Option<u64> {
    let time = match telegram.body() {
        Body::Quote(quote) => quote.time(),
        Body::OddLot(odd) => odd.time(),
        Body::Instrument(_) | Body::Other(_) => None,
    };
    time.map(|time| (time.micros() - spec.begin.micros()) * 1000)
}

#[test]
fn match_times_are_the_due_times_of_the_datagrams() {
    for (burst, per_datagram) in [(1, 1), (20, 1), (20, 3), (1, 3)] {
        let spec =
            SyntheticSpec { schedule: SendSchedule::burst(burst, 3000), ..SyntheticSpec::new(1) };
        let mut session = SyntheticSession::new(&spec);
        let mut buffer = [0; 1400];
        let mut timed = 0;
        for _ in 0..200 {
            // Telegrams leave at this time, in whole microseconds.
            let due_ns = spec.schedule.due_ns(session.sent()) / 1000 * 1000;
            let written = session.datagram(&mut buffer, per_datagram).expect("room");
            for telegram in Telegrams::new(&buffer[..written.bytes]) {
                let telegram = telegram.expect("valid");
                let Some(matched_ns) = matched_ns(&telegram, &spec) else { continue };
                assert_eq!(matched_ns, due_ns, "burst {burst}, {per_datagram} a datagram");
                timed += 1;
            }
        }
        assert!(timed > 150, "{timed}");
        let spec = MoldSpec { schedule: spec.schedule, ..MoldSpec::new(1) };
        let mut session = MoldSession::new(&spec);
        for _ in 0..200 {
            let due_ns = spec.schedule.due_ns(session.sent());
            let written = session.datagram(&mut buffer, per_datagram).expect("room");
            let packet = mold::MoldPacket::parse(&buffer[..written.bytes]).expect("valid");
            for message in packet.messages() {
                let message = message.expect("whole").bytes;
                let message = itch::Message::parse(message).expect("valid");
                assert_eq!(message.timestamp.0 - spec.begin.0, due_ns, "burst {burst}");
            }
        }
    }
}

#[test]
fn a_datagram_holds_the_requested_telegrams_if_they_fit() {
    // Five telegrams are due at the same time, as all telegrams of a datagram are.
    let spec = SyntheticSpec { schedule: SendSchedule::burst(5, 10_000), ..SyntheticSpec::new(1) };
    let mut session = SyntheticSession::new(&spec);
    let mut alone = SyntheticSession::new(&spec);
    let mut buffer = [0; 1472];
    let written = session.datagram(&mut buffer, 5).expect("room");
    assert_eq!(written.telegrams, 5);
    let mut one_by_one = Vec::new();
    let mut single = [0; TELEGRAM_BYTES_MAX];
    for _ in 0..5 {
        let bytes = alone.telegram(&mut single).expect("room");
        one_by_one.extend_from_slice(&single[..bytes]);
    }
    assert_eq!(buffer[..written.bytes], one_by_one);
    let written = session.datagram(&mut buffer, 1000).expect("room");
    assert!(written.telegrams > 8 && written.bytes <= 1472);
    let before = session.sent();
    assert_eq!(session.datagram(&mut [0; 154], 1), None);
    assert_eq!(session.sent(), before);
}

#[test]
fn every_telegram_is_valid_and_sequences_and_times_rise() {
    let spec = SyntheticSpec {
        symbols: 400,
        schedule: SendSchedule::paced(1_000_000),
        ..SyntheticSpec::new(7)
    };
    let mut sequences: BTreeMap<(u8, u8), u32> = BTreeMap::new();
    let mut formats: BTreeMap<u8, u32> = BTreeMap::new();
    let mut cycles = 0;
    let mut last_time = None;
    let (mut halted, mut trade_only, mut at_limit) = (0, 0, 0);
    for bytes in telegrams(&spec, 200_000) {
        let mut found = Telegrams::new(&bytes);
        let telegram = found.next().expect("one").expect("right");
        assert!(found.next().is_none());
        *formats.entry(telegram.format()).or_default() += 1;
        let key = (telegram.business().to_wire(), telegram.format());
        let last = sequences.insert(key, telegram.sequence()).unwrap_or(0);
        if telegram.format() == 1 && telegram.sequence() == 1 && last > 1 {
            assert!(last >= 129, "a cycle of {last}");
            cycles += 1;
        } else {
            assert_eq!(telegram.sequence(), last + 1);
        }
        let (time, bids, asks) = match telegram.body() {
            Body::Quote(quote) => {
                halted += u32::from(quote.limits().is_halted());
                trade_only += u32::from(quote.is_trade_only());
                at_limit += u32::from(quote.limits().0 & 0b0011_1100 != 0);
                let mut again = [0; 200];
                let len = TelegramRepr::of(&quote).write(&mut again).expect("it came from one");
                assert_eq!(again[..len], bytes, "re-encodes to the same bytes");
                (quote.time(), levels(quote.bids()), levels(quote.asks()))
            }
            Body::OddLot(odd) => (odd.time(), levels(odd.bids()), levels(odd.asks())),
            Body::Instrument(_) => continue,
            Body::Other(_) => panic!("no other format"),
        };
        let time = time.expect("no end of feed");
        assert!(Some(time) >= last_time);
        last_time = Some(time);
        assert!(bids.windows(2).all(|w| w[0].price > w[1].price), "{bids:?}");
        assert!(asks.windows(2).all(|w| w[0].price < w[1].price), "{asks:?}");
        if let (Some(bid), Some(ask)) = (bids.first(), asks.first()) {
            assert!(bid.price < ask.price);
        }
        assert!(bids.iter().chain(&asks).all(|level| level.quantity > 0 && !level.price.is_zero()));
    }
    assert_eq!(formats.keys().copied().collect::<Vec<_>>(), [1, 6, 17, 23]);
    let share = |format| f64::from(formats[&format]) / 200_000.0;
    assert!((share(6) - 0.50).abs() < 0.01 && (share(17) - 0.40).abs() < 0.01, "{formats:?}");
    assert!(cycles > 5 && halted > 5 && trade_only > 1000 && at_limit > 10);
    let expected = MatchTime::from_micros(9 * 3_600_000_000 + 199_999).expect("a time");
    assert!(last_time <= Some(expected) && last_time.map(|t| t.micros()) > Some(32_400_199_900));
}

fn levels(levels: impl Iterator<Item = Level>) -> Vec<Level> {
    levels.collect()
}

#[test]
fn small_and_odd_sessions_work() {
    for symbols in [1, 2, 4, 5, 9, 10, 60_000] {
        assert_eq!(
            telegrams(&SyntheticSpec { symbols, ..SyntheticSpec::new(3) }, 1000).len(),
            1000
        );
    }
    let none = Mix { quote: 0, warrant: 0, odd_lot: 0, instrument: 0 };
    let only_warrants = Mix { warrant: 1, ..none };
    assert_eq!(
        telegrams(&SyntheticSpec { symbols: 1, mix: only_warrants, ..SyntheticSpec::new(3) }, 10)
            .len(),
        10
    );
}

#[test]
fn symbols_agree_with_a_plain_map() {
    #[derive(Debug, Default, PartialEq)]
    struct Plain {
        bids: Vec<Level>,
        asks: Vec<Level>,
        volume: u64,
        quotes: u64,
        trade: Level,
    }
    let spec = SyntheticSpec { symbols: 1000, ..SyntheticSpec::new(11) };
    let mut symbols = Symbols::new(4000);
    let mut plain: BTreeMap<(u8, LotKind, Symbol), Plain> = BTreeMap::new();
    fn enter<L: market::twse::Lot>(
        plain: &mut BTreeMap<(u8, LotKind, Symbol), Plain>,
        lot: LotKind,
        book: &market::twse::Book<'_, L>,
    ) {
        let entry = plain.entry((book.business().to_wire(), lot, book.symbol())).or_default();
        entry.quotes += 1;
        entry.volume = book.cumulative_volume();
        if let Some(trade) = book.trade().filter(|trade| trade.quantity > 0) {
            entry.trade = trade;
        }
        if !book.is_trade_only() {
            entry.bids = levels(book.bids());
            entry.asks = levels(book.asks());
        }
    }
    let sent = telegrams(&spec, 100_000);
    for bytes in &sent {
        let telegram = Telegrams::new(bytes).next().expect("one").expect("right");
        match telegram.body() {
            Body::Quote(quote) => enter(&mut plain, LotKind::Round, &quote),
            Body::OddLot(odd) => enter(&mut plain, LotKind::Odd, &odd),
            _ => {}
        }
        assert_ne!(symbols.update(&telegram), Update::Full);
    }
    let mut quotes = 0;
    for ((business, lot, symbol), expected) in &plain {
        let book = symbols.find(*symbol, *business, *lot).expect("entered");
        let found = Plain {
            bids: levels(book.depth.bids()),
            asks: levels(book.depth.asks()),
            volume: book.cumulative_volume,
            quotes: book.quotes,
            trade: book.trade,
        };
        assert_eq!(&found, expected, "{symbol}");
        quotes += book.quotes;
    }
    assert_eq!(quotes, symbols.books().iter().map(|book| book.quotes).sum::<u64>());
    let busiest = symbols.busiest(10);
    assert!(busiest.windows(2).all(|w| w[0].quotes >= w[1].quotes) && busiest.len() == 10);
    assert_eq!(busiest[0].quotes, symbols.books().iter().map(|b| b.quotes).max().expect("some"));
}

#[test]
fn thirty_thousand_symbols_fit_into_64_mib_and_one_too_many_is_refused() {
    // Both lots of every instrument.
    let symbols = Symbols::new(60_000);
    assert!(symbols.memory_bytes() < 64 << 20, "{} bytes", symbols.memory_bytes());

    let mut symbols = Symbols::new(10);
    let sent = telegrams(&SyntheticSpec { symbols: 100, ..SyntheticSpec::new(2) }, 2000);
    let full = sent
        .iter()
        .filter(|bytes| {
            let telegram = Telegrams::new(bytes).next().expect("one").expect("right");
            symbols.update(&telegram) == Update::Full
        })
        .count();
    assert_eq!(symbols.books().len(), 10);
    assert!(full > 100 && symbols.refused() == full as u64);
}

#[test]
fn vectors_update_their_books() {
    let halted =
        "1b00410106040000832531333031202009451903301780810000001558000033500000000000b90d0a";
    let bytes: Vec<u8> = (0..halted.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&halted[at..at + 2], 16).expect("hex"))
        .collect();
    let telegram = Telegrams::new(&bytes).next().expect("one").expect("right");
    let mut symbols = Symbols::new(4);
    assert_eq!(symbols.update(&telegram), Update::Applied(0));
    let code = Symbol::new("1301").expect("a code");
    let book = symbols.find(code, Business::Twse.to_wire(), LotKind::Round).expect("entered");
    assert!(book.limits.is_halted() && book.depth.bids().len() == 0);
    // A halt names a price, but nothing was traded.
    assert_eq!((book.trade.quantity, book.trades, book.cumulative_volume), (0, 0, 1558));
    assert_eq!(book.sequence, 8325);
}

#[test]
fn itch_sessions_are_valid_and_refer_to_live_orders() {
    let spec = MoldSpec { stocks: 50, ..MoldSpec::new(4) };
    let (mut session, mut again) = (MoldSession::new(&spec), MoldSession::new(&spec));
    let (mut buffer, mut same) = ([0; 1200], [0; 1200]);
    let mut live: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut next, mut last) = (1, None);
    let mut kinds = BTreeMap::new();
    while session.sent() < 200_000 {
        let written = session.datagram(&mut buffer, 15).expect("room");
        assert_eq!(again.datagram(&mut same, 15), Some(written));
        assert_eq!(buffer[..written.bytes], same[..written.bytes]);
        let packet = mold::MoldPacket::parse(&buffer[..written.bytes]).expect("right");
        assert_eq!((packet.header().session, packet.header().sequence), (spec.session, next));
        next = packet.header().next_sequence();
        for message in packet.messages() {
            let bytes = message.expect("whole").bytes;
            let message = itch::Message::parse(bytes).expect("right");
            assert!(Some(message.timestamp) >= last);
            last = Some(message.timestamp);
            *kinds.entry(message.kind()).or_insert(0) += 1;
            let take = |live: &mut BTreeMap<u64, u32>, reference, shares: u32| {
                let left = live.get_mut(&reference).expect("a living order");
                *left = left.checked_sub(shares).expect("no more than it has");
                if *left == 0 {
                    live.remove(&reference);
                }
            };
            match message.body {
                itch::Body::AddOrder(add) => {
                    assert_eq!(live.insert(add.reference, add.shares), None);
                }
                itch::Body::OrderExecuted(e) => take(&mut live, e.reference, e.shares),
                itch::Body::OrderCancel(c) => take(&mut live, c.reference, c.shares),
                itch::Body::OrderDelete(d) => assert!(live.remove(&d.reference).is_some()),
                itch::Body::OrderReplace(r) => {
                    assert!(live.remove(&r.original).is_some());
                    assert_eq!(live.insert(r.new, r.shares), None);
                }
                _ => {}
            }
        }
    }
    assert_eq!(next, session.sent() + 1);
    assert_eq!(kinds[&itch::Kind::StockDirectory], 50);
    assert!(kinds.values().sum::<u64>() >= 200_000 && kinds.len() == 9, "{kinds:?}");
    assert_eq!(session.datagram(&mut [0; DATAGRAM_BYTES_MIN - 1], 1), None);
    assert!(session.datagram(&mut [0; DATAGRAM_BYTES_MIN], 5).is_some());
}

#[test]
fn a_trial_is_not_a_trade_and_a_trade_only_telegram_keeps_the_book() {
    let mut symbols = Symbols::new(4);
    let level = |price, quantity| Level { price: Price(price), quantity };
    let mut enter = |status, trade_only, trade, bid: Option<Level>| {
        let quote = QuoteRepr {
            business: Business::Twse,
            format: 6,
            sequence: 1,
            symbol: Symbol::new("2330").expect("a code"),
            time: MatchTime::from_micros(1),
            trade_only,
            limits: PriceLimits(0),
            status: Status(status),
            cumulative_volume: 7,
            trade: Some(trade),
            bids: Levels::new(bid.as_slice()).expect("one at most"),
            asks: Levels::default(),
            lot: std::marker::PhantomData,
        };
        let mut buffer = [0; 200];
        let bytes = quote.write(&mut buffer).expect("it fits");
        let telegram = Telegrams::new(&buffer[..bytes]).next().expect("one").expect("right");
        assert_eq!(symbols.update(&telegram), Update::Applied(0));
        *symbols.book(0).expect("entered")
    };
    let book = enter(0x80, false, level(100_000, 5), Some(level(99_000, 1)));
    assert_eq!((book.trade, book.trial, book.trades), (Level::default(), level(100_000, 5), 0));
    let book = enter(0x10, true, level(101_000, 6), None);
    assert_eq!((book.trade, book.trial, book.trades), (level(101_000, 6), Level::default(), 1));
    assert_eq!(
        levels(book.depth.bids()),
        [level(99_000, 1)],
        "the book comes with a later telegram"
    );
    let book = enter(0x10, false, level(102_000, 1), None);
    assert_eq!((book.depth.bids().len(), book.quotes), (0, 3));
}
