//! Lines between the near end and a far end on another host, each a JSON document.
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
//! `Failed` takes the place of any answer, also before it was asked for, and ends the trial; a request that
//! was under way then is skipped. `Stop` may come at any moment of a trial. An empty line only shows that
//! the connection holds.

use std::net::IpAddr;

use model::{Machine, NotEffective, Programs};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::serve::{FarSeen, Turn};

/// Longest line, bytes.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    Open(Box<Opening>),
    /// Looks for mistakes that would fail trials.
    Check,
    Trial(Turn),
    Begin,
    End,
    Stop,
    /// Ends a command under way. No trial follows.
    Interrupt,
}

/// First request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) experiment: Programs,
    /// Address of the server.
    pub(crate) far: IpAddr,
    /// Address of the client.
    pub(crate) near: IpAddr,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Opened(Box<Machine>),
    Checked(Vec<Problem>),
    Ready {
        ready_ns: Option<u64>,
    },
    Begun,
    Seen(Box<FarSeen>),
    Done {
        not_effective: Vec<NotEffective>,
    },
    Failed {
        why: String,
        /// No later trial would be valid.
        is_broken: bool,
    },
}
