//! The packet paths: each a data plane, its switches, and a way to run trials of it.
//!
//! A path never refers to another path. Adding one is a folder and a line in [`all`].

mod path;
pub mod probe;
pub mod vmnic;

pub use path::{Load, LoadKind, Path, PathError, Session};

/// Every path.
pub fn all() -> Vec<Box<dyn Path>> {
    vec![Box::new(probe::Probe)]
}
