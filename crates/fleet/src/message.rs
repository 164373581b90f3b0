//! Signed messages: jobs by the coordinator, reports by hosts.
//!
//! The text of a job or report is deflated and signed with its kind, so that a report cannot serve as a job.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::book::{Job, Report, VERSION};
use crate::keys::{Keyring, SignatureError, verify};
use crate::packed::{deflate, inflate};

/// Length of a message, bytes.
pub const MESSAGE_MAX: usize = 256 * 1024;
/// Length of a job or report after it is inflated, bytes.
const TEXT_MAX: u64 = 8 * 1024 * 1024;

/// A message that cannot be sent, or is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Longer than any message.
    #[error("it has {found} bytes; at most {MESSAGE_MAX} are sent and read")]
    TooLong {
        /// Its length.
        found: usize,
    },
    /// Other text than a message.
    #[error("it is not a valid message: {0}")]
    Shape(#[source] serde_json::Error),
    /// Body or signature cannot be decoded.
    #[error("it is not a valid message: {0}")]
    Encoding(#[from] base64::DecodeError),
    /// Another version wrote it.
    #[error(
        "it has version {found}, and this Wirepath reads {VERSION}; install the same version at both ends"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its host has no key here.
    #[error("{0} is not enrolled")]
    NotEnrolled(String),
    /// It cannot be signed, or was signed by another key.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A text that inflates to more than any, or not at all.
    #[error("{0}")]
    Packed(String),
    /// The text cannot be read as a job or report.
    #[error("it cannot be read: {0}")]
    Text(#[source] serde_json::Error),
    /// The subject names another host.
    #[error("it is of host {found:?}, not of {host}")]
    OtherHost {
        /// Host that it names.
        found: String,
        /// Host of its subject.
        host: String,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) v: u32,
    pub(crate) body: String,
    pub(crate) sig: String,
    /// Public key of the signer, where the reader does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl Envelope {
    /// Signs a text behind the word that says what it is.
    pub(crate) fn seal(
        keys: &Keyring,
        kind: &[u8],
        text: &[u8],
    ) -> Result<Envelope, SignatureError> {
        let body = deflate(text);
        let sig = keys.sign(&[kind, &body].concat())?;
        let (body, sig) = (BASE64.encode(&body), BASE64.encode(sig));
        Ok(Envelope { v: VERSION, body, sig, key: None })
    }

    /// The text, which is still to be inflated, if the signature is the signer's.
    pub(crate) fn body(&self, signer: &str, kind: &[u8]) -> Result<Vec<u8>, MessageError> {
        let [body, sig] = [&self.body, &self.sig].map(|text| BASE64.decode(text));
        let body = body?;
        verify(signer, &[kind, &body].concat(), &sig?)?;
        Ok(body)
    }
}

/// A message of one kind.
pub trait EnvelopeMessage: Serialize + DeserializeOwned {
    /// Signed before the text.
    const KIND: &'static str;
    /// Version in the text.
    fn version(&self) -> u32;
    /// Host that gets or sent it.
    fn host(&self) -> &str;
    /// Key that must have signed it.
    fn signer<'a>(keys: &'a Keyring, host: &str) -> Option<&'a str>;
}

impl EnvelopeMessage for Job {
    const KIND: &'static str = "wirepath job\n";
    fn version(&self) -> u32 {
        self.v
    }
    fn host(&self) -> &str {
        &self.host
    }
    fn signer<'a>(keys: &'a Keyring, _host: &str) -> Option<&'a str> {
        keys.coordinator()
    }
}

impl EnvelopeMessage for Report {
    const KIND: &'static str = "wirepath report\n";
    fn version(&self) -> u32 {
        self.v
    }
    fn host(&self) -> &str {
        &self.host
    }
    fn signer<'a>(keys: &'a Keyring, host: &str) -> Option<&'a str> {
        keys.host(host)
    }
}

/// Signs a message. Errors: it is too long, or the key cannot sign.
pub fn seal<T: EnvelopeMessage>(keys: &Keyring, message: &T) -> Result<Vec<u8>, MessageError> {
    let text = serde_json::to_vec(message).map_err(MessageError::Text)?;
    let envelope = Envelope::seal(keys, T::KIND.as_bytes(), &text)?;
    let sealed = serde_json::to_vec(&envelope).map_err(MessageError::Shape)?;
    check_length(sealed.len())?;
    Ok(sealed)
}

