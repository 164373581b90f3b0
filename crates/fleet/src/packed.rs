//! Deflated texts of messages and rows.

use std::cell::RefCell;
use std::io::Read;

use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};

/// The fastest level that makes codes for the text. A report of `prove` (77 kB) has 12.3 kB by it and 10.9 kB by the usual
/// level 6, which takes half as long again.
const LEVEL: u32 = 2;

thread_local! {
    /// Its quarter of a MiB is used again: taken from the system for each text, it cost more than the work.
    static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(LEVEL), false));
}

/// Deflates a text.
pub(crate) fn deflate(text: &[u8]) -> Vec<u8> {
    COMPRESS.with_borrow_mut(|compress| {
        compress.reset();
        let mut deflated = Vec::with_capacity(text.len() / 2 + 64);
        loop {
            let rest = text.get(compress.total_in() as usize..).unwrap_or_default();
            match compress.compress_vec(rest, &mut deflated, FlushCompress::Finish) {
                Ok(Status::Ok | Status::BufError) => deflated.reserve(deflated.capacity()),
                // An error needs a wrong order of calls.
                Ok(Status::StreamEnd) | Err(_) => return deflated,
            }
        }
    })
}

/// Inflates a text of at most `limit` bytes. Errors: the reason in words.
pub(crate) fn inflate(deflated: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = DeflateDecoder::new(deflated).take(limit.saturating_add(1)).read_to_end(&mut text);
    read.map_err(|e| format!("it cannot be inflated: {e}"))?;
    if text.len() as u64 > limit {
        Err(format!("it inflates to more than {limit} bytes"))
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_one_after_the_other_and_long_ones_are_refused() {
        for length in [0, 1, 100, 70_000, 1_000_000] {
            let text: Vec<u8> =
                (0..length).map(|at: u32| (at.wrapping_mul(at) >> 7) as u8).collect();
            let deflated = deflate(&text);
            assert_eq!(inflate(&deflated, text.len() as u64).unwrap(), text);
            if length > 0 {
                let refused = inflate(&deflated, text.len() as u64 - 1).unwrap_err();
                assert!(refused.contains("more than"), "{refused}");
            }
        }
        assert!(inflate(b"\xff\xff", 10).unwrap_err().contains("cannot be inflated"));
    }
}
