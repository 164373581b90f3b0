//! Path `tunnel`: the forwarder of crate `forward`, beside the kernel's and DPDK's.

mod accounting;
mod bench;
mod kernel;
pub mod measure;
mod path;
mod session;
mod sink;
mod source;
mod stream;
mod support;
mod switches;
mod testpmd;
mod topology;
mod traffic;
mod user;

pub use path::TunnelPath;
pub use switches::Switch;
