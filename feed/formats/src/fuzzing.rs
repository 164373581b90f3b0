//! Properties that hold for every input; fuzz targets, the committed corpus and property tests
//! check them.

use core::fmt::{self, Write};

use crate::{itch, mold, twse};

/// Largest input of the checks that need a copy: there is no allocation here.
const COPY_BYTES_MAX: usize = 4096;

/// A datagram of telegrams: as it is, and with checksums and terminators put right, or hardly any
/// input would get as far as a body.
pub fn twse(datagram: &[u8]) {
    telegrams(datagram);
    let mut copy = [0; COPY_BYTES_MAX];
    let Some(copy) = copy.get_mut(..datagram.len()) else { return };
    copy.copy_from_slice(datagram);
    let mut at = 0;
    while let Some(&[twse::ESCAPE, high, low, ..]) = copy.get(at..) {
        let digits = [high >> 4, high & 15, low >> 4, low & 15];
        let bytes = digits.iter().fold(0, |number, &digit| number * 10 + usize::from(digit));
        let Some(telegram) = copy.get_mut(at..at + bytes) else { break };
        let Some(([_, checked @ ..], trailer)) = telegram.split_last_chunk_mut::<3>() else {
            break;
        };
        let checksum = checked.iter().fold(0, |sum, &byte| sum ^ byte);
        *trailer = [checksum, twse::TERMINATOR[0], twse::TERMINATOR[1]];
        at += bytes;
    }
    telegrams(copy);
}

/// Instrument of a quote or odd lot.
fn instrument(telegram: &twse::Telegram<'_>) -> Option<twse::Ahead> {
    let (symbol, is_odd_lot) = match telegram.body() {
        twse::Body::Quote(quote) => (quote.symbol(), false),
        twse::Body::OddLot(odd) => (odd.symbol(), true),
        _ => return None,
    };
    Some(twse::Ahead { business: telegram.business(), is_odd_lot, symbol })
}

fn telegrams(datagram: &[u8]) {
    let mut end = 0;
    let mut ahead = Some(twse::ahead(datagram));
    for (count, telegram) in twse::Telegrams::new(datagram).enumerate() {
        // Two telegrams start at least three bytes apart.
        assert!(count <= datagram.len() / 3);
        match telegram {
            Ok(telegram) => {
                assert_eq!(telegram.offset(), end);
                end += telegram.bytes().len();
                assert_eq!(telegram.bytes(), &datagram[telegram.offset()..end]);
                if let (Some(ahead), Some(instrument)) = (&mut ahead, instrument(&telegram)) {
                    assert!(ahead.any(|found| found == instrument));
                }
                written_again(&telegram);
            }
            Err(error) => {
                assert_eq!(error.offset, end);
                // It may end at the first fault.
                ahead = None;
                assert!(error.skipped_bytes > 0);
                assert!((error.offset..=datagram.len()).contains(&error.field_offset));
                end += error.skipped_bytes;
                printed(&error);
            }
        }
    }
    assert_eq!(end, datagram.len());
}

/// Encoding a decoded telegram restores its bytes.
fn written_again(telegram: &twse::Telegram<'_>) {
    let mut again = [0; COPY_BYTES_MAX];
    let bytes = telegram.bytes();
    let Some(again) = again.get_mut(..bytes.len() + 1) else { return };
    again[bytes.len()] = 0xcc;
    let written = match telegram.body() {
        twse::Body::Quote(quote) => {
            book_is_sound(&quote, telegram);
            twse::QuoteRepr::of(&quote).write(again)
        }
        twse::Body::OddLot(odd_lot) => {
            book_is_sound(&odd_lot, telegram);
            twse::OddLotRepr::of(&odd_lot).write(again)
        }
        twse::Body::Instrument(instrument) => {
            assert_eq!(instrument.sequence(), telegram.sequence());
            assert_eq!(instrument.version(), telegram.version());
            twse::InstrumentRepr::of(&instrument).write(again)
        }
        twse::Body::Other(body) => {
            let repr = twse::OtherRepr {
                business: telegram.business(),
                format: telegram.format(),
                version: telegram.version(),
                sequence: telegram.sequence(),
                body,
            };
            repr.write(again)
        }
    };
    assert_eq!(written, Ok(bytes.len()));
    assert_eq!(again[..bytes.len()], *bytes);
    assert_eq!(again[bytes.len()], 0xcc);
}

