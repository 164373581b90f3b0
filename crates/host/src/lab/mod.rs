//! Throw-away topologies: network namespaces joined by veth.
//!
//! A lab is its descriptors. Its namespaces have no name and the process holds them, so that
//! the kernel removes interfaces and namespaces when the lab is dropped, and just as well
//! when the process is killed. (Removal is not instant, and a socket, thread or child inside
//! keeps its namespace alive for as long as it lives.) Nothing is ever made in the caller's
//! own namespace.
//!
//! # Receiving by NAPI
//! A veth passes frames on as socket buffers until its *receiving* end has an XDP program in
//! native mode or has GRO on; from then on that end runs NAPI. An end with neither **drops
//! every frame that is redirected to it** by XDP (devmap or `bpf_redirect`), silently. Ask
//! for `gro`, attach a program there, or switch it on with [`End::set_feature`].

mod end;
mod error;
mod pair;
mod triple;

pub use end::End;
pub use error::LabError;
pub use pair::{Pair, PairSpec};
pub use triple::{Middle, Triple};
