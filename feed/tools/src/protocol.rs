//! Detection of the protocol of datagrams, by their structure.
//!
//! A datagram proves its own protocol if its structure is whole. Otherwise (torn or malformed) it has the
//! protocol that others to the same destination have proved. A datagram with neither is of another protocol.

use std::collections::HashMap;
use std::net::SocketAddrV4;

use market::mold;
use market::twse::{self, TelegramFault, Telegrams};

use crate::arbiter::SEQUENCE_MAX;

/// Protocol of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Telegrams of the Taiwan exchanges.
    Twse,
    /// MoldUDP64 with ITCH 5.0 or other messages.
    Mold,
}

/// Evidence in one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolEvidence {
    /// Whole structure, which other protocols do not have by chance.
    Proof(Protocol),
    /// Part of the structure: torn, or too short to be sure.
    Hint(Protocol),
    None,
}

/// Destinations whose protocol is remembered; datagrams to further ones are judged by themselves.
const FLOWS_MAX: usize = 4096;

/// The evidence in a UDP payload.
pub fn evidence(payload: &[u8]) -> ProtocolEvidence {
    match (twse_evidence(payload), mold_evidence(payload)) {
        // A telegram has a checksum.
        (proof @ ProtocolEvidence::Proof(_), _) | (_, proof @ ProtocolEvidence::Proof(_)) => proof,
        (hint @ ProtocolEvidence::Hint(_), _) => hint,
        (ProtocolEvidence::None, other) => other,
    }
}

fn twse_evidence(payload: &[u8]) -> ProtocolEvidence {
    let has_frame = Telegrams::new(payload).any(|telegram| match telegram {
        Ok(_) => true,
        // The length of these ends in the terminator.
        Err(error) => matches!(
            error.fault,
            TelegramFault::Checksum { .. }
                | TelegramFault::Size { .. }
                | TelegramFault::Levels { .. }
                | TelegramFault::TradeOnly { .. }
                | TelegramFault::Symbol { .. }
                | TelegramFault::Time { .. }
        ),
    });
    if has_frame {
        ProtocolEvidence::Proof(Protocol::Twse)
    } else if twse::has_header(payload) {
        ProtocolEvidence::Hint(Protocol::Twse)
    } else {
        ProtocolEvidence::None
    }
}

fn mold_evidence(payload: &[u8]) -> ProtocolEvidence {
    let Ok(packet) = mold::MoldPacket::parse(payload) else { return ProtocolEvidence::None };
    let header = packet.header();
    let session = header.session.0;
    // Historical feeds have a session of zeros.
    let (is_text, is_zero) =
        (session.iter().all(|byte| matches!(byte, b' '..=b'~')), session == [0; 10]);
    if header.sequence > SEQUENCE_MAX {
        return ProtocolEvidence::None;
    }
    let is_whole = packet.messages().all(|message| message.is_ok());
    if header.message_count() == 0 {
        return match (is_whole, is_text, is_zero) {
            (true, true, _) => ProtocolEvidence::Proof(Protocol::Mold),
            (true, _, true) => ProtocolEvidence::Hint(Protocol::Mold),
            _ => ProtocolEvidence::None,
        };
    }
    let has_message = packet.messages().next().is_some_and(|first| first.is_ok());
    match (is_whole, is_text || is_zero) {
        (true, true) => ProtocolEvidence::Proof(Protocol::Mold),
        (true, false) => ProtocolEvidence::Hint(Protocol::Mold),
        (false, true) if has_message => ProtocolEvidence::Hint(Protocol::Mold),
        (false, _) => ProtocolEvidence::None,
    }
}

/// Judgement of a datagram of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    As(Protocol),
    /// Of another protocol.
    Foreign {
        /// The first such datagram to its destination.
        is_first: bool,
    },
}

/// Datagrams to one destination.
#[derive(Debug, Default)]
struct Flow {
    proved: Option<Protocol>,
    /// Datagrams before the first proof.
    unproved_count: u64,
    has_foreign: bool,
}

