//! `wirepath peer`: server and client of the control connection between two hosts.
//!
//! Each message is one line of JSON over TCP. The far end sends datagrams only to the source
//! address of the control connection, and no more than the run asks for.

mod client;
#[doc(hidden)]
pub mod fuzzing;
mod protocol;
mod server;

pub use client::{Far, FarReady};
pub use protocol::{DEFAULT_PORT, PeerError};
pub use server::{PeerOptions, serve};
