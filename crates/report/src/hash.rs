//! Short hashes of texts, for ids.

use sha2::{Digest, Sha256};

/// Characters of [`short_hash`].
pub(crate) const SHORT_HASH_LEN: usize = 16;

/// First 64 bits of a text's SHA-256, in hexadecimal digits.
pub(crate) fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(SHORT_HASH_LEN / 2).map(|byte| format!("{byte:02x}")).collect()
}
