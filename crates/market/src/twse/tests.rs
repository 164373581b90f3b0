//! Telegrams of the specification, field by field, and malformed ones.

use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

use super::*;

/// 2330, a trade, five bids and three asks.
const TRADE_AND_BOOK: &str = "\
    1b011301060400004567323333302020090415061278d60000000164230000995000000012340000\
    99500000000250000099000000000175000098500000000477000097500000000669000097000000\
    0001250001000000000000800001005000000006750001015000000004607b0d0a";
/// 2002 at its upper limit.
const AT_UPPER_LIMIT: &str = "\
    1b008601060400064323323030322020102733165041d0a000000119210000138500000019210000\
    13850000000540000013800000000230000013750000000072000013700000000069000013650000\
    0000819c0d0a";
/// 1504 on trial at its lower limit.
const TRIAL_AT_LOWER_LIMIT: &str = "\
    1b0086010604000412343135303420200950232715348a4400000006500000115000000000170000\
    11500000000070000011550000000035000011600000000046000011650000000028000011700000\
    000019460d0a";
/// 1301, halted.
const HALTED: &str = "\
    1b00410106040000832531333031202009451903301780810000001558000033500000000000b90d\
    0a";

const NONE: Limits = Limits(0);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn vectors() -> [Vec<u8>; 4] {
    [TRADE_AND_BOOK, AT_UPPER_LIMIT, TRIAL_AT_LOWER_LIMIT, HALTED].map(hex)
}

fn only(datagram: &[u8]) -> Telegram<'_> {
    let mut all = Telegrams::new(datagram);
    let telegram = all.next().expect("there is one").expect("it is right");
    assert!(all.next().is_none());
    telegram
}

fn quote_of<'a>(telegram: &Telegram<'a>) -> Quote<'a> {
    match telegram.body() {
        Body::Quote(quote) => quote,
        other => panic!("no quote: {other:?}"),
    }
}

fn level(price: u64, quantity: u64) -> Level {
    Level { price: Price(price), quantity }
}

/// Sets length, checksum and terminator.
fn sealed(mut telegram: Vec<u8>) -> Vec<u8> {
    let bytes = telegram.len();
    let pair = |number: usize| (((number / 10) << 4) | (number % 10)) as u8;
    [telegram[1], telegram[2]] = [pair(bytes / 100), pair(bytes % 100)];
    telegram[bytes - 3] = telegram[1..bytes - 3].iter().fold(0, |sum, byte| sum ^ byte);
    telegram[bytes - 2..].copy_from_slice(&TERMINATOR);
    telegram
}

/// The only error of the bytes.
fn only_fault(datagram: &[u8]) -> (usize, Fault) {
    let all: Vec<_> = Telegrams::new(datagram).collect();
    match all[..] {
        [Err(TelegramError { offset: 0, skipped_bytes, field_offset, fault })] => {
            assert_eq!(skipped_bytes, datagram.len());
            (field_offset, fault)
        }
        _ => panic!("not one error: {all:?}"),
    }
}

#[test]
fn trade_and_book_decode_to_the_known_fields() {
    let bytes = hex(TRADE_AND_BOOK);
    assert_eq!(bytes.len(), 113);
    let telegram = only(&bytes);
    assert_eq!(telegram.business(), Business::Twse);
    assert_eq!((telegram.format(), telegram.version(), telegram.sequence()), (6, 4, 4567));
    assert_eq!((telegram.offset(), telegram.bytes()), (0, &bytes[..]));
    let quote = quote_of(&telegram);
    assert_eq!(quote.symbol().as_str(), "2330");
    assert_eq!(quote.symbol(), Symbol::new("2330").expect("it is a code"));
    let time = quote.time().expect("the feed goes on");
    assert_eq!(time.to_string(), "09:04:15.061278");
    assert_eq!(time.micros(), ((9 * 60 + 4) * 60 + 15) * 1_000_000 + 61_278);
    assert!(!quote.is_end_of_feed() && !quote.is_trade_only());
    assert_eq!((quote.limits(), quote.status()), (NONE, Status(0)));
    assert_eq!(quote.cumulative_volume(), 16_423);
    assert_eq!(quote.trade(), Some(level(995_000, 1234)));
    let bids: Vec<Level> = quote.bids().collect();
    assert_eq!(
        bids,
        [
            level(995_000, 250),
            level(990_000, 175),
            level(985_000, 477),
            level(975_000, 669),
            level(970_000, 125),
        ]
    );
    let asks: Vec<Level> = quote.asks().collect();
    assert_eq!(asks, [level(1_000_000, 80), level(1_005_000, 675), level(1_015_000, 460)]);
    let prices: Vec<String> = quote.asks().map(|level| level.price.to_string()).collect();
    assert_eq!(prices, ["100.00", "100.50", "101.50"]);
}

