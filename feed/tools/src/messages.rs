//! Messages of datagrams, and the domains that number them.

use market::twse::Telegrams;
use market::{mold, twse};

use super::arbiter::SequenceDomain;
use super::protocol::Protocol;

/// A message with its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// Domain of the sequence.
    pub domain: SequenceDomain,
    /// Sequence number in the domain.
    pub sequence: u64,
    pub bytes: &'a [u8],
}

/// Calls `each` for every message of a datagram; returns the number of malformed ones.
pub fn each(protocol: Protocol, payload: &[u8], mut each: impl FnMut(Numbered<'_>)) -> u64 {
    let mut malformed = 0;
    match protocol {
        Protocol::Twse => {
            for telegram in Telegrams::new(payload) {
                match telegram {
                    Ok(telegram) => each(Numbered {
                        domain: telegram_domain(&telegram),
                        sequence: telegram.sequence().into(),
                        bytes: telegram.bytes(),
                    }),
                    Err(_) => malformed += 1,
                }
            }
        }
        Protocol::Mold => match mold::MoldPacket::parse(payload) {
            Ok(packet) => {
                let domain = SequenceDomain::mold(&packet.header().session.0);
                for message in packet.messages() {
                    match message {
                        Ok(mold::Message { sequence, bytes, .. }) => {
                            each(Numbered { domain, sequence, bytes });
                        }
                        Err(_) => malformed += 1,
                    }
                }
            }
            Err(_) => malformed += 1,
        },
    }
    malformed
}

/// Domain of a telegram.
#[inline]
pub fn telegram_domain(telegram: &twse::Telegram<'_>) -> SequenceDomain {
    SequenceDomain::twse(telegram.business().to_wire(), telegram.format())
}

/// Display name of a domain: market and format of telegrams, or the hash of a MoldUDP64 session in
/// hexadecimal, because the name cannot be recovered from it.
pub fn domain_name(domain: SequenceDomain) -> String {
    let SequenceDomain(number) = domain;
    if number >> 16 != 0 {
        return format!("{number:016x}");
    }
    format!("{} {:02}", market_name((number >> 8) as u8), number & 0xff)
}

/// Display name of a market of the Taiwan exchanges.
pub fn market_name(business: u8) -> String {
    match business {
        1 => "TWSE".to_owned(),
        2 => "TPEx".to_owned(),
        other => format!("business {other}"),
    }
}

/// Digest of a stream of messages, sensitive to their bytes, order and number. Compares sent with
/// received streams.
///
/// Source: FNV-1a, 64 bits, over sequence and bytes of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a message.
    pub fn add(&mut self, sequence: u64, message: &[u8]) {
        self.number(sequence);
        self.bytes(message);
    }

    /// Adds a number, as eight bytes with the lowest first.
    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_protocols_are_numbered() {
        let mut buffer = [0; 200];
        let session = mold::MoldSession(*b"SESSION  1");
        let mut writer = mold::PacketWriter::new(&mut buffer, session, 7).expect("it fits");
        for message in [&b"one"[..], b"two"] {
            writer.push(message).expect("it fits");
        }
        let len = writer.finish();
        let mut seen = Vec::new();
        let payload = &buffer[..len];
        let malformed = each(Protocol::Mold, payload, |m| seen.push((m.sequence, m.bytes.len())));
        assert_eq!((malformed, &seen[..]), (0, &[(7, 3), (8, 3)][..]));
        let other = twse::OtherRepr {
            business: twse::Business::Tpex,
            format: 20,
            version: 1,
            sequence: 9,
            body: b"x",
        };
        let len = other.write(&mut buffer).expect("it fits");
        buffer[len] = 0x1b;
        let payload = &buffer[..=len];
        let mut seen = Vec::new();
        let malformed = each(Protocol::Twse, payload, |m| seen.push((m.domain, m.sequence)));
        assert_eq!((malformed, &seen[..]), (1, &[(SequenceDomain::twse(2, 20), 9)][..]));
        assert_eq!(domain_name(SequenceDomain::twse(2, 20)), "TPEx 20");
    }

    #[test]
    fn a_digest_depends_on_order_and_content() {
        let statistics = |messages: &[(u64, &[u8])]| {
            let mut digest = Digest::default();
            messages.iter().for_each(|(sequence, bytes)| digest.add(*sequence, bytes));
            digest
        };
        let right = statistics(&[(1, b"a"), (2, b"b")]);
        assert_eq!(right, statistics(&[(1, b"a"), (2, b"b")]));
        assert_ne!(right, statistics(&[(2, b"b"), (1, b"a")]));
        assert_ne!(right, statistics(&[(1, b"a"), (2, b"c")]));
        assert_ne!(right, statistics(&[(1, b"a")]));
    }
}
