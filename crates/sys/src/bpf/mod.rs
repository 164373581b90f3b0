//! BPF programs: embedded in the binary, attached by `bpf_link`.
//!
//! A link is a file descriptor, so the kernel detaches the program when the process ends, however
//! it ends. Wirepath pins nothing and needs no bpffs; it opens the pinned map of another program if asked to. libbpf raises RLIMIT_MEMLOCK on kernels that
//! charge BPF memory to it (before 5.11).
//!
//! An interface index is valid in one network namespace only: every call that takes one must be
//! made by a thread in that namespace.

mod attached;
mod drop;
mod error;
pub mod explain;
mod fastpath;
mod faults;
mod filter;
mod generator;
mod headrooms;
mod hooks;
mod interface;
pub mod interruptions;
mod link;
mod object;
mod pass;
pub mod slices;
mod socket_map;
pub mod stages;
mod tracing;
mod verbs;
mod xdp_mode;

pub use attached::AttachedProgram;
pub use drop::{DelayCounts, DropCounter, DropCounts, DropSpec, HEAD_BYTES_MAX, Heads};
pub use error::BpfError;
pub use fastpath::{
    FAST_COUNTS, FAST_ECN_DROP, FAST_ECN_ODD, FAST_HEADER_BYTES_MAX, FAST_TUNNELS_MAX,
    FastDirection, FastHeader, FastHook, FastPath, FastPathSpec, FastRules, FastStation,
    fast_station_key, fast_station_of,
};
pub use faults::{Fault, FaultCounts, FaultFilter, FaultSpec};
pub use filter::{
    FEED_GROUPS_MAX, FEED_STAMP_BYTES, FeedGroup, FilterCounts, PROBE_ADDRESSES_MAX,
    ProbeFilterSpec, SocketFilter, TunnelCarrier, TunnelFilterSpec, TunnelFrames, TunnelId,
};
pub use generator::{Flows, Generator, GeneratorCounts, GeneratorMarks, LENGTHS_MAX};
pub use headrooms::headrooms;
pub use hooks::{HookFunction, hook_functions};
pub use interface::Interface;
pub use link::detach_leftover;
pub use pass::PassProgram;
pub use socket_map::PinnedSocketMap;
pub use tracing::{EmptyRuns, MissingTracepoint, RunTime, RunTimeCounting, Runs};
pub use verbs::{Verb, VerbCounts, VerbProgram};
pub use xdp_mode::XdpMode;