#[test]
fn upper_limit_decodes_to_the_known_fields() {
    let bytes = hex(AT_UPPER_LIMIT);
    assert_eq!(bytes.len(), 86);
    let telegram = only(&bytes);
    assert_eq!(telegram.sequence(), 64_323);
    let quote = quote_of(&telegram);
    assert_eq!(quote.symbol().as_str(), "2002");
    assert_eq!(quote.time().expect("the feed goes on").to_string(), "10:27:33.165041");
    let limits = quote.limits();
    assert_eq!((limits.trade(), limits.bid(), limits.ask()), (Limit::Up, Limit::Up, Limit::None));
    assert!(!limits.is_halted());
    assert_eq!(quote.status(), Status(0));
    assert_eq!(quote.cumulative_volume(), 11_921);
    assert_eq!(quote.trade(), Some(level(138_500, 1921)));
    let bids: Vec<Level> = quote.bids().collect();
    assert_eq!(
        bids,
        [
            level(138_500, 540),
            level(138_000, 230),
            level(137_500, 72),
            level(137_000, 69),
            level(136_500, 81),
        ]
    );
    assert_eq!(quote.asks().len(), 0);
}

#[test]
fn trial_at_lower_limit_decodes_to_the_known_fields() {
    let bytes = hex(TRIAL_AT_LOWER_LIMIT);
    assert_eq!(bytes.len(), 86);
    let telegram = only(&bytes);
    assert_eq!(telegram.sequence(), 41_234);
    let quote = quote_of(&telegram);
    assert_eq!(quote.symbol().as_str(), "1504");
    assert_eq!(quote.time().expect("the feed goes on").to_string(), "09:50:23.271534");
    assert_eq!(quote.limits(), Limits(0x44));
    assert_eq!((quote.limits().trade(), quote.limits().ask()), (Limit::Down, Limit::Down));
    assert_eq!(quote.limits().bid(), Limit::None);
    assert_eq!(quote.cumulative_volume(), 650);
    assert_eq!(quote.trade(), Some(level(115_000, 17)));
    assert_eq!(quote.bids().len(), 0);
    let asks: Vec<Level> = quote.asks().collect();
    assert_eq!(
        asks,
        [
            level(115_000, 70),
            level(115_500, 35),
            level(116_000, 46),
            level(116_500, 28),
            level(117_000, 19),
        ]
    );
}

#[test]
fn halt_decodes_to_the_known_fields() {
    let bytes = hex(HALTED);
    assert_eq!(bytes.len(), 41);
    let telegram = only(&bytes);
    assert_eq!(telegram.sequence(), 8325);
    let quote = quote_of(&telegram);
    assert_eq!(quote.symbol().as_str(), "1301");
    assert_eq!(quote.time().expect("the feed goes on").to_string(), "09:45:19.033017");
    assert_eq!(quote.limits(), Limits(0x81));
    assert!(quote.limits().is_halted());
    assert_eq!((quote.limits().trade(), quote.limits().halt()), (Limit::Up, Limit::Down));
    assert_eq!(quote.cumulative_volume(), 1558);
    assert_eq!(quote.trade(), Some(level(335_000, 0)));
    assert_eq!((quote.bids().len(), quote.asks().len()), (0, 0));
}

#[test]
fn vectors_survive_decoding_and_encoding() {
    for bytes in vectors() {
        let repr = QuoteRepr::of(&quote_of(&only(&bytes)));
        assert_eq!(repr.telegram_bytes(), bytes.len());
        let mut again = [0xcc; 200];
        assert_eq!(repr.write(&mut again), Ok(bytes.len()));
        assert_eq!(again[..bytes.len()], bytes);
        assert_eq!(again[bytes.len()], 0xcc);
        let short = EncodeError::Short { needed_bytes: bytes.len(), had_bytes: bytes.len() - 1 };
        assert_eq!(repr.write(&mut again[..bytes.len() - 1]), Err(short));
    }
}

#[test]
fn warrants_are_quotes_and_other_versions_are_framed() {
    let mut bytes = hex(HALTED);
    bytes[4] = 0x17;
    let bytes = sealed(bytes);
    let telegram = only(&bytes);
    assert_eq!(telegram.format(), FORMAT_WARRANT);
    assert_eq!(quote_of(&telegram).format(), FORMAT_WARRANT);
    for (at, byte) in [(5, 0x03), (4, 0x20), (3, 0x07)] {
        let mut bytes = hex(HALTED);
        bytes[at] = byte;
        let bytes = sealed(bytes);
        let telegram = only(&bytes);
        let Body::Other(body) = telegram.body() else { panic!("it is known: {telegram:?}") };
        assert_eq!(body, &bytes[10..38]);
    }
}

