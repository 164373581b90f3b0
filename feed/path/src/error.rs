//! Errors of one end of a trial.

use std::io::Error;
use std::net::{Ipv4Addr, SocketAddrV4};

use model::PathError;
use sys::thread::ThreadError;

#[derive(Debug, thiserror::Error)]
pub(super) enum EndError {
    #[error(transparent)]
    Settle(#[from] lab::LabError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error(transparent)]
    Engine(#[from] io::IoError),
    #[error("cannot open a terminal")]
    Terminal(#[source] Error),
    #[error("cannot join {group}")]
    Join {
        group: Ipv4Addr,
        #[source]
        source: Error,
    },
    #[error("cannot set SCHED_FIFO; it needs CAP_SYS_NICE or RLIMIT_RTPRIO")]
    Fifo(#[source] Error),
    #[error("cannot lock memory; it needs CAP_IPC_LOCK or `ulimit -l unlimited`")]
    LockMemory(#[source] Error),
    #[error("cannot bind to {from}")]
    Bind {
        from: Ipv4Addr,
        #[source]
        source: Error,
    },
    #[error("cannot send to {group}")]
    Send {
        group: SocketAddrV4,
        #[source]
        source: Error,
    },
    #[error(
        "the wall clock was set during the trial, so its time stamps are invalid; repeat the trial"
    )]
    ClockSet,
    #[error("the receiver was not ready")]
    NotReady,
    #[error("no quote of the calibration arrived")]
    NoArrival,
    #[error(
        "no quote of the calibration to {group} arrived on {ifname}: both ends must be on one link, because \
         quotes have a TTL of 1; if they are, let UDP to {group} through this host's firewall, and check \
         that the switch forwards the group (IGMP snooping needs a querier)"
    )]
    NotDelivered { group: SocketAddrV4, ifname: String },
}

impl EndError {
    /// Names the end that failed.
    pub(super) fn at(self, end: &str) -> PathError {
        PathError::at(end, self)
    }
}
