//! Why a feed cannot be sent.

use std::io::Error;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use io::IoError;

use crate::feed::capture::CaptureError;

/// Why a feed cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A socket.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Where it may not go.
    #[error(
        "{to} is not sent to: it is neither a multicast group nor an address on the network of \
         {ifname}; market data is replayed only where it cannot leave the interface that was \
         given"
    )]
    Destination {
        /// Where it was to go.
        to: SocketAddrV4,
        /// Interface.
        ifname: String,
    },
    /// No line or too many.
    #[error("{lines} destinations were given; one, or two for an A/B pair, can be sent to")]
    Lines {
        /// How many.
        lines: usize,
    },
    /// Telegrams without times.
    #[error("this file holds telegrams without times; say how fast with --rate, or --speed max")]
    NoTimes,
    /// Nothing was sent.
    #[error("the capture holds no UDP datagram{to}; `wirepath feed decode` shows what it holds")]
    Nothing {
        /// To the destinations asked for.
        to: String,
    },
    /// The interface went away or down.
    #[error("sending to {to} through {ifname} failed")]
    Send {
        /// Where.
        to: SocketAddrV4,
        /// Interface.
        ifname: String,
        /// What the system says.
        #[source]
        source: Error,
    },
    /// The CPU.
    #[error("cannot run on CPU {cpu}; `taskset -cp $$` lists those that are allowed")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// What the system says.
        #[source]
        source: Error,
    },
    /// The file of stamps.
    #[error("cannot write {}", path.display())]
    Stamps {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Error,
    },
}
