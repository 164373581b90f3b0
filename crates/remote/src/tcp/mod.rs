//! Transport by TCP: the common framing, encrypted if there is a shared secret.

mod noise;

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

use self::noise::{Opener, Sealer};
use crate::heartbeat::Heartbeat;
use crate::lines::{GREETING_BYTES_MAX, LineBuffer, json_line};
use crate::{RemoteError, TooLong};

pub use self::noise::{Forged, Handshake};

/// Time limit of one line, from the start of the wait to its last byte.
pub const LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line accepted from an authenticated end.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes read at a time.
const READ_BYTES: usize = 16 * 1024;
/// Interval between checks that the other end is still connected.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// Silence of the other host after which the kernel ends the connection.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Sending half of a connection; clones share it.
#[derive(Debug, Clone)]
struct Writer(Arc<Mutex<Outgoing>>);

#[derive(Debug)]
struct Outgoing {
    stream: TcpStream,
    /// `None` before encryption starts, or without a secret.
    sealer: Option<Sealer>,
}

impl Writer {
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

/// The message of a line.
pub fn parse_message<T: DeserializeOwned>(line: &[u8]) -> Result<T, RemoteError> {
    serde_json::from_slice(line).map_err(|e| RemoteError::Invalid { what: e.to_string() })
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    writer: Writer,
    /// `None` before encryption starts, or without a secret.
    opener: Option<Opener>,
    /// Received and decrypted bytes.
    received: LineBuffer,
    /// Time of the last line, a heartbeat included.
    heard_at: Instant,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Result<Self, RemoteError> {
        Self::open(stream).map_err(|source| RemoteError::Lost { source })
    }

    fn open(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LINE_TIMEOUT))?;
        socket::end_when_silent(stream.as_fd(), KEEPALIVE_TIMEOUT)?;
        let outgoing = Outgoing { stream: stream.try_clone()?, sealer: None };
        Ok(Connection {
            writer: Writer(Arc::new(Mutex::new(outgoing))),
            stream,
            opener: None,
            received: LineBuffer::new(GREETING_BYTES_MAX),
            heard_at: Instant::now(),
        })
    }

    /// Raises the line limit after the other end has authenticated.
    pub fn trust(&mut self) {
        self.received.set_line_bytes_max(LINE_BYTES_MAX);
    }

    /// Encrypts all lines from now on.
    ///
    /// Errors: the handshake is not finished, or bytes behind it were not made with its keys.
    pub fn encrypt(&mut self, handshake: Handshake) -> Result<(), RemoteError> {
        let (sealer, mut opener) = handshake.finish()?;
        // Bytes behind the handshake are encrypted already.
        let sealed = self.received.take_rest();
        opener.open(&sealed, self.received.received())?;
        self.opener = Some(opener);
        self.writer.lock().sealer = Some(sealer);
        Ok(())
    }

    /// Sends a message; returns its line.
    pub fn send(&self, message: &impl Serialize) -> Result<Vec<u8>, RemoteError> {
        let line = json_line(message).map_err(|e| RemoteError::Invalid { what: e.to_string() })?;
        self.writer.send_line(&line).map_err(|source| RemoteError::Lost { source })?;
        Ok(line)
    }

    /// Sends signs of life until it is dropped.
    pub fn heartbeat(&self) -> Result<Heartbeat, RemoteError> {
        let writer = self.writer.clone();
        Heartbeat::start(move |_| writer.send_line(b"\n")).map_err(RemoteError::thread)
    }

    /// Time since the last line, a sign of life included.
    pub fn silence(&self) -> Duration {
        self.heard_at.elapsed()
    }

    /// Receives the next message; `None` if the other end has closed the connection.
    ///
    /// - `within`: time limit for the whole line, however slowly its bytes arrive. A partial line
    ///   is kept for the next call.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> Result<Option<T>, RemoteError> {
        self.receive_line(within)?.map(|line| parse_message(&line)).transpose()
    }

    /// As [`Self::receive`], the line as it came.
    pub fn receive_line(&mut self, within: Duration) -> Result<Option<Vec<u8>>, RemoteError> {
        let until = Instant::now() + within;
        loop {
            if let Some(line) = self.received.take_line()? {
                self.heard_at = Instant::now();
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            if self.read_on(until)? == 0 {
                let within_record = self.opener.as_ref().is_some_and(Opener::is_within_record);
                let len = self.received.rest().len();
                if len == 0 && !within_record {
                    return Ok(None);
                }
                let what = format!("line incomplete after {len} bytes");
                return Err(RemoteError::Invalid { what });
            }
        }
    }

    /// Reads available bytes; returns how many, 0 only if the connection is closed.
    fn read_on(&mut self, until: Instant) -> Result<usize, RemoteError> {
        let mut bytes = [0; READ_BYTES];
        // A stranger's line takes no more memory than its limit.
        let bytes = &mut bytes[..self.received.room().min(READ_BYTES)];
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
        let len = read.map_err(|source| RemoteError::Lost { source })?;
        match self.opener.as_mut() {
            Some(opener) => opener.open(&bytes[..len], self.received.received())?,
            None => self.received.received().extend_from_slice(&bytes[..len]),
        }
        Ok(len)
    }

    /// Runs `body` while another thread calls `tick` periodically, and `gone` once if the other end
    /// closes the connection or sends a message, which it does during this time only to end the session.
    pub fn watch<R>(
        &self,
        tick: impl Fn() + Sync,
        gone: impl Fn() + Sync,
        body: impl FnOnce() -> R,
    ) -> Result<R, RemoteError> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = start(scope, "watch", || {
                // This thread polls one socket and needs no capability. A failure is ignored here:
                // the engine's thread reports it.
                let _ = sys::capability::keep(&[]);
                let mut is_open = true;
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(WATCH_INTERVAL);
                    tick();
                    if is_open && !is_open_still(&self.stream) {
                        is_open = false;
                        gone();
                    }
                }
                Ok::<_, String>(())
            });
            if let Some(why) = watching.refused() {
                return Err(RemoteError::Lost { source: io::Error::other(why.to_string()) });
            }
            let result = body();
            done.store(true, Ordering::Relaxed);
            Ok(result)
        })
    }

    /// Receives the next message. A closed connection is an error.
    pub fn expect<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, RemoteError> {
        match self.receive(within) {
            // A read that timed out: the system calls it EAGAIN.
            Err(error) if error.is_timeout() => Err(RemoteError::Late { within }),
            received => received?.ok_or_else(RemoteError::closed),
        }
    }
}

/// True if nothing came from the other end: neither a close nor a reset, nor a message about the end of the
/// session.
fn is_open_still(stream: &TcpStream) -> bool {
    let ready = socket::wait(stream.as_fd(), false, Duration::ZERO);
    ready.is_ok_and(|ready| !ready.readable && !ready.failed)
}

impl From<TooLong> for RemoteError {
    fn from(error: TooLong) -> Self {
        RemoteError::Invalid { what: error.to_string() }
    }
}

impl From<Forged> for RemoteError {
    fn from(_: Forged) -> Self {
        RemoteError::Forged
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_peer_that_is_late_is_not_called_a_broken_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lines = Connection::new(near).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(b"{").unwrap();
        let late = lines.expect::<String>(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(late.contains("did not answer within 0.02 s"), "{late}");
        drop(far);
        let broken = lines.expect::<String>(Duration::from_secs(60)).unwrap_err().to_string();
        assert!(!broken.contains("did not answer"), "{broken}");
    }
}
