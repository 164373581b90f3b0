//! Invariants of the capture reader, for the fuzz target and the replay of its corpus.

use crate::capture::{CaptureError, Counts, Reader};

/// A capture is read to its end or to one error; payloads are at the offsets that are reported.
pub fn capture(bytes: &[u8]) {
    if let Ok(reader) = Reader::new("input", bytes) {
        drain(reader, bytes);
    }
    if let Ok(reader) = Reader::or_telegrams("input", bytes) {
        drain(reader, bytes);
    }
}

fn drain(mut reader: Reader<&[u8]>, bytes: &[u8]) {
    loop {
        match reader.next_datagram() {
            Ok(Some(found)) => {
                let at = found.offset as usize;
                assert_eq!(bytes.get(at..at + found.payload.len()), Some(found.payload));
            }
            Ok(None) => break,
            Err(CaptureError::Link { .. }) => {}
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(reader.next_datagram().ok(), Some(None), "it is over");
                break;
            }
        }
        // A record takes at least a few bytes.
        assert!(reader.counts().packets <= bytes.len() as u64);
    }
    let counts: Counts = *reader.counts();
    assert!(counts.balances(), "{counts:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_captures_holds() {
        testkit::corpus::replay("capture", super::capture);
    }
}
