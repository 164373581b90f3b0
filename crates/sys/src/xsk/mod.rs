//! AF_XDP sockets: frames shared with the kernel and four rings.
//!
//! Descriptors that the kernel returns are checked before use: the address is masked to its frame,
//! the kernel must own the frame, and the length must fit. Others are counted and ignored.
//!
//! Frames are owned in one of two ways: by the ledger of a [`Socket`], which has a share of a UMEM
//! to itself; or by a [`Pool`], whose frames move between the halves ([`PoolRx`], [`PoolTx`]) of
//! several sockets, for forwarding. A [`GuestSocket`] owns none: its frames are buffers of a virtual machine.
//!
//! Source: kernel documentation, networking/af_xdp.rst.

mod bind;
mod error;
#[cfg(target_arch = "x86_64")]
mod guest;
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
#[cfg(target_arch = "x86_64")]
pub use guest::{GUEST_FRAME_BYTES_MAX, GuestSocket};
pub use pool::{Pool, PoolBalance, Taken};
pub use port::{PoolRx, PoolTx, open_port};
pub use socket::{Socket, Then, XskStatistics, statistics};
pub use umem::{FrameMemory, Frames, LedgerBalance};
