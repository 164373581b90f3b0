//! Many hosts: which pairs measure when, which hosts stand out, the books of jobs, the servers that carry them, and
//! staged roll-outs.
#![warn(missing_docs)]

pub mod book;
#[cfg(feature = "servers")]
pub mod enrol;
#[cfg(feature = "servers")]
pub mod keys;
pub mod mesh;
#[cfg(feature = "servers")]
pub mod message;
#[cfg(feature = "servers")]
pub mod nats;
#[cfg(feature = "servers")]
mod packed;
#[cfg(feature = "servers")]
pub mod postgres;
pub mod rollout;
#[cfg(feature = "servers")]
pub mod signed_file;
