//! AF_XDP sockets: frames shared with the kernel and four rings.
//!
//! Frames are owned by the ledger of their socket. What the kernel hands back is checked
//! before it is used: the address is masked to its frame, the frame must be one that the
//! kernel had, and the length must fit; anything else is counted and left alone.
//!
//! Two ways to own frames: a [`Socket`] with a share of a UMEM to itself, whose frames come
//! and go with it; and a [`Pool`] whose frames travel between the halves ([`PoolRx`],
//! [`PoolTx`]) of several
//! sockets, for what is forwarded.
//!
//! Source: kernel documentation, networking/af_xdp.rst.

mod bind;
mod error;
#[cfg(any(test, feature = "bench"))]
mod plain;
mod pool;
mod port;
mod ring;
mod rings;
mod socket;
mod sync;
mod umem;

#[cfg(feature = "bench")]
pub mod bench;

pub use bind::{Bind, Copying};
pub use error::XskError;
pub use pool::{Pool, PoolBalance, Taken};
pub use port::{PoolRx, PoolTx, open_port};
pub use socket::{Socket, Then, XskStatistics, statistics};
pub use umem::{Frames, LedgerBalance};
