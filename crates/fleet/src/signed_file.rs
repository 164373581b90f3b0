//! Texts in files for strangers: the envelope of messages, with the signer's public key in it.
//!
//! The signature says that the text is whole and that the holder of the key made it. Who holds the key, it does not say.

use std::collections::BTreeMap;

use crate::keys::{KeyError, Keyring, Seeds, SignatureError};
use crate::message::{Envelope, MessageError};
use crate::packed::inflate;

/// Longest file, bytes.
pub const FILE_MAX: usize = 4 << 20;
/// Longest text in one, bytes.
const TEXT_MAX: u64 = 64 << 20;
/// Version of the envelope of a file.
const VERSION: u32 = 1;
/// Signed before the text, so that a message cannot serve as a file.
const KIND: &[u8] = b"wirepath contribution\n";

/// A text that cannot be signed, or a file that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignedFileError {
    /// The secret cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key cannot sign.
    #[error("cannot sign: {0}")]
    Sign(#[source] SignatureError),
    /// Longer than any file that is read.
    #[error("it has {found} bytes; at most {FILE_MAX} are read")]
    TooLong {
        /// Its length.
        found: usize,
    },
    /// Another file.
    #[error("it is not a signed file of Wirepath")]
    Shape(#[source] serde_json::Error),
    /// A newer version wrote it.
    #[error("its envelope has version {found}, and this Wirepath reads {VERSION}")]
    Version {
        /// Version of its envelope.
        found: u32,
    },
    /// It was changed, or cut, or signed by another key.
    #[error("its signature is not valid: {0}")]
    Signature(#[source] MessageError),
    /// It names no key.
    #[error("it names no key that signed it")]
    Unsigned,
    /// The text behind a valid signature cannot be read.
    #[error("its text cannot be read: {0}")]
    Text(String),
}

/// A text behind a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedText {
    /// Public key of the signer.
    pub signer: String,
    /// Text that was signed, inflated.
    pub text: String,
}

/// Signs a text. Errors: it is too long, or the key cannot sign.
pub fn seal_file(seeds: &Seeds, text: &str) -> Result<Vec<u8>, SignedFileError> {
    let key = seeds.public()?.sign;
    let ring = Keyring::new(&seeds.sign, key.clone(), BTreeMap::new())?;
    let sealed = Envelope::seal(&ring, KIND, text.as_bytes()).map_err(SignedFileError::Sign)?;
    let envelope = Envelope { v: VERSION, key: Some(key), ..sealed };
    let mut sealed = serde_json::to_vec(&envelope).map_err(SignedFileError::Shape)?;
    sealed.push(b'\n');
    let found = sealed.len();
    if found > FILE_MAX { Err(SignedFileError::TooLong { found }) } else { Ok(sealed) }
}

/// Reads a stranger's file, and checks its signature.
pub fn open_file(bytes: &[u8]) -> Result<SignedText, SignedFileError> {
    let found = bytes.len();
    if found > FILE_MAX {
        return Err(SignedFileError::TooLong { found });
    }
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(SignedFileError::Shape)?;
    if envelope.v != VERSION {
        return Err(SignedFileError::Version { found: envelope.v });
    }
    let Some(signer) = &envelope.key else {
        return Err(SignedFileError::Unsigned);
    };
    // The text is inflated only if it is the signer's.
    let body = envelope.body(signer, KIND).map_err(SignedFileError::Signature)?;
    let text = inflate(&body, TEXT_MAX).map_err(SignedFileError::Text)?;
    let text = String::from_utf8(text).map_err(|e| SignedFileError::Text(e.to_string()))?;
    Ok(SignedText { signer: signer.clone(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_and_every_cut_is_refused() {
        let seeds = Seeds::generate().unwrap();
        let sealed = seal_file(&seeds, "some text").unwrap();
        let opened = open_file(&sealed).unwrap();
        assert_eq!(
            opened,
            SignedText { signer: seeds.public().unwrap().sign, text: "some text".into() }
        );
        // The line break at the end is no part of the envelope.
        for at in 0..sealed.len() - 1 {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open_file(&changed).is_err(), "byte {at}");
            assert!(open_file(&sealed[..at]).is_err(), "cut at {at}");
        }
        assert!(open_file(&vec![b' '; FILE_MAX + 1]).is_err());
    }

    #[test]
    fn a_message_s_envelope_and_a_bomb_are_refused() {
        let seeds = Seeds::generate().unwrap();
        let sealed = String::from_utf8(seal_file(&seeds, "x").unwrap()).unwrap();
        let newer = sealed.replace("\"v\":1", "\"v\":2");
        assert!(matches!(open_file(newer.as_bytes()), Err(SignedFileError::Version { found: 2 })));
        let (head, _) = sealed.split_once(",\"key\"").unwrap();
        let unnamed = format!("{head}}}");
        assert!(matches!(open_file(unnamed.as_bytes()), Err(SignedFileError::Unsigned)));
        let bomb = seal_file(&seeds, &"x".repeat(TEXT_MAX as usize + 1)).unwrap();
        assert!(matches!(open_file(&bomb), Err(SignedFileError::Text(_))));
    }
}
