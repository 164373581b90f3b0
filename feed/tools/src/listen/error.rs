//! Errors of a receiver.

use std::net::SocketAddr;

use io::IoError;

/// Error of a receiver.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    Net(#[from] host::net::NetError),
    /// No group, or more than two.
    #[error("{groups} groups given; give one, or two with the same content")]
    Groups { groups: usize },
    #[error(
        "the Taiwan exchanges have no retransmission service; --recover needs MoldUDP64 (--mold)"
    )]
    NoRecovery,
    #[error("cannot open a socket to the recovery server {server}; check address and route")]
    Recover {
        server: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot run on CPU {cpu}; `taskset -cp $$` lists the allowed ones")]
    Pin {
        cpu: usize,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "cannot run at SCHED_FIFO priority {priority}; run with CAP_SYS_NICE, or set `ulimit -r` to \
         at least the priority"
    )]
    Fifo {
        priority: i32,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot drop privileges that receiving does not need")]
    Rights(#[source] std::io::Error),
    #[error("waiting for datagrams failed")]
    Wait(#[source] std::io::Error),
    #[error(transparent)]
    Trace(host::interruptions::TraceError),
}
