//! Oracle of the fuzz target for the framing.

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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn corpus_of_exchange_lines_passes() {
        testkit::corpus::replay("exchange_lines", super::exchange_lines);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_bytes_are_cut(
            bytes in vec(prop_oneof![3 => Just(b'x'), 1 => Just(b'\n'), 1 => any::<u8>()], 0..400),
        ) {
            super::exchange_lines(&bytes);
        }
    }
}
