//! Settings, checks and facts of the host that measurements run on.
//!
//! # Leaving things as they were
//! Every change returns a guard whose `Drop` undoes it and that owns what this needs. There is no
//! registry of undo actions and no final call:
//!
//! | held | undone by drop | undone when killed |
//! |---|---|---|
//! | `lab::Pair`, `lab::Triple` | descriptors of the namespaces are closed | by the kernel, in the same way |
//! | `lab::program::Program` | its processes are killed, its control group is removed | by its supervisor |
//! | [`idle::NoIdle`] | the request's file is closed | by the kernel, in the same way |
//! | [`irq_suspend::IrqSuspend`] | by a forked process | by that process |
//! | [`scratch::Scratch`] | the folder is removed | by the next process that makes one |
//! | [`tune::ScopedSettings`] | what was there is written back | only in a lab, whose interfaces go with it |
//! | [`tune::apply()`] | – | by its journal |
//!
//! Rust drops local values in reverse order of their making and fields in order of their
//! declaration: make the lab first and guards after it, or declare guards before the lab in
//! a struct. A guard whose lab is gone already has nothing left to undo. Lasting settings of
//! interfaces that are not ours have to survive a kill as well, so they are changed through
//! [`tune`]'s journal on disk, or restored by a process of their own (`sys::keeper`).

pub mod causes;
pub mod cpu;
pub mod exclusive;
pub mod explain;
pub mod generated;
pub mod idle;
pub mod interruptions;
pub mod irq_suspend;
pub mod machine;
pub mod net;
pub mod observer;
pub mod output_file;
pub mod private_file;
pub mod program;
pub mod random;
pub mod sampling;
pub mod scratch;
pub mod slots;
pub mod text;
pub mod tune;
pub mod user_file;

#[cfg(target_arch = "x86_64")]
pub use sys::kvm;
pub use sys::sysfs;
/// Namespaces, and children that run in them and die with us.
pub use sys::{child, netns};
