//! KVM virtual machines: memory, one processor, interrupts, and port accesses without exits.
//!
//! Source: kernel documentation, virt/kvm/api.rst.

mod confine;
mod error;
mod event;
mod machine;
mod ram;
mod stats;
mod stop;
mod vcpu;

/// Register contents as KVM defines them.
pub use kvm_bindings as bindings;

pub use crate::seccomp::Confinement;
pub use error::KvmError;
pub use event::Event;
pub use machine::VirtualMachine;
pub use ram::{GuestRam, OutsideRam};
pub use stats::VcpuStatistics;
pub use stop::{allow_kicks, kick};
pub use vcpu::{Coalesced, Exit, Vcpu};
