//! AF_XDP sockets: frames shared with the kernel and four rings.
//!
//! Frames are owned by the ledger of their socket. What the kernel hands back is checked
//! before it is used: the address is masked to its frame, the frame must be one that the
//! kernel had, and the length must fit; anything else is counted and left alone.
//!
//! Source: kernel documentation, networking/af_xdp.rst.

mod bind;
mod error;
mod ring;
mod socket;
mod umem;

#[cfg(feature = "bench")]
pub mod bench;

pub use bind::{Bind, Copying};
pub use error::XskError;
pub use socket::{Socket, Then, XskStatistics};
pub use umem::{Frames, LedgerBalance};
