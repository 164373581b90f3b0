//! Telegrams of the specification, field by field, and malformed ones.

mod framing;
mod instrument;
mod odd_lot;
mod random;

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

const NONE: PriceLimits = PriceLimits(0);

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
fn only_fault(datagram: &[u8]) -> (usize, TelegramFault) {
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
    assert_eq!(quote.limits(), PriceLimits(0x44));
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
    assert_eq!(quote.limits(), PriceLimits(0x81));
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
