//! Oracle of the fuzz target `guest_dump`.

use crate::dump::{Answer, Request};

/// A valid request encodes to the same request; an answer holds no more entries than it has bytes
/// for.
pub fn dump(bytes: &[u8]) {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.bytes()).ok(), Some(request));
    }
    if let Ok(answer) = Answer::parse(bytes) {
        assert!(answer.entries().count() * 16 <= bytes.len());
        answer.counters();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_dumps_holds() {
        let inputs = crate::inputs::of("guest_dump");
        assert!(inputs.len() >= 5);
        inputs.iter().for_each(|bytes| super::dump(bytes));
    }
}
