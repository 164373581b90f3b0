//! Framing: each message is one line of JSON, and an empty line only shows that the connection holds.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Interval of the empty lines of a calling end.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Time without a line after which the calling end counts as gone, and time that a line may wait to be read.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(15);
/// Longest call, bytes.
pub const LINE_BYTES_MAX: usize = 4 << 20;
/// Longest greeting, bytes.
pub(crate) const GREETING_BYTES_MAX: usize = 4096;
/// Bytes that a writable pipe takes without a wait.
///
/// Source: PIPE_BUF of pipe(7).
const PIPE_BYTES: usize = 4096;
/// Interval of the checks whether the other end is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A line without end, or one that is longer than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {bytes_max} bytes")]
pub struct TooLong {
    pub bytes_max: usize,
}

/// Received bytes of which lines are taken; no byte is searched twice.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes at the start that were taken.
    taken_len: usize,
    /// Bytes at the start that were taken or have no line break.
    searched_len: usize,
    line_bytes_max: usize,
}

impl LineBuffer {
    pub fn new(line_bytes_max: usize) -> Self {
        LineBuffer { bytes: Vec::new(), taken_len: 0, searched_len: 0, line_bytes_max }
    }

    pub fn set_line_bytes_max(&mut self, line_bytes_max: usize) {
        self.line_bytes_max = line_bytes_max;
    }

    /// Bytes that were received and not taken.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken_len..]
    }

    /// Bytes to receive at most before the next line is taken: a line takes no more memory than its limit.
    pub fn room(&self) -> usize {
        (self.line_bytes_max + 1).saturating_sub(self.rest().len()).max(1)
    }

    /// Takes the bytes of which no line was taken.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.rest().to_vec();
        self.taken_len = self.bytes.len();
        self.searched_len = self.bytes.len();
        rest
    }

    /// The buffer to which received bytes are appended.
    pub fn received(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.taken_len);
        self.searched_len -= self.taken_len;
        self.taken_len = 0;
        &mut self.bytes
    }

    /// Takes the next line, with its line break; `None` if none is complete.
    pub fn take_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let found = self.bytes[self.searched_len..].iter().position(|byte| *byte == b'\n');
        let end = found.map_or(self.bytes.len(), |at| self.searched_len + at + 1);
        if end - self.taken_len > self.line_bytes_max {
            return Err(TooLong { bytes_max: self.line_bytes_max });
        }
        self.searched_len = end;
        if found.is_none() {
            return Ok(None);
        }
        let line = self.bytes[self.taken_len..end].to_vec();
        self.taken_len = end;
        Ok(Some(line))
    }
}

/// A value as one line of JSON, with its line break.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// A message as it is sent, with its line break.
///
/// Errors: it cannot be written as JSON, or is longer than [`LINE_BYTES_MAX`].
pub(crate) fn message_line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let line = json_line(message)?;
    if line.len() > LINE_BYTES_MAX {
        return Err(io::Error::other(TooLong { bytes_max: LINE_BYTES_MAX }));
    }
    Ok(line)
}

/// Writes `line` to a pipe, without a wait beyond [`SILENCE_LIMIT`] for an end that does not read.
///
/// Errors: `is_gone` returned true during a wait, or the pipe is broken.
pub(crate) fn write_line(
    mut pipe: impl AsFd + Write,
    line: &[u8],
    is_gone: impl Fn() -> bool,
) -> io::Result<()> {
    for piece in line.chunks(PIPE_BYTES) {
        let until = Instant::now() + SILENCE_LIMIT;
        loop {
            let ready = sys::socket::wait(pipe.as_fd(), true, POLL_INTERVAL)?;
            if ready.writable || ready.failed {
                break;
            }
            if is_gone() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            // Of a socket in both directions only the input may be ready.
            thread::sleep(Duration::from_millis(1));
        }
        pipe.write_all(piece)?;
    }
    pipe.flush()
}
