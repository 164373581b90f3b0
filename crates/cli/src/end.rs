//! How a command ends when it does not succeed.

use std::error::Error;

/// Why a command failed; decides the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It did not work: code 1.
    Failed(String),
    /// It was asked for something that makes no sense: code 2.
    Usage(String),
    /// This host cannot do it: code 3.
    Unsupported(String),
    /// It found something above the threshold asked for: code 4.
    Threshold(String),
}

impl Failure {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Failure::Failed(text.into())
    }

    /// An error with its causes, in one line.
    pub(crate) fn of(error: &dyn Error) -> Self {
        Failure::Failed(host::text::chain(error))
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Failure::Failed(text)
            | Failure::Usage(text)
            | Failure::Unsupported(text)
            | Failure::Threshold(text) => text,
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unsupported(_) => 3,
            Failure::Threshold(_) => 4,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Failed(format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<paths::PathError> for Failure {
    fn from(error: paths::PathError) -> Self {
        let text = host::text::chain(&error);
        match error {
            paths::PathError::Unsupported { .. } => Failure::Unsupported(text),
            paths::PathError::Invalid { .. } => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }
}

impl From<report::store::StoreError> for Failure {
    fn from(error: report::store::StoreError) -> Self {
        Failure::of(&error)
    }
}
