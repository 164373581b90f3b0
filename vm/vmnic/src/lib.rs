//! Path `vmnic`: the NIC of a virtual machine. A monitor on KVM emulates an AMD Lance or a virtio-net card;
//! its switches bring a frame from twelve exits to the process to hardly any.

#[cfg(target_arch = "x86_64")]
mod accounting;
#[cfg(target_arch = "x86_64")]
mod host_stream;
pub mod image;
#[cfg(target_arch = "x86_64")]
mod native;
mod path;
#[cfg(target_arch = "x86_64")]
mod ping;
#[cfg(target_arch = "x86_64")]
mod qemu;
#[cfg(target_arch = "x86_64")]
mod run_guest;
#[cfg(target_arch = "x86_64")]
pub mod serve;
#[cfg(target_arch = "x86_64")]
mod session;
#[cfg(target_arch = "x86_64")]
mod sink;
#[cfg(target_arch = "x86_64")]
pub mod stream;
#[cfg(target_arch = "x86_64")]
mod support;
mod switches;
#[cfg(target_arch = "x86_64")]
mod topology;
#[cfg(target_arch = "x86_64")]
mod vcpu_profile;

pub use path::Vmnic;
pub use switches::Switch;
