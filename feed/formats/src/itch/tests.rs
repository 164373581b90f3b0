//! Messages byte by byte, and malformed ones.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Locate 7, tracking 2, 09:30:00.000000001.
fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    [&[letter, 0, 7, 0, 2, 0x1f, 0x1a, 0xce, 0xd9, 0xf0, 0x01], body].concat()
}

const STOCK: Stock = match Stock::from_bytes(*b"AAPL    ") {
    Some(stock) => stock,
    None => panic!("it is printable"),
};

/// Each decoded type: its bytes and its fields.
fn known() -> Vec<(Vec<u8>, Body<'static>)> {
    let price = Price(1_912_500);
    let executed = OrderExecuted { reference: 0x0102, shares: 100, match_number: 0x0304, at: None };
    let order = AddOrder {
        reference: 0x0102_0304_0506_0708,
        side: BookSide::Sell,
        shares: 300,
        stock: STOCK,
        price,
        attribution: None,
    };
    let order_bytes = b"\x01\x02\x03\x04\x05\x06\x07\x08S\0\0\x01\x2cAAPL    \0\x1d\x2e\xb4";
    let executed_bytes = b"\0\0\0\0\0\0\x01\x02\0\0\0\x64\0\0\0\0\0\0\x03\x04";
    vec![
        (message(b'S', b"Q"), Body::SystemEvent(SystemEvent { event: b'Q' })),
        (
            message(b'R', b"AAPL    QN\0\0\0\x64NCZ PNN1N\0\0\0\x03Y"),
            Body::StockDirectory(StockDirectory {
                stock: STOCK,
                market_category: b'Q',
                financial_status: b'N',
                round_lot: 100,
                round_lots_only: b'N',
                issue_class: b'C',
                issue_sub_type: *b"Z ",
                authenticity: b'P',
                short_sale_threshold: b'N',
                ipo: b'N',
                luld_tier: b'1',
                etp: b'N',
                etp_leverage: 3,
                inverse: b'Y',
            }),
        ),
        (message(b'A', order_bytes), Body::AddOrder(order)),
        (
            message(b'F', &[&order_bytes[..], b"NSDQ"].concat()),
            Body::AddOrder(AddOrder { attribution: Some(*b"NSDQ"), ..order }),
        ),
        (message(b'E', executed_bytes), Body::OrderExecuted(executed)),
        (
            message(b'C', &[&executed_bytes[..], b"N\0\x1d\x2e\xb4"].concat()),
            Body::OrderExecuted(OrderExecuted {
                at: Some(ExecutionPrice { printable: b'N', price }),
                ..executed
            }),
        ),
        (
            message(b'X', b"\0\0\0\0\0\0\x01\x02\0\0\0\x05"),
            Body::OrderCancel(OrderCancel { reference: 0x0102, shares: 5 }),
        ),
        (
            message(b'D', b"\0\0\0\0\0\0\x01\x02"),
            Body::OrderDelete(OrderDelete { reference: 0x0102 }),
        ),
        (
            message(b'U', b"\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x01\x03\0\0\0\x06\0\x1d\x2e\xb4"),
            Body::OrderReplace(OrderReplace { original: 0x0102, new: 0x0103, shares: 6, price }),
        ),
        (
            message(b'P', b"\0\0\0\0\0\0\0\0B\0\0\0\x07AAPL    \0\x1d\x2e\xb4\0\0\0\0\0\0\x05\x06"),
            Body::Trade(Trade {
                reference: 0,
                side: BookSide::Buy,
                shares: 7,
                stock: STOCK,
                price,
                match_number: 0x0506,
            }),
        ),
        (
            message(b'Q', b"\0\0\0\x01\0\0\0\0AAPL    \0\x1d\x2e\xb4\0\0\0\0\0\0\x05\x07O"),
            Body::CrossTrade(CrossTrade {
                shares: 1 << 32,
                stock: STOCK,
                price,
                match_number: 0x0507,
                cross_type: b'O',
            }),
        ),
        (
            message(b'B', b"\0\0\0\0\0\0\x05\x07"),
            Body::BrokenTrade(BrokenTrade { match_number: 0x0507 }),
        ),
    ]
}

#[test]
fn known_bytes_decode_to_known_messages_and_encode_back() {
    for (bytes, body) in known() {
        let found = Message::parse(&bytes).expect("it is right");
        assert_eq!((found.locate, found.tracking, found.body), (7, 2, body));
        assert_eq!(found.timestamp.to_string(), "09:30:00.000000001");
        assert_eq!(found.kind().to_wire(), bytes[0]);
        let mut again = [0xcc; MAX_BYTES + 1];
        assert_eq!(found.write(&mut again), Ok(bytes.len()));
        assert_eq!(again[..bytes.len()], bytes);
        assert_eq!(again[bytes.len()], 0xcc);
        let short = EncodeError::Short { needed_bytes: bytes.len(), had_bytes: bytes.len() - 1 };
        assert_eq!(found.write(&mut again[..bytes.len() - 1]), Err(short));
    }
    assert_eq!(Price(1_912_500).to_string(), "191.25");
    assert_eq!((STOCK.as_str(), Stock::new("AAPL")), ("AAPL", Some(STOCK)));
    assert_eq!((Stock::new("TOO LONG."), Stock::new("\u{e9}")), (None, None));
}

