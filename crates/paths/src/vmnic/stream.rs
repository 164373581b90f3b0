//! The host's end of a TCP stream: a Linux socket that sends or receives, and digests.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::{Duration, Instant};

use ::io::rusage::ThreadUsage;
use sha2::{Digest, Sha256};
use wire::nettest::stream_byte;

/// Which way a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the guest to the host.
    ToHost,
    /// From the host to the guest.
    ToGuest,
}

/// How long a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many writes.
    Writes(u64),
    /// As many as fit in a time.
    For(Duration),
}

/// What passed at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: u64,
    pub(super) digest: [u8; 32],
    pub(super) wall_ns: u64,
    pub(super) usage: ThreadUsage,
    pub(super) call_count: u64,
}

/// Silence after which the other end is taken for dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the host's end was about when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Accepting,
    Reading,
    Writing,
    /// All is sent; the other end is to close.
    Closing,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doing::Accepting => "accepting",
            Doing::Reading => "reading",
            Doing::Writing => "writing",
            Doing::Closing => "waiting for the other end to close",
        })
    }
}

/// Why the host's end failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} failed after {bytes} bytes and {calls} calls, the last one {lasted:.1?} long")]
pub(super) struct StreamError {
    doing: Doing,
    bytes: u64,
    calls: u64,
    /// How long the call lasted that failed: [`PATIENCE`] for an end that fell silent.
    lasted: Duration,
    source: io::Error,
}

/// Digest and count of what passes.
struct Books {
    digest: Sha256,
    bytes: u64,
    calls: u64,
}

impl Books {
    /// A call until it is over: one with a time limit is interrupted, not resumed, where the
    /// process was stopped meanwhile (signal(7)).
    fn call<R>(
        &mut self,
        doing: Doing,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> Result<R, StreamError> {
        loop {
            let begun = Instant::now();
            match call() {
                Ok(result) => return Ok(result),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let (bytes, calls) = (self.bytes, self.calls);
                    return Err(StreamError {
                        doing,
                        bytes,
                        calls,
                        lasted: begun.elapsed(),
                        source,
                    });
                }
            }
        }
    }
}

/// Accepts one connection and runs the host's end of the stream.
pub(super) fn serve(
    listener: &TcpListener,
    direction: Direction,
    size_bytes: usize,
    length: Length,
) -> Result<Passed, StreamError> {
    let mut books = Books { digest: Sha256::new(), bytes: 0, calls: 0 };
    let stream = books.call(Doing::Accepting, || {
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    })?;
    let (begun, before) = (Instant::now(), ThreadUsage::now());
    match direction {
        Direction::ToHost => receive(&mut &stream, &mut books)?,
        Direction::ToGuest => {
            send(&mut &stream, size_bytes, length, &mut books)?;
            books.call(Doing::Closing, || stream.shutdown(Shutdown::Write))?;
            // The other end closes when it has all.
            while books.call(Doing::Closing, || (&stream).read(&mut [0; 64]))? > 0 {}
        }
    }
    Ok(Passed {
        bytes: books.bytes,
        digest: books.digest.finalize().into(),
        wall_ns: begun.elapsed().as_nanos() as u64,
        usage: ThreadUsage::now().since(&before),
        call_count: books.calls,
    })
}

fn receive(stream: &mut impl Read, books: &mut Books) -> Result<(), StreamError> {
    let mut chunk = vec![0; 65_536];
    loop {
        let len = books.call(Doing::Reading, || stream.read(&mut chunk))?;
        books.calls += 1;
        if len == 0 {
            return Ok(());
        }
        books.digest.update(&chunk[..len]);
        books.bytes += len as u64;
    }
}

fn send(
    stream: &mut impl Write,
    size_bytes: usize,
    length: Length,
    books: &mut Books,
) -> Result<(), StreamError> {
    let chunk: Vec<u8> = (0..size_bytes).map(stream_byte).collect();
    let begun = Instant::now();
    let over = |calls: u64| match length {
        Length::Writes(count) => calls >= count,
        Length::For(time) => begun.elapsed() >= time,
    };
    while !over(books.calls) {
        // It resumes by itself.
        books.call(Doing::Writing, || stream.write_all(&chunk))?;
        books.digest.update(&chunk);
        books.bytes += size_bytes as u64;
        books.calls += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives what it holds, a piece a call, with an interruption before each.
    struct Stopped {
        pieces: Vec<&'static [u8]>,
        interrupts: bool,
    }

    impl Read for Stopped {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.interrupts = !self.interrupts;
            if self.interrupts {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let Some(piece) = self.pieces.pop() else { return Ok(0) };
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn books() -> Books {
        Books { digest: Sha256::new(), bytes: 0, calls: 0 }
    }

    #[test]
    fn a_process_that_was_stopped_goes_on_reading() {
        let mut stream = Stopped { pieces: vec![b"stream", b"a "], interrupts: false };
        let mut books = books();
        receive(&mut stream, &mut books).unwrap();
        assert_eq!((books.bytes, books.calls), (8, 3));
        assert_eq!(books.digest.finalize(), Sha256::digest(b"a stream"));
    }

    #[test]
    fn a_failure_says_what_was_done_and_how_far_it_came() {
        struct Reset(bool);
        impl Read for Reset {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Ok(1000)
            }
        }
        let error = receive(&mut Reset(false), &mut books()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("reading failed after 1000 bytes and 1 calls"), "{text}");
        assert_eq!(error.source.kind(), io::ErrorKind::ConnectionReset);
    }
}