/// Reads a message and checks its signature.
///
/// - `host`: of its subject; the message must be of that host.
///
/// Errors: the reason why it is refused.
pub fn open<T: EnvelopeMessage>(
    keys: &Keyring,
    host: &str,
    bytes: &[u8],
) -> Result<T, MessageError> {
    check_length(bytes.len())?;
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(MessageError::Shape)?;
    check_version(envelope.v)?;
    let signer = T::signer(keys, host).ok_or_else(|| MessageError::NotEnrolled(host.to_owned()))?;
    let body = envelope.body(signer, T::KIND.as_bytes())?;
    let text = inflate(&body, TEXT_MAX).map_err(MessageError::Packed)?;
    let message: T = serde_json::from_slice(&text).map_err(MessageError::Text)?;
    check_version(message.version())?;
    if message.host() == host {
        Ok(message)
    } else {
        let (found, host) = (message.host().to_owned(), host.to_owned());
        Err(MessageError::OtherHost { found, host })
    }
}

fn check_length(found: usize) -> Result<(), MessageError> {
    if found > MESSAGE_MAX { Err(MessageError::TooLong { found }) } else { Ok(()) }
}

fn check_version(found: u32) -> Result<(), MessageError> {
    if found == VERSION { Ok(()) } else { Err(MessageError::Version { found }) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use remote::work::Call;

    use super::*;
    use crate::book::JobState;
    use crate::keys::Seeds;

    fn job() -> Job {
        Job {
            v: VERSION,
            job: "e-0".into(),
            experiment: "e".into(),
            host: "h1".into(),
            attempt: 1,
            fence: 7,
            call: Call::StopPing,
            not_after_ms: 9,
        }
    }

    fn report(body: String) -> Report {
        Report {
            v: VERSION,
            job: "e-0".into(),
            host: "h1".into(),
            attempt: 1,
            fence: 7,
            state: JobState::Done,
            body,
        }
    }

    /// Keys of the coordinator, of h1, and of an intruder with all public keys.
    fn rings() -> [Keyring; 3] {
        let seeds: [Seeds; 3] = std::array::from_fn(|_| Seeds::generate().unwrap());
        let public = |at: usize| seeds[at].public().unwrap().sign;
        let hosts = BTreeMap::from([("h1".to_owned(), public(1))]);
        [0, 1, 2].map(|at| Keyring::new(&seeds[at].sign, public(0), hosts.clone()).unwrap())
    }

    #[test]
    fn messages_are_read_by_the_other_end_alone() {
        let [coordinator, host, intruder] = rings();
        let sealed = seal(&coordinator, &job()).unwrap();
        assert_eq!(open::<Job>(&host, "h1", &sealed).unwrap(), job());
        let wrong = open::<Job>(&host, "h2", &sealed).unwrap_err().to_string();
        assert!(wrong.contains("\"h1\", not of h2"), "{wrong}");
        for forger in [&intruder, &host] {
            let forged = seal(forger, &job()).unwrap();
            assert!(
                open::<Job>(&host, "h1", &forged).unwrap_err().to_string().contains("signature")
            );
        }
        let news = report("x".into());
        let sealed = seal(&host, &news).unwrap();
        assert_eq!(open::<Report>(&coordinator, "h1", &sealed).unwrap(), news);
        assert!(
            open::<Report>(&coordinator, "h2", &sealed)
                .unwrap_err()
                .to_string()
                .contains("enrolled")
        );
        assert!(open::<Report>(&coordinator, "h1", &seal(&intruder, &news).unwrap()).is_err());
    }

    #[test]
    fn report_signed_by_the_coordinator_s_key_is_no_job() {
        let seeds = Seeds::generate().unwrap();
        let public = seeds.public().unwrap().sign;
        let hosts = BTreeMap::from([("h1".to_owned(), public.clone())]);
        let ring = Keyring::new(&seeds.sign, public, hosts).unwrap();
        let sealed = seal(&ring, &report("x".into())).unwrap();
        assert!(open::<Job>(&ring, "h1", &sealed).unwrap_err().to_string().contains("signature"));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_refused() {
        let [coordinator, host, _] = rings();
        let sealed = seal(&coordinator, &job()).unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let read = open::<Job>(&host, "h1", &changed);
            assert!(read.is_err(), "byte {at}: {read:?}");
            assert!(open::<Job>(&host, "h1", &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_versions_and_long_messages_are_refused() {
        let [coordinator, host, _] = rings();
        let newer = seal(&coordinator, &Job { v: 1, ..job() }).unwrap();
        let why = open::<Job>(&host, "h1", &newer).unwrap_err().to_string();
        assert!(why.contains("version 1") && why.contains("reads 2"), "{why}");
        let bomb = seal(&host, &report("x".repeat(TEXT_MAX as usize))).unwrap();
        assert!(
            open::<Report>(&coordinator, "h1", &bomb).unwrap_err().to_string().contains("inflates")
        );
        assert!(open::<Job>(&host, "h1", &vec![b' '; MESSAGE_MAX + 1]).is_err());
        let mut state = 1_u64;
        let noise: String = (0..MESSAGE_MAX * 2)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                char::from(b' ' + (state >> 33) as u8 % 90)
            })
            .collect();
        assert!(seal(&host, &report(noise)).unwrap_err().to_string().contains("at most"));
    }
}
