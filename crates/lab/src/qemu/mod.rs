//! A QEMU process: start, console and monitor sockets, CPU time of its threads.

mod monitor;

use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::cpu::{CpuError, ThreadClock};
use sys::child::{Child, ChildError, ChildPlace, Finished};
use thiserror::Error;

pub use monitor::Monitor;

/// Arguments that name QEMU's threads, as [`Qemu::vcpu_thread`] requires.
pub const NAMED_THREADS: [&str; 2] = ["-name", "wirepath,debug-threads=on"];

#[derive(Debug, Error)]
pub enum QemuError {
    /// QEMU could not be started or waited for.
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("{doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("QEMU ended at once: {stderr}")]
    Ended { stderr: String },
    #[error("QEMU's monitor: {reply}")]
    Monitor { reply: String },
    #[error("QEMU has no vCPU thread")]
    NoVcpu,
    /// CPU accounting could not be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

impl QemuError {
    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> QemuError {
        move |source| QemuError::Io { doing, source }
    }
}

/// A running QEMU. Killed when it is dropped, and when the thread that started it ends (see
/// [`Child::spawn`]).
#[derive(Debug)]
pub struct Qemu {
    child: Child,
}

/// Opens a socket that QEMU connects to, for [`Qemu::accept`].
pub fn listen(path: &Path) -> Result<UnixListener, QemuError> {
    let doing = "listening for QEMU";
    let listener = UnixListener::bind(path).map_err(QemuError::io(doing))?;
    listener.set_nonblocking(true).map_err(QemuError::io(doing))?;
    Ok(listener)
}

impl Qemu {
    /// Starts QEMU with `stdin` as its descriptor 0.
    pub fn start(
        command: Command,
        place: &ChildPlace<'_>,
        stdin: Stdio,
    ) -> Result<Qemu, QemuError> {
        Ok(Qemu { child: Child::spawn_on(command, place, stdin)? })
    }

    /// Waits for a connection of QEMU, which it makes while it starts. Returns a blocking stream.
    ///
    /// Errors: QEMU ended first, or did not connect within `at_most`.
    pub fn accept(
        &mut self,
        listener: &UnixListener,
        at_most: Duration,
    ) -> Result<UnixStream, QemuError> {
        let doing = "waiting for a connection of QEMU";
        let deadline = Instant::now() + at_most;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(QemuError::io(doing))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(QemuError::Io { doing, source: error });
                }
                Err(_) => {}
            }
            if let Some(Finished { stderr, .. }) = self.wait(Duration::ZERO)? {
                let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
                return Err(QemuError::Ended { stderr });
            }
            if Instant::now() > deadline {
                return Err(QemuError::Io { doing, source: ErrorKind::TimedOut.into() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until QEMU has ended; `None` if it still runs after `at_most`.
    pub fn wait(&mut self, at_most: Duration) -> Result<Option<Finished>, QemuError> {
        Ok(self.child.wait(at_most)?)
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.wait(Duration::ZERO), Ok(None))
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub fn cpu_ns(&self) -> u64 {
        self.child.cpu_ns().unwrap_or(0)
    }

    /// Thread id of the first vCPU. It exists once QEMU answers its monitor or its guest runs.
    ///
    /// Requires [`NAMED_THREADS`]. Source: QEMU, accel/tcg and accel/kvm, `CPU %d/TCG` and
    /// `CPU %d/KVM`.
    pub fn vcpu_thread(&self) -> Result<u32, QemuError> {
        let folder = format!("/proc/{}/task", self.pid());
        let threads =
            std::fs::read_dir(&folder).map_err(QemuError::io("listing QEMU's threads"))?;
        let ids = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        ids.into_iter()
            .find(|thread| {
                let name = std::fs::read_to_string(format!("{folder}/{thread}/comm"));
                name.is_ok_and(|name| name.starts_with("CPU 0"))
            })
            .ok_or(QemuError::NoVcpu)
    }

    /// CPU clock of one of its threads; the main thread's id is the process id.
    pub fn thread_clock(&self, thread: u32) -> Result<ThreadClock, QemuError> {
        Ok(ThreadClock::open(self.pid(), thread)?)
    }
}
