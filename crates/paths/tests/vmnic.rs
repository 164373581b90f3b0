//! The virtual NIC with a guest that runs. Without KVM each test says so and is skipped.
#![cfg(target_arch = "x86_64")]

#[path = "vmnic/confined.rs"]
mod confined;
#[path = "vmnic/guest.rs"]
mod guest;
#[path = "vmnic/hostile.rs"]
mod hostile;
#[path = "vmnic/leftover.rs"]
mod leftover;
#[path = "vmnic/path.rs"]
mod path;
#[path = "vmnic/raw.rs"]
mod raw;
#[path = "vmnic/scribbler.rs"]
mod scribbler;
#[path = "vmnic/streams.rs"]
mod streams;
#[path = "vmnic/tap.rs"]
mod tap;
#[path = "vmnic/tcp.rs"]
mod tcp;
