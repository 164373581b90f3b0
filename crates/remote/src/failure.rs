//! Failures of commands and calls, and the one place where an error gets its kind.

use std::error::Error;

use host::explain::BpfError;
use host::net::NetError;
use host::netns::NetnsError;
use host::text::chain;
use host::tune::{KnobError, PlanError};
use io::{IoError, SocketError};
use model::{ExitCode, PathError};
use serde::{Deserialize, Serialize};
use xdp::XskError;

/// Reason for a failed command or call; each kind has its own [`ExitCode`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The operation failed.
    Failed(String),
    /// Invalid arguments or input.
    Usage(String),
    /// This host does not support it.
    Unsupported(String),
    /// The result is worse than the requested threshold.
    Threshold(String),
    /// The question that was asked is not decided.
    Undecided(String),
    /// A signal ended it before its planned end.
    Interrupted(String),
}

impl Failure {
    pub fn failed(text: impl Into<String>) -> Self {
        Failure::Failed(text.into())
    }

    /// An error with its causes in one line, as a mistake of the user.
    pub fn usage(error: impl Error) -> Self {
        Failure::Usage(chain(&error))
    }

    /// An error with its causes in one line, as a failure whatever its type.
    pub fn from_chain(error: &dyn Error) -> Self {
        Failure::Failed(chain(error))
    }

    pub fn text(&self) -> &str {
        match self {
            Failure::Failed(text)
            | Failure::Usage(text)
            | Failure::Unsupported(text)
            | Failure::Threshold(text)
            | Failure::Undecided(text)
            | Failure::Interrupted(text) => text,
        }
    }

    pub fn into_text(self) -> String {
        match self {
            Failure::Failed(text)
            | Failure::Usage(text)
            | Failure::Unsupported(text)
            | Failure::Threshold(text)
            | Failure::Undecided(text)
            | Failure::Interrupted(text) => text,
        }
    }

    /// Work that a signal ended.
    pub fn interrupted() -> Self {
        Failure::Interrupted("interrupted".into())
    }

    /// Exit code of a command that ends with it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Failed(_) => ExitCode::Failed,
            Failure::Usage(_) => ExitCode::Usage,
            Failure::Unsupported(_) => ExitCode::Unsupported,
            Failure::Threshold(_) => ExitCode::Worse,
            Failure::Undecided(_) => ExitCode::Undecided,
            Failure::Interrupted(_) => ExitCode::Interrupted,
        }
    }
}

/// Converts any error: its causes in one line, and a failure unless its type is listed here.
impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: Box<dyn Error> = Box::new(error);
        let text = chain(error.as_ref());
        if let Some(error) = error.downcast_ref() {
            return path_failure(error)(text);
        }
        if let Some(error) = error.downcast_ref() {
            return knob_failure(error)(text);
        }
        if let Some(error) = error.downcast_ref() {
            return net_failure(error)(text);
        }
        if let Some(error) = error.downcast_ref() {
            return io_failure(error)(text);
        }
        if let Some(error) = error.downcast_ref() {
            return netns_failure(error)(text);
        }
        match (error.downcast_ref(), error.downcast_ref()) {
            (Some(PlanError::File(_)), _) => Failure::Usage(text),
            (Some(PlanError::Stopped), _) => Failure::Interrupted(text),
            (Some(PlanError::Knob(error)), _) => knob_failure(error)(chain(error)),
            (_, Some(BpfError::Invalid { what })) => Failure::Usage(what.clone()),
            (
                _,
                Some(
                    BpfError::Permission { .. }
                    | BpfError::Load { .. }
                    | BpfError::Unsupported { .. },
                ),
            ) => Failure::Unsupported(text),
            _ => Failure::Failed(text),
        }
    }
}

fn path_failure(error: &PathError) -> fn(String) -> Failure {
    match error {
        PathError::Unsupported { .. } => Failure::Unsupported,
        PathError::Invalid { .. } => Failure::Usage,
        _ => Failure::Failed,
    }
}

fn knob_failure(error: &KnobError) -> fn(String) -> Failure {
    match error {
        KnobError::NotOffered { .. } | KnobError::HostOnly { .. } | KnobError::Denied { .. } => {
            Failure::Unsupported
        }
        KnobError::Value { .. } | KnobError::Scope { .. } | KnobError::NoTarget { .. } => {
            Failure::Usage
        }
        KnobError::Net(error) => net_failure(error),
        KnobError::Netns(error) => netns_failure(error),
        _ => Failure::Failed,
    }
}

fn net_failure(error: &NetError) -> fn(String) -> Failure {
    match error {
        NetError::NoInterface { .. } => Failure::Usage,
        NetError::Denied { .. } | NetError::Unsupported { .. } => Failure::Unsupported,
        _ => Failure::Failed,
    }
}

fn io_failure(error: &IoError) -> fn(String) -> Failure {
    match error {
        IoError::Permission { .. }
        | IoError::Xsk(SocketError(
            XskError::Permission { .. } | XskError::NoAfXdp | XskError::Memory { .. },
        ))
        | IoError::Bpf(BpfError::Permission { .. }) => Failure::Unsupported,
        _ => Failure::Failed,
    }
}

fn netns_failure(error: &NetnsError) -> fn(String) -> Failure {
    match error {
        NetnsError::Open { .. } => Failure::Usage,
        NetnsError::Denied { .. } => Failure::Unsupported,
        _ => Failure::Failed,
    }
}