#[test]
fn end_of_feed_has_no_time() {
    let end = QuoteRepr {
        symbol: Symbol::ZEROS,
        time: None,
        trade: None,
        ..QuoteRepr::of(&quote_of(&only(&hex(HALTED))))
    };
    let mut bytes = [0; 64];
    let len = end.write(&mut bytes).expect("it is sound");
    assert_eq!(len, 32);
    assert_eq!(bytes[10..22], *b"000000\x99\x99\x99\x99\x99\x99");
    let telegram = only(&bytes[..len]);
    let quote = quote_of(&telegram);
    assert!(quote.is_end_of_feed());
    assert_eq!(quote.time(), None);
    assert_eq!(QuoteRepr::of(&quote), end);

    let stranger = QuoteRepr { symbol: Symbol::new("2330").expect("a code"), ..end };
    assert!(matches!(stranger.write(&mut bytes), Err(EncodeError::Contradiction { .. })));
}

#[test]
fn best_level_without_a_price_is_market_orders() {
    let repr = QuoteRepr {
        bids: Levels::new(&[level(0, 5), level(335_000, 7)]).expect("two fit"),
        ..QuoteRepr::of(&quote_of(&only(&hex(HALTED))))
    };
    let mut bytes = [0; 64];
    let len = repr.write(&mut bytes).expect("it is sound");
    let telegram = only(&bytes[..len]);
    let market: Vec<bool> = quote_of(&telegram).bids().map(|level| level.price.is_zero()).collect();
    assert_eq!(market, [true, false]);
}

#[test]
fn several_telegrams_share_a_datagram() {
    let all = vectors();
    let datagram = all.concat();
    let found: Vec<Telegram<'_>> =
        Telegrams::new(&datagram).map(|telegram| telegram.expect("it is right")).collect();
    assert_eq!(found.len(), 4);
    let mut end = 0;
    for (telegram, bytes) in found.iter().zip(&all) {
        assert_eq!((telegram.offset(), telegram.bytes()), (end, &bytes[..]));
        end += bytes.len();
    }
    assert!(Telegrams::new(&[]).next().is_none());
}

#[test]
fn each_fault_is_named_with_its_offset() {
    let good = hex(TRADE_AND_BOOK);
    let broken = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let resealed = |at: usize, byte: u8| sealed(broken(at, byte));
    let digit = |field, found| Fault::Digit { field, found };

    assert_eq!(only_fault(&broken(0, 0)), (0, Fault::Escape { found: 0 }));
    assert_eq!(only_fault(&good[..12]), (0, Fault::Short { had_bytes: 12 }));
    assert_eq!(only_fault(&[7; 12]), (0, Fault::Escape { found: 7 }));
    for (at, field) in [
        (1, "length"),
        (2, "length"),
        (3, "business"),
        (4, "format"),
        (5, "version"),
        (6, "sequence"),
        (9, "sequence"),
    ] {
        assert_eq!(only_fault(&broken(at, 0x0a)), (at, digit(field, 0x0a)));
    }
    let length = Fault::Length { declared_bytes: 113, had_bytes: 112 };
    assert_eq!(only_fault(&good[..112]), (1, length));
    let length = Fault::Length { declared_bytes: 12, had_bytes: 113 };
    let mut bytes = good.clone();
    bytes[1..3].copy_from_slice(&[0x00, 0x12]);
    assert_eq!(only_fault(&bytes), (1, length));
    assert_eq!(only_fault(&broken(112, 0)), (111, Fault::Terminator { found: [0x0d, 0] }));
    let checksum = Fault::Checksum { expected: 0x7b, found: 0x7c };
    assert_eq!(only_fault(&broken(110, 0x7c)), (110, checksum));

    let size = Fault::Size { expected_bytes: 104, found_bytes: 113 };
    assert_eq!(only_fault(&resealed(22, 0xd4)), (1, size));
    let mut bytes = good.clone();
    bytes.drain(30..110);
    let size = Fault::Size { expected_bytes: 113, found_bytes: 33 };
    assert_eq!(only_fault(&sealed(bytes)), (1, size));
    let mut bytes = good.clone();
    bytes.drain(20..110);
    assert!(matches!(only_fault(&sealed(bytes)), (1, Fault::Size { found_bytes: 23, .. })));
    assert_eq!(only_fault(&resealed(22, 0xe6)), (22, Fault::Levels { side: "bid", found: 6 }));
    assert_eq!(only_fault(&resealed(22, 0xde)), (22, Fault::Levels { side: "ask", found: 7 }));
    assert_eq!(only_fault(&resealed(22, 0xd7)), (22, Fault::TradeOnly { levels: 8 }));
    assert_eq!(only_fault(&resealed(12, 0x80)), (12, Fault::Symbol { found: 0x80 }));
    assert_eq!(only_fault(&resealed(17, 0x60)).0, 16);
    let time = Fault::Time { found: [0x24, 0x04, 0x15, 0x06, 0x12, 0x78] };
    assert_eq!(only_fault(&resealed(16, 0x24)), (16, time));
    assert_eq!(only_fault(&resealed(19, 0xa0)), (19, digit("time", 0xa0)));
    let mut bytes = good.clone();
    bytes[16..22].fill(0x99);
    assert_eq!(only_fault(&sealed(bytes)), (16, Fault::Time { found: [0x99; 6] }));
    for (at, field) in [
        (25, "cumulative volume"),
        (28, "cumulative volume"),
        (29, "price"),
        (33, "price"),
        (34, "quantity"),
        (109, "quantity"),
    ] {
        assert_eq!(only_fault(&resealed(at, 0xf0)), (at, digit(field, 0xf0)));
    }
}

