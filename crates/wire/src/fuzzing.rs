//! What the fuzz targets do with their bytes; the committed corpus is replayed through the
//! same functions by `cargo test`.
//!
//! Beyond "no panic", each holds up what must be true of any input that parses.

use crate::probe::Header;

/// A UDP payload: what parses is written back as it was.
pub fn probe_header(payload: &[u8]) {
    if let Ok(header) = Header::parse(payload) {
        assert_eq!(header.to_bytes()[..], payload[..crate::probe::HEADER_BYTES]);
    }
}
