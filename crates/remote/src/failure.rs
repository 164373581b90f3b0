//! Failures of commands and calls, and the one place where an error gets its kind.

use std::error::Error;

use host::explain::BpfError;
use host::text::chain;
use host::tune::{KnobError, PlanError};
use model::PathError;
use serde::{Deserialize, Serialize};

/// Exit code of a process that a signal ended.
pub const INTERRUPTED_EXIT_CODE: u8 = 130;

/// Reason for a failed command or call; each kind has its own exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The operation failed: code 1.
    Failed(String),
    /// Invalid arguments or input: code 2.
    Usage(String),
    /// This host does not support it: code 3.
    Unsupported(String),
    /// The result is worse than the requested threshold: code 4.
    Threshold(String),
    /// The question that was asked is not decided: code 5.
    Undecided(String),
    /// A signal ended it before its planned end: code 130.
    Interrupted(String),
}

impl Failure {
    pub fn failed(text: impl Into<String>) -> Self {
        Failure::Failed(text.into())
    }

    /// An error with its causes in one line, with code 2.
    pub fn usage(error: impl Error) -> Self {
        Failure::Usage(chain(&error))
    }

    /// An error with its causes in one line, with code 1 whatever its type.
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
    pub fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unsupported(_) => 3,
            Failure::Threshold(_) => 4,
            Failure::Undecided(_) => 5,
            Failure::Interrupted(_) => INTERRUPTED_EXIT_CODE,
        }
    }
}

/// Converts any error: its causes in one line, and code 1 unless its type is listed here.
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
        KnobError::NotOffered { .. } | KnobError::HostOnly { .. } => Failure::Unsupported,
        KnobError::Value { .. } | KnobError::Scope { .. } => Failure::Usage,
        _ => Failure::Failed,
    }
}
