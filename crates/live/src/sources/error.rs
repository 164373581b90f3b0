//! Errors of the figures of a running service.

use std::io;
use std::path::PathBuf;

use host::net::NetError;
use host::netns::NetnsError;
use host::program::ProgramError;
use model::live::Trip;

/// A part of a metric's text that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {text:?}: {part}; {remedy}")]
pub struct MetricSyntaxError {
    pub text: String,
    pub part: String,
    pub remedy: String,
}

/// Reason why a source has no figure; the caller names the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct SourceFault(pub(super) String);

impl From<String> for SourceFault {
    fn from(reason: String) -> SourceFault {
        SourceFault(reason)
    }
}

pub(super) fn fault<T>(reason: impl Into<String>) -> Result<T, SourceFault> {
    Err(SourceFault(reason.into()))
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    #[error(
        "there is nothing to judge: {why}; name a service with --port, --pid or --unit, or a figure with --metric"
    )]
    NoFigure { why: String },
    #[error("two figures are called {name}; write --metric 'OTHER_NAME=…'")]
    SameName { name: String },
    #[error("no process listens at TCP port {port} there; `ss -lntp` lists the listeners")]
    NoListener { port: u16 },
    #[error(
        "process {pid} and its children have no TCP listener; give the service's port with --port"
    )]
    NoPort { pid: u32 },
    #[error(
        "the service listens at {count} TCP ports, of which at most {max} can be followed; name one with --port"
    )]
    TooManyPorts { count: usize, max: usize },
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Bpf(#[from] sys::bpf::BpfError),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the setting was undone at once: {0}")]
    Harm(Trip),
    #[error("metric {name}: {url}: {why}")]
    Prometheus { name: String, url: String, why: String },
    #[error("metric {name}: log {}: {why}", path.display())]
    Log { name: String, path: PathBuf, why: String },
    #[error("metric {name}: `{command}` {why}")]
    Command { name: String, command: String, why: String },
}
