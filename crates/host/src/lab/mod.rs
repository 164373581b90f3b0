//! Throw-away topologies: network namespaces joined by veth.
//!
//! A lab is its descriptors. Its namespaces have no name and the process holds them, so that
//! the kernel removes interfaces and namespaces when the lab is dropped, and just as well
//! when the process is killed. (Removal is not instant, and a socket, thread or child inside
//! keeps its namespace alive for as long as it lives.) Nothing is ever made in the caller's
//! own namespace; only an [`Annex`] makes anything in one that is not ours, which it is given.
//!
//! # Receiving by NAPI
//! A veth passes frames on as socket buffers until its *receiving* end has an XDP program in
//! native mode or has GRO on; from then on that end runs NAPI. Frames that XDP redirects into
//! a veth (devmap or `bpf_redirect`) come out at its peer **only while the peer runs NAPI**;
//! else they are dropped, and no error tells. So the end that is to receive such frames wants
//! `gro`, or a program ([`sys::bpf::PassProgram`] is the smallest), or [`End::set_feature`].

mod annex;
mod end;
mod error;
mod pair;
mod tap;
mod triple;

pub use annex::{Annex, Side, Wire};
pub use end::End;
pub use error::LabError;
pub use pair::{Pair, PairSpec};
pub use tap::{TapEnd, TapHome};
pub use triple::{Middle, Triple};
