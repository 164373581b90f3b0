//! Invariants of the capture reader and of recorded feeds, for the fuzz targets and the replay of their corpora.

use std::sync::atomic::AtomicBool;

use crate::arbiter::Limits;
use crate::capture::{CaptureError, Counts, Reader};
use crate::listen::{RecordedPlan, Report, read};

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

/// A recorded feed is read to its end or to one error; its counts add up, and it has a page.
pub fn feed_report(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new("input", bytes) else { return };
    let limits = Limits {
        held_messages: 16,
        message_bytes: 64,
        reach: 64,
        memory: 256,
        domains: 4,
        ..Limits::default()
    };
    let plan = RecordedPlan { from: Vec::new(), limits, books_max: 4 };
    let mut report = Report::of_recording(&plan.from);
    let stop = AtomicBool::new(false);
    match read(&mut reader, &plan, &stop, |interval| report.end(interval)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(lines) => {
            report.set_lines(&lines);
            report.late = reader.late();
            assert!(report.balances(), "{}", report.summary_text());
            let page = report.page("Feed", "input").expect("a recording is measured");
            assert!(report::html::feed_page(&page).ends_with("</html>\n"));
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
    }
}
