//! The four rings of a socket and its descriptor: opened and mapped, and bound once there are frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::{SOL_XDP, xdp_desc, xdp_mmap_offsets, xdp_ring_offset};

use crate::XskError;
use crate::bind::{Bind, bind_queue, system};
use crate::mmap::Mapping;
use crate::os;
use crate::ring::{Consumer, Layout, Producer};
use crate::umem::Umem;

/// XDP_MAX_TX_SKB_BUDGET (Linux 6.17): descriptors that one `sendto` moves; 32 without it.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
/// Mapping offsets of the rings of a UMEM; `libc` has these two unsigned.
const FILL_PAGE: i64 = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
const COMPLETION_PAGE: i64 = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;

/// A socket with its rings, not bound yet. Its owner must keep the UMEM until after the drop.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<xdp_desc>,
    pub(super) tx: Producer<xdp_desc>,
    pub(super) fd: OwnedFd,
}

/// Memory of a UMEM as it is registered with the kernel.
pub(super) struct Registration {
    /// Address in this process.
    pub(super) address: u64,
    pub(super) len_bytes: u64,
    pub(super) chunk_bytes: u32,
    /// Bytes of a chunk in front of what the kernel itself reserves.
    pub(super) headroom_bytes: u32,
    pub(super) flags: u32,
    /// Bytes in front of each frame to be sent, for requests to the device; 0 for none.
    pub(super) tx_metadata_bytes: u32,
}

impl From<&Umem> for Registration {
    fn from(umem: &Umem) -> Self {
        Registration {
            address: umem.area.base().as_ptr() as u64,
            len_bytes: u64::from(umem.frame_bytes) * u64::from(umem.frame_count),
            chunk_bytes: umem.chunk_bytes,
            headroom_bytes: 0,
            flags: umem.flags(),
            tx_metadata_bytes: umem.tx_metadata_bytes(),
        }
    }
}

impl Rings {
    /// - `registers`: this is the first socket on the UMEM.
    pub(super) fn open(
        umem: &Registration,
        bind: &Bind,
        registers: bool,
    ) -> Result<Self, XskError> {
        let fd = os::open(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => XskError::Permission { source },
                Some(libc::EAFNOSUPPORT) => XskError::NoAfXdp,
                _ => system(bind, "socket", source),
            }
        })?;
        let umem_bytes = umem.len_bytes;
        let memory = |source| XskError::Memory { umem_bytes, source };
        if registers {
            // SAFETY: all-zero is a valid xdp_umem_reg, a plain C struct of integers.
            let mut reg: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
            reg.addr = umem.address;
            reg.len = umem.len_bytes;
            reg.chunk_size = umem.chunk_bytes;
            reg.headroom = umem.headroom_bytes;
            reg.flags = umem.flags;
            reg.tx_metadata_len = umem.tx_metadata_bytes;
            os::set(fd.as_fd(), SOL_XDP, libc::XDP_UMEM_REG, reg).map_err(|source| match source
                .raw_os_error()
            {
                Some(libc::EINVAL) if umem.tx_metadata_bytes > 0 => {
                    system(bind, "XDP_UMEM_TX_METADATA_LEN (Linux 6.11)", source)
                }
                _ => memory(source),
            })?;
        }
        // The fill ring holds every frame that may be posted, the completion ring every send.
        let fill_entries = bind.fill_target.next_power_of_two().max(bind.ring_entries);
        for (name, entries) in [
            (libc::XDP_UMEM_FILL_RING, fill_entries),
            (libc::XDP_UMEM_COMPLETION_RING, bind.ring_entries),
            (libc::XDP_RX_RING, bind.ring_entries),
            (libc::XDP_TX_RING, bind.ring_entries),
        ] {
            os::set(fd.as_fd(), SOL_XDP, name, entries).map_err(memory)?;
        }
        // SAFETY: xdp_mmap_offsets is a plain C struct of integers.
        let offsets: xdp_mmap_offsets =
            unsafe { os::get(fd.as_fd(), SOL_XDP, libc::XDP_MMAP_OFFSETS) }
                .map_err(|e| system(bind, "XDP_MMAP_OFFSETS", e))?;
        let map = |offset: &xdp_ring_offset, entries: u32, entry: usize, page: i64| {
            let len = offset.desc as usize + entries as usize * entry;
            Mapping::of_fd(fd.as_fd(), len, page).map(Arc::new).map_err(memory)
        };
        let desc = size_of::<xdp_desc>();
        let addr = size_of::<u64>();
        let fill = map(&offsets.fr, fill_entries, addr, FILL_PAGE)?;
        let completion = map(&offsets.cr, bind.ring_entries, addr, COMPLETION_PAGE)?;
        let rx = map(&offsets.rx, bind.ring_entries, desc, libc::XDP_PGOFF_RX_RING)?;
        let tx = map(&offsets.tx, bind.ring_entries, desc, libc::XDP_PGOFF_TX_RING)?;
        Ok(Rings {
            fill: Producer::new(fill, layout(&offsets.fr), fill_entries),
            completion: Consumer::new(completion, layout(&offsets.cr), bind.ring_entries),
            rx: Consumer::new(rx, layout(&offsets.rx), bind.ring_entries),
            tx: Producer::new(tx, layout(&offsets.tx), bind.ring_entries),
            fd,
        })
    }
}

