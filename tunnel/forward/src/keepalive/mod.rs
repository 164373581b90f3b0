//! Keepalives of a tunnel: small frames inside it, which a far end of the same kind answers.
//!
//! A frame to an address that no bridge forwards: a far end of another kind, or an older one, drops it.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | destination | 01:80:c2:00:00:0e |
//! | 6 | source | 02:57:50:4b:00:00 |
//! | 12 | EtherType | 0x88b5, for local experiments (IEEE 802, section 9.2.3) |
//! | 14 | u32 magic | 0x57504b41, "WPKA" |
//! | 18 | u8 version | 1 |
//! | 19 | u8 kind | [`KeepaliveKind`] |
//! | 20 | u64 session | random: answers to another sender are not counted |
//! | 28 | u64 number | from 0 |
//! | 36 | u64 time_ns | clock of the sender, returned as it is |
//!
//! All big-endian; zeros up to 60 bytes follow.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a frame, the smallest of Ethernet.
pub const FRAME_BYTES: usize = 60;

const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
const SOURCE: [u8; 6] = [0x02, 0x57, 0x50, 0x4b, 0x00, 0x00];
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const MAGIC: [u8; 4] = *b"WPKA";
const VERSION: u8 = 1;
const MAGIC_AT: usize = 14;
const VERSION_AT: usize = 18;
const KIND_AT: usize = 19;
const SESSION_AT: usize = 20;
const NUMBER_AT: usize = 28;
const TIME_AT: usize = 36;

/// Purpose of a keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum KeepaliveKind {
    /// Asks for an answer.
    Request = 1,
    /// Answers a request: the same apart from its kind.
    Answer = 2,
}

/// Contents of a keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveMessage {
    /// Its purpose.
    pub kind: KeepaliveKind,
    /// Number of the sender.
    pub session: u64,
    /// Number of the request.
    pub number: u64,
    /// Time of the request by the sender's clock, nanoseconds.
    pub time_ns: u64,
}

impl KeepaliveMessage {
    /// Reads a frame from its Ethernet header on; `None` if it is not a keepalive.
    pub fn read(frame: &[u8]) -> Option<KeepaliveMessage> {
        let frame: &[u8; FRAME_BYTES] = frame.first_chunk()?;
        let is_ours = frame[..6] == DESTINATION
            && frame[12..MAGIC_AT] == ETHERTYPE
            && frame[MAGIC_AT..VERSION_AT] == MAGIC
            && frame[VERSION_AT] == VERSION;
        let kind = [KeepaliveKind::Request, KeepaliveKind::Answer]
            .into_iter()
            .find(|it| *it as u8 == frame[KIND_AT]);
        let kind = kind.filter(|_| is_ours)?;
        Some(KeepaliveMessage {
            kind,
            session: number_at(frame, SESSION_AT)?,
            number: number_at(frame, NUMBER_AT)?,
            time_ns: number_at(frame, TIME_AT)?,
        })
    }

    /// A frame with it, from the Ethernet header on.
    pub fn frame(&self) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&DESTINATION);
        frame[6..12].copy_from_slice(&SOURCE);
        frame[12..MAGIC_AT].copy_from_slice(&ETHERTYPE);
        frame[MAGIC_AT..VERSION_AT].copy_from_slice(&MAGIC);
        frame[VERSION_AT] = VERSION;
        frame[KIND_AT] = self.kind as u8;
        for (at, number) in
            [(SESSION_AT, self.session), (NUMBER_AT, self.number), (TIME_AT, self.time_ns)]
        {
            frame[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        frame
    }

    /// The answer to a request; `None` for an answer.
    pub fn answer(self) -> Option<KeepaliveMessage> {
        (self.kind == KeepaliveKind::Request)
            .then_some(KeepaliveMessage { kind: KeepaliveKind::Answer, ..self })
    }
}

fn number_at(frame: &[u8; FRAME_BYTES], at: usize) -> Option<u64> {
    frame[at..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Keepalives of one tunnel, counted by workers and by the thread that sends them.
#[derive(Debug)]
pub struct Keepalive {
    session: u64,
    sent_count: AtomicU64,
    answered_count: AtomicU64,
    /// One above the highest number answered.
    answered_next: AtomicU64,
    delay_ns: AtomicU64,
    delay_ns_max: AtomicU64,
}

/// Counters of a [`Keepalive`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepaliveCounts {
    /// Requests.
    pub sent_count: u64,
    /// Answers.
    pub answered_count: u64,
    /// Requests since the last one that was answered.
    pub unanswered_count: u64,
    /// Time from the last answered request to its answer, nanoseconds; 0 before the first.
    pub delay_ns: u64,
    /// The longest one.
    pub delay_ns_max: u64,
}

impl Keepalive {
    /// - `session`: random, so that no other sender has it.
    pub fn new(session: u64) -> Keepalive {
        Keepalive {
            session,
            sent_count: AtomicU64::new(0),
            answered_count: AtomicU64::new(0),
            answered_next: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            delay_ns_max: AtomicU64::new(0),
        }
    }

    /// The next request, which counts as sent. Its time is set when it is sent.
    pub fn request(&self) -> KeepaliveMessage {
        let number = self.sent_count.fetch_add(1, Ordering::Relaxed);
        KeepaliveMessage { kind: KeepaliveKind::Request, session: self.session, number, time_ns: 0 }
    }

    /// Counts an answer. One to another sender, a second one, one that a later answer has overtaken, and
    /// one to a request that was not sent are ignored.
    pub fn answered(&self, message: &KeepaliveMessage, now_ns: u64) {
        let KeepaliveMessage { kind, session, number, time_ns } = *message;
        let is_due = kind == KeepaliveKind::Answer
            && session == self.session
            && number < self.sent_count.load(Ordering::Relaxed);
        let advanced =
            self.answered_next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (is_due && number >= next).then(|| number + 1)
            });
        if advanced.is_err() {
            return;
        }
        let delay_ns = now_ns.saturating_sub(time_ns);
        self.answered_count.fetch_add(1, Ordering::Relaxed);
        self.delay_ns.store(delay_ns, Ordering::Relaxed);
        self.delay_ns_max.fetch_max(delay_ns, Ordering::Relaxed);
    }

    /// Its counters.
    pub fn counts(&self) -> KeepaliveCounts {
        let sent_count = self.sent_count.load(Ordering::Relaxed);
        let answered_next = self.answered_next.load(Ordering::Relaxed);
        KeepaliveCounts {
            sent_count,
            answered_count: self.answered_count.load(Ordering::Relaxed),
            unanswered_count: sent_count.saturating_sub(answered_next),
            delay_ns: self.delay_ns.load(Ordering::Relaxed),
            delay_ns_max: self.delay_ns_max.load(Ordering::Relaxed),
        }
    }
}

#[doc(hidden)]
pub mod fuzzing {
    //! Body of a part of the fuzz target `decap`.

    use super::{FRAME_BYTES, KeepaliveMessage};

    /// Any frame is either not a keepalive, or is the same after reading and writing, its source and padding apart.
    pub fn keepalive(frame: &[u8]) {
        let Some(message) = KeepaliveMessage::read(frame) else { return };
        let written = message.frame();
        assert_eq!(KeepaliveMessage::read(&written), Some(message));
        assert_eq!(written[12..44], frame[12..44]);
        assert!(frame.len() >= FRAME_BYTES);
    }
}

#[cfg(test)]
mod tests;
