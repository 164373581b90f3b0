//! Path `vm`: virtual machines of the user as arms, described by a file.
//!
//! It is a path, and not a kind of subject of its own, so that limits, gates, storage and pages are those of all paths.
//! Its arms come from its file in place of switches: two machines exclude each other and do not combine.

mod accounting;
mod check;
mod client;
mod command_line;
mod echo;
mod error;
mod file;
mod image;
mod loads;
mod machine;
mod path;
mod session;
mod start;

pub use file::{VmArm, VmFile};
pub use path::Vm;
