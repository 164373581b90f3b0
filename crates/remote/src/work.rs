//! The service of a host: experiments, steps of roll-outs, and its part of a mesh.

use std::net::IpAddr;

use model::live::{LiveArm, LiveFigure, LivePeriodRecord};
use model::{Outcome, Request};
use serde::{Deserialize, Serialize};

use crate::{Failure, Service};

/// A host, or a process of this program on this host.
#[derive(Debug)]
pub enum Host {}

impl Service for Host {
    const NAME: &str = "host";
    type Call = Call;
    type Answer = Answer;

    fn is_interrupt(call: &Call) -> bool {
        matches!(call, Call::Interrupt)
    }
}

/// Work of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// Runs an experiment to its end: [`Answer::Ran`].
    Run(Box<Request>),
    /// The same for a fleet: nothing else may be measured on the machine meanwhile.
    RunAlone(Box<Request>),
    /// Runs a service through two periods for a roll-out, alone on the machine: [`Answer::Crossed`].
    Cross(Box<Crossing>),
    /// Does a step of a roll-out: [`Answer::Done`] or [`Answer::Drifted`]. [`RolloutStep::Apply`] answers twice.
    Step(Box<RolloutStep>),
    /// Starts the echo of a mesh: [`Answer::Ready`], and [`Answer::Done`] at its end.
    Echo(Echo),
    /// Measures round trips to an echo: [`Answer::Pinged`].
    Ping(Ping),
    /// Ends pings that are under way: [`Answer::Pinged`] with those so far. Without pings it has no answer.
    StopPing,
    /// Ends the work under way early, as Ctrl-C does.
    Interrupt,
}

impl Call {
    /// True for work that has the machine to itself, and takes the time that it was asked for.
    pub fn is_measurement(&self) -> bool {
        matches!(self, Call::RunAlone(_) | Call::Cross(_))
    }
}

/// Two periods of a running service, with a plan or without.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// Its values are taken from the host.
    pub plan: String,
    /// Port of the service; `None` if `unit` names it.
    pub port: Option<u16>,
    /// Its unit of systemd.
    pub unit: Option<String>,
    /// Figures of the service's own, as the user wrote them.
    pub metrics: Vec<String>,
    /// Figure that is put first.
    pub primary: Option<String>,
    /// Rules of the guard, as the user wrote them.
    pub rules: Vec<String>,
    /// Each switch closes the service's connections.
    pub closes_connections: bool,
    /// Arm of each period.
    pub arms: [LiveArm; 2],
    /// Length of a period from the end of the switch, wash-out included, milliseconds.
    pub period_ms: u64,
    /// p99 of a request on this host without the plan, nanoseconds: the measure of the guard and of the wash-out.
    pub p99_ns: Option<f64>,
}

/// Two periods as they were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossed {
    /// Judged figures, the primary one first.
    pub figures: Vec<LiveFigure>,
    pub periods: Vec<LivePeriodRecord>,
    /// p99 of a request in the last period without the plan, nanoseconds; `None` without one.
    pub p99_ns: Option<f64>,
}

/// An echo, which answers the pings of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Echo {
    /// True if it answers IPv6 too.
    pub ipv6: bool,
    /// Number of the run.
    pub session: u32,
    /// `None` if it answers until the exchange ends.
    pub until: Option<EchoEnd>,
}

/// End of an echo: its pings have come, or come no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoEnd {
    /// Number of pings.
    pub count: u32,
    /// Time for the first of them, seconds.
    pub wait_s: u32,
}

/// Pings to the echo of another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    pub address: IpAddr,
    /// Round trips.
    pub count: u32,
    /// Number of the run: the echo answers no other.
    pub session: u32,
    /// Time for the echo to start, seconds; 0 if it answers already.
    pub wait_s: u32,
}

/// A step of a roll-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RolloutStep {
    /// Applies the plan: [`Answer::Done`] when the settings are changed, and again when they are confirmed. The
    /// process rolls back if it ends before.
    Apply {
        plan: String,
        within_ms: u64,
        /// Id of the roll-out: settings that were not applied for it are left alone.
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

impl RolloutStep {
    pub fn plan(&self) -> Option<&str> {
        match self {
            RolloutStep::Apply { plan, .. } | RolloutStep::Verify { plan } => Some(plan),
            _ => None,
        }
    }

    pub fn owner(&self) -> Option<&str> {
        match self {
            RolloutStep::Verify { .. } => None,
            RolloutStep::Apply { owner, .. }
            | RolloutStep::Extend { owner, .. }
            | RolloutStep::Confirm { owner }
            | RolloutStep::Keep { owner }
            | RolloutStep::RollBack { owner } => Some(owner),
        }
    }
}

/// Result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    Ran(Box<Ran>),
    Crossed(Box<Crossed>),
    /// A step was done, with the text of its result.
    Done(String),
    /// The settings differ from the plan.
    Drifted(String),
    /// The socket of the echo is bound.
    Ready,
    Pinged(PairCell),
    Failed(Failure),
}

/// An experiment that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ran {
    pub outcome: Outcome,
    pub is_stored: bool,
    /// True if it was given up because its last trials all failed.
    pub gave_up: bool,
}

/// Round trips between two hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairCell {
    /// Median, nanoseconds; `None` without one.
    pub rtt_ns: Option<f64>,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams without an answer.
    pub lost: u64,
    /// Reason why there is no figure.
    pub why: Option<String>,
}

impl PairCell {
    pub fn failed(why: impl Into<String>) -> Self {
        PairCell { why: Some(why.into()), ..PairCell::default() }
    }
}