#[test]
fn errors_name_offset_and_fault() {
    let mut bytes = [hex(HALTED), hex(HALTED)].concat();
    bytes[41 + 38] ^= 1;
    let error = Telegrams::new(&bytes).find_map(Result::err).expect("one is broken");
    assert_eq!(error.to_string(), "the checksum at offset 79 is 0xb8, expected 0xb9");
    assert_eq!((error.offset, error.skipped_bytes, error.fault.name()), (41, 41, "checksum"));
}

#[test]
fn wrong_length_does_not_hide_the_next_telegram() {
    let mut bytes = vectors().concat();
    // 113 + 86: the terminator at this offset is the next telegram's.
    [bytes[1], bytes[2]] = [0x01, 0x99];
    let all: Vec<_> = Telegrams::new(&bytes).collect();
    assert_eq!(all.len(), 4);
    let error = all[0].as_ref().expect_err("its length is wrong");
    assert!(matches!(error.fault, Fault::Checksum { .. }));
    assert_eq!(error.skipped_bytes, 113);
    assert!(all[1..].iter().all(Result::is_ok));
}

#[test]
fn truncation_loses_one_telegram() {
    let all = vectors();
    for cut in 1..113 {
        let datagram = [&all[0][..cut], &all[1], &all[2], &all[3]].concat();
        let found: Vec<_> = Telegrams::new(&datagram).collect();
        assert_eq!(found.len(), 4, "{cut} bytes left: {found:?}");
        let error = found[0].as_ref().expect_err("it is cut");
        assert_eq!((error.offset, error.skipped_bytes), (0, cut));
        assert!(found[1..].iter().all(Result::is_ok));
    }
}

#[test]
fn two_broken_neighbours_are_two_errors() {
    let all = vectors();
    let mut datagram = all.concat();
    datagram[112] = 0;
    datagram[113 + 85] = 0;
    let found: Vec<_> = Telegrams::new(&datagram).collect();
    let offsets: Vec<usize> =
        found.iter().filter_map(|found| Some(found.as_ref().err()?.offset)).collect();
    assert_eq!((offsets, found.len()), (vec![0, 113], 4));
}

#[test]
fn escape_in_a_length_does_not_start_a_telegram() {
    for telegram in [hex(HALTED), instrument_bytes()] {
        for at in [1, 2] {
            let mut datagram = [telegram.clone(), hex(HALTED)].concat();
            datagram[at] = ESCAPE;
            let found: Vec<_> = Telegrams::new(&datagram).collect();
            assert_eq!(found.len(), 2, "{found:?}");
            let error = found[0].as_ref().expect_err("its length is broken");
            assert_eq!(error.skipped_bytes, telegram.len());
        }
    }
}

#[test]
fn odd_lot_decodes_to_the_known_fields() {
    let bytes =
        sealed(hex("1b0000 02 23 01 00000007 303035302020 131500000001 95 00 10 000123456789 \
         0001234500 000000000012 0001234000 000000000345 0001235000 123456789012 \
         0001235500 000000000001 00 0000"));
    let mut bytes = bytes;
    bytes[22] = 0x94;
    let bytes = sealed(bytes);
    let telegram = only(&bytes);
    let Body::OddLot(odd_lot) = telegram.body() else { panic!("no odd lot: {telegram:?}") };
    assert_eq!(odd_lot.business(), Business::Tpex);
    assert_eq!((odd_lot.format(), odd_lot.sequence()), (23, 7));
    assert_eq!(odd_lot.symbol().as_str(), "0050");
    assert_eq!(odd_lot.time().expect("the feed goes on").to_string(), "13:15:00.000001");
    assert!(odd_lot.status().is_continuous());
    assert_eq!(odd_lot.cumulative_volume(), 123_456_789);
    assert_eq!(odd_lot.trade(), Some(level(1_234_500, 12)));
    assert_eq!(odd_lot.bids().collect::<Vec<_>>(), [level(1_234_000, 345)]);
    assert_eq!(
        odd_lot.asks().collect::<Vec<_>>(),
        [level(1_235_000, 123_456_789_012), level(1_235_500, 1)]
    );
    let mut again = [0; 155];
    assert_eq!(OddLotRepr::of(&odd_lot).write(&mut again), Ok(bytes.len()));
    assert_eq!(again[..bytes.len()], bytes);
}

