//! Memory and rings of an AF_XDP engine: taken as asked, and judged by use.

use std::io;

use xdp::mmap::HUGE_PAGE_BYTES;
use xdp::{FrameMemory, Frames, Socket};

use crate::engine::{Copying, EngineReport, EngineSpec, Local, RING_ENTRIES};
use crate::error::IoError;

/// Switch of longer rings, as reports name it.
pub(crate) const BIG_RINGS: &str = "big-rings";

/// Memory of a UMEM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UmemReport {
    asked: FrameMemory,
    /// Size of the pages of a UMEM that was to lie in huge ones, read at once: later a filter may forbid it.
    page_bytes: Option<usize>,
}

impl UmemReport {
    /// - `socket`: one of those that share the UMEM.
    pub(crate) fn new(spec: &EngineSpec, socket: Option<&Socket>) -> UmemReport {
        let socket = socket.filter(|_| spec.huge_pages);
        UmemReport { asked: spec.frame_memory(), page_bytes: socket.and_then(Socket::page_bytes) }
    }

    /// Reports what the options came to: pages, offsets, use of the rings.
    pub(crate) fn report(&self, socket: &Socket, receives: bool, report: &mut EngineReport) {
        let not_effective = &mut report.not_effective;
        if let Some(page_bytes) = self.page_bytes
            && page_bytes < HUGE_PAGE_BYTES
        {
            let why = format!("smaps has pages of {page_bytes} bytes for the UMEM");
            not_effective.push(("huge-pages".into(), why));
        }
        let (most, entries) = (socket.rx_waiting_max, socket.bound_to().ring_entries);
        if self.asked.unaligned && most > 0 && socket.offset_count == 0 {
            let why = "no received address had an offset above it";
            not_effective.push(("unaligned-chunks".into(), why.into()));
        }
        // Without a copy the device takes from the TX ring at its own pace: a longer one may have helped.
        let judges_rings = receives && !socket.is_zero_copy();
        if entries > RING_ENTRIES && judges_rings && most <= RING_ENTRIES {
            let why = format!("the RX ring held {most} at most, and {RING_ENTRIES} fit without it");
            not_effective.push((BIG_RINGS.into(), why));
        }
        let pages = if self.asked.huge_pages { "huge pages" } else { "pages" };
        let chunks = if self.asked.unaligned { "unaligned, " } else { "" };
        if self.asked != FrameMemory::default() || entries != RING_ENTRIES {
            report.mode.push(("umem".into(), format!("{chunks}{pages}, rings of {entries}")));
        }
    }
}

/// Frames of the UMEM in equal shares.
///
/// Errors: huge pages that are not there; unaligned chunks in zero-copy mode, which a device would lose one
/// by one; as of [`Frames::allocate_in`].
pub(crate) fn allocate(
    spec: &EngineSpec,
    local: &Local,
    shares: u32,
) -> Result<Vec<Frames>, IoError> {
    if spec.unaligned_chunks && spec.copying != Copying::Copy {
        return Err(IoError::UnalignedZeroCopy);
    }
    let allocated = Frames::allocate_in(spec.frame_memory(), spec.frame_bytes, spec.frames, shares);
    allocated.map_err(|source| match source.kind() {
        kind if spec.huge_pages && kind != io::ErrorKind::InvalidInput => IoError::NoHugePages {
            umem_bytes: spec.umem_bytes(shares),
            page_count: spec.huge_page_count(shares),
            source,
        },
        _ => {
            let what = "allocating the UMEM";
            IoError::System { what, ifname: local.ifname.clone(), source }
        }
    })
}
