//! BPF programs: embedded in the binary, attached by `bpf_link`.
//!
//! A link is a file descriptor, so the kernel detaches the program when the process ends, however
//! it ends. Wirepath pins nothing and needs no bpffs; it opens the pinned map of another program if asked to. libbpf raises RLIMIT_MEMLOCK on kernels that
//! charge BPF memory to it (before 5.11).
//!
//! A crate may bring BPF programs of its own: its build script compiles them (`wirepath-bpf-build`),
//! [`embedded!`] and [`shared_types!`] take the results, [`Opened`] loads them, [`Loaded`] attaches them, and a
//! [`Map`] is how both sides talk. The structs derive traits of `zerocopy`, which the crate must name.
//!
//! An interface index is valid in one network namespace only: every call that takes one must be
//! made by a thread in that namespace.

mod attached;
mod calls;
mod drop;
mod error;
pub mod explain;
pub mod explain_drops;
mod faults;
mod filter;
mod generator;
mod hasher;
mod headrooms;
mod hooks;
mod interface;
pub mod interruptions;
pub mod kvm;
mod link;
mod map;
mod object;
pub mod observer;
mod pass;
mod process;
mod samples;
mod service;
pub mod slices;
mod socket_map;
pub mod stages;
mod tracing;
mod verbs;

pub use attached::AttachedProgram;
pub use calls::{CallCounter, CallSum};
pub use drop::{DelayCounts, DropCounter, DropCounts, DropSpec, HEAD_BYTES_MAX, Heads};
pub use error::BpfError;
pub use faults::{Fault, FaultCounts, FaultFilter, FaultSpec};
pub use filter::{
    FEED_GROUPS_MAX, FEED_STAMP_BYTES, FeedGroup, FilterCounts, FrameMetadata, PROBE_ADDRESSES_MAX,
    ProbeFilterSpec, SocketFilter, mapped_address,
};
pub use generator::{Flows, Generator, GeneratorCounts, GeneratorMarks, LENGTHS_MAX};
pub use hasher::Hasher;
pub use headrooms::headrooms;
pub use hooks::{HookFunction, hook_functions};
pub use interface::Interface;
pub use link::{BpfLink, Tcx, TraceLink, detach_leftover};
pub use map::{Map, wait_for_programs};
#[doc(hidden)]
pub use object::Aligned;
pub use object::{Loaded, Opened, embedded, shared_types};
pub use pass::PassProgram;
pub use samples::Samples;
pub use service::{
    SERVICE_BINS, SERVICE_PORTS_MAX, ServiceProbe, ServiceSpan, ServiceTimes, ServiceTotals,
    ServiceWaiting, ServiceWanted, service_bin_ns,
};
pub use socket_map::PinnedSocketMap;
pub use tracing::{EmptyRuns, MissingTracepoint, RunTime, RunTimeCounting, Runs};
pub use verbs::{Verb, VerbCounts, VerbProgram};
pub use xdp::XdpMode;
