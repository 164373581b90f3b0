//! The service of a host: experiments, trials for another build, steps of roll-outs, and its part of a mesh.

use std::net::IpAddr;

use model::{Outcome, PathRequest, Request};
use serde::{Deserialize, Serialize};

use crate::{Failure, Service};

/// A host, or a process of this program on this host.
#[derive(Debug)]
pub enum Host {}

impl Service for Host {
    const NAME: &str = "host";
    type Call = Call;
    type Answer = Answer;
}

/// Work of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// Runs an experiment to its end: [`Answer::Ran`].
    Run(Box<Request>),
    /// Opens the lab of a path for trials of its only arm: [`Answer::Opened`].
    Open(Box<PathRequest>),
    /// Runs one trial in the opened lab: [`Answer::Measured`].
    Trial,
    /// Does a step of a roll-out: [`Answer::Done`] or [`Answer::Drifted`].
    Step(Box<Step>),
    /// Answers pings of one run until the exchange ends: [`Answer::Ready`].
    Echo { ipv6: bool, session: u32 },
    /// Measures round trips to an echo: [`Answer::Pinged`].
    Ping { address: IpAddr, count: u32, session: u32 },
    /// Ends the work under way early, as Ctrl-C does.
    Interrupt,
}

/// A step of a roll-out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Applies the plan, and runs until it is confirmed or rolled back.
    Apply {
        plan: String,
        within_ms: u64,
        owner: String,
    },
    /// Postpones the rollback.
    Extend {
        within_ms: u64,
        owner: String,
    },
    /// Compares the settings with the plan.
    Verify {
        plan: String,
    },
    Confirm {
        owner: String,
    },
    /// Confirms, and ends the journal.
    Keep {
        owner: String,
    },
    RollBack {
        owner: String,
    },
}

/// Result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Ran(Box<Ran>),
    /// The interface under test.
    Opened {
        nic: String,
    },
    /// A measurement as one line of the store.
    Measured(String),
    /// A step was done, with the text of its result.
    Done(String),
    /// The settings differ from the plan.
    Drifted(String),
    Ready,
    Pinged(Cell),
    Failed(Failure),
}

/// An experiment that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    pub outcome: Outcome,
    pub is_stored: bool,
    /// True if it was given up because its last trials all failed.
    pub gave_up: bool,
}

/// Round trips between two hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Median, nanoseconds; `None` without one.
    pub rtt_ns: Option<f64>,
    pub sent: u64,
    pub lost: u64,
    /// Reason why there is no figure.
    pub why: Option<String>,
}
