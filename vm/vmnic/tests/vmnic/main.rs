//! The virtual NIC with a guest that runs. Without KVM each test says so and is skipped.
#![cfg(target_arch = "x86_64")]

mod confined;
mod guest;
mod hostile;
mod leftover;
mod outside;
mod path;
mod raw;
mod scribbler;
mod streams;
mod tap;
mod tcp;
mod virtio_scribbler;
