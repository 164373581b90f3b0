//! Encryption of the control connection by a shared secret.
//!
//! The near end starts the handshake and proves in its first message that it knows the secret and has read
//! this greeting, so that a recorded message is of no use. Each connection has keys of its own: a secret that
//! leaks later opens no recorded session.
//!
//! Source: The Noise Protocol Framework, revision 34, sections 7.5 (NN) and 9 (pre-shared keys).

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use snow::{Builder, HandshakeState, StatelessTransportState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Bytes that encryption adds to a record.
const TAG_BYTES: usize = 16;
/// Largest plain text of a record.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a record's length, which precedes it.
const LENGTH_BYTES: usize = 2;
/// Largest message of the handshake: a key and a tag, and no payload.
const HANDSHAKE_BYTES_MAX: usize = 128;

/// A message that was not made with the same secret and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forged;

/// The handshake of one end.
pub struct Handshake(Box<HandshakeState>);

impl Handshake {
    /// - `greeting`: the far end's first line, which both ends must have seen in the same form.
    pub fn near(secret: &str, greeting: &[u8]) -> Result<Self, Forged> {
        let key = shared_key(secret);
        let state = builder(&key, greeting)?.build_initiator();
        state.map(|state| Handshake(Box::new(state))).map_err(|_| Forged)
    }

    /// As [`Self::near`], for the far end.
    pub fn far(secret: &str, greeting: &[u8]) -> Result<Self, Forged> {
        let key = shared_key(secret);
        let state = builder(&key, greeting)?.build_responder();
        state.map(|state| Handshake(Box::new(state))).map_err(|_| Forged)
    }

    /// This end's message, as hexadecimal digits.
    pub fn write(&mut self) -> Result<String, Forged> {
        let mut message = [0; HANDSHAKE_BYTES_MAX];
        let len = self.0.write_message(&[], &mut message).map_err(|_| Forged)?;
        Ok(message[..len].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads the other end's message.
    pub fn read(&mut self, digits: &str) -> Result<(), Forged> {
        let message = parse_digits(digits).ok_or(Forged)?;
        self.0.read_message(&message, &mut [0; HANDSHAKE_BYTES_MAX]).map(drop).map_err(|_| Forged)
    }

    /// Keys of both directions, once both messages were exchanged.
    pub fn finish(self) -> Result<(Sealer, Opener), Forged> {
        let state = Arc::new(self.0.into_stateless_transport_mode().map_err(|_| Forged)?);
        Ok((
            Sealer { state: state.clone(), next: 0 },
            Opener { state, next: 0, sealed: Vec::new() },
        ))
    }
}

fn builder<'a>(key: &'a [u8; 32], greeting: &'a [u8]) -> Result<Builder<'a>, Forged> {
    let pattern = PATTERN.parse().map_err(|_| Forged)?;
    Builder::new(pattern).psk(0, key).and_then(|b| b.prologue(greeting)).map_err(|_| Forged)
}

fn shared_key(secret: &str) -> [u8; 32] {
    Sha256::new().chain_update(b"wirepath peer\0").chain_update(secret).finalize().into()
}

fn parse_digits(digits: &str) -> Option<Vec<u8>> {
    let fits = digits.is_ascii() && digits.len().is_multiple_of(2);
    if !fits || digits.len() > 2 * HANDSHAKE_BYTES_MAX {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect()
}

/// Encrypts what is sent.
pub struct Sealer {
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
}

impl Sealer {
    /// Returns `plain` as records, each with its length in front.
    pub(super) fn seal(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(plain.len() + 64);
        for part in plain.chunks(RECORD_BYTES_MAX) {
            let sealed_bytes = part.len() + TAG_BYTES;
            out.extend((sealed_bytes as u16).to_be_bytes());
            let at = out.len();
            out.resize(at + sealed_bytes, 0);
            let sealed = self.state.write_message(self.next, part, &mut out[at..]);
            sealed.map_err(|_| io::Error::other("the record cannot be encrypted"))?;
            self.next += 1;
        }
        Ok(out)
    }
}

/// Decrypts what is received.
pub struct Opener {
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
    /// Bytes of a record that is not whole yet.
    sealed: Vec<u8>,
}

impl Opener {
    /// Appends the plain text of all records that are whole with these bytes.
    ///
    /// Errors: a record was changed, left out, repeated or made with another key.
    pub(super) fn open(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Forged> {
        self.sealed.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = self.sealed.get(at..at + LENGTH_BYTES) {
            let sealed_bytes = usize::from(u16::from_be_bytes([length[0], length[1]]));
            if !(TAG_BYTES..=RECORD_BYTES_MAX + TAG_BYTES).contains(&sealed_bytes) {
                return Err(Forged);
            }
            let begin = at + LENGTH_BYTES;
            let Some(record) = self.sealed.get(begin..begin + sealed_bytes) else { break };
            let old_len = plain.len();
            plain.resize(old_len + sealed_bytes, 0);
            let opened = self.state.read_message(self.next, record, &mut plain[old_len..]);
            let len = opened.map_err(|_| Forged)?;
            plain.truncate(old_len + len);
            self.next += 1;
            at = begin + sealed_bytes;
        }
        self.sealed.drain(..at);
        Ok(())
    }

    /// True if the last record is not whole.
    pub(super) fn is_within_record(&self) -> bool {
        !self.sealed.is_empty()
    }
}

/// Keys are never printed.
impl Debug for Sealer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({})", self.next)
    }
}

impl Debug for Opener {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Opener({})", self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"\"stop\"\n";
    const SECRET: &str = "correct horse battery";

    /// Both ends after a handshake: near, far.
    fn joined() -> ((Sealer, Opener), (Sealer, Opener)) {
        let mut near = Handshake::near(SECRET, b"hello").unwrap();
        let mut far = Handshake::far(SECRET, b"hello").unwrap();
        far.read(&near.write().unwrap()).unwrap();
        near.read(&far.write().unwrap()).unwrap();
        (near.finish().unwrap(), far.finish().unwrap())
    }

    fn read(secret: &str, greeting: &[u8], message: &str) -> Result<(), Forged> {
        Handshake::far(secret, greeting).unwrap().read(message)
    }

    #[test]
    fn first_message_is_valid_only_for_its_secret_and_greeting() {
        let first = Handshake::near(SECRET, b"hello").unwrap().write().unwrap();
        assert_eq!(read(SECRET, b"hello", &first), Ok(()));
        assert_eq!(read("another horse battery", b"hello", &first), Err(Forged));
        assert_eq!(read(SECRET, b"hullo", &first), Err(Forged), "replayed to another greeting");
        for bad in ["", "zz", &first[2..], &"é".repeat(32), &"00".repeat(64)] {
            assert_eq!(read(SECRET, b"hello", bad), Err(Forged), "{bad}");
        }
    }

    #[test]
    fn answer_is_valid_only_of_an_end_that_knows_the_secret() {
        let mut near = Handshake::near(SECRET, b"hello").unwrap();
        let first = near.write().unwrap();
        assert_eq!(near.read(&first), Err(Forged), "reflected");
        let mut near = Handshake::near(SECRET, b"hello").unwrap();
        near.write().unwrap();
        let mut impostor = Handshake::near("another horse battery", b"hello").unwrap();
        assert_eq!(near.read(&impostor.write().unwrap()), Err(Forged));
    }

    #[test]
    fn lines_of_any_length_arrive_however_they_are_cut() {
        let ((mut seal, _), (_, mut open)) = joined();
        for len in [0, 1, RECORD_BYTES_MAX, RECORD_BYTES_MAX + 1, 1 << 20] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let sealed = seal.seal(&plain).unwrap();
            let mut got = Vec::new();
            for part in sealed.chunks(if len < 100 { 1 } else { 4999 }) {
                open.open(part, &mut got).unwrap();
            }
            assert!(got == plain && !open.is_within_record(), "{len}");
        }
    }

    #[test]
    fn changed_repeated_reordered_and_reflected_records_are_refused() {
        for at in 0..25 {
            let ((mut seal, _), (_, mut open)) = joined();
            let mut record = seal.seal(MESSAGE).unwrap();
            record[at] ^= 1;
            let opened = open.open(&record, &mut Vec::new());
            // A longer record is waited for.
            assert!(opened.is_err() || open.is_within_record(), "byte {at}");
        }
        let ((mut seal, mut own), (_, mut open)) = joined();
        let (one, two) = (seal.seal(MESSAGE).unwrap(), seal.seal(MESSAGE).unwrap());
        assert_eq!(own.open(&one, &mut Vec::new()), Err(Forged), "reflected");
        assert_eq!(open.open(&two, &mut Vec::new()), Err(Forged), "reordered");
        let ((mut seal, _), (_, mut open)) = joined();
        let one = seal.seal(MESSAGE).unwrap();
        open.open(&one, &mut Vec::new()).unwrap();
        assert_eq!(open.open(&one, &mut Vec::new()), Err(Forged), "repeated");
        assert_eq!(open.open(&[0, 3, 1, 2, 3], &mut Vec::new()), Err(Forged), "shorter than a tag");
    }

    #[test]
    fn nothing_of_a_line_is_readable() {
        let ((mut seal, _), _) = joined();
        let sealed = seal.seal(b"{\"welcome\":{\"kernel\":\"6.18\"}}").unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("kernel"));
    }
}
