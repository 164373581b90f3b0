//! Invariants of the capture reader, of the detection of protocols and of recorded feeds, for the fuzz targets and the
//! replay of their corpora.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::arbiter::ArbiterLimits;
pub use crate::books::order_book;
use crate::books::{BooksCapacity, BooksShown};
use crate::capture::{CaptureError, Counts, Datagram, Reader};
use crate::json::{Decoder, Format};
use crate::listen::{ListenReport, RecordedPlan, read};
use crate::protocol::{CaptureFlows, ProtocolEvidence, Recognised, evidence};

/// A capture is read to its end or to one error; payloads are at the offsets that are reported.
pub fn capture(bytes: &[u8]) {
    // Offsets of a compressed one are of the inflated bytes.
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return capture_gzip(bytes);
    }
    if let Ok(reader) = Reader::new("input", bytes) {
        drain(reader, bytes);
    }
    if let Ok(reader) = Reader::or_telegrams("input", bytes) {
        drain(reader, bytes);
    }
}

/// A compressed capture: read as such; and, of any bytes, their compressed form is read as they are, and a torn one up
/// to the tear.
pub fn capture_gzip(bytes: &[u8]) {
    drain_any(bytes);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    let packed = encoder.finish().expect("memory");
    let whole = drain_any(&packed);
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        assert_eq!(whole, drain_any(bytes));
    }
    let torn = drain_any(&packed[..packed.len() / 2]);
    assert!(torn.packets <= whole.packets);
}

/// Reads to the end or to one error; returns the counts.
fn drain_any(bytes: &[u8]) -> Counts {
    let Ok(mut reader) = Reader::new("input", bytes) else { return Counts::default() };
    loop {
        match reader.next_datagram() {
            Ok(Some(_)) | Err(CaptureError::Link { .. }) => {}
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(reader.next_datagram().ok(), Some(None), "it is over");
                break;
            }
        }
    }
    assert!(reader.counts().balances());
    *reader.counts()
}

/// Payloads of one flow, each behind its length: what is proved stays proved, and each datagram has an object or is
/// counted.
pub fn protocol(bytes: &[u8]) {
    let mut flows = CaptureFlows::default();
    let (mut rest, mut proved, mut foreign) = (bytes, None, 0);
    let mut decoder = Decoder::new(Vec::new(), Format::Auto);
    while let Some((len, more)) = rest.split_first() {
        let (payload, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let found = evidence(payload);
        let recognised = flows.recognise(None, payload);
        match found {
            ProtocolEvidence::Proof(protocol) => {
                assert_eq!(recognised, Recognised::As(protocol));
                proved.get_or_insert(protocol);
            }
            ProtocolEvidence::Hint(_) => assert!(matches!(recognised, Recognised::As(_))),
            ProtocolEvidence::None => {
                assert_eq!(matches!(recognised, Recognised::Foreign { .. }), proved.is_none())
            }
        }
        foreign += u64::from(matches!(recognised, Recognised::Foreign { .. }));
        assert_eq!((flows.proved(None), flows.foreign_count()), (proved, foreign));
        let (stamp_ns, source, destination) = (None, None, None);
        let datagram = Datagram { number: 1, offset: 0, stamp_ns, source, destination, payload };
        decoder.datagram(&datagram).expect("memory");
        assert_eq!(decoder.counts().foreign, foreign);
    }
    assert_eq!(flows.foreign_text().is_some(), foreign > 0);
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

/// A recorded feed is read to its end or to one error; its counts add up, and it has a page.
pub fn feed_report(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new("input", bytes) else { return };
    let limits = ArbiterLimits {
        held_messages: 16,
        message_bytes: 64,
        reach: 64,
        memory: 256,
        domains: 4,
        ..ArbiterLimits::default()
    };
    let plan = RecordedPlan {
        from: Vec::new(),
        limits,
        books: BooksCapacity { books_max: 4, orders_max: Some(8) },
        books_shown: Some(BooksShown { count: 2, depth: 2 }),
    };
    let mut report = ListenReport::recording(&plan.from);
    let stop = AtomicBool::new(false);
    match read(&mut reader, &plan, &stop, |interval| report.end(interval)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(recording) => {
            report.set_lines(&recording.lines);
            report.late = reader.late();
            assert!(report.balances(), "{}", report.summary_text());
            let page = report.page("Feed", "input").expect("a recording is measured");
            assert!(report::html::summary_page(&page).ends_with("</html>\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_recorded_feeds_holds() {
        testkit::corpus::replay("feed_report", super::feed_report);
        testkit::corpus::replay("capture", super::feed_report);
    }

    #[test]
    fn corpus_of_captures_holds() {
        testkit::corpus::replay("capture", super::capture);
        testkit::corpus::replay("capture", super::capture_gzip);
    }

    #[test]
    fn corpus_of_compressed_captures_holds() {
        testkit::corpus::replay("capture_gzip", super::capture_gzip);
    }

    #[test]
    fn corpus_of_protocols_holds() {
        testkit::corpus::replay("protocol", super::protocol);
    }
}