#[test]
fn lengths_of_books_match_the_manual() {
    let quote = QuoteRepr::of(&quote_of(&only(&hex(HALTED))));
    let five = Levels::new(&[level(1, 1); 5]).expect("five fit");
    assert_eq!(Levels::new(&[level(1, 1); 6]), None);
    let none = QuoteRepr { trade: None, ..quote };
    let all = QuoteRepr { bids: five, asks: five, ..quote };
    assert_eq!((none.telegram_bytes(), all.telegram_bytes()), (32, 131));
    let odd_lot = odd_lot_repr();
    let none = OddLotRepr { trade: None, ..odd_lot };
    let all = OddLotRepr { trade: Some(level(1, 1)), bids: five, asks: five, ..odd_lot };
    assert_eq!((none.telegram_bytes(), all.telegram_bytes()), (34, 155));
}

fn odd_lot_repr() -> OddLotRepr {
    let quote = QuoteRepr::of(&quote_of(&only(&hex(HALTED))));
    OddLotRepr {
        business: quote.business,
        format: FORMAT_ODD_LOT,
        sequence: quote.sequence,
        symbol: quote.symbol,
        time: quote.time,
        trade_only: false,
        limits: quote.limits,
        status: quote.status,
        cumulative_volume: quote.cumulative_volume,
        trade: None,
        bids: Levels::default(),
        asks: Levels::default(),
        lot: core::marker::PhantomData,
    }
}

#[test]
fn numbers_with_too_many_digits_are_refused() {
    let quote = QuoteRepr::of(&quote_of(&only(&hex(HALTED))));
    let mut buffer = [0; 200];
    let max = 99_999_999;
    let number = |field, value, max| Err(EncodeError::Number { field, value, max });
    let repr = QuoteRepr { cumulative_volume: max + 1, ..quote };
    assert_eq!(repr.write(&mut buffer), number("cumulative volume", max + 1, max));
    let repr = QuoteRepr { trade: Some(level(1, max + 1)), ..quote };
    assert_eq!(repr.write(&mut buffer), number("quantity", max + 1, max));
    let repr = QuoteRepr { trade: Some(level(10_000_000_000, 1)), ..quote };
    assert_eq!(repr.write(&mut buffer), number("price", 10_000_000_000, 9_999_999_999));
    let repr = QuoteRepr { sequence: MAX_SEQUENCE + 1, ..quote };
    assert_eq!(repr.write(&mut buffer), number("sequence", max + 1, max));
    let repr = QuoteRepr { business: Business::Other(100), ..quote };
    assert_eq!(repr.write(&mut buffer), number("business", 100, 99));
    let repr = QuoteRepr { format: FORMAT_ODD_LOT, ..quote };
    assert!(matches!(repr.write(&mut buffer), Err(EncodeError::Contradiction { .. })));
    let repr = QuoteRepr {
        trade_only: true,
        asks: Levels::new(&[level(1, 1)]).expect("one fits"),
        ..quote
    };
    assert!(matches!(repr.write(&mut buffer), Err(EncodeError::Contradiction { .. })));
}

/// 2881 of the Stock Exchange, version 09, built by position from the manual's table.
fn instrument_bytes() -> Vec<u8> {
    let mut bytes = vec![b' '; 114];
    bytes[..10].copy_from_slice(&[0x1b, 0x01, 0x14, 0x01, 0x01, 0x09, 0, 0, 0x01, 0x23]);
    bytes[10..16].copy_from_slice(b"2881  ");
    bytes[16..32].copy_from_slice(&[
        0xb4, 0x49, 0xa8, 0xb9, 0xaa, 0xf7, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32,
    ]);
    bytes[32..36].copy_from_slice(b"17  ");
    bytes[38] = 0x03;
    bytes[39] = b'0';
    bytes[40..45].copy_from_slice(&[0x00, 0x00, 0x89, 0x50, 0x00]);
    bytes[45..50].copy_from_slice(&[0x00, 0x00, 0x98, 0x40, 0x00]);
    bytes[50..55].copy_from_slice(&[0x00, 0x00, 0x80, 0x60, 0x00]);
    bytes[58] = b'A';
    bytes[59] = b'Y';
    bytes[61..64].copy_from_slice(&[0x00, 0x00, 0x05]);
    bytes[65..103].fill(0);
    bytes[104..107].copy_from_slice(&[0x00, 0x10, 0x00]);
    bytes[107..110].copy_from_slice(b"USD");
    bytes[110] = 0x01;
    sealed(bytes)
}

