//! Retransmission of MoldUDP64: answers requests for messages that were sent.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use market::mold::{self, MoldHeader, MoldSession, PacketWriter};
use serde::Serialize;

/// Messages that are kept: about 60 MB of ITCH.
const KEPT_MAX: usize = 1 << 20;
/// UDP payload of an Ethernet frame of 1,500 bytes.
const ANSWER_BYTES: usize = 1472;
/// Longest sleep between checks of the stop flag.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The latest messages of one session.
#[derive(Debug, Default)]
pub(super) struct History {
    session: Option<MoldSession>,
    /// Sequence of the oldest message.
    first: u64,
    messages: VecDeque<Box<[u8]>>,
}

impl History {
    /// Keeps the messages of a packet that follow those known. Another session, or a hole, starts anew.
    pub(super) fn note(&mut self, payload: &[u8]) {
        let Ok(packet) = mold::MoldPacket::parse(payload) else { return };
        let session = packet.header().session;
        for message in packet.messages().flatten() {
            let next = self.first.saturating_add(self.messages.len() as u64);
            if self.session != Some(session) || message.sequence > next {
                *self =
                    History { session: Some(session), first: message.sequence, ..Self::default() };
            } else if message.sequence < next {
                continue;
            }
            if self.messages.len() == KEPT_MAX {
                self.messages.pop_front();
                self.first += 1;
            }
            self.messages.push_back(message.bytes.into());
        }
    }

    /// Sequence after the newest message; `None` before the first.
    #[cfg(test)]
    fn next_sequence(&self) -> Option<u64> {
        self.session.map(|_| self.first.saturating_add(self.messages.len() as u64))
    }

    /// Writes the answer to a request, as many messages as fit; returns its length and their number. `None`
    /// if the first message is not kept.
    fn answer(&self, request: &MoldHeader, buffer: &mut [u8]) -> Option<(usize, u64)> {
        if self.session != Some(request.session) {
            return None;
        }
        let from = usize::try_from(request.sequence.checked_sub(self.first)?).ok()?;
        let wanted = self.messages.range(from.min(self.messages.len())..);
        let mut writer = PacketWriter::new(buffer, request.session, request.sequence).ok()?;
        let mut count = 0;
        for message in wanted.take(request.count.into()) {
            if writer.push(message).is_err() {
                break;
            }
            count += 1;
        }
        (count > 0).then(|| (writer.finish(), count))
    }
}

/// Work of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Served {
    #[serde(rename = "request_count")]
    pub requests: u64,
    #[serde(rename = "message_count")]
    pub messages: u64,
    /// Requests for messages that were not sent yet or are no longer kept, and datagrams that are none.
    #[serde(rename = "refused_count")]
    pub refused: u64,
}

/// Answers requests until `done` is set.
pub(super) fn serve(socket: &UdpSocket, history: &Mutex<History>, done: &AtomicBool) -> Served {
    let mut served = Served::default();
    let (mut request, mut answer) = ([0; 64], [0; ANSWER_BYTES]);
    // Cannot fail: the time is not zero.
    let _ = socket.set_read_timeout(Some(STOP_CHECK_INTERVAL));
    while !done.load(Ordering::Relaxed) {
        // Errors of a receive are timeouts, or of earlier answers (port closed).
        let Ok((len, from)) = socket.recv_from(&mut request) else { continue };
        served.requests += 1;
        match answer_to(&request[..len], history, &mut answer) {
            Some((len, count)) if send(socket, &answer[..len], from) => served.messages += count,
            _ => served.refused += 1,
        }
    }
    served
}

fn answer_to(request: &[u8], history: &Mutex<History>, answer: &mut [u8]) -> Option<(usize, u64)> {
    let wanted = MoldHeader::parse_request(request).ok()?;
    history.lock().unwrap_or_else(PoisonError::into_inner).answer(&wanted, answer)
}

fn send(socket: &UdpSocket, answer: &[u8], to: SocketAddr) -> bool {
    socket.send_to(answer, to).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: MoldSession = MoldSession(*b"SESSION  1");

    fn packet(sequence: u64, messages: &[&[u8]]) -> Vec<u8> {
        let mut buffer = [0; 2000];
        let mut writer = PacketWriter::new(&mut buffer, SESSION, sequence).expect("it fits");
        messages.iter().for_each(|message| writer.push(message).expect("it fits"));
        let len = writer.finish();
        buffer[..len].to_vec()
    }

    fn ask(history: &History, sequence: u64, count: u16) -> Option<Vec<(u64, Vec<u8>)>> {
        let mut buffer = [0; ANSWER_BYTES];
        let request = MoldHeader { session: SESSION, sequence, count };
        let (len, count) = history.answer(&request, &mut buffer)?;
        let packet = mold::MoldPacket::parse(&buffer[..len]).expect("whole");
        let messages: Vec<_> =
            packet.messages().flatten().map(|m| (m.sequence, m.bytes.to_vec())).collect();
        assert_eq!(messages.len() as u64, count);
        Some(messages)
    }

    #[test]
    fn requests_are_answered_with_the_messages_that_were_sent() {
        let mut history = History::default();
        assert_eq!(history.next_sequence(), None);
        history.note(&packet(1, &[b"one", b"two"]));
        // The other line's copy.
        history.note(&packet(1, &[b"one", b"two"]));
        history.note(&packet(3, &[b"three"]));
        assert_eq!(history.next_sequence(), Some(4));
        let two = (2, b"two".to_vec());
        assert_eq!(ask(&history, 2, 1), Some(vec![two.clone()]));
        assert_eq!(ask(&history, 2, 9), Some(vec![two, (3, b"three".to_vec())]));
        for (sequence, count) in [(0, 5), (4, 1), (1, 0), (u64::MAX, 1)] {
            assert_eq!(ask(&history, sequence, count), None, "{sequence} {count}");
        }
        let other = MoldHeader { session: MoldSession(*b"SESSION  2"), sequence: 1, count: 1 };
        assert_eq!(history.answer(&other, &mut [0; 100]), None);
    }

    #[test]
    fn an_answer_is_never_longer_than_a_frame_and_a_hole_starts_anew() {
        let mut history = History::default();
        for sequence in 1..=100 {
            history.note(&packet(sequence, &[&[7; 40]]));
        }
        let answered = ask(&history, 1, 100).expect("some").len();
        assert_eq!(answered, (ANSWER_BYTES - mold::HEADER_BYTES) / 42);
        history.note(&packet(200, &[b"later"]));
        assert_eq!((ask(&history, 1, 1), history.next_sequence()), (None, Some(201)));
    }
}
