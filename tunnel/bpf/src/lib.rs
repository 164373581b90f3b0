//! BPF programs of the tunnels, and their maps: [`TunnelFilter`] gives frames to a forwarder, and
//! [`FastPath`] forwards them in the kernel.

mod fastpath;
mod filter;

pub use fastpath::{
    FAST_COUNTS, FAST_ECN_DROP, FAST_ECN_ODD, FAST_HEADER_BYTES_MAX, FAST_TUNNELS_MAX,
    FastDirection, FastHeader, FastHook, FastPath, FastPathSpec, FastRules, FastStation,
    fast_station_fields, fast_station_key,
};
pub use filter::{TunnelCarrier, TunnelFilter, TunnelFilterSpec, TunnelFrames, TunnelId};
