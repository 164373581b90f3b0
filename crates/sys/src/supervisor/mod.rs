//! A process that starts a foreign program, reaps all of its descendants, and ends them when its
//! owner ends, `kill -9` included.
//!
//! The supervisor is forked from the owner without another executable. It is the parent of the program
//! and the subreaper of everything that descends from it, so a daemon that forks twice and leaves its
//! session is its child too. It has a session of its own, which Ctrl-C does not reach, and polls a
//! socket and a descriptor of its owner: if either ends, it kills all, removes the control group and
//! exits.
//!
//! Source: prctl(2), PR_SET_CHILD_SUBREAPER; cgroups(7); the kernel's admin-guide/cgroup-v2.rst.

mod children;
mod directory;
mod forked;
mod record;
mod signals;

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

pub(crate) use signals::forget_handlers;

use crate::netns::Netns;
use crate::pidfd::PidFd;
use crate::poll;
use record::Record;

/// Limit for a supervisor to end after it was told to, for example while a process of the group is in
/// an uninterruptible sleep.
const END_MAX: Duration = Duration::from_secs(10);

/// Steps from fork to exec, as errors name them; a [`Record::Failed`] has the position.
const STEPS: [&str; 9] = [
    "starting a process",
    "following the supervisor's end",
    "joining the control group",
    "entering the network namespace",
    "pinning to CPUs",
    "changing to its folder",
    "setting up its standard streams",
    "executing it",
    "creating the control group",
];

#[derive(Debug, Error)]
pub enum StartError {
    #[error("an argument, variable or folder has a byte of value 0")]
    ZeroByte,
    #[error("{step} failed")]
    Step {
        step: &'static str,
        #[source]
        source: io::Error,
    },
}

impl StartError {
    /// True if the program cannot run in a control group, which it may without.
    pub fn is_of_group(&self) -> bool {
        matches!(self, StartError::Step { step, .. } if [STEPS[2], STEPS[8]].contains(step))
    }

    fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| StartError::Step { step, source }
    }
}

/// Control group of version 2 that the supervisor creates, kills and removes. The owner does not create
/// it, because it would outlive an owner that is killed before the supervisor runs.
#[derive(Debug)]
pub struct SupervisorGroup {
    /// Folder of the group's parent.
    pub parent: OwnedFd,
    /// Name of the group in it, of no other group so far.
    pub name: CString,
}

/// Program to start, and its place.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Path of the executable, then its arguments, the first of which is its name.
    pub program: &'a str,
    pub arguments: &'a [&'a str],
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    pub folder: &'a [u8],
    /// Network namespace; `None` for the caller's.
    pub netns: Option<&'a Netns>,
    /// Allowed CPUs; empty for the caller's.
    pub cpus: &'a [usize],
    pub group: Option<SupervisorGroup>,
    pub streams: [OwnedFd; 3],
}

/// Resources used by descendants that have ended and were waited for by a parent.
///
/// Source: getrusage(2), RUSAGE_CHILDREN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    pub user_ns: u64,
    pub system_ns: u64,
    /// Voluntary and involuntary.
    pub context_switch_count: u64,
    /// Largest resident size of any one of them, or of the owner when it forked.
    pub resident_bytes_max: u64,
    /// Processes that the supervisor itself has reaped.
    pub process_count: u64,
    /// Wait status of the last one of these.
    pub last_status: i32,
}

/// Change of the supervised processes. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program itself has ended; descendants may be left.
    Ended { status: ExitStatus, at_ns: u64 },
    /// No descendant is left.
    Empty { at_ns: u64, reaped: Reaped },
    /// The supervisor was killed from outside: the program is unsupervised.
    Lost,
}

/// A running supervisor. Dropping it kills the program and all of its descendants.
#[derive(Debug)]
pub struct Supervisor {
    pid: u32,
    pidfd: PidFd,
    socket: UnixStream,
    program_pid: u32,
    started_ns: u64,
}

