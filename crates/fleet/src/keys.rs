//! Keys: one pair to log in at the broker, another one to sign.
//!
//! They differ because a login signs a text that the broker chooses: with one pair, a broker could choose a job.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

use nkeys::KeyPair;
use serde::{Deserialize, Serialize};

/// A key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Another text than a key.
    #[error("{what} is not a valid {kind} ({why}); `wirepath fleet init` writes keys")]
    Unreadable {
        /// Its place.
        what: String,
        /// Seed or public key.
        kind: &'static str,
        /// Detail.
        why: String,
    },
    /// The system has no random numbers.
    #[error("cannot make a key: {0}")]
    Make(String),
}

/// Bytes that cannot be signed, or a signature that is not valid.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The own key cannot sign, or the signer's cannot be read.
    #[error(transparent)]
    Key(#[from] nkeys::error::Error),
    /// Another key's, or the bytes were changed.
    #[error("its signature is not that of its key")]
    Other,
}

/// Secret seeds of a host or of the coordinator.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds {
    /// Logs in at the broker.
    pub login: String,
    /// Signs jobs or reports.
    pub sign: String,
}

/// Public keys of a host or of the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKeys {
    /// Logs in at the broker.
    pub login: String,
    /// Signs jobs or reports.
    pub sign: String,
}

impl Debug for Seeds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Seeds")
    }
}

impl Seeds {
    /// New random seeds.
    pub fn generate() -> Result<Seeds, KeyError> {
        Ok(Seeds { login: new_seed()?, sign: new_seed()? })
    }

    /// Their public keys.
    pub fn public(&self) -> Result<PublicKeys, KeyError> {
        let [login, sign] = [&self.login, &self.sign].map(|seed| pair(seed));
        Ok(PublicKeys { login: login?.public_key(), sign: sign?.public_key() })
    }
}

fn new_seed() -> Result<String, KeyError> {
    KeyPair::new_user().seed().map_err(|e| KeyError::Make(e.to_string()))
}

impl PublicKeys {
    /// Checks that both are public keys.
    pub fn check(&self, what: &str) -> Result<(), KeyError> {
        for key in [&self.login, &self.sign] {
            if !key.starts_with('U') {
                let (what, why) = (what.to_owned(), format!("{key:?} does not begin with U"));
                return Err(KeyError::Unreadable { what, kind: "public key", why });
            }
            KeyPair::from_public_key(key).map_err(|e| KeyError::Unreadable {
                what: what.to_owned(),
                kind: "public key",
                why: e.to_string(),
            })?;
        }
        Ok(())
    }
}

fn pair(seed: &str) -> Result<KeyPair, KeyError> {
    KeyPair::from_seed(seed.trim()).map_err(|e| KeyError::Unreadable {
        what: "the secret".into(),
        kind: "seed",
        why: e.to_string(),
    })
}

/// Own secret key, and the public keys of those whose messages are read.
pub struct Keyring {
    own: KeyPair,
    /// Signs jobs.
    coordinator: String,
    /// Sign reports, by host.
    hosts: BTreeMap<String, String>,
}

impl Debug for Keyring {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// Keys of an end.
    ///
    /// - `seed`: signs what it sends.
    /// - `coordinator`: public key that signs jobs.
    /// - `hosts`: public keys that sign reports, by host.
    pub fn new(
        seed: &str,
        coordinator: impl Into<String>,
        hosts: BTreeMap<String, String>,
    ) -> Result<Self, KeyError> {
        Ok(Keyring { own: pair(seed)?, coordinator: coordinator.into(), hosts })
    }

    /// Signature of bytes by the own key.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, SignatureError> {
        Ok(self.own.sign(bytes)?)
    }

    /// Public key that signs jobs.
    pub(crate) fn coordinator(&self) -> Option<&str> {
        Some(&self.coordinator)
    }

    /// Public key that signs reports of a host; `None` if the host is not enrolled.
    pub(crate) fn host(&self, host: &str) -> Option<&str> {
        self.hosts.get(host).map(String::as_str)
    }
}

/// Checks a signature.
pub(crate) fn verify(key: &str, bytes: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
    KeyPair::from_public_key(key)?.verify(bytes, signature).map_err(|_| SignatureError::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_random_hidden_and_lead_to_public_keys() {
        let seeds = Seeds::generate().unwrap();
        assert_ne!(seeds.login, seeds.sign);
        assert_ne!(seeds, Seeds::generate().unwrap());
        assert!(!format!("{seeds:?}").contains(&seeds.sign));
        seeds.public().unwrap().check("h1").unwrap();
        for bad in ["", "U", "x y", &seeds.login] {
            let keys = PublicKeys { login: bad.into(), sign: seeds.public().unwrap().sign };
            assert!(keys.check("h1").unwrap_err().to_string().contains("h1"), "{bad}");
        }
        assert!(Seeds { login: "x".into(), ..seeds }.public().is_err());
    }
}
