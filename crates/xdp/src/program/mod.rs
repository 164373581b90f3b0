//! A program in front of sockets, for users without BPF tools: it redirects all frames of a queue.
//!
//! Sockets work with any other XDP program, too: it redirects to a BPF_MAP_TYPE_XSKMAP, into which
//! [`insert_socket`] puts them.

mod bpf;
mod error;
mod instructions;
mod kfuncs;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use self::bpf::Program;
pub use self::error::ProgramError;
use self::instructions::Hints;
use crate::metadata::MetadataKey;
use crate::mode::XdpMode;
use crate::os;

const BPF_PROG_TYPE_XDP: u32 = 6;
/// Attach type.
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Functions of the kernel that read a driver's hints, in the order of [`Hints`].
const HINTS: [&str; 3] =
    ["bpf_xdp_metadata_rx_timestamp", "bpf_xdp_metadata_rx_hash", "bpf_xdp_metadata_rx_vlan_tag"];

/// A program that redirects each frame to the socket of its queue, and passes those of other queues to the
/// stack.
///
/// Drop it before the sockets: frames that arrive in between are lost.
#[derive(Debug)]
pub struct Redirect {
    link: Option<OwnedFd>,
    program: OwnedFd,
    sockets: OwnedFd,
    key: Option<MetadataKey>,
}

impl Redirect {
    /// Loads the program; nothing is attached yet.
    ///
    /// - `queues`: receive queues of the interface.
    /// - `multi_buffer`: frames may have several buffers; the sockets must be bound with
    ///   [`Bind::multi_buffer`](crate::Bind) then (Linux 5.18).
    ///
    /// Errors: see [`ProgramError`].
    pub fn load(queues: u32, multi_buffer: bool) -> Result<Self, ProgramError> {
        let sockets = create_map(queues)?;
        let instructions = instructions::redirect(sockets.as_raw_fd());
        let flags = if multi_buffer { BPF_F_XDP_HAS_FRAGS } else { 0 };
        let program = load(&instructions, flags, 0)?;
        Ok(Redirect { link: None, program, sockets, key: None })
    }

    /// As [`load`](Self::load); the program writes [`RxMetadata`](crate::RxMetadata) in front of each frame, with
    /// the fields that the driver of the interface offers, which may be none. It can be attached to that
    /// interface alone, in native mode.
    ///
    /// Errors: [`ProgramError::NoHints`] before Linux 6.3; [`ProgramError::NoInterface`].
    pub fn load_with_metadata(
        ifindex: u32,
        queues: u32,
        multi_buffer: bool,
    ) -> Result<Self, ProgramError> {
        let found =
            kfuncs::numbers(HINTS).map_err(|e| ProgramError::NoHints { source: Some(e) })?;
        let [stamp, hash, vlan] = found;
        if found == [None; 3] {
            return Err(ProgramError::NoHints { source: None });
        }
        let key = MetadataKey::random().map_err(failed("getrandom"))?;
        let sockets = create_map(queues)?;
        let hints = Hints { stamp, hash, vlan };
        let instructions = instructions::redirect_with_metadata(sockets.as_raw_fd(), hints, key);
        let frags = if multi_buffer { BPF_F_XDP_HAS_FRAGS } else { 0 };
        let program = load(&instructions, frags | BPF_F_XDP_DEV_BOUND_ONLY, ifindex)?;
        Ok(Redirect { link: None, program, sockets, key: Some(key) })
    }

    /// Key of the metadata that it writes; `None` without.
    pub fn metadata_key(&self) -> Option<MetadataKey> {
        self.key
    }

    /// Passes frames of a queue to a bound socket from now on.
    ///
    /// Errors: as of [`insert_socket`].
    pub fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), ProgramError> {
        insert_socket(self.sockets.as_fd(), queue, socket)
    }

    /// Attaches the program, in place of where it was, until [`detach`](Self::detach), drop or the end of the
    /// process. In the interface's network namespace.
    ///
    /// Errors: [`ProgramError::AlreadyAttached`]; the driver does not have the mode.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), ProgramError> {
        self.detach();
        let flags = match mode {
            XdpMode::Skb => XDP_FLAGS_SKB_MODE,
            XdpMode::Native => XDP_FLAGS_DRV_MODE,
        };
        let link = bpf::attach(self.program.as_fd(), ifindex, BPF_XDP, flags);
        self.link = Some(link.map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => ProgramError::AlreadyAttached { ifindex, source },
            Some(libc::EINVAL) if self.key.is_some() && mode == XdpMode::Skb => {
                ProgramError::MetadataInSkbMode { source }
            }
            _ => failed("attaching the XDP program")(source),
        })?);
        Ok(())
    }

    /// Detaches the program, if it is attached.
    pub fn detach(&mut self) {
        if let Some(link) = self.link.take() {
            bpf::detach(link.as_fd());
        }
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Puts a bound socket into a map of the type BPF_MAP_TYPE_XSKMAP, which may be that of a program of your own.
///
/// Errors: the map has no such queue, is of another type, or the descriptor is no AF_XDP socket.
pub fn insert_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), ProgramError> {
    bpf::update(map, queue, socket.as_raw_fd() as u32)
        .map_err(failed("putting the socket into the map of sockets"))
}

fn create_map(queues: u32) -> Result<OwnedFd, ProgramError> {
    bpf::create_socket_map(queues.max(1)).map_err(failed("creating the map of sockets"))
}

fn load(
    instructions: &[instructions::Instruction],
    flags: u32,
    ifindex: u32,
) -> Result<OwnedFd, ProgramError> {
    let (kind, attach_type) = (BPF_PROG_TYPE_XDP, BPF_XDP);
    bpf::load(&Program { instructions, kind, attach_type, flags, ifindex }).map_err(
        |(source, log)| match source.raw_os_error() {
            Some(libc::EINVAL) if ifindex != 0 && os::is_up(ifindex).is_none() => {
                ProgramError::NoInterface { ifindex }
            }
            Some(libc::EPERM | libc::EACCES) if log.is_empty() => {
                failed("loading the XDP program")(source)
            }
            _ => ProgramError::Load { log, source },
        },
    )
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ProgramError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ProgramError::Permission { what, source },
        _ => ProgramError::System { what, source },
    }
}