impl Supervisor {
    /// Starts a supervisor, which starts the program; returns once the program was executed.
    pub fn start(launch: &Launch<'_>) -> Result<Self, StartError> {
        let prepared = forked::Prepared::new(launch)?;
        let start = StartError::at(STEPS[0]);
        let owner = PidFd::open(std::process::id()).map_err(&start)?;
        let (ours, theirs) = UnixStream::pair().map_err(&start)?;
        let pid = forked::fork(&prepared, &owner, &theirs).map_err(&start)?;
        drop(theirs);
        let pidfd = match PidFd::open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                // The closed socket ends it.
                drop(ours);
                children::reap(pid);
                return Err(start(error));
            }
        };
        let mut this = Supervisor { pid, pidfd, socket: ours, program_pid: 0, started_ns: 0 };
        match Record::receive(&this.socket).map_err(&start)? {
            Record::Started { pid, at_ns } => {
                (this.program_pid, this.started_ns) = (pid, at_ns);
                Ok(this)
            }
            Record::Failed { step, errno } => {
                let step = STEPS.get(step as usize).copied().unwrap_or(STEPS[0]);
                Err(StartError::at(step)(io::Error::from_raw_os_error(errno)))
            }
            _ => Err(start(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Process id of the supervisor, the ancestor of all processes of the program.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Process id and process group of the program.
    pub fn program_pid(&self) -> u32 {
        self.program_pid
    }

    /// Time at which the program was executed, CLOCK_MONOTONIC nanoseconds.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Waits at most `timeout` for a change; `None` if there was none.
    pub fn next_event(&self, timeout: Duration) -> io::Result<Option<Event>> {
        if poll::readable(&[self.socket.as_fd()], timeout)? == 0 {
            return Ok(None);
        }
        match self.receive()? {
            Ok(event) => Ok(Some(event)),
            // An answer that came too late for its question.
            Err(_usage) => Ok(None),
        }
    }

    /// Resources of the ended descendants so far, and changes that were reported before the answer.
    ///
    /// `None` if the supervisor was killed.
    pub fn reaped(&self, mut on_event: impl FnMut(Event)) -> io::Result<Option<Reaped>> {
        // An error here is the end of the supervisor, which the next read reports.
        let _ = (&self.socket).write_all(&[record::SEND_USAGE]);
        loop {
            match self.receive()? {
                Err(reaped) => return Ok(Some(reaped)),
                Ok(Event::Lost) => {
                    on_event(Event::Lost);
                    return Ok(None);
                }
                Ok(event) => on_event(event),
            }
        }
    }

    /// Has all processes killed; [`Event::Empty`] follows.
    pub fn kill_all(&self) {
        // An error here is the end of the supervisor, which the next read reports.
        let _ = (&self.socket).write_all(&[record::KILL_ALL]);
    }

    /// Reads a message: an event, or as `Err` the answer to a question for the usage.
    fn receive(&self) -> io::Result<Result<Event, Reaped>> {
        match Record::receive(&self.socket) {
            Ok(Record::Ended { status, at_ns }) => {
                Ok(Ok(Event::Ended { status: ExitStatus::from_raw(status), at_ns }))
            }
            Ok(Record::Empty { at_ns, reaped }) => Ok(Ok(Event::Empty { at_ns, reaped })),
            Ok(Record::Usage { reaped }) => Ok(Err(reaped)),
            Ok(Record::Started { .. } | Record::Failed { .. }) => {
                Err(io::ErrorKind::InvalidData.into())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    Ok(Ok(Event::Lost))
                }
                _ => Err(error),
            },
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The supervisor kills all and ends once it reads the end of the socket. An error means that it
        // has ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let deadline = std::time::Instant::now() + END_MAX;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.pidfd.has_ended_within(left) {
                Ok(true) => return children::reap(self.pid),
                // It goes on killing without us.
                Ok(false) if left.is_zero() => return,
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }
}
