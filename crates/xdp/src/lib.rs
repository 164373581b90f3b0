#![doc = include_str!("../README.md")]
//!
//! # Parts
//! - [`Socket`]: a socket on one queue with a share of a UMEM to itself, whose ledger knows the owner of each
//!   frame. [`Frames::allocate_in`] makes shares that do not overlap, so that several sockets have one UMEM.
//! - [`Pool`]: a UMEM whose frames move between sockets and threads, for forwarding; [`open_port`] opens a socket
//!   on it as two halves, [`PoolRx`] and [`PoolTx`].
//! - [`ExternalSocket`]: a socket whose UMEM is memory of yours, such as that of a virtual machine.
//! - [`RxMetadata`], [`SendRequest`]: hints of the driver about a received frame, and requests to it for one to
//!   be sent.
//! - [`Redirect`]: an XDP program that redirects all frames of a queue; [`insert_socket`] for the map of your own.
//!
//! # Checks
//! Descriptors that the kernel returns are checked before use, in release builds too: the address is masked to
//! its frame, the kernel must own the frame, and the length must fit. Others are counted and ignored
//! ([`LedgerBalance::violation_count`]).
#![expect(unsafe_code, reason = "rings in shared memory; every block states why it holds")]
#![warn(missing_docs)]

mod bind;
mod error;
mod external;
mod metadata;
pub mod mmap;
mod mode;
pub mod os;
#[cfg(any(test, feature = "bench"))]
mod plain;
mod pool;
mod port;
mod program;
mod ring;
mod rings;
mod socket;
mod sync;
mod umem;

#[cfg(feature = "bench")]
pub mod bench;

pub use bind::{Bind, Copying};
pub use error::XskError;
pub use external::{ExternalMemory, ExternalSocket};
pub use metadata::{
    Checksum, MetadataKey, RxHash, RxMetadata, SendMetadata, SendRequest, SentFrame, VlanTag,
};
pub use mode::XdpMode;
pub use pool::{Pool, PoolBalance, Taken};
pub use port::{PoolRx, PoolTx, open_port};
pub use program::{ProgramError, Redirect, insert_socket};
pub use socket::{Socket, Then, XskStatistics, statistics};
pub use umem::{FrameMemory, Frames, LedgerBalance};
