//! What the fuzz targets do with their bytes; the committed corpus and the property tests go
//! through the same functions.
//!
//! Beyond "no panic", each holds up what must be true of any input that parses.

use core::fmt::{self, Write};

use crate::frame::{self, UdpChecksum, rewrite_probe, swap_for_echo, verify_checksums};
use crate::probe::{HEADER_BYTES, Header, Kind};
use crate::{arp, ethernet, icmp, ipv4, itch, mold, twse, udp};

/// Largest input that is looked at where a copy is needed: there is no allocation here.
const COPY_BYTES_MAX: usize = 4096;

/// A stream of bytes that says what to do next: zeros behind its end.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// The next two, the lower first.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// The next four, the lowest first.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }
}

/// A UDP payload: what parses is written back as it was.
pub fn probe_header(payload: &[u8]) {
    if let Ok(header) = Header::parse(payload) {
        let mut again = [0xcc; HEADER_BYTES + 1];
        assert_eq!(header.write(&mut again), Ok(()));
        assert_eq!(again[..HEADER_BYTES], payload[..HEADER_BYTES]);
        assert_eq!(again[HEADER_BYTES], 0xcc);
    }
}

/// A frame, as an engine would get it from anybody.
pub fn frame(bytes: &[u8]) {
    let found = frame::udp_payload(bytes);
    slow_path_agrees(bytes, found.is_ok());
    for cut in [0, 14, 34, 42, 66, bytes.len() / 2] {
        let head = &bytes[..cut.min(bytes.len())];
        if let Ok(of_head) = frame::udp_payload_of_head(head, bytes.len()) {
            assert_eq!(Ok(of_head), found);
        }
    }

    let mut copy = [0; COPY_BYTES_MAX];
    let Some(copy) = copy.get_mut(..bytes.len()) else { return };
    copy.copy_from_slice(bytes);
    let before = verify_checksums(copy);
    let swapped = swap_for_echo(copy);
    let Ok((meta, payload)) = found else {
        assert_eq!(copy, bytes);
        assert!(swapped.is_err() && before.is_err());
        assert!(rewrite_probe(copy, Kind::Pong, 1).is_err());
        assert_eq!(copy, bytes);
        return;
    };
    assert!(payload.end <= bytes.len());
    assert_eq!(swapped, Ok(payload.clone()));
    assert_eq!(frame::udp_payload(copy), Ok((meta.reversed(), payload.clone())));
    assert_eq!(verify_checksums(copy), before);
    assert_eq!(swap_for_echo(copy), Ok(payload.clone()));
    assert_eq!(copy, bytes);

    let header = Header::parse(&bytes[payload.clone()]);
    let rewritten = rewrite_probe(copy, Kind::Pong, 0xffff_0001);
    assert_eq!(rewritten.is_ok(), header.is_ok());
    let Ok(header) = header else {
        assert_eq!(copy, bytes);
        return;
    };
    let expected = Header { kind: Kind::Pong, reply: 0xffff_0001, ..header };
    assert_eq!(Header::parse(&copy[payload.clone()]), Ok(expected));
    assert_eq!(copy[payload.start + HEADER_BYTES..], bytes[payload.start + HEADER_BYTES..]);
    match before {
        Ok(UdpChecksum::Valid | UdpChecksum::Unfinished) => {
            assert_eq!(verify_checksums(copy), Ok(UdpChecksum::Valid));
        }
        Ok(UdpChecksum::Absent) => assert_eq!(verify_checksums(copy), Ok(UdpChecksum::Absent)),
        // One in 65,536 wrong checksums becomes right; an unfinished one under a wrong IPv4
        // checksum is completed.
        Err(_) => {}
    }
}

/// ARP and ICMP messages, without the headers around them.
pub fn arp_icmp(bytes: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(bytes) {
        let repr = arp::Repr::of(&packet);
        let mut again = [0; arp::PACKET_BYTES];
        assert_eq!(repr.write(&mut again), Ok(()));
        assert_eq!(again, bytes[..arp::PACKET_BYTES]);
        let reply = repr.reply_from([2; 6]);
        assert_eq!((reply.sender_ip, reply.target_ip), (repr.target_ip, repr.sender_ip));
    }
    if let Ok(message) = icmp::Packet::parse(bytes) {
        let mut again = [0; COPY_BYTES_MAX];
        let Some(again) = again.get_mut(..bytes.len()) else { return };
        again.copy_from_slice(bytes);
        let answer = icmp::Repr { kind: icmp::Kind::EchoReply, ..icmp::Repr::of(&message) };
        assert_eq!(answer.write(again), Ok(()));
        let answered = icmp::Packet::parse(again).map(|packet| icmp::Repr::of(&packet));
        assert_eq!(answered, Ok(answer));
        assert_eq!(again[icmp::HEADER_BYTES..], *message.payload());
    }
}

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

fn telegrams(datagram: &[u8]) {
    let mut end = 0;
    for (count, telegram) in twse::Telegrams::new(datagram).enumerate() {
        // Three bytes at least from one escape to the next that is taken for a telegram's.
        assert!(count <= datagram.len() / 3);
        match telegram {
            Ok(telegram) => {
                assert_eq!(telegram.offset(), end);
                end += telegram.bytes().len();
                assert_eq!(telegram.bytes(), &datagram[telegram.offset()..end]);
                written_again(&telegram);
            }
            Err(error) => {
                assert_eq!(error.offset, end);
                assert!(error.skipped_bytes > 0);
                assert!((error.offset..=datagram.len()).contains(&error.field_offset));
                end += error.skipped_bytes;
                printed(&error);
            }
        }
    }
    assert_eq!(end, datagram.len());
}

/// A telegram comes out as it went in.
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
    if let Ok(request) = mold::Header::parse_request(datagram) {
        let mut again = [0; mold::HEADER_BYTES];
        assert_eq!(request.write(&mut again), Ok(()));
        assert_eq!(again, *datagram);
    }
    let Ok(packet) = mold::Packet::parse(datagram) else {
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

/// A message comes out as it went in.
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

/// The formats one by one come to what the fast path says.
fn slow_path_agrees(bytes: &[u8], fast: bool) {
    let slow = || {
        let ethernet = ethernet::Packet::parse(bytes).ok()?;
        if ethernet.ethertype() != ethernet::TYPE_IPV4 {
            return None;
        }
        let ip = ipv4::Packet::parse(ethernet.payload()).ok()?;
        ip.header().expect_whole(ipv4::PROTOCOL_UDP).ok()?;
        let datagram = udp::Packet::parse(ip.payload()).ok()?;
        let right = ip.verify_checksum().is_ok()
            && datagram.verify_checksum(ip.header().src(), ip.header().dst()).is_ok();
        Some((datagram.payload(), datagram.header().checksum(), right))
    };
    let slow = slow();
    assert_eq!(slow.is_some(), fast);
    let Some((payload, checksum, right)) = slow else { return };
    assert_eq!(frame::udp_payload(bytes).map(|(_, range)| &bytes[range]), Ok(payload));
    match verify_checksums(bytes) {
        Ok(UdpChecksum::Valid) => assert!(right && checksum != 0),
        Ok(UdpChecksum::Absent) => assert!(right && checksum == 0),
        Ok(UdpChecksum::Unfinished) | Err(_) => assert!(!right),
    }
}
