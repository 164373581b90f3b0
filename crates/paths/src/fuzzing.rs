//! What the fuzz targets hold true of files and messages that the paths read.

use std::str;

use crate::feed::capture::{CaptureError, Counts, Reader};
use crate::tunnel::config::Config;

pub use crate::probe::peer::fuzzing::peer_message;

/// A configuration is read, and what it says can be used; or each error is on a line that there
/// is, and says what to write instead.
pub fn tunnel_config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Config::parse(text) {
        Ok(config) => {
            assert!(config.fixed_differences(&config).is_empty());
            config.table(7).expect("static addresses were checked");
            config.classifier();
            config.shaper(0);
            assert_eq!(config.decap().tunnels.len(), config.tunnels.len());
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{error}");
                assert!(!error.problem.is_empty() && !error.remedy.is_empty(), "{error}");
            }
        }
    }
}

/// A capture is read to its end or to one error; what it holds lies where it is said to lie.
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
    use crate::inputs;

    fn replay(target: &str, body: fn(&[u8])) {
        let inputs = inputs::of(target);
        inputs.iter().for_each(|bytes| body(bytes));
        assert!(inputs.len() >= 5, "{target} has {} inputs", inputs.len());
    }

    #[test]
    fn corpus_of_configurations_holds() {
        replay("tunnel_config", super::tunnel_config);
    }

    #[test]
    fn corpus_of_captures_holds() {
        replay("capture", super::capture);
    }

    #[test]
    fn corpus_of_peer_messages_holds() {
        replay("peer_message", super::peer_message);
    }
}
