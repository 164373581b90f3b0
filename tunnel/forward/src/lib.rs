//! A VXLAN and GRETAP forwarder that spreads one flow over several workers and keeps its order.
//!
//! Independent parts, each tested alone and without a clock, thread or socket:
//!
//! - [`order`]: tickets issued in order, work done in any order, frames delivered in order;
//! - [`spec`], [`encap`], [`decap`]: outer headers added to a frame, or checked and removed;
//! - [`keepalive`]: frames inside a tunnel that its far end answers;
//! - [`domain`], [`fdb`], [`qos`], [`config`]: broadcast domain, destination, rate limits and their
//!   configuration.
//!
//! Packets that do not fit a tunnel are answered by `pmtu`; `path_mtu` believes or refuses the reports of
//! routers on the path.
//!
//! [`forwarder`] combines them between two [`ports`], also behind XDP or [`tcx`]
//! programs that forward known stations by themselves; [`run`] runs it on the host's interfaces. The path `tunnel` measures the gain of each optimisation.
#![warn(missing_docs)]

pub mod config;
pub mod decap;
pub mod domain;
pub mod encap;
pub mod fdb;
pub mod forwarder;
#[doc(hidden)]
pub mod fuzzing;
mod inner;
pub mod keepalive;
pub mod order;
mod path_mtu;
mod pmtu;
pub mod ports;
pub mod qos;
pub mod run;
pub mod spec;
mod sync;
pub mod tcx;