#[test]
fn sizes_are_those_of_the_specification() {
    let sizes = [
        (b'S', 12),
        (b'R', 39),
        (b'H', 25),
        (b'Y', 20),
        (b'L', 26),
        (b'V', 35),
        (b'W', 12),
        (b'K', 28),
        (b'J', 35),
        (b'h', 21),
        (b'A', 36),
        (b'F', 40),
        (b'E', 31),
        (b'C', 36),
        (b'X', 23),
        (b'D', 19),
        (b'U', 35),
        (b'P', 44),
        (b'Q', 40),
        (b'B', 19),
        (b'I', 50),
        (b'N', 20),
        (b'O', 48),
    ];
    assert_eq!(Kind::ALL.len(), sizes.len());
    for (letter, size) in sizes {
        let kind = Kind::from_wire(letter).expect("it is known");
        assert_eq!((kind.to_wire(), kind.message_bytes()), (letter, size));
        assert!(size <= MAX_BYTES);
    }
    let known = (0..=u8::MAX).filter(|&letter| Kind::from_wire(letter).is_some()).count();
    assert_eq!(known, sizes.len());
}

#[test]
fn other_types_pass_with_the_right_size() {
    for &kind in Kind::ALL {
        let size = kind.message_bytes();
        let bytes = message(kind.to_wire(), &[b'B'; MAX_BYTES][..size - 11]);
        let found = Message::parse(&bytes).expect("it is right");
        assert_eq!(found.kind(), kind);
        let mut again = [0; MAX_BYTES];
        assert_eq!(found.write(&mut again), Ok(size));
        assert_eq!(again[..size], bytes);
        for found_bytes in [size - 1, size + 1, 1] {
            let mut bytes = bytes.clone();
            bytes.resize(found_bytes, b'B');
            assert_eq!(Message::parse(&bytes), Err(ItchError::Size { kind, found_bytes }));
        }
    }
}

#[test]
fn each_fault_is_named_with_its_offset() {
    assert_eq!(Message::parse(&[]), Err(ItchError::Empty));
    assert_eq!(Message::parse(b"z"), Err(ItchError::Type { found: b'z' }));
    for (at, letter) in [(19, b'A'), (19, b'F'), (19, b'P')] {
        let mut bytes = known_bytes(letter);
        bytes[at] = b'X';
        assert_eq!(Message::parse(&bytes), Err(ItchError::Side { at, found: b'X' }));
    }
    for (at, letter) in [(27, b'A'), (24, b'F'), (31, b'P'), (19, b'Q'), (18, b'R')] {
        let mut bytes = known_bytes(letter);
        bytes[at] = 0x1f;
        let error = ItchError::Stock { at, found: 0x1f };
        assert_eq!(Message::parse(&bytes), Err(error));
        assert_eq!((error.offset(), error.name()), (at, "stock"));
    }
}

fn known_bytes(letter: u8) -> Vec<u8> {
    let found = known().into_iter().find(|(bytes, _)| bytes[0] == letter);
    found.expect("it is decoded").0
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let mut buffer = [0; MAX_BYTES];
    let timestamp = Timestamp(0);
    let message = |body| Message { locate: 0, tracking: 0, timestamp, body };
    let large = Price(1 << 32);
    let body = Body::OrderReplace(OrderReplace { original: 1, new: 2, shares: 3, price: large });
    let number = |field, value, max| Err(EncodeError::Number { field, value, max });
    let refused = message(body).write(&mut buffer);
    assert_eq!(refused, number("price", 1 << 32, (1 << 32) - 1));
    let late = Message {
        timestamp: Timestamp(1 << 48),
        ..message(Body::OrderDelete(OrderDelete { reference: 1 }))
    };
    assert_eq!(late.write(&mut buffer), number("timestamp", 1 << 48, (1 << 48) - 1));
    let kind = Kind::RegSho;
    let other = message(Body::Other { kind, bytes: &[0; 8] });
    assert_eq!(other.write(&mut buffer), Err(EncodeError::Size { kind, found_bytes: 8 }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn messages_of_any_content_survive_decoding_and_encoding(
        kind in prop::sample::select(Kind::ALL),
        bytes in prop::collection::vec(any::<u8>(), MAX_BYTES),
    ) {
        let mut bytes = bytes;
        bytes[0] = kind.to_wire();
        bytes.truncate(kind.message_bytes());
        crate::fuzzing::itch_message(&bytes);
        // Printable in stocks and sides; otherwise the decoded types rarely parse.
        for byte in &mut bytes[11..] {
            *byte = if *byte & 1 == 0 { b'B' } else { b'S' };
        }
        prop_assert!(Message::parse(&bytes).is_ok());
        crate::fuzzing::itch_message(&bytes);
    }

    #[test]
    fn hostile_packet_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzzing::mold_itch(&bytes);
    }
}
