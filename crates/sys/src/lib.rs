//! System calls, shared-memory rings and BPF: with crate `xdp`, the only `unsafe` code.
//!
//! One file for each kernel noun. All exported functions are safe to call; lengths and indexes that
//! the kernel supplies are checked in release builds too.
#![expect(unsafe_code, reason = "the fence of the workspace: every block states why it holds")]

mod address;
pub mod affinity;
pub mod bpf;
pub mod cache;
pub mod capability;
pub mod child;
pub mod clock;
pub mod counters;
mod descriptors;
pub mod epoll;
pub mod ethtool;
pub mod forked;
pub mod hardware_stamps;
pub mod icmp;
pub mod jail;
pub mod keeper;
#[cfg(target_arch = "x86_64")]
pub mod kvm;
pub mod landlock;
pub mod memory_file;
pub mod mmap;
pub mod multicast;
pub mod netns;
pub mod packet;
pub mod packet_port;
pub mod packet_tap;
mod perf;
mod perf_ring;
pub mod pidfd;
pub mod poll;
pub mod pty;
pub mod random;
pub mod rusage;
pub mod sampling;
pub mod sched;
#[cfg(target_arch = "x86_64")]
pub mod seccomp;
pub mod session;
pub mod socket;
pub mod sparse;
pub mod supervisor;
pub mod sysfs;
pub mod tap;
pub mod tcp;
pub mod thread;
pub mod thread_samples;
pub mod tracefs;
pub mod udp;
pub mod uring;
pub mod user_namespace;
pub mod zero_copy;