#[test]
fn instrument_decodes_to_the_known_fields() {
    let bytes = instrument_bytes();
    let telegram = only(&bytes);
    let Body::Instrument(it) = telegram.body() else { panic!("no instrument: {telegram:?}") };
    assert_eq!((it.business(), it.version(), it.sequence()), (Business::Twse, 9, 123));
    assert_eq!(it.symbol().as_str(), "2881");
    assert_eq!(it.name_big5()[..6], [0xb4, 0x49, 0xa8, 0xb9, 0xaa, 0xf7]);
    assert_eq!((it.industry(), it.category()), (*b"17", *b"  "));
    assert_eq!((it.marker(), it.count()), (Marker::Instrument, None));
    assert_eq!((it.anomaly(), it.class(), it.board()), (3, None, Some(b'0')));
    let prices =
        [it.reference(), it.upper_limit(), it.lower_limit()].map(|price| price.to_string());
    assert_eq!(prices, ["89.50", "98.40", "80.60"]);
    assert_eq!(it.marks(), Marks(*b"   AY "));
    assert_eq!(it.match_cycle_s(), 5);
    assert_eq!((it.warrant_mark(), it.warrant()), (b' ', Warrant::default()));
    assert_eq!(it.foreign(), Some(b' '));
    assert_eq!((it.trading_unit(), it.currency(), it.line()), (1000, *b"USD", 1));
}

#[test]
fn taipei_exchange_puts_a_class_before_the_board() {
    let mut bytes = instrument_bytes();
    bytes[3] = 0x02;
    bytes.remove(103);
    bytes.insert(39, b'1');
    let bytes = sealed(bytes);
    let telegram = only(&bytes);
    let Body::Instrument(it) = telegram.body() else { panic!("no instrument: {telegram:?}") };
    assert_eq!((it.class(), it.board(), it.foreign()), (Some(b'1'), Some(b'0'), None));
    assert_eq!(it.reference().to_string(), "89.50");
    assert_eq!((it.trading_unit(), it.line()), (1000, 1));
}

#[test]
fn older_instrument_has_no_board() {
    let mut bytes = instrument_bytes();
    bytes[5] = 0x08;
    bytes.remove(39);
    let bytes = sealed(bytes);
    assert_eq!(bytes.len(), 113);
    let telegram = only(&bytes);
    let Body::Instrument(it) = telegram.body() else { panic!("no instrument: {telegram:?}") };
    assert_eq!((it.version(), it.board(), it.foreign()), (8, None, Some(b' ')));
    assert_eq!(it.upper_limit().to_string(), "98.40");
}

#[test]
fn end_of_a_cycle_has_the_number_of_instruments() {
    let mut bytes = instrument_bytes();
    bytes[10..16].copy_from_slice(b"001043");
    bytes[36..38].copy_from_slice(b"AL");
    let bytes = sealed(bytes);
    let telegram = only(&bytes);
    let Body::Instrument(it) = telegram.body() else { panic!("no instrument: {telegram:?}") };
    assert_eq!((it.marker(), it.count()), (Marker::All, Some(1043)));
}

#[test]
fn faults_of_instruments_are_named() {
    let resealed = |at: usize, byte: u8| {
        let mut bytes = instrument_bytes();
        bytes[at] = byte;
        sealed(bytes)
    };
    for (at, field) in [
        (38, "anomaly"),
        (40, "reference price"),
        (49, "upper limit"),
        (54, "lower limit"),
        (61, "match cycle"),
        (65, "warrant"),
        (102, "warrant"),
        (104, "trading unit"),
        (110, "line"),
    ] {
        assert_eq!(only_fault(&resealed(at, 0xa0)), (at, Fault::Digit { field, found: 0xa0 }));
    }
    assert_eq!(only_fault(&resealed(10, 7)), (10, Fault::Symbol { found: 7 }));
    let mut bytes = instrument_bytes();
    bytes.push(0);
    let size = Fault::Size { expected_bytes: 114, found_bytes: 115 };
    assert_eq!(only_fault(&sealed(bytes)), (1, size));
    assert_eq!(
        only_fault(&resealed(5, 8)),
        (1, Fault::Size { expected_bytes: 113, found_bytes: 114 })
    );
}

