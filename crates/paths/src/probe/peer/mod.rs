//! `wirepath peer`: the far end of runs between two hosts, and the near end's side of the
//! conversation with it.
//!
//! One JSON document a line over TCP. The far end never sends a datagram to any address but
//! the one that the control connection comes from, and never more than the run asks for.

mod client;
pub(crate) mod fuzzing;
mod protocol;
mod server;

pub use client::{Far, FarReady};
pub use protocol::{DEFAULT_PORT, PeerError};
pub use server::{PeerOptions, serve};
