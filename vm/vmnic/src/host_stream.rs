//! The host's end of a TCP stream: a Linux socket that sends or receives, and digests if asked to.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::{Duration, Instant};

use guest_pages::stream_byte;
use sha2::{Digest, Sha256};
use sys::rusage::ThreadUsage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDirection {
    /// From the guest to the host.
    ToHost,
    /// From the host to the guest.
    ToGuest,
}

/// Length of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Number of writes.
    Writes(u64),
    /// Duration.
    For(Duration),
}

/// Bytes that passed at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: u64,
    /// SHA-256; zeros if the stream is not digested.
    pub(super) digest: [u8; 32],
    pub(super) wall_ns: u64,
    pub(super) usage: ThreadUsage,
    pub(super) call_count: u64,
}

/// Silence after which the stream fails.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Operation of the host's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamOperation {
    Accepting,
    Reading,
    Writing,
    /// All is sent; waiting for the other end to close.
    Closing,
}

impl fmt::Display for StreamOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamOperation::Accepting => "accepting",
            StreamOperation::Reading => "reading",
            StreamOperation::Writing => "writing",
            StreamOperation::Closing => "waiting for the other end to close",
        })
    }
}

/// Error of the host's end.
#[derive(Debug, thiserror::Error)]
#[error("{doing} failed after {bytes} bytes and {calls} calls, the last one {lasted:.1?} long")]
pub(super) struct StreamError {
    doing: StreamOperation,
    bytes: u64,
    calls: u64,
    /// Duration of the failed call: [`SILENCE_TIMEOUT`] if the other end was silent.
    lasted: Duration,
    source: io::Error,
}

/// Digest and count of the bytes that pass.
struct Totals {
    digest: Option<Sha256>,
    bytes: u64,
    calls: u64,
}

impl Totals {
    fn add(&mut self, bytes: &[u8]) {
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        self.bytes += bytes.len() as u64;
    }

    /// Retries an interrupted call: one with a time limit is not resumed after the process was stopped
    /// (signal(7)).
    fn call<R>(
        &mut self,
        doing: StreamOperation,
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
    direction: StreamDirection,
    size_bytes: usize,
    length: Length,
    is_digested: bool,
) -> Result<Passed, StreamError> {
    let digest = is_digested.then(Sha256::new);
    let mut totals = Totals { digest, bytes: 0, calls: 0 };
    let stream = totals.call(StreamOperation::Accepting, || {
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        Ok(stream)
    })?;
    let (begun, before) = (Instant::now(), ThreadUsage::now());
    match direction {
        StreamDirection::ToHost => receive(&mut &stream, &mut totals)?,
        StreamDirection::ToGuest => {
            send(&mut &stream, size_bytes, length, &mut totals)?;
            totals.call(StreamOperation::Closing, || stream.shutdown(Shutdown::Write))?;
            // The other end closes when it has received all.
            while totals.call(StreamOperation::Closing, || (&stream).read(&mut [0; 64]))? > 0 {}
        }
    }
    Ok(Passed {
        bytes: totals.bytes,
        digest: totals.digest.map_or([0; 32], |digest| digest.finalize().into()),
        wall_ns: begun.elapsed().as_nanos() as u64,
        usage: ThreadUsage::now().since(&before),
        call_count: totals.calls,
    })
}

fn receive(stream: &mut impl Read, totals: &mut Totals) -> Result<(), StreamError> {
    let mut chunk = vec![0; 65_536];
    loop {
        let len = totals.call(StreamOperation::Reading, || stream.read(&mut chunk))?;
        totals.calls += 1;
        if len == 0 {
            return Ok(());
        }
        totals.add(&chunk[..len]);
    }
}

fn send(
    stream: &mut impl Write,
    size_bytes: usize,
    length: Length,
    totals: &mut Totals,
) -> Result<(), StreamError> {
    let chunk: Vec<u8> = (0..size_bytes).map(stream_byte).collect();
    let begun = Instant::now();
    while match length {
        Length::Writes(count) => totals.calls < count,
        Length::For(time) => begun.elapsed() < time,
    } {
        // Resumes by itself after an interruption.
        totals.call(StreamOperation::Writing, || stream.write_all(&chunk))?;
        totals.add(&chunk);
        totals.calls += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one piece per call, with an interruption before each.
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

    fn totals() -> Totals {
        Totals { digest: Some(Sha256::new()), bytes: 0, calls: 0 }
    }

    #[test]
    fn reading_continues_after_an_interruption() {
        let mut stream = Stopped { pieces: vec![b"stream", b"a "], interrupts: false };
        let mut totals = totals();
        receive(&mut stream, &mut totals).unwrap();
        assert_eq!((totals.bytes, totals.calls), (8, 3));
        assert_eq!(totals.digest.unwrap().finalize(), Sha256::digest(b"a stream"));
    }

    #[test]
    fn error_has_the_operation_and_the_bytes_so_far() {
        struct Reset(bool);
        impl Read for Reset {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Ok(1000)
            }
        }
        let error = receive(&mut Reset(false), &mut totals()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("reading failed after 1000 bytes and 1 calls"), "{text}");
        assert_eq!(error.source.kind(), io::ErrorKind::ConnectionReset);
    }
}