/// Protocols of the flows of a capture: all datagrams to one destination.
#[derive(Debug, Default)]
pub struct CaptureFlows {
    known: HashMap<Option<SocketAddrV4>, Flow>,
    /// Destinations with datagrams of another protocol, in order of arrival.
    foreign: Vec<Option<SocketAddrV4>>,
    foreign_count: u64,
    has_more: bool,
}

impl CaptureFlows {
    /// The protocol of a datagram.
    ///
    /// - `to`: its destination; `None` in a file of telegrams.
    pub fn recognise(&mut self, to: Option<SocketAddrV4>, payload: &[u8]) -> Recognised {
        let found = evidence(payload);
        let is_full = self.known.len() >= FLOWS_MAX && !self.known.contains_key(&to);
        let mut beyond = Flow::default();
        let flow = if is_full { &mut beyond } else { self.known.entry(to).or_default() };
        if let ProtocolEvidence::Proof(protocol) = found {
            flow.proved.get_or_insert(protocol);
            return Recognised::As(protocol);
        }
        if let Some(protocol) = flow.proved {
            return Recognised::As(protocol);
        }
        flow.unproved_count += 1;
        if let ProtocolEvidence::Hint(protocol) = found {
            return Recognised::As(protocol);
        }
        self.foreign_count += 1;
        let is_known = if is_full { &mut self.has_more } else { &mut flow.has_foreign };
        let is_first = !std::mem::replace(is_known, true);
        if is_first && !is_full {
            self.foreign.push(to);
        }
        Recognised::Foreign { is_first }
    }

    /// The protocol that the datagrams to a destination have proved.
    pub fn proved(&self, to: Option<SocketAddrV4>) -> Option<Protocol> {
        self.known.get(&to).and_then(|flow| flow.proved)
    }

    /// Datagrams to a destination before the first proof.
    pub fn unproved_count(&self, to: Option<SocketAddrV4>) -> u64 {
        self.known.get(&to).map_or(0, |flow| flow.unproved_count)
    }

    /// True if a destination has datagrams with a part of the structure and none with all of it.
    pub fn has_hints(&self) -> bool {
        self.known.values().any(|flow| flow.proved.is_none() && flow.unproved_count > 0)
    }

    /// Datagrams of another protocol.
    pub fn foreign_count(&self) -> u64 {
        self.foreign_count
    }

    /// Description of the datagrams of another protocol; `None` if there are none.
    pub fn foreign_text(&self) -> Option<String> {
        const NAMED: usize = 3;
        if self.foreign_count == 0 {
            return None;
        }
        let named: Vec<String> =
            self.foreign.iter().flatten().take(NAMED).map(ToString::to_string).collect();
        let more = self.foreign.len().saturating_sub(NAMED);
        let to = match (named.is_empty(), more > 0 || self.has_more) {
            (true, _) => String::new(),
            (false, false) => format!(" (to {})", named.join(", ")),
            (false, true) => format!(" (to {} and others)", named.join(", ")),
        };
        let are = if self.foreign_count == 1 { ("", "is") } else { ("s", "are") };
        Some(format!(
            "{} datagram{}{to} {} of another protocol: neither telegrams of the Taiwan exchanges nor MoldUDP64",
            self.foreign_count, are.0, are.1
        ))
    }
}

#[cfg(test)]
mod tests {
    use market::twse::{Business, OtherRepr};

    use super::*;

    fn telegram() -> Vec<u8> {
        let mut buffer = [0; 64];
        let other = OtherRepr {
            business: Business::Twse,
            format: 20,
            version: 1,
            sequence: 9,
            body: b"body",
        };
        let len = other.write(&mut buffer).expect("it fits");
        buffer[..len].to_vec()
    }

    fn mold_packet(session: &[u8; 10], sequence: u64, messages: &[&[u8]]) -> Vec<u8> {
        let mut buffer = [0; 400];
        let mut writer =
            mold::PacketWriter::new(&mut buffer, mold::MoldSession(*session), sequence)
                .expect("it fits");
        messages.iter().for_each(|message| writer.push(message).expect("it fits"));
        let len = writer.finish();
        buffer[..len].to_vec()
    }

