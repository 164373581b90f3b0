//! The monitor in a process of its own.
//!
//! A guest that takes over a thread of the monitor can use what that process has: guest memory, KVM, and the
//! descriptors of one back end. Its owner reads the outcome as text of a stranger.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use host::kvm::{Confinement, GuestRam};
use serde::{Deserialize, Serialize};
use sys::jail::{Forked, Inside};
use sys::poll;

use super::backend::Halves;
use super::error::MonitorError;
use super::monitor::{Prepared, Threads};
use super::spec::{GuestOutcome, Spec};

/// Time limits of the process: to start a guest, and to end and report once it was told to.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the process checks if it is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest report. A whole one has a tenth of it.
const REPORT_BYTES_MAX: u64 = 256 << 10;
/// First byte of the process, and the end of its report.
const STARTED: u8 = b'\n';

/// Report of the process.
#[derive(Serialize, Deserialize)]
enum JailReport {
    Ended(Box<GuestOutcome>),
    Failed(String),
}

/// A guest that runs in a process of its own. Drop ends both; so does the end of the thread that started it.
pub struct Running {
    process: Forked,
}

/// Starts a guest in a process of its own, in which `open` opens the back end; it gets the guest's
/// memory, for a back end that shares it.
///
/// The process has the calling thread's network namespace and CPU affinity. Before the guest's first instruction
/// it gives up all files, privileges and other descriptors, and a filter ends it at any system call but those
/// of a monitor.
pub fn start(
    spec: &Spec<'_>,
    open: impl FnOnce(&GuestRam) -> Result<Halves, Box<dyn Error>>,
) -> Result<Running, MonitorError> {
    let process =
        Forked::start(|inside| live(inside, spec, open)).map_err(MonitorError::Process)?;
    let mut first = [0];
    let begun = Instant::now();
    // A signal ends the wait early.
    while !is_readable(&process, Duration::from_secs(1))? && begun.elapsed() < START_TIMEOUT {}
    if !is_readable(&process, Duration::ZERO)? {
        return Err(failure("did not start", process));
    }
    let len = process.socket().read(&mut first).map_err(MonitorError::Process)?;
    if len == 0 {
        return Err(failure("ended before it started", process));
    }
    if first == [STARTED] {
        return Ok(Running { process });
    }
    let mut text = first.to_vec();
    read_report(&process, &mut text)?;
    match parse(&text) {
        Some(JailReport::Failed(why)) => Err(MonitorError::Jailed(why)),
        _ => Err(failure("said nothing that is known", process)),
    }
}

impl Running {
    /// Process id of the monitor.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until the guest has ended by itself, at most `timeout`; returns whether it has.
    pub fn wait(&self, timeout: Duration) -> bool {
        is_readable(&self.process, timeout).unwrap_or(true)
    }

    /// Ends the guest, whatever it does. Returns what happened, and the CPU time of the process, nanoseconds.
    ///
    /// Errors: the process failed, or its filter of system calls ended it.
    pub fn stop(self) -> Result<(GuestOutcome, u64), MonitorError> {
        // Fails if the process has ended, which the report tells.
        let _ = self.process.socket().shutdown(Shutdown::Write);
        let mut text = Vec::new();
        read_report(&self.process, &mut text)?;
        match parse(&text) {
            Some(JailReport::Ended(outcome)) => {
                let (_, usage) = self.process.end(END_TIMEOUT).map_err(MonitorError::Process)?;
                Ok((*outcome, usage.user_ns.saturating_add(usage.system_ns)))
            }
            Some(JailReport::Failed(why)) => Err(MonitorError::Jailed(why)),
            None => Err(failure("ended without a report", self.process)),
        }
    }
}

fn is_readable(process: &Forked, timeout: Duration) -> Result<bool, MonitorError> {
    let ready = poll::readable(&[process.socket().as_fd()], timeout);
    ready.map(|ready| ready != 0).map_err(MonitorError::Process)
}

/// Reads to the end of what the process writes, within limits of time and length.
fn read_report(process: &Forked, text: &mut Vec<u8>) -> Result<(), MonitorError> {
    let begun = Instant::now();
    let mut chunk = [0; 4096];
    while begun.elapsed() < END_TIMEOUT && (text.len() as u64) < REPORT_BYTES_MAX {
        if !is_readable(process, Duration::from_secs(1))? {
            continue;
        }
        match process.socket().read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => text.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // It was killed with an unread byte.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(MonitorError::Process(error)),
        }
    }
    Ok(())
}

fn parse(text: &[u8]) -> Option<JailReport> {
    serde_json::from_slice(text).ok()
}

/// Error of a process without a report, with its end.
fn failure(what: &str, process: Forked) -> MonitorError {
    let ended = process.end(Duration::from_secs(1));
    let how = ended.map_or_else(|error| error.to_string(), |(status, _)| status.to_string());
    MonitorError::Jailed(format!(
        "the monitor's process {what} ({how}; SIGSYS is a system call that no monitor makes)"
    ))
}

/// Life of the process.
fn live(
    inside: &Inside,
    spec: &Spec<'_>,
    open: impl FnOnce(&GuestRam) -> Result<Halves, Box<dyn Error>>,
) {
    let Ok(socket) = inside.socket().try_clone_to_owned() else { return };
    // A socket of the library would need calls that send to addresses.
    let mut socket = File::from(socket);
    let report = match begin(inside, spec, open) {
        Ok(threads) => {
            if socket.write_all(&[STARTED]).is_err() {
                return;
            }
            watch(&threads, inside);
            match threads.leave() {
                Ok(outcome) => JailReport::Ended(Box::new(outcome)),
                Err(error) => JailReport::Failed(host::text::chain(&error)),
            }
        }
        Err(error) => JailReport::Failed(host::text::chain(error.as_ref())),
    };
    let Ok(text) = serde_json::to_vec(&report) else { return };
    // The owner may have ended.
    let _ = socket.write_all(&text);
}

fn begin(
    inside: &Inside,
    spec: &Spec<'_>,
    open: impl FnOnce(&GuestRam) -> Result<Halves, Box<dyn Error>>,
) -> Result<Threads, Box<dyn Error>> {
    let prepared = Prepared::new(spec, open)?;
    let confinement = Confinement::of_monitor_process()?;
    inside.shut_off()?;
    confinement.enter()?;
    Ok(prepared.start()?)
}

/// Waits until the guest has ended by itself, or the owner has asked for its end or is gone.
fn watch(threads: &Threads, inside: &Inside) {
    while !threads.wait(CHECK_INTERVAL) {
        let asked = poll::readable(&[inside.socket()], Duration::ZERO);
        if asked.is_ok_and(|asked| asked != 0) {
            return;
        }
    }
}
