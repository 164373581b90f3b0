//! A far end that runs the user's programs: `wirepath far-programs` on another host.

use std::io::{PipeWriter, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sys::thread::start_free;

use super::ssh::{self, Opened, Role};
use super::{FarError, FarOptions, SshHost, Started, clean, one_line};

/// Time between two empty lines that show the far end that the connection holds: sshd itself notices one
/// that broke only after hours.
pub const HEARTBEAT: Duration = Duration::from_secs(3);
/// Time without a line after which the far end ends.
pub const SILENCE: Duration = Duration::from_secs(15);

/// Wait for the end of a program whose output has ended, between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// A started far end, asked and answering by lines. It ends, and ends the programs that it runs, when this
/// is dropped, when this process ends, and when the connection breaks.
#[derive(Debug)]
pub struct FarPrograms {
    started: Started,
    host: SshHost,
    is_copied: bool,
    address: Ipv4Addr,
    /// `None` once it was closed.
    writer: Option<Arc<Mutex<PipeWriter>>>,
    /// Its end ends the heartbeat.
    heartbeat: Option<Sender<()>>,
}

impl FarPrograms {
    /// Connects to `host` by ssh and starts this program there.
    ///
    /// - `grace`: time to end its programs and to restore settings once the near end is done.
    ///
    /// It is killed when the calling thread ends (see [`sys::child::Child::spawn`]).
    pub fn start(
        host: &SshHost,
        options: &FarOptions<'_>,
        grace: Duration,
    ) -> Result<Self, FarError> {
        let Opened { mut started, address, is_copied } = ssh::open(host, options, Role::Programs)?;
        // Its experiments are of IPv4.
        let IpAddr::V4(address) = address else {
            let said = address.to_string();
            return Err(FarError::UnknownAddress { host: host.to_string(), said });
        };
        started.grace = grace;
        let writer = started.stdin.take().map(|stdin| Arc::new(Mutex::new(stdin)));
        let (heartbeat, ended) = channel::<()>();
        let beating = writer.clone();
        let failed = |error: sys::thread::ThreadError| FarError::Start {
            what: "a thread",
            source: std::io::Error::other(error),
        };
        start_free("wp-heartbeat", move || {
            while ended.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                // The end of the far end shows in its answers.
                let _ = beating.iter().try_for_each(|writer| lock(writer).write_all(b"\n"));
            }
        })
        .map_err(failed)?;
        let (host, heartbeat) = (host.clone(), Some(heartbeat));
        Ok(FarPrograms { started, host, is_copied, address, writer, heartbeat })
    }

    /// Its address for the load.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Sends a line. A far end that has ended is reported by [`line`](Self::line).
    pub fn send(&mut self, line: &str) {
        let text = format!("{line}\n");
        let _ = self.writer.iter().try_for_each(|writer| lock(writer).write_all(text.as_bytes()));
    }

    /// Takes its next line; `None` if none came within that time. Errors: it has ended.
    pub fn line(&mut self, within: Duration) -> Result<Option<Vec<u8>>, FarError> {
        if let Some(line) = self.started.child.take_line(within) {
            // It started, so its end is no failure of the copy.
            self.is_copied = false;
            return Ok(Some(line));
        }
        let Some(ended) = self.started.child.wait(LOOK)? else { return Ok(None) };
        // Its last line may have come in between.
        if let Some(line) = self.started.child.take_line(Duration::ZERO) {
            return Ok(Some(line));
        }
        let said = one_line(&ended.stderr);
        let error = FarError::Ended { end: self.started.name.clone(), said };
        Err(if self.is_copied { ssh::not_copied(error, &self.host) } else { error })
    }

    /// Error of a far end that did not answer in time.
    pub fn silent(&self, within: Duration) -> FarError {
        FarError::Silent { end: self.started.name.clone(), seconds: within.as_secs() }
    }

    /// Error of an answer that is not understood.
    pub fn garbled(&self, line: &[u8]) -> FarError {
        let line = clean(&String::from_utf8_lossy(&line[..line.len().min(400)]));
        FarError::Garbled { end: self.started.name.clone(), line }
    }
}

impl Drop for FarPrograms {
    fn drop(&mut self) {
        // Both hold its standard input, whose end ends it; then `started` waits for that.
        self.heartbeat.take();
        if let Some(writer) = self.writer.take() {
            // The heartbeat's own is dropped within moments.
            drop(writer);
        }
    }
}

fn lock(writer: &Mutex<PipeWriter>) -> std::sync::MutexGuard<'_, PipeWriter> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}
