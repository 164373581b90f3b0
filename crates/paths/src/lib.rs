//! The packet paths: each a data plane, its switches, and a way to run trials of it.
//!
//! A path never refers to another path. Adding one is a folder and a line in [`all`].

pub mod feed;
pub mod fuzzing;
pub mod guest;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
mod lab;
mod path;
mod peers;
pub mod probe;
pub mod tunnel;
pub mod vmnic;

pub use host::text;
pub use path::{Load, LoadKind, Path, PathError, Session};

/// Every path.
pub fn all() -> Vec<Box<dyn Path>> {
    vec![
        Box::new(probe::Probe),
        Box::new(feed::Feed),
        Box::new(tunnel::TunnelPath),
        Box::new(vmnic::Vmnic),
        Box::new(guest::Guest),
    ]
}
