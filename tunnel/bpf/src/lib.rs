//! BPF programs of the tunnels, and their maps: [`FastPath`] forwards frames in the kernel.

mod fastpath;

pub use fastpath::{
    FAST_COUNTS, FAST_ECN_DROP, FAST_ECN_ODD, FAST_HEADER_BYTES_MAX, FAST_TUNNELS_MAX,
    FastDirection, FastHeader, FastHook, FastPath, FastPathSpec, FastRules, FastStation,
    fast_station_key, fast_station_of,
};
