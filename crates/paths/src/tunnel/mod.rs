//! Path `tunnel`: a GRETAP and VXLAN forwarder that spreads one flow over several workers and
//! keeps its order.
//!
//! Pure parts, each usable and tested alone; none has a clock, a thread or a socket:
//!
//! - [`order`]: tickets taken in order, work done in any, frames let out in order.

pub mod order;
mod sync;
