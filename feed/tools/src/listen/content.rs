//! Messages, decoded.

use market::itch;
use market::twse::{Body, Telegram, Telegrams};

use crate::protocol::Protocol;

/// A decoded message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    Twse(Telegram<'a>),
    Itch(itch::Message<'a>),
}

impl<'a> Content<'a> {
    /// `None` if the message cannot be decoded.
    #[inline]
    pub(super) fn decode(protocol: Protocol, message: &'a [u8]) -> Option<Self> {
        match protocol {
            Protocol::Twse => Telegrams::new(message).next()?.ok().map(Content::Twse),
            Protocol::Mold => itch::Message::parse(message).ok().map(Content::Itch),
        }
    }

    /// Time of the match, nanoseconds of the day; instruments have none.
    #[inline]
    pub(super) fn matched_ns(&self) -> Option<u64> {
        let time = match self {
            Content::Itch(message) => return Some(message.timestamp.0),
            Content::Twse(telegram) => match telegram.body() {
                Body::Quote(quote) => quote.time(),
                Body::OddLot(odd) => odd.time(),
                Body::Instrument(_) | Body::Other(_) => None,
            },
        };
        time.map(|time| time.micros() * 1000)
    }
}

/// Message of the datagram in hand; `None` if it cannot be decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) content: Option<Content<'a>>,
    /// Arrival of its datagram by its stamp, if it has one, CLOCK_REALTIME nanoseconds.
    pub(super) arrived_ns: u64,
}
