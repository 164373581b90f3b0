//! Framing of the control connection: one line of JSON for each message.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::socket;
use sys::thread::start;

use super::protocol::{PATIENCE, PeerError};

/// Longest line accepted from an authenticated end.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest line accepted during the handshake.
const GREETING_BYTES_MAX: usize = 4096;
/// Interval between checks that the other end is still connected.
const WATCH_PAUSE: Duration = Duration::from_millis(20);
/// Silence of the other host after which the kernel ends the connection.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Sending half of a control connection; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Writer(Arc<Mutex<TcpStream>>);

impl Writer {
    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), PeerError> {
        let mut line =
            serde_json::to_vec(message).map_err(|e| PeerError::Garbled { what: e.to_string() })?;
        line.push(b'\n');
        // A panic while it was locked leaves at worst half a line, which the other end refuses.
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&line).map_err(|source| PeerError::Broken { source })
    }
}

/// One end of the control connection.
#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<TcpStream>,
    writer: Writer,
    /// Received part of an incomplete line; kept across calls of `receive`.
    begun: Vec<u8>,
    /// Longest line accepted, bytes.
    line_bytes_max: usize,
}

impl Lines {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        socket::end_when_silent(stream.as_fd(), GONE_AFTER)?;
        Ok(Lines {
            writer: Writer(Arc::new(Mutex::new(stream.try_clone()?))),
            reader: BufReader::new(stream),
            begun: Vec::new(),
            line_bytes_max: GREETING_BYTES_MAX,
        })
    }

    /// Raises the line limit after the other end has authenticated.
    pub(super) fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), PeerError> {
        self.writer.send(message)
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
        let until = Instant::now() + within;
        while self.begun.last() != Some(&b'\n') {
            let had = self.begun.len();
            self.read_on(until).map_err(|source| PeerError::Broken { source })?;
            let is_over = self.begun.len() == had;
            if is_over && had == 0 {
                return Ok(None);
            }
            if is_over || self.begun.len() > self.line_bytes_max {
                let what = format!("line incomplete after {} bytes", self.begun.len());
                return Err(PeerError::Garbled { what });
            }
        }
        let line = std::mem::take(&mut self.begun);
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|e| PeerError::Garbled { what: e.to_string() })
    }

    /// Reads available bytes up to the end of the line. Reads nothing only if the connection is
    /// closed.
    fn read_on(&mut self, until: Instant) -> io::Result<()> {
        if self.reader.buffer().is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
        }
        let come = match self.reader.fill_buf() {
            Ok(come) => come,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return self.read_on(until),
            Err(error) => return Err(error),
        };
        let len = come.iter().position(|b| *b == b'\n').map_or(come.len(), |at| at + 1);
        self.begun.extend_from_slice(&come[..len]);
        self.reader.consume(len);
        Ok(())
    }

    /// Runs `body` while another thread calls `tick` periodically, and `gone` once if the other end
    /// closes the connection. The other end must not send a message during this time.
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
                    if is_open && !is_open_still(self.reader.get_ref()) {
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
        self.receive(within)?.ok_or_else(closed)
    }
}

/// True if the kernel has seen neither a close nor a reset by the other end.
fn is_open_still(stream: &TcpStream) -> bool {
    match socket::wait(stream.as_fd(), false, Duration::ZERO) {
        // Nothing to read: a close or an error would be.
        Ok(ready) if !ready.readable && !ready.failed => true,
        Ok(_) => stream.peek(&mut [0]).is_ok_and(|len| len > 0),
        Err(_) => false,
    }
}
