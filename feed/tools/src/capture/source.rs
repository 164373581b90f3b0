//! Buffered input; the buffer grows to hold the current record.

use std::io::{self, Read};

use super::input::Input;

/// Bytes per read. Few under a fuzzer, whose inputs are then read in parts.
const READ_BYTES: usize = if cfg!(fuzzing) { 512 } else { 256 << 10 };

#[derive(Debug)]
pub(super) struct Source<R> {
    input: Input<R>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    is_at_end: bool,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Source { input, buffer: Vec::new(), start: 0, end: 0, offset: 0, is_at_end: false }
    }

    /// True if the input is inflated; offsets count inflated bytes.
    pub(super) fn is_gzip(&self) -> bool {
        self.input.is_gzip()
    }

    /// Buffered bytes that are not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// File offset of [`Source::bytes`].
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// File offset of the end of the buffered bytes.
    pub(super) fn end_offset(&self) -> u64 {
        self.offset + (self.end - self.start) as u64
    }

    /// Buffer index of [`Source::bytes`], valid until the next [`Source::more`].
    pub(super) fn place(&self) -> usize {
        self.start
    }

    /// Bytes at buffer indexes.
    pub(super) fn at(&self, from: usize, to: usize) -> &[u8] {
        &self.buffer[from..to]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads more; false at the end of the file.
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

    /// Reads until `bytes` are buffered; false if the file has fewer.
    pub(super) fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        while self.end - self.start < bytes {
            if !self.more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
