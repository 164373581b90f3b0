//! A file, read through a buffer that grows to hold the record at hand.

use std::io::{self, Read};

/// Bytes asked for at once.
const READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Source<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    is_at_end: bool,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Self {
        Source { input, buffer: Vec::new(), start: 0, end: 0, offset: 0, is_at_end: false }
    }

    /// What is buffered and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where in the file [`Source::bytes`] begin.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where in the file what was read ends.
    pub(super) fn end_offset(&self) -> u64 {
        self.offset + (self.end - self.start) as u64
    }

    /// Where in the buffer [`Source::bytes`] begin: a place that stays right until the next
    /// [`Source::more`].
    pub(super) fn place(&self) -> usize {
        self.start
    }

    /// Bytes at a place.
    pub(super) fn at(&self, from: usize, to: usize) -> &[u8] {
        &self.buffer[from..to]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads on; false at the end of the file.
    pub(super) fn more(&mut self) -> io::Result<bool> {
        if self.is_at_end {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < READ_BYTES {
            self.buffer.resize(self.end + READ_BYTES, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.is_at_end = true;
                    return Ok(false);
                }
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads until there are so many bytes; false when the file has fewer.
    pub(super) fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        while self.end - self.start < bytes {
            if !self.more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
