//! `wirepath peer`: server and client of the control connection between two hosts.
//!
//! Each message is one line of JSON over TCP (see [`remote::tcp`]), encrypted if there is a shared secret. The far end sends
//! datagrams only to the source address of the control connection, and no more than the run asks for.

mod client;
mod desk;
#[doc(hidden)]
pub mod fuzzing;
mod host_settings;
mod protocol;
mod server;

pub use client::{Far, FarReady, FarReport};
pub use protocol::{DEFAULT_PORT, DEFAULT_PORTS, PeerError, Settings};
pub use server::{PeerOptions, SessionLimits, serve};