    fn to(port: u16) -> Option<SocketAddrV4> {
        Some(SocketAddrV4::new([239, 1, 1, 1].into(), port))
    }

    const FOREIGN: &[u8] = b"8=FIX.4.2\x019=65\x0135=A\x0149=SERVER\x0156=CLIENT\x01";

    #[test]
    fn whole_structure_proves_a_protocol_and_a_first_byte_does_not() {
        use Protocol::{Mold, Twse};
        use ProtocolEvidence::{Hint, None, Proof};
        let whole = telegram();
        assert_eq!(evidence(&whole), Proof(Twse));
        assert_eq!(evidence(&[b"rubbish", &whole[..]].concat()), Proof(Twse));
        assert_eq!(evidence(&whole[..whole.len() - 2]), Hint(Twse));
        assert_eq!(evidence(b"\x1b[31m a terminal's colours, not digits"), None);
        assert_eq!(evidence(&mold_packet(b"SESSION  1", 7, &[b"one", b"two"])), Proof(Mold));
        assert_eq!(evidence(&mold_packet(&[0; 10], 0, &[b"one"])), Proof(Mold));
        assert_eq!(evidence(&mold_packet(&[0; 10], 0, &[])), Hint(Mold), "a heartbeat");
        // The session begins with a telegram's escape.
        assert_eq!(evidence(&mold_packet(b"\x1bSESSION 1", 7, &[b"one"])), Hint(Mold));
        let torn = mold_packet(b"SESSION  1", 7, &[b"one", b"two"]);
        assert_eq!(evidence(&torn[..torn.len() - 1]), Hint(Mold));
        for foreign in
            [FOREIGN, &[0; 64], &[0xff; 64], b"", b"SESSION  1 and more text than a header"]
        {
            assert_eq!(evidence(foreign), None, "{foreign:02x?}");
        }
    }

    #[test]
    fn a_torn_datagram_has_the_protocol_of_its_flow() {
        let mut flows = CaptureFlows::default();
        let torn = [0x1b; 3];
        assert_eq!(flows.recognise(to(1), &torn), Recognised::Foreign { is_first: true });
        assert_eq!(flows.recognise(to(1), &telegram()), Recognised::As(Protocol::Twse));
        assert_eq!(flows.recognise(to(1), &torn), Recognised::As(Protocol::Twse));
        // Another flow is judged apart.
        let packet = mold_packet(&[0; 10], 0, &[b"one"]);
        assert_eq!(flows.recognise(to(2), &packet), Recognised::As(Protocol::Mold));
        assert_eq!(flows.recognise(to(2), FOREIGN), Recognised::As(Protocol::Mold));
        assert_eq!(flows.recognise(to(3), FOREIGN), Recognised::Foreign { is_first: true });
        assert_eq!(flows.recognise(to(3), FOREIGN), Recognised::Foreign { is_first: false });
        assert_eq!(flows.foreign_count(), 3);
        let said = flows.foreign_text().expect("there are some");
        assert!(said.starts_with("3 datagrams (to 239.1.1.1:1, 239.1.1.1:3) are"), "{said}");
    }

    #[test]
    fn flows_beyond_the_limit_take_no_memory() {
        let mut flows = CaptureFlows::default();
        for port in 0..=u16::MAX {
            flows.recognise(to(port), FOREIGN);
        }
        assert_eq!((flows.known.len(), flows.foreign.len()), (FLOWS_MAX, FLOWS_MAX));
        assert_eq!(flows.foreign_count(), 1 << 16);
        assert_eq!(flows.recognise(to(u16::MAX), &telegram()), Recognised::As(Protocol::Twse));
        assert_eq!(flows.recognise(to(u16::MAX), FOREIGN), Recognised::Foreign { is_first: false });
    }
}