/// A socket that only sends, on the queue of another one, whose fill and completion rings it shares. Bound on return.
pub(super) fn open_sender(
    bind: &Bind,
    shared: BorrowedFd<'_>,
) -> Result<(OwnedFd, Producer<xdp_desc>), XskError> {
    let fail = |what| move |source| system(bind, what, source);
    let fd = os::open(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(fail("socket"))?;
    os::set(fd.as_fd(), SOL_XDP, libc::XDP_TX_RING, bind.ring_entries)
        .map_err(fail("XDP_TX_RING"))?;
    // SAFETY: xdp_mmap_offsets is a plain C struct of integers.
    let offsets: xdp_mmap_offsets = unsafe { os::get(fd.as_fd(), SOL_XDP, libc::XDP_MMAP_OFFSETS) }
        .map_err(fail("XDP_MMAP_OFFSETS"))?;
    let len = offsets.tx.desc as usize + bind.ring_entries as usize * size_of::<xdp_desc>();
    let ring = Mapping::of_fd(fd.as_fd(), len, libc::XDP_PGOFF_TX_RING).map_err(fail("mmap"))?;
    let tx = Producer::new(Arc::new(ring), layout(&offsets.tx), bind.ring_entries);
    bind_queue(fd.as_fd(), bind, Some(shared))?;
    raise_tx_budget(fd.as_fd(), bind);
    Ok((fd, tx))
}

/// Raises the number of descriptors that one `sendto` moves; false if the kernel keeps its own.
pub(super) fn raise_tx_budget(fd: BorrowedFd<'_>, bind: &Bind) -> bool {
    bind.tx_budget > 32 && os::set(fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, bind.tx_budget).is_ok()
}

/// Rings of private memory, for the direction that half a socket does not use: always empty.
pub(super) struct Unused {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<xdp_desc>,
    pub(super) tx: Producer<xdp_desc>,
}

fn empty_mapping() -> Result<Arc<Mapping>, std::io::Error> {
    Mapping::anonymous(256).map(Arc::new)
}

impl Unused {
    pub(super) fn new() -> std::io::Result<Self> {
        // One slot of either type behind the indexes.
        let layout = Layout { producer: 0, consumer: 64, flags: 128, slots: 192 };
        Ok(Unused {
            fill: Producer::new(empty_mapping()?, layout, 1),
            completion: Consumer::new(empty_mapping()?, layout, 1),
            rx: Consumer::new(empty_mapping()?, layout, 1),
            tx: Producer::new(empty_mapping()?, layout, 1),
        })
    }
}

fn layout(offset: &xdp_ring_offset) -> Layout {
    Layout {
        producer: offset.producer as usize,
        consumer: offset.consumer as usize,
        flags: offset.flags as usize,
        slots: offset.desc as usize,
    }
}
