//! A virtual NIC in a monitor of our own: the guest's port accesses, one optimisation at a time.
//!
//! - [`lance`]: the device, a pure state machine over guest memory.

pub mod lance;
