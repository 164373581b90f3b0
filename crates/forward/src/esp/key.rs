//! A key of one direction.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::{IV_BYTES, TAG_BYTES};

/// SPIs up to this one are reserved. Source: RFC 4303, section 2.1.
const SPI_RESERVED_MAX: u32 = 255;

/// Key of one direction with its number (SPI).
pub struct Key {
    spi: u32,
    cipher: LessSafeKey,
    salt: [u8; 4],
    is_extended: bool,
}

/// Error in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither 16 nor 32 bytes.
    #[error("a key has {found} bytes; give 16 or 32")]
    Length {
        /// Its bytes.
        found: usize,
    },
    /// Another length of a salt.
    #[error("a salt has four bytes, in hexadecimal digits")]
    Salt,
    /// The number is reserved.
    #[error("SPI {spi} is reserved; give {} or more", SPI_RESERVED_MAX + 1)]
    Spi {
        /// The number.
        spi: u32,
    },
}

impl Key {
    /// - `secret`: 16 or 32 bytes, for AES-128 or AES-256.
    /// - `is_extended`: sequence numbers have 64 bits, of which 32 are sent (RFC 4304).
    pub fn new(spi: u32, secret: &[u8], salt: [u8; 4], is_extended: bool) -> Result<Key, KeyError> {
        if spi <= SPI_RESERVED_MAX {
            return Err(KeyError::Spi { spi });
        }
        let wrong = KeyError::Length { found: secret.len() };
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            _ => return Err(wrong),
        };
        let cipher = LessSafeKey::new(UnboundKey::new(algorithm, secret).map_err(|_| wrong)?);
        Ok(Key { spi, cipher, salt, is_extended })
    }

    /// Its number.
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// True if sequence numbers have 64 bits.
    pub fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Encrypts in place. `None` if the text is too long for the cipher, which no packet is.
    pub(super) fn seal(
        &self,
        sequence: u64,
        iv: [u8; IV_BYTES],
        text: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let (bytes, len) = self.authenticated(sequence);
        let aad = Aad::from(&bytes[..len]);
        let tag = self.cipher.seal_in_place_separate_tag(self.nonce(iv), aad, text).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts in place. Returns the length of the plain text; `None` if the tag is wrong.
    ///
    /// - `sealed`: cipher text and tag.
    pub(super) fn open(
        &self,
        sequence: u64,
        iv: [u8; IV_BYTES],
        sealed: &mut [u8],
    ) -> Option<usize> {
        let (bytes, len) = self.authenticated(sequence);
        let aad = Aad::from(&bytes[..len]);
        Some(self.cipher.open_in_place(self.nonce(iv), aad, sealed).ok()?.len())
    }

    fn nonce(&self, iv: [u8; IV_BYTES]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&iv);
        Nonce::assume_unique_for_key(nonce)
    }

    /// SPI and sequence number. Source: RFC 4106, section 5.
    fn authenticated(&self, sequence: u64) -> ([u8; 12], usize) {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.spi.to_be_bytes());
        if self.is_extended {
            bytes[4..].copy_from_slice(&sequence.to_be_bytes());
            return (bytes, 12);
        }
        bytes[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        (bytes, 8)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("spi", &self.spi).finish_non_exhaustive()
    }
}
