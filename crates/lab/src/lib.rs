//! Throw-away topologies: network namespaces joined by veth.
//!
//! A lab consists of file descriptors. Its namespaces have no name and are held open by the
//! process, so the kernel removes namespaces and interfaces when the lab is dropped and also when
//! the process is killed. (Removal is not instant, and a socket, thread or child process inside
//! keeps its namespace alive.) Nothing is created in the caller's namespace. Only an
//! [`AttachedNamespace`] creates an interface in an existing namespace, which the caller passes.
//!
//! # Receiving by NAPI
//! A veth passes frames on as socket buffers until its *receiving* end has an XDP program in
//! native mode or has GRO enabled; from then on that end runs NAPI. Frames that XDP redirects into
//! a veth (devmap or `bpf_redirect`) arrive at its peer **only while the peer runs NAPI**;
//! otherwise they are dropped without an error. An end that receives such frames therefore needs
//! `gro`, an XDP program ([`sys::bpf::PassProgram`] is the smallest), or [`End::set_feature`].

mod accounting;
pub mod adapters;
mod attached;
mod built_in_load;
mod distance;
mod end;
mod error;
mod far_end;
mod guest_wire;
pub mod host_rights;
mod load_route;
mod loopback;
mod losses;
mod machine;
mod pair;
pub mod peers;
pub mod program;
pub mod qemu;
mod run;
mod tap;
mod tap_port;
mod triple;
mod tuned;

pub use accounting::{
    HostTime, Meter, Placement, Used, cost_of, local, settle, softirqs_missing, usable_cpus,
};
pub use attached::{AttachedNamespace, Side, Wire};
pub use built_in_load::{BuiltInLoad, BuiltInLoadError, LOAD_DATAGRAM_BYTES_MIN, LoadTraffic};
pub use distance::{DistantPair, DistantWire, WireCounts, WireReport, WireTrials, late_limit_ns};
pub use end::End;
pub use error::LabError;
pub use far_end::{FarEnd, FarEndError, SshHost};
pub use guest_wire::GuestWire;
pub use load_route::{LoadRoute, LoadTopology, NamespaceEnds};
pub use loopback::loopback;
pub use losses::{LossWatch, loss_traps};
pub use machine::{boot_id, describe_machine, describe_nic, machine_of_far_end};
pub use pair::{Pair, PairSpec, pair_far_ip};
pub use run::{Run, RunCause, Signals, drain, run};
pub use tap::{TapEnd, TapHome};
pub use tap_port::TapPort;
pub use triple::{Middle, Triple};
pub use tuned::{TrialSettings, TunedSession};
