//! What every path offers.

use std::time::Duration;

use model::{Arm, Measurement, Support, Switch};

/// One kind of load that a path can be put under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadKind {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// Metrics that it is judged by, most important first.
    pub judged: &'static [&'static str],
    /// Measured part of one trial, unless another is asked for.
    pub trial: Duration,
    /// Programs that can run it as peer arms.
    pub peers: &'static [&'static str],
}

/// The load of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Name of a [`LoadKind`] of the path.
    pub kind: String,
    /// UDP payload of every datagram, in bytes.
    pub size_bytes: usize,
    /// Datagrams a second, where the load is paced.
    pub rate_pps: u64,
    /// Measured part of one trial.
    pub trial: Duration,
    /// Far end on another host (`HOST` or `HOST:PORT` of a `wirepath peer`); `None` for a lab
    /// of namespaces.
    pub far: Option<String>,
    /// Shared secret of that peer.
    pub secret: Option<String>,
}

/// Why a path could not be opened or a trial not be run.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Something is missing on this host.
    #[error("{what} is not possible here; {needs}")]
    Unsupported {
        /// What cannot be done.
        what: String,
        /// What it needs.
        needs: String,
    },
    /// A value that was asked for makes no sense.
    #[error("{what}; {remedy}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// What to give instead.
        remedy: String,
    },
    /// A part of the machinery failed; its own message says what to do.
    #[error(transparent)]
    Part(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// One end of a run failed.
    #[error("{end}: {why}")]
    End {
        /// `near`, `far` or the name of another program.
        end: String,
        /// Its message.
        why: String,
    },
}

impl PathError {
    /// Wraps an error whose own message suffices.
    pub(crate) fn part(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        PathError::Part(Box::new(error))
    }
}

/// One way for packets to get from a source to where they are used.
pub trait Path {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// What it is, in one sentence.
    fn what(&self) -> &'static str;

    /// Its switches, in the order of the ladder.
    fn switches(&self) -> &'static [Switch];

    /// The loads it can be put under; the first is the default.
    fn loads(&self) -> &'static [LoadKind];

    /// Whether an arm can run on this host, found out by trying, and if not what is missing.
    fn support(&self, arm: &Arm, load: &Load) -> Support;

    /// Builds the lab once, for all trials.
    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError>;
}

/// An open lab in which trials can be run.
pub trait Session {
    /// Runs one bounded trial of one arm and leaves the lab as it found it.
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError>;

    /// The interface under test, for the record, e.g. `veth pair, 1 queue, MTU 1500`.
    fn nic(&self) -> String;
}
