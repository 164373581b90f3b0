//! Basic data of an instrument.

use super::*;

/// 2881 of the Stock Exchange, version 09, built by position from the manual's table.
pub(super) fn instrument_bytes() -> Vec<u8> {
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
        assert_eq!(
            only_fault(&resealed(at, 0xa0)),
            (at, TelegramFault::Digit { field, found: 0xa0 })
        );
    }
    assert_eq!(only_fault(&resealed(10, 7)), (10, TelegramFault::Symbol { found: 7 }));
    let mut bytes = instrument_bytes();
    bytes.push(0);
    let size = TelegramFault::Size { expected_bytes: 114, found_bytes: 115 };
    assert_eq!(only_fault(&sealed(bytes)), (1, size));
    assert_eq!(
        only_fault(&resealed(5, 8)),
        (1, TelegramFault::Size { expected_bytes: 113, found_bytes: 114 })
    );
}
