//! Calls of the near end, and answers of a far end on another host.
//!
//! The near end opens the far end with the experiment, and then asks for one trial after the other:
//!
//! | near | far |
//! |---|---|
//! | `Trial` | applies settings, runs the setup, starts the server: `Ready` |
//! | `Begin` | counts from now on: `Begun` |
//! | `End` | `Seen` |
//! | `Stop` | ends the server, runs the cleanup, restores the settings: `Done` |
//!
//! `Ended` comes once between them, from a server that has ended with success. `Failed` takes the place of any answer, also before it was asked for, and ends the trial; a request that
//! was under way then is skipped. `Stop` may come at any moment of a trial.

use std::net::IpAddr;

use model::{Machine, NotEffective, Programs};
use remote::Service;
use serde::{Deserialize, Serialize};

use crate::figures::FigureValues;
use crate::problem::Problem;
use crate::serve::FarSeen;
use crate::turn::TrialTurn;
use crate::variables::WireEnd;

/// The user's programs on another host.
#[derive(Debug)]
pub(crate) enum FarPrograms {}

impl Service for FarPrograms {
    const NAME: &str = crate::SERVICE;
    type Call = Request;
    type Answer = Reply;

    fn is_interrupt(call: &Request) -> bool {
        matches!(call, Request::Interrupt)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    Open(Box<Opening>),
    /// Looks for mistakes that would fail trials.
    Check,
    Trial(TrialTurn),
    Begin,
    End,
    Stop,
    /// Ends a command under way. No trial follows.
    Interrupt,
}

/// First request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opening {
    pub(crate) experiment: Programs,
    /// Name of a place between the ends; `None` for the server's end.
    #[serde(default)]
    pub(crate) place: Option<String>,
    /// Address of the server.
    pub(crate) far: IpAddr,
    /// The client's end.
    pub(crate) near: WireEnd,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Opened {
        machine: Box<Machine>,
        /// Interface under test.
        interface: String,
    },
    Checked(Vec<Problem>),
    Ready {
        ready_ns: Option<u64>,
    },
    Begun,
    /// The server has ended with success.
    Ended,
    Seen(Box<FarSeen>),
    Done {
        not_effective: Vec<NotEffective>,
        /// Those of the server's end.
        figures: FigureValues,
    },
    Failed {
        why: String,
        /// No later trial would be valid.
        is_broken: bool,
    },
}