#[test]
fn symbols_are_printable_and_trimmed() {
    assert_eq!(Symbol::new("00632R").expect("it is a code").as_str(), "00632R");
    assert_eq!(format!("{:>6}|", Symbol::new("2330").expect("it is a code")), "  2330|");
    assert_eq!(Symbol::new(""), None);
    assert_eq!(Symbol::new("1234567"), None);
    assert_eq!(Symbol::new("23\n0"), None);
    assert_eq!(Symbol::from_bytes(*b"2330\xff "), None);
    let (low, high) = (Symbol::new("1101").expect("a code"), Symbol::new("9958").expect("a code"));
    assert!(low.to_u64() < high.to_u64() && high.to_u64() < 1 << 48);
}

fn any_symbol() -> impl Strategy<Value = Symbol> {
    prop::array::uniform6(b' '..=b'~').prop_map(|code| Symbol::from_bytes(code).expect("printable"))
}

fn any_levels(max: u64) -> impl Strategy<Value = Levels> {
    prop::collection::vec(any_level(max), 0..=5)
        .prop_map(|all| Levels::new(&all).expect("five fit"))
}

fn any_level(max: u64) -> impl Strategy<Value = Level> {
    (0..10_000_000_000u64, 0..max).prop_map(|(price, quantity)| level(price, quantity))
}

fn any_book<L: Lot>(format: impl Strategy<Value = u8>) -> impl Strategy<Value = Repr<L>> {
    let max = 100u64.pow(L::QUANTITY_BYTES as u32);
    let head = (1..=2u8, format, 0..=MAX_SEQUENCE, any_symbol());
    let state = (any::<bool>(), any::<u8>(), any::<u8>(), 0..max);
    let time = (0..MatchTime::DAY_MICROS, 0..20u8);
    let levels = (prop::option::of(any_level(max)), any_levels(max), any_levels(max));
    (head, time, state, levels).prop_map(|(head, (micros, end), state, (trade, bids, asks))| {
        let alone = state.0 && L::HAS_TRADE_ONLY;
        Repr {
            business: Business::from_wire(head.0),
            format: head.1,
            sequence: head.2,
            symbol: if end == 0 { Symbol::ZEROS } else { head.3 },
            time: MatchTime::from_micros(micros).filter(|_| end > 0),
            trade_only: state.0,
            limits: Limits(state.1),
            status: Status(state.2),
            cumulative_volume: state.3,
            trade,
            bids: if alone { Levels::default() } else { bids },
            asks: if alone { Levels::default() } else { asks },
            lot: core::marker::PhantomData,
        }
    })
}

fn any_quote() -> impl Strategy<Value = QuoteRepr> {
    any_book(prop::sample::select(vec![FORMAT_QUOTE, FORMAT_WARRANT]))
}

fn any_instrument() -> impl Strategy<Value = InstrumentRepr> {
    let price = || (0..10_000_000_000u64).prop_map(Price);
    // No control characters: an escape in a text could be taken for a telegram's.
    let text = || prop::collection::vec(32u8.., 32);
    let warrant = (
        (price(), price(), price(), price(), price(), price()),
        (0..100_000_000u32, 0..100_000_000u32),
    )
        .prop_map(
            |((strike, exercised, cancelled, outstanding, upper, lower), (ratio, expiry))| {
                Warrant {
                    strike,
                    exercised: exercised.0,
                    cancelled: cancelled.0,
                    outstanding: outstanding.0,
                    ratio_hundredths: ratio,
                    upper_barrier: upper,
                    lower_barrier: lower,
                    expiry,
                }
            },
        );
    let head = (1..=2u8, 8..=9u8, 0..=MAX_SEQUENCE, any_symbol(), text(), 0..100u8);
    let numbers = (price(), price(), price(), 0..1_000_000u32, 0..1_000_000u32, 0..100u8);
    (head, numbers, warrant).prop_map(|(head, numbers, warrant)| {
        let (business, text) = (Business::from_wire(head.0), head.4);
        let pair = |at: usize| [text[at], text[at + 1]];
        let tpex = business == Business::Tpex;
        InstrumentRepr {
            business,
            version: head.1,
            sequence: head.2,
            symbol: head.3,
            name_big5: core::array::from_fn(|at| text[at]),
            industry: pair(16),
            category: pair(18),
            marker: Marker::from_wire(pair(20)),
            anomaly: head.5,
            class: tpex.then_some(text[22]),
            board: (head.1 >= 9).then_some(text[23]),
            reference: numbers.0,
            upper_limit: numbers.1,
            lower_limit: numbers.2,
            marks: Marks(core::array::from_fn(|at| text[24 + at])),
            match_cycle_s: numbers.3,
            warrant_mark: text[30],
            warrant,
            foreign: (!tpex).then_some(text[31]),
            trading_unit: numbers.4,
            currency: [text[0], text[1], text[2]],
            line: numbers.5,
        }
    })
}

