//! Counts and times of a virtual machine, taken from outside: the guest runs unchanged and knows nothing of it.
//!
//! Three sources, each of which may be missing with its reason ([`OutsideCounts::missing`]): trace events of
//! QEMU (doorbells, frames, interrupts, console), tracepoints of KVM (exits, injections, halts), and the
//! scheduler's statistics of the machine's threads.

mod counts;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod kvm;
mod qemu;
mod size;
mod threads;
mod timeline;
mod watch;

pub use counts::OutsideCounts;
pub use error::OutsideError;
pub use kvm::EventSum;
pub use qemu::{CardCounts, LogCounts, qemu_arguments};
pub use size::ImageSize;
/// Events of KVM.
pub use sys::bpf::kvm::{KvmEvent, KvmEvents};
pub use threads::{ThreadCounts, ThreadRole};
pub use watch::{OutsideWatch, WatchTarget as Target};
