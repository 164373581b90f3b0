//! Errors of a replay.

use std::io::Error;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use io::IoError;

use crate::capture::CaptureError;

/// Error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Thread(#[from] sys::thread::ThreadError),
    #[error(
        "cannot serve requests at {address}; give --serve an address of this host and a free port"
    )]
    Serve {
        address: SocketAddrV4,
        #[source]
        source: Error,
    },
    #[error(
        "cannot replay to {to}: it is neither a multicast group nor an address on the network of \
         {ifname}; market data must not leave the given interface"
    )]
    Destination { to: SocketAddrV4, ifname: String },
    /// No destination, or too many.
    #[error("{lines} destinations given; give one, or two for an A/B pair")]
    Lines { lines: usize },
    #[error("this file holds telegrams without times; set the pace with --rate or --speed max")]
    NoTimes,
    #[error("the capture contains no UDP datagram{to}; `wirepath feed decode` shows its contents")]
    Nothing {
        /// Filter on destinations, as text.
        to: String,
    },
    /// The interface was removed or is down.
    #[error("sending to {to} through {ifname} failed")]
    Send {
        to: SocketAddrV4,
        ifname: String,
        #[source]
        source: Error,
    },
    #[error("cannot run on CPU {cpu}; `taskset -cp $$` lists the allowed ones")]
    Pin {
        cpu: usize,
        #[source]
        source: Error,
    },
    #[error("cannot write {}", path.display())]
    Stamps {
        path: PathBuf,
        #[source]
        source: Error,
    },
}
