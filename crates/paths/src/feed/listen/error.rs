//! Why a feed cannot be received.

use std::net::SocketAddr;

use io::IoError;

/// Why a feed cannot be received.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A socket.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No group, or more than two.
    #[error("{groups} groups were given; one, or two that carry the same, can be received")]
    Groups {
        /// How many.
        groups: usize,
    },
    /// Telegrams cannot be asked for again.
    #[error("the Taiwan exchanges answer no requests; --recover is for MoldUDP64 (--mold)")]
    NoRecovery,
    /// The server's socket.
    #[error("cannot open a socket to the recovery server {server}; check address and route")]
    Recover {
        /// The server.
        server: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The CPU.
    #[error("cannot run on CPU {cpu}; `taskset -cp $$` lists those that are allowed")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The priority.
    #[error(
        "cannot run at SCHED_FIFO priority {priority}; it needs CAP_SYS_NICE, or `ulimit -r` of \
         as much"
    )]
    Fifo {
        /// The priority.
        priority: i32,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It would have more rights than it is to have.
    #[error("rights that receiving does not need could not be given up")]
    Rights(#[source] std::io::Error),
    /// Waiting.
    #[error("waiting for datagrams failed")]
    Wait(#[source] std::io::Error),
}
