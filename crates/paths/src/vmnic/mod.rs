//! A virtual NIC in a monitor of our own: the guest's port accesses, one optimisation at a time.
//!
//! - [`lance`]: the device, a pure state machine over guest memory.
//! - [`vmm`]: the monitor, which runs a guest with that device by KVM.

pub mod lance;
#[cfg(target_arch = "x86_64")]
pub mod vmm;
