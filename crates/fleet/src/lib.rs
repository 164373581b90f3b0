//! Many hosts: which pairs measure when, which hosts stand out, and the books of jobs.
#![warn(missing_docs)]

pub mod book;
pub mod mesh;
