//! The log as a stream of lines.

use super::book::Book;
use super::line::Line;

/// Longest line that is read. Those of the events have a hundred bytes.
const LINE_BYTES_MAX: usize = 512;

/// Reads a log in pieces of any length into a [`Book`].
#[derive(Debug, Default)]
pub(crate) struct LogReader {
    pub(crate) book: Book,
    /// Begin of the line that is not complete.
    partial: Vec<u8>,
    /// The line is too long, and is left out.
    skips: bool,
}

impl LogReader {
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.extend(line);
            if !self.skips
                && let Some(line) = Line::parse(&self.partial)
            {
                self.book.enter(&line);
            }
            self.partial.clear();
            self.skips = false;
            bytes = rest;
        }
        self.extend(bytes);
    }

    fn extend(&mut self, part: &[u8]) {
        self.skips |= self.partial.len() + part.len() > LINE_BYTES_MAX;
        if !self.skips {
            self.partial.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "1@5.000001:virtio_queue_notify vdev 0x5 n 1 vq 0x9\n\
                       2@5.000003:virtqueue_pop vq 0x9 elem 0x7 in_num 0 out_num 1\n\
                       2@5.000007:virtqueue_fill vq 0x9 elem 0x7 len 0 idx 0\n\
                       2@5.000009:virtio_notify vdev 0x5 vq 0x9\n";

    #[test]
    fn pieces_of_any_length_read_the_same() {
        for len in [1, 2, 7, 64, LOG.len()] {
            let mut reader = LogReader::default();
            LOG.as_bytes().chunks(len).for_each(|piece| reader.push(piece));
            let cards = reader.book.cards();
            assert_eq!(cards.len(), 1, "{len}");
            assert_eq!(cards[0].frames_from_guest_count, 1);
            assert_eq!(cards[0].notification_count, 1);
        }
    }

    #[test]
    fn endless_line_takes_no_memory_and_hides_no_later_line() {
        let mut reader = LogReader::default();
        for _ in 0..1000 {
            reader.push(&[b'x'; 1000]);
        }
        assert!(reader.partial.capacity() <= 2 * LINE_BYTES_MAX);
        reader.push(b"\n");
        reader.push(LOG.as_bytes());
        assert_eq!(reader.book.cards()[0].frames_from_guest_count, 1);
    }
}
