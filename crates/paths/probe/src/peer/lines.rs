//! Framing of the control connection: one line of JSON for each message, encrypted if there is a secret.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::socket;
use sys::thread::start;

use super::noise::{Opener, Sealer};
use super::protocol::{PATIENCE, PeerError};

/// Longest line accepted from an authenticated end.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest line accepted during the handshake.
const GREETING_BYTES_MAX: usize = 4096;
/// Bytes read at a time.
const READ_BYTES: usize = 16 * 1024;
/// Interval between checks that the other end is still connected.
const WATCH_PAUSE: Duration = Duration::from_millis(20);
/// Silence of the other host after which the kernel ends the connection.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Sending half of a control connection; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Writer(Arc<Mutex<Outgoing>>);

#[derive(Debug)]
struct Outgoing {
    stream: TcpStream,
    /// `None` before encryption starts, or without a secret.
    sealer: Option<Sealer>,
}

impl Writer {
    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), PeerError> {
        self.send_line(&line_of(message)?).map_err(|source| PeerError::Broken { source })
    }

    fn send_line(&self, line: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        let Some(sealer) = out.sealer.as_mut() else { return out.stream.write_all(line) };
        let sealed = sealer.seal(line)?;
        out.stream.write_all(&sealed)
    }

    /// After a panic while it was locked the other end gets at worst half a line, which it refuses.
    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message as it is sent, with its line break.
fn line_of(message: &impl Serialize) -> Result<Vec<u8>, PeerError> {
    let mut line =
        serde_json::to_vec(message).map_err(|e| PeerError::Garbled { what: e.to_string() })?;
    line.push(b'\n');
    Ok(line)
}

/// The message of a line.
pub(super) fn message_of<T: DeserializeOwned>(line: &[u8]) -> Result<T, PeerError> {
    serde_json::from_slice(line).map_err(|e| PeerError::Garbled { what: e.to_string() })
}

/// One end of the control connection.
#[derive(Debug)]
pub(super) struct Lines {
    stream: TcpStream,
    writer: Writer,
    /// `None` before encryption starts, or without a secret.
    opener: Option<Opener>,
    /// Received and decrypted bytes of lines that were not returned yet.
    received: Vec<u8>,
    /// Longest line accepted, bytes.
    line_bytes_max: usize,
}

