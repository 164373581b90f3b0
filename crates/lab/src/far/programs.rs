//! A far end that is asked by lines: `wirepath far-programs` on another host, or `wirepath feed exchange`.

use std::fs::File;
use std::io::{ErrorKind, PipeWriter, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sys::thread::start_free;

use super::ssh::{self, Opened, Role};
use super::{FarEnd, FarError, FarOptions, GRACE, SshHost, Started, clean, netns, one_line};

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
    /// Host to which this program was copied, until it has answered.
    copied_to: Option<SshHost>,
    address: IpAddr,
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
        FarPrograms::by_ssh(host, options, Role::Programs, grace)
    }

    /// Starts `wirepath feed exchange` in a namespace of this host, or on another host.
    ///
    /// It is killed when the calling thread ends (see [`sys::child::Child::spawn`]).
    pub fn start_exchange(end: &FarEnd, options: &FarOptions<'_>) -> Result<Self, FarError> {
        match end {
            FarEnd::Netns(name) => {
                let args = |_| ["feed", "exchange"].map(str::to_owned).to_vec();
                let (started, address) = netns::open(name, options, args)?;
                FarPrograms::of(started, address, None)
            }
            FarEnd::Ssh(host) => FarPrograms::by_ssh(host, options, Role::Exchange, GRACE),
            FarEnd::Peer(_) => Err(FarError::OnlyProbe { end: end.to_string() }),
        }
    }

    fn by_ssh(
        host: &SshHost,
        options: &FarOptions<'_>,
        role: Role,
        grace: Duration,
    ) -> Result<Self, FarError> {
        let Opened { mut started, address, is_copied } = ssh::open(host, options, role)?;
        started.grace = grace;
        FarPrograms::of(started, address, is_copied.then(|| host.clone()))
    }

    fn of(
        mut started: Started,
        address: IpAddr,
        copied_to: Option<SshHost>,
    ) -> Result<Self, FarError> {
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
        Ok(FarPrograms { started, copied_to, address, writer, heartbeat: Some(heartbeat) })
    }

    /// Its address for the load.
    pub fn address(&self) -> IpAddr {
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
            self.copied_to = None;
            return Ok(Some(line));
        }
        let Some(ended) = self.started.child.wait(LOOK)? else { return Ok(None) };
        // Its last line may have come in between.
        if let Some(line) = self.started.child.take_line(Duration::ZERO) {
            return Ok(Some(line));
        }
        let said = one_line(&ended.stderr);
        let error = FarError::Ended { end: self.started.name.clone(), said };
        Err(match &self.copied_to {
            Some(host) => ssh::not_copied(error, host),
            None => error,
        })
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

/// Lines of a near end, which its far end reads from standard input.
#[derive(Debug)]
pub struct NearLines {
    input: File,
    unfinished: Vec<u8>,
    line_bytes_max: usize,
}

impl NearLines {
    pub fn new(input: File, line_bytes_max: usize) -> Self {
        NearLines { input, unfinished: Vec::new(), line_bytes_max }
    }

    /// Next line that is not empty. `None` at their end, after [`SILENCE`], and for a line that is too long.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let mut piece = vec![0; 64 << 10];
        loop {
            while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unfinished.drain(..=end).collect();
                if !line.trim_ascii().is_empty() {
                    return Some(line);
                }
            }
            if self.unfinished.len() > self.line_bytes_max {
                return None;
            }
            match sys::poll::readable_set(&[self.input.as_fd()], SILENCE) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return None,
            }
            match self.input.read(&mut piece) {
                Ok(len @ 1..) => self.unfinished.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return None,
            }
        }
    }
}
