//! Oracles of what other programs send: the framing, and the contract of a path.

use crate::path::{PathDescription, TrialReport};
use crate::{Greeting, LineBuffer};

/// Longest line of the oracle, bytes.
const LINE_BYTES_MAX: usize = 48;

/// However the bytes are cut, the same lines come out as from the whole, and no more is kept than one line.
///
/// - `bytes`: the length of the pieces, and then the received bytes.
pub fn exchange_lines(bytes: &[u8]) {
    let Some((piece_len, received)) = bytes.split_first() else { return };
    let mut lines = LineBuffer::new(LINE_BYTES_MAX);
    let mut taken = Vec::new();
    let mut unread = received;
    let is_too_long = loop {
        match lines.take_line() {
            Ok(Some(line)) => taken.push(line),
            Err(_) => break true,
            Ok(None) if unread.is_empty() => break false,
            Ok(None) => {
                let len = usize::from(*piece_len).max(1).min(lines.room()).min(unread.len());
                let (piece, rest) = unread.split_at(len);
                lines.received().extend_from_slice(piece);
                unread = rest;
                assert!(lines.rest().len() <= LINE_BYTES_MAX + 1);
            }
        }
    };
    let whole = received.split_inclusive(|byte| *byte == b'\n');
    let fitting = whole.clone().take_while(|line| line.len() <= LINE_BYTES_MAX);
    let complete: Vec<_> = fitting.filter(|line| line.ends_with(b"\n")).collect();
    assert_eq!(taken, complete);
    assert_eq!(is_too_long, whole.into_iter().any(|line| line.len() > LINE_BYTES_MAX));
    if let Ok(greeting) = serde_json::from_slice::<Greeting>(received) {
        let written = serde_json::to_vec(&greeting).expect("only string keys");
        assert_eq!(serde_json::from_slice::<Greeting>(&written).expect("we wrote it"), greeting);
    }
}

/// The description of a path is refused, or reads the same once it was written; a report is refused, or has metrics.
///
/// - `bytes`: a greeting, or the measurement of an answer.
pub fn path_messages(bytes: &[u8]) {
    if let Ok(report) = serde_json::from_slice::<TrialReport>(bytes)
        && let Ok(measurement) = report.measurement("near", &[])
    {
        let metrics = measurement.metrics();
        assert!(
            metrics.iter().all(|metric| metric.value.as_ref().is_ok_and(|value| value.is_finite())
                || metric.value.is_err())
        );
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(read) = PathDescription::read(text, "echo") else { return };
    assert!(!read.loads.is_empty() && read.loads.iter().all(|load| !load.judged.is_empty()));
    let written = serde_json::json!({ "path": &read }).to_string();
    assert_eq!(PathDescription::read(&written, "echo"), Ok(read));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn corpus_of_exchange_lines_passes() {
        testkit::corpus::replay("exchange_lines", super::exchange_lines);
    }

    const GREETING: &str = r#"{"path":{"contract":1,"name":"echo","what":"a","switches":[{"id":"spin","effect":"b"}],"loads":[{"name":"ping","what":"c","judged":["rtt_ns_p50"]}],"metrics":{"m":{"unit":"ns","better":"lower"}}}}"#;
    const REPORT: &str = r#"{"wall_ns":5,"metrics":{"x_us":1.5},"samples_ns":{"rtt":[1,2000,70]},"deliveries":{"forward":{"sent_count":5,"received_count":4}},"cost":{"user_ns":4},"throughput":{"interval_ns":1,"received_count":2,"payload_bytes":3}}"#;

    #[test]
    fn corpus_of_path_messages_passes() {
        testkit::corpus::replay("path_messages", super::path_messages);
        super::path_messages(GREETING.as_bytes());
        super::path_messages(REPORT.as_bytes());
    }

    proptest! {
        #[test]
        fn changed_messages_of_a_path_are_refused_or_read(
            changes in vec((any::<prop::sample::Index>(), prop_oneof![
                Just("9"), Just("99999999999999999999"), Just("-1"), Just("e308"), Just("null"), Just("\""), Just("{"),
                Just("]"), Just(","), Just("\\u001b"), Just("A"), Just(""),
            ]), 1..4),
            is_report in any::<bool>(),
        ) {
            let mut text = (if is_report { REPORT } else { GREETING }).to_owned();
            for (place, change) in changes {
                let at = place.index(text.len());
                if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                    text.replace_range(at..=at, change);
                }
            }
            super::path_messages(text.as_bytes());
        }

        #[test]
        fn lines_are_the_same_however_the_bytes_are_cut(
            bytes in vec(prop_oneof![3 => Just(b'x'), 1 => Just(b'\n'), 1 => any::<u8>()], 0..400),
        ) {
            super::exchange_lines(&bytes);
        }
    }
}
