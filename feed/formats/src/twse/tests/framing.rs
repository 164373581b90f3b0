//! Telegrams in a datagram: their bounds, their faults, and what a fault costs.

use super::*;

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
    let digit = |field, found| TelegramFault::Digit { field, found };

    assert_eq!(only_fault(&broken(0, 0)), (0, TelegramFault::Escape { found: 0 }));
    assert_eq!(only_fault(&good[..12]), (0, TelegramFault::Short { had_bytes: 12 }));
    assert_eq!(only_fault(&[7; 12]), (0, TelegramFault::Escape { found: 7 }));
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
    let length = TelegramFault::Length { declared_bytes: 113, had_bytes: 112 };
    assert_eq!(only_fault(&good[..112]), (1, length));
    let length = TelegramFault::Length { declared_bytes: 12, had_bytes: 113 };
    let mut bytes = good.clone();
    bytes[1..3].copy_from_slice(&[0x00, 0x12]);
    assert_eq!(only_fault(&bytes), (1, length));
    assert_eq!(only_fault(&broken(112, 0)), (111, TelegramFault::Terminator { found: [0x0d, 0] }));
    let checksum = TelegramFault::Checksum { expected: 0x7b, found: 0x7c };
    assert_eq!(only_fault(&broken(110, 0x7c)), (110, checksum));

    let size = TelegramFault::Size { expected_bytes: 104, found_bytes: 113 };
    assert_eq!(only_fault(&resealed(22, 0xd4)), (1, size));
    let mut bytes = good.clone();
    bytes.drain(30..110);
    let size = TelegramFault::Size { expected_bytes: 113, found_bytes: 33 };
    assert_eq!(only_fault(&sealed(bytes)), (1, size));
    let mut bytes = good.clone();
    bytes.drain(20..110);
    assert!(matches!(only_fault(&sealed(bytes)), (1, TelegramFault::Size { found_bytes: 23, .. })));
    assert_eq!(
        only_fault(&resealed(22, 0xe6)),
        (22, TelegramFault::Levels { side: "bid", found: 6 })
    );
    assert_eq!(
        only_fault(&resealed(22, 0xde)),
        (22, TelegramFault::Levels { side: "ask", found: 7 })
    );
    assert_eq!(only_fault(&resealed(22, 0xd7)), (22, TelegramFault::TradeOnly { levels: 8 }));
    assert_eq!(only_fault(&resealed(12, 0x80)), (12, TelegramFault::Symbol { found: 0x80 }));
    assert_eq!(only_fault(&resealed(17, 0x60)).0, 16);
    let time = TelegramFault::Time { found: [0x24, 0x04, 0x15, 0x06, 0x12, 0x78] };
    assert_eq!(only_fault(&resealed(16, 0x24)), (16, time));
    assert_eq!(only_fault(&resealed(19, 0xa0)), (19, digit("time", 0xa0)));
    let mut bytes = good.clone();
    bytes[16..22].fill(0x99);
    assert_eq!(only_fault(&sealed(bytes)), (16, TelegramFault::Time { found: [0x99; 6] }));
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
    assert!(matches!(error.fault, TelegramFault::Checksum { .. }));
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
    for telegram in [hex(HALTED), instrument::instrument_bytes()] {
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