/// The lower byte of the length becomes an escape, and the digits after it read as a header: business
/// 1 and format 23 as a length of 123, which ends amid the next telegram.
#[test]
fn a_length_digit_that_became_an_escape_starts_no_telegram() {
    let write = |format, version, body: &[u8]| {
        let business = Business::Other(1);
        let repr = OtherRepr { business, format, version, sequence: 0, body };
        let mut bytes = vec![0; 256];
        let len = repr.write(&mut bytes).expect("it is sound");
        bytes.truncate(len);
        bytes
    };
    let broken = write(23, 1, &[0; 54]);
    let mut datagram = [broken.clone(), write(8, 1, &[b' '; 101])].concat();
    datagram[2] = ESCAPE;
    let found: Vec<_> = Telegrams::new(&datagram).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].as_ref().unwrap_err().skipped_bytes, broken.len());
    assert_eq!(found[1].as_ref().unwrap().offset(), broken.len());
}

/// Bytes of an arbitrary telegram.
fn any_telegram() -> impl Strategy<Value = Vec<u8>> {
    let written = |write: &dyn Fn(&mut [u8]) -> Result<usize, EncodeError>| {
        let mut buffer = vec![0; 256];
        let len = write(&mut buffer).expect("it is sound");
        buffer.truncate(len);
        buffer
    };
    let other = (0..100u8, 0..100u8, 0..=MAX_SEQUENCE, prop::collection::vec(32u8.., 0..200));
    prop_oneof![
        any_quote().prop_map(move |repr| written(&|buffer| repr.write(buffer))),
        any_book::<SingleShares>(Just(FORMAT_ODD_LOT))
            .prop_map(move |repr| written(&|buffer| repr.write(buffer))),
        any_instrument().prop_map(move |repr| written(&|buffer| repr.write(buffer))),
        other.prop_map(move |(format, version, sequence, body)| {
            let business = Business::Other(3);
            let repr = OtherRepr { business, format, version, sequence, body: &body };
            written(&|buffer| repr.write(buffer))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn quotes_survive_the_wire(repr in any_quote()) {
        let mut bytes = [0; 131];
        let len = repr.write(&mut bytes).expect("it is sound");
        let telegram = only(&bytes[..len]);
        prop_assert_eq!(QuoteRepr::of(&quote_of(&telegram)), repr);
    }

    #[test]
    fn odd_lots_survive_the_wire(repr in any_book::<SingleShares>(Just(FORMAT_ODD_LOT))) {
        let mut bytes = [0; 155];
        let len = repr.write(&mut bytes).expect("it is sound");
        let telegram = only(&bytes[..len]);
        let Body::OddLot(odd_lot) = telegram.body() else { panic!("no odd lot: {telegram:?}") };
        prop_assert_eq!(OddLotRepr::of(&odd_lot), repr);
    }

    #[test]
    fn instruments_survive_the_wire(repr in any_instrument()) {
        let mut bytes = [0; 114];
        let len = repr.write(&mut bytes).expect("it is sound");
        let telegram = only(&bytes[..len]);
        let Body::Instrument(it) = telegram.body() else { panic!("no instrument: {telegram:?}") };
        prop_assert_eq!(InstrumentRepr::of(&it), repr);
    }

    #[test]
    fn one_broken_byte_costs_one_telegram(
        telegrams in prop::collection::vec(any_telegram(), 1..6),
        which: prop::sample::Index,
        at: prop::sample::Index,
        flip in 1..=255u8,
    ) {
        let broken = which.index(telegrams.len());
        let starts: Vec<usize> = telegrams
            .iter()
            .scan(0, |end, bytes| { *end += bytes.len(); Some(*end - bytes.len()) })
            .collect();
        let mut datagram = telegrams.concat();
        datagram[starts[broken] + at.index(telegrams[broken].len())] ^= flip;
        let found: Vec<_> = Telegrams::new(&datagram).collect();
        prop_assert_eq!(found.len(), telegrams.len(), "{:?}", found);
        for (number, found) in found.iter().enumerate() {
            match found {
                Ok(telegram) => {
                    prop_assert!(number != broken);
                    prop_assert_eq!(telegram.offset(), starts[number]);
                }
                Err(error) => {
                    prop_assert_eq!(number, broken);
                    prop_assert_eq!(error.offset, starts[number]);
                    prop_assert_eq!(error.skipped_bytes, telegrams[number].len());
                }
            }
        }
    }

    #[test]
    fn hostile_datagram_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzzing::twse(&bytes);
    }

    #[test]
    fn telegrams_in_any_mixture_hold(
        telegrams in prop::collection::vec(any_telegram(), 1..6),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut datagram = telegrams.concat();
        for (at, byte) in noise {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        crate::fuzzing::twse(&datagram);
    }
}
