//! Odd lots, and the lengths of books.

use super::*;

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