impl Lines {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        socket::end_when_silent(stream.as_fd(), GONE_AFTER)?;
        let outgoing = Outgoing { stream: stream.try_clone()?, sealer: None };
        Ok(Lines {
            writer: Writer(Arc::new(Mutex::new(outgoing))),
            stream,
            opener: None,
            received: Vec::new(),
            line_bytes_max: GREETING_BYTES_MAX,
        })
    }

    /// Raises the line limit after the other end has authenticated.
    pub(super) fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    /// Encrypts all lines from now on.
    pub(super) fn encrypt(
        &mut self,
        (sealer, mut opener): (Sealer, Opener),
    ) -> Result<(), PeerError> {
        // Bytes behind the handshake are encrypted already.
        let sealed = std::mem::take(&mut self.received);
        opener.open(&sealed, &mut self.received)?;
        self.opener = Some(opener);
        self.writer.lock().sealer = Some(sealer);
        Ok(())
    }

    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), PeerError> {
        self.writer.send(message)
    }

    /// Sends a message; returns its line.
    pub(super) fn greet(&self, message: &impl Serialize) -> Result<Vec<u8>, PeerError> {
        let line = line_of(message)?;
        self.writer.send_line(&line).map_err(|source| PeerError::Broken { source })?;
        Ok(line)
    }

    /// The sending half, for another thread.
    pub(super) fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// Receives the next message; `None` if the other end has closed the connection.
    ///
    /// - `within`: time limit for the whole line, however slowly its bytes arrive. A partial line
    ///   is kept for the next call.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> Result<Option<T>, PeerError> {
        self.receive_line(within)?.map(|line| message_of(&line)).transpose()
    }

    /// As [`Self::receive`], the line as it came.
    pub(super) fn receive_line(&mut self, within: Duration) -> Result<Option<Vec<u8>>, PeerError> {
        let until = Instant::now() + within;
        let mut searched = 0;
        loop {
            let end = self.received[searched..].iter().position(|byte| *byte == b'\n');
            let len = end.map_or(self.received.len(), |at| searched + at + 1);
            let line_bytes_max = self.line_bytes_max;
            if len > line_bytes_max {
                let what = format!("a line is longer than {line_bytes_max} bytes");
                return Err(PeerError::Garbled { what });
            }
            if end.is_some() {
                let rest = self.received.split_off(len);
                return Ok(Some(std::mem::replace(&mut self.received, rest)));
            }
            searched = len;
            if self.read_on(until)? == 0 {
                let within_record = self.opener.as_ref().is_some_and(Opener::is_within_record);
                if len == 0 && !within_record {
                    return Ok(None);
                }
                let what = format!("line incomplete after {len} bytes");
                return Err(PeerError::Garbled { what });
            }
        }
    }

    /// Reads available bytes; returns how many, 0 only if the connection is closed.
    fn read_on(&mut self, until: Instant) -> Result<usize, PeerError> {
        let mut bytes = [0; READ_BYTES];
        // A stranger's line takes no more memory than its limit.
        let room = (self.line_bytes_max + 1).saturating_sub(self.received.len());
        let bytes = &mut bytes[..room.clamp(1, READ_BYTES)];
        let read = loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(io::ErrorKind::TimedOut.into());
            }
            let set = self.stream.set_read_timeout(Some(left));
            match set.and_then(|()| self.stream.read(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let len = read.map_err(|source| PeerError::Broken { source })?;
        match self.opener.as_mut() {
            Some(opener) => opener.open(&bytes[..len], &mut self.received)?,
            None => self.received.extend_from_slice(&bytes[..len]),
        }
        Ok(len)
    }

    /// Runs `body` while another thread calls `tick` periodically, and `gone` once if the other end
    /// closes the connection or sends a message, which it does during this time only to end the session.
    pub(super) fn watch<R>(
        &self,
        tick: impl Fn() + Sync,
        gone: impl Fn() + Sync,
        body: impl FnOnce() -> R,
    ) -> io::Result<R> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = start(scope, "watch", || {
                // This thread polls one socket and needs no capability. A failure is ignored here:
                // the engine's thread reports it.
                let _ = sys::capability::keep(&[]);
                let mut is_open = true;
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(WATCH_PAUSE);
                    tick();
                    if is_open && !is_open_still(&self.stream) {
                        is_open = false;
                        gone();
                    }
                }
                Ok::<_, String>(())
            });
            if let Some(why) = watching.refused() {
                return Err(io::Error::other(why.to_string()));
            }
            let result = body();
            done.store(true, Ordering::Relaxed);
            Ok(result)
        })
    }

    /// Receives the next message. A closed connection is an error.
    pub(super) fn expect<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, PeerError> {
        let closed = || PeerError::Broken { source: io::ErrorKind::UnexpectedEof.into() };
        match self.receive(within) {
            // A read that timed out: the system calls it EAGAIN.
            Err(error) if error.is_timeout() => Err(PeerError::Late { within }),
            received => received?.ok_or_else(closed),
        }
    }
}

/// True if nothing came from the other end: neither a close nor a reset, nor a message about the end of the
/// session.
fn is_open_still(stream: &TcpStream) -> bool {
    let ready = socket::wait(stream.as_fd(), false, Duration::ZERO);
    ready.is_ok_and(|ready| !ready.readable && !ready.failed)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::protocol::Say;
    use super::*;

    #[test]
    fn a_peer_that_is_late_is_not_called_a_broken_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lines = Lines::new(near).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(b"{").unwrap();
        let late = lines.expect::<Say>(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(late.contains("did not answer within 0.02 s"), "{late}");
        drop(far);
        let broken = lines.expect::<Say>(Duration::from_secs(60)).unwrap_err().to_string();
        assert!(!broken.contains("did not answer"), "{broken}");
    }
}
