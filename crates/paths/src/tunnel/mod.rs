//! Path `tunnel`: a GRETAP and VXLAN forwarder that spreads one flow over several workers and
//! keeps its order.
//!
//! Pure parts, each usable and tested alone; none has a clock, a thread or a socket:
//!
//! - [`order`]: tickets taken in order, work done in any, frames let out in order;
//! - [`spec`], [`encap`], [`decap`]: outer headers put in front of a frame and checked off it;
//! - [`fdb`], [`qos`], [`config`]: where frames go, how fast, and who says so.
//!
//! [`forward`] puts them together between two ports of [`io::forward`].

pub mod config;
pub mod decap;
pub mod encap;
pub mod fdb;
pub mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod inner;
pub mod order;
pub mod qos;
pub mod spec;
mod sync;
