//! Many hosts: which pairs measure when, which hosts stand out, the books of jobs, and staged roll-outs.
#![warn(missing_docs)]

pub mod book;
pub mod mesh;
pub mod rollout;
