//! Errors of foreign programs.

use std::io;
use std::time::Duration;

use sys::supervisor::StartError;
use thiserror::Error;

use super::SHELL;

/// Failure in the life of a foreign program. `name` is its part in the trial, such as `server`.
#[derive(Debug, Error)]
pub enum ProgramError {
    #[error("cannot start the {name}")]
    Start {
        name: String,
        #[source]
        source: StartError,
    },
    /// A static program runs in places that have no shell.
    #[error(
        "cannot start the {name}: {SHELL} is missing, which runs every command; install a shell there"
    )]
    NoShell { name: String },
    #[error("cannot {what} of the {name}")]
    Io {
        name: String,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the {name} ended before it was ready: {how}; {output}")]
    EndedEarly { name: String, how: String, output: String },
    #[error("the {name} ended in mid-trial: {how}; {output}")]
    Ended { name: String, how: String, output: String },
    #[error("the {name} ended before it had served a client: {how}; {output}")]
    EndedUnused { name: String, how: String, output: String },
    #[error("the {name} was not ready ({ready}) after {} ms: {why}; {output}", limit.as_millis())]
    NotReady { name: String, ready: String, limit: Duration, why: String, output: String },
    #[error("the {name} did not end within {} ms and was killed; {output}", limit.as_millis())]
    TimedOut { name: String, limit: Duration, output: String },
    #[error("interrupted while waiting for the {name}")]
    Interrupted { name: String },
    /// SIGKILL had no effect, for example on a process in an uninterruptible sleep.
    #[error("processes of the {name} cannot be killed: {processes}")]
    Stuck { name: String, processes: String },
    #[error("the supervising process of the {name} was killed by another process")]
    Lost { name: String },
    /// A program on another host failed, as that host reports it.
    #[error("{why}")]
    Elsewhere { why: String },
    #[error("cannot read the sockets of the namespace")]
    Sockets {
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ProgramError {
    pub fn is_interrupted(&self) -> bool {
        matches!(self, ProgramError::Interrupted { .. })
    }
}
