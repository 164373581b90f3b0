//! Many hosts: which pairs measure when, which hosts stand out, the books of jobs, the servers that carry them, and
//! staged roll-outs.
#![warn(missing_docs)]

pub mod book;
pub mod enrol;
pub mod keys;
pub mod mesh;
pub mod message;
pub mod nats;
pub mod postgres;
pub mod rollout;