fn book_is_sound<L: twse::Lot>(book: &twse::Book<'_, L>, telegram: &twse::Telegram<'_>) {
    assert_eq!(book.business(), telegram.business());
    assert_eq!(book.format(), telegram.format());
    assert_eq!(book.sequence(), telegram.sequence());
    assert_eq!(book.is_end_of_feed(), book.time().is_none());
    assert!(book.bids().len() <= 5 && book.asks().len() <= 5);
    assert_eq!(book.bids().count(), book.bids().len());
    let symbol = book.symbol();
    assert_eq!(symbol.as_str().len(), 6 - trailing_spaces(&symbol.to_bytes()));
    for level in book.trade().into_iter().chain(book.bids()).chain(book.asks()) {
        assert!(level.price.0 < 10_000_000_000);
        assert!(level.quantity < 100u64.pow(L::QUANTITY_BYTES as u32));
    }
    if let Some(level) = book.trade() {
        printed(&level.price);
    }
    if let Some(time) = book.time() {
        assert!(time.micros() < twse::MatchTime::DAY_MICROS);
        printed(&time);
    }
}

fn trailing_spaces(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|&&byte| byte == b' ').count()
}

/// A MoldUDP64 packet of ITCH messages; a request; and a message that is alone.
pub fn mold_itch(datagram: &[u8]) {
    itch_message(datagram);
    if let Ok(request) = mold::MoldHeader::parse_request(datagram) {
        let mut again = [0; mold::HEADER_BYTES];
        assert_eq!(request.write(&mut again), Ok(()));
        assert_eq!(again, *datagram);
    }
    let Ok(packet) = mold::MoldPacket::parse(datagram) else {
        assert!(datagram.len() < mold::HEADER_BYTES);
        return;
    };
    let header = packet.header();
    let mut copy = [0; COPY_BYTES_MAX];
    let mut writer = mold::PacketWriter::new(&mut copy, header.session, header.sequence)
        .expect("the header fits");
    let (mut end, mut whole) = (mold::HEADER_BYTES, true);
    for (count, message) in packet.messages().enumerate() {
        assert!(whole, "an error is the last item");
        match message {
            Ok(message) => {
                assert!(count < usize::from(header.message_count()));
                assert_eq!(message.sequence, header.sequence.wrapping_add(count as u64));
                assert_eq!(message.offset, end + mold::BLOCK_BYTES);
                end = message.offset + message.bytes.len();
                assert_eq!(message.bytes, &datagram[message.offset..end]);
                itch_message(message.bytes);
                if datagram.len() <= COPY_BYTES_MAX {
                    assert_eq!(writer.push(message.bytes), Ok(()));
                }
            }
            Err(error) => {
                assert_eq!(error.offset(), end);
                printed(&error);
                whole = false;
            }
        }
    }
    assert_eq!(whole, end == datagram.len() && packet.messages().all(|message| message.is_ok()));
    if whole && datagram.len() <= COPY_BYTES_MAX && !header.is_end_of_session() {
        assert_eq!(writer.finish(), datagram.len());
        assert_eq!(copy[..datagram.len()], *datagram);
    }
}

/// Encoding a decoded message restores its bytes.
pub fn itch_message(bytes: &[u8]) {
    match itch::Message::parse(bytes) {
        Ok(message) => {
            assert_eq!(message.kind().message_bytes(), bytes.len());
            let mut again = [0xcc; itch::MAX_BYTES + 1];
            assert_eq!(message.write(&mut again), Ok(bytes.len()));
            assert_eq!(again[..bytes.len()], *bytes);
            assert_eq!(again[bytes.len()], 0xcc);
            printed(&message.timestamp);
        }
        Err(error) => {
            assert!(error.offset() <= bytes.len());
            printed(&error);
        }
    }
}

/// Printing it does not fail.
fn printed(what: &dyn fmt::Display) {
    struct Nowhere(usize);
    impl Write for Nowhere {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut nowhere = Nowhere(0);
    assert!(write!(nowhere, "{what}").is_ok() && nowhere.0 > 0);
}

#[cfg(test)]
mod tests {
    use testkit::corpus::replay;

    #[test]
    fn corpus_of_twse_telegrams_holds() {
        replay("twse", super::twse);
    }

    #[test]
    fn corpus_of_mold_packets_and_itch_messages_holds() {
        replay("mold_itch", super::mold_itch);
    }
}
